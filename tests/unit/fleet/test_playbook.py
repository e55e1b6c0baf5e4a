"""What ansible-playbook is asked, and what it says when it does not come to the end."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

import hostprep.fleet.environment
from hostprep.errors import HostprepError, UsageError
from hostprep.fleet import run_playbook
from hostprep.fleet.inventory import limits
from hostprep.fleet.playbook import NobodyMeant
from hostprep.fleet.received import understood
from hostprep.system.resources import data_path

_SOCKETS = "ANSIBLE_SSH_CONTROL_PATH_DIR"
BROKEN = """\
- hosts: all
  gather_facts: false
  tasks:
    - name: Look
      ansible.builtin.debug: {msg: "{{ playbook_dir }}"}
      throttle: "{{ (1 / 0) | int }}"
"""
ONE_FAILS = """\
- hosts: all
  gather_facts: false
  vars:
    ansible_connection: local
    ansible_python_interpreter: "{{ ansible_playbook_python }}"
  tasks:
    - name: Look
      ansible.builtin.fail: {msg: as it must}
      when: inventory_hostname == 'bad'
    - name: Take a while
      ansible.builtin.command: {argv: [sleep, "2"]}
      changed_when: false
    - name: Change
      ansible.builtin.debug: {msg: done}
      changed_when: true
"""
REACHED = """\
- hosts: all
  gather_facts: false
  vars: {ansible_connection: local}
  tasks:
    - name: Look
      ansible.builtin.fail: {msg: "{{ lookup('config', 'DEFAULT_REMOTE_USER') }}, {{ token }}"}
"""
# What ssh does of which the host wants a password.
ASKING = """\
#!/bin/sh
echo "$("$SSH_ASKPASS" "root@a's password: ")" >&2
exit 255
"""
NAMED = """\
- hosts: all
  gather_facts: false
  tasks:
    - name: Change
      ansible.builtin.debug: {msg: done}
      changed_when: true
"""
FAILING = """\
- hosts: all
  gather_facts: false
  vars: {ansible_connection: local}
  tasks:
    - name: Install
      ansible.builtin.script: {cmd: install.sh}
"""
# A host in somebody else's hands: whatever it is asked, it answers so.
ANSWERING = """\
- hosts: all
  gather_facts: false
  vars:
    ansible_connection: local
    ansible_python_interpreter: "{{ ansible_playbook_python }}"
  tasks:
    - name: Converge
      hostprep: {}
"""
ANSWER = """\
#!/usr/bin/python
import json
print(json.dumps(json.loads(%r)))
"""
SURVEYING = """\
- hosts: all
  gather_facts: false
  vars:
    ansible_connection: local
    hostprep_install_dir: /nowhere
    hostprep_install_python: "{{ playbook_dir }}/greeting"
  tasks:
    - ansible.builtin.include_role: {name: hostprep_install, tasks_from: survey}
    - ansible.builtin.fail: {msg: "a Python that fits: {{ __hostprep_install_has.fits }}"}
"""
# Each host as it is told by the name that it is asked for.
EACH_ANSWERS = """\
#!/usr/bin/python
import json, re, sys
asked = re.search("spec=([a-z]+)", open(sys.argv[1]).read())
print(json.dumps(json.loads(%r)[asked[1]]))
"""
BOASTING = """\
- hosts: all
  gather_facts: false
  vars:
    ansible_connection: local
    ansible_python_interpreter: "{{ ansible_playbook_python }}"
  tasks:
    - hostprep: {}
    - ansible.builtin.fail: {msg: "{{ ansible_sftp_executable | default('none') }}, {{ token }}"}
"""
OWN = """\
- hosts: all
  gather_facts: false
  vars:
    ansible_connection: local
    ansible_python_interpreter: "{{ ansible_playbook_python }}"
    hostprep_executable: /nowhere
    hostprep_spec_dir: /nowhere
  roles:
    - role: hostprep
      vars:
"""


def test_a_playbook_of_ones_own_may_not_misspell_a_section(playbooks: Path) -> None:
    own = "hostprep_spec: {volumes: [], dataset: [{source: /a, to: /b}]}"
    (playbooks / "own.yml").write_text(f"{OWN}        {own}\n")
    (here,) = run_playbook("own", "here,", {}, check=True).hosts
    assert here.failed and not here.changed
    assert here.message is not None
    assert here.message.startswith("hostprep_spec has dataset, which is not a section of a spec")
    assert here.message.endswith("-> known are volumes, datasets, requirements, packages")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("hostprep_volume", "hostprep_volumes"),
        ("hostprep_volums", "hostprep_volumes"),
        ("hostprep_install_dri", "hostprep_install_dir"),
    ],
)
def test_a_variable_that_is_misspelt_fails_its_host_before_the_first_change(
    tmp_path: Path, name: str, meant: str
) -> None:
    (tmp_path / "hosts").write_text(f"here {name}=[] ansible_connection=local\nother\n")
    limited = run_playbook("site", str(tmp_path / "hosts"), {}, limit=("here",))
    (here,) = limited.hosts
    assert here.failed and not here.changed and not here.unreachable
    assert here.message is not None
    assert here.message.startswith(f"the variable {name} of this host is not one of hostprep's")
    assert here.message.endswith(f" was touched. -> did you mean {meant}?")


def test_a_playbook_of_ones_own_installs_nothing_where_a_variable_is_misspelt(
    playbooks: Path, tmp_path: Path
) -> None:
    roles = "hostprep_install_dri: /srv/hostprep\n  roles: [hostprep_install, hostprep]\n"
    (playbooks / "own.yml").write_text(OWN.split("  roles:")[0] + f"    {roles}")
    (here,) = run_playbook("own", "here,", {}, check=True).hosts
    assert here.failed and here.changed_tasks == ()
    assert here.message is not None
    assert here.message.endswith("was touched. -> did you mean hostprep_install_dir?")


def test_a_variable_that_may_be_a_labs_own_is_told_of(playbooks: Path) -> None:
    own = "hostprep_server: /srv\n        hostprep_datasets_far: []\n"
    own += "        hostprep_datasets: '{{ hostprep_datasets_far }}'\n        hostprep_prune: false"
    (playbooks / "own.yml").write_text(f"{OWN}        {own}\n")
    (here,) = run_playbook("own", "here,", {"hostprep_spec": {}}, check=True).hosts
    assert not here.failed
    (warning,) = here.warnings
    assert warning.startswith("hostprep_datasets_far, hostprep_server: not variables of hostprep")


def test_no_variable_of_hostprep_itself_is_told_of() -> None:
    declared = {
        name
        for path in data_path("playbooks", "roles").glob("*/meta/argument_specs.yml")
        for name in yaml.safe_load(path.read_text())["argument_specs"]["main"]["options"]
    }
    assert len(declared) > 12
    names = strange_names()({*declared, "hostprep_check_arguments", "hostprep_install_unpacked"})
    assert names == {"misspelt": {}, "others": []}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        *(("volums", "volumes"), ("Volumes", "volumes"), ("data_sets", "datasets")),
        *(("wave", "waves"), ("prune_al", "prune_all"), ("pakages", "packages")),
        *(("requirement", "requirements"), ("install_directory", "install_dir")),
        *(("volumes_gpu", None), ("volume_size", None), ("lab_volumes", None), ("server", None)),
        *(("install_python_package", "install_python_packages"), ("requirements_a", None)),
        *(("datasets2", None), ("dataset_dir", None), ("nfs", None), ("version", None)),
    ],
)
def test_a_misspelt_name_is_told_from_one_of_a_labs_own(name: str, meant: str | None) -> None:
    found = strange_names()([f"hostprep_{name}", "ansible_host"])
    assert found["misspelt"] == ({f"hostprep_{name}": f"hostprep_{meant}"} if meant else {})
    assert found["others"] == ([] if meant else [f"hostprep_{name}"])


def strange_names() -> Callable[[Iterable[str]], dict[str, Any]]:
    """Return the role's filter, which is no module of the package."""
    path = data_path("playbooks", "roles", "hostprep", "filter_plugins", "hostprep_names.py")
    found: Callable[[Iterable[str]], dict[str, Any]] = runpy.run_path(str(path))["strange"]
    return found


@pytest.mark.parametrize(
    "says",
    [
        "hostprep_spec: {volumes: , packages: [fio]}",
        "hostprep_spec: {datasets: , packages: [fio]}",
        "hostprep_volumes: ",
    ],
)
def test_a_bare_section_in_a_playbook_of_ones_own_is_no_wish_for_none(
    playbooks: Path, says: str
) -> None:
    (playbooks / "own.yml").write_text(f"{OWN}        hostprep_packages: [fio]\n        {says}\n")
    (here,) = run_playbook("own", "here,", {"hostprep_prune": True}, check=True).hosts
    assert here.failed and not here.changed
    assert here.message is not None
    assert "nothing behind `volumes:` or `datasets:`, and hostprep_prune" in here.message


def test_an_owner_that_yaml_takes_for_a_number_to_base_60_is_refused(playbooks: Path) -> None:
    volumes = "hostprep_volumes: [{path: /a, size: 1G, owner: 1000:50}]"
    (playbooks / "own.yml").write_text(f"{OWN.rstrip()} {{{volumes}}}\n")
    (here,) = run_playbook("own", "here,", {}, check=True).hosts
    assert here.failed and not here.changed
    assert here.message is not None
    assert here.message.endswith('-> quote it where it is written: owner: "1000:50"')
    (playbooks / "own.yml").write_text(f"{OWN.rstrip()} {{{volumes.replace('1000', 'alice')}}}\n")
    (here,) = run_playbook("own", "here,", {}, check=True).hosts
    assert not here.failed


def test_a_folder_that_is_no_absolute_path_is_refused_before_it_is_made(playbooks: Path) -> None:
    # In one play: where all hosts of one have failed, Ansible begins no other.
    play, roles = OWN.split("    - role:")[0], ""
    for role, name, odd in (
        ("hostprep_install", "hostprep_install_dir", "opt/hostprep"),
        ("hostprep", "hostprep_spec_dir", "~/etc"),
    ):
        roles += f"    - {{role: {role}, when: inventory_hostname == '{role}', {name}: {odd}}}\n"
    (playbooks / "own.yml").write_text(play + roles)
    run = run_playbook("own", "hostprep_install,hostprep,", {}, check=True)
    assert [host.host for host in run.hosts] == ["hostprep_install", "hostprep"], run
    for host in run.hosts:
        assert host.failed and not host.changed
        assert host.message is not None
    install, apply = (host.message for host in run.hosts)
    assert install is not None and "nothing was changed. -> write" in install
    assert apply is not None and "no volume or data set was touched. -> write" in apply


def test_a_playbook_of_ones_own_reads_the_spec_as_hostprep_does(playbooks: Path) -> None:
    """The README's, with a mode, an owner and a name that YAML would make other numbers of."""
    (playbooks / "hostprep.yml").write_text(
        "volumes: [{path: /v, size: 1G, mode: 0750, owner: 1000:50, swap: true}]\n"
        "datasets: [{name: 2024_01, source: /a, volume: /v}]\n"
    )
    (spec,) = re.findall(r"hostprep_spec: .*", (data_path("playbooks") / "README.md").read_text())
    (playbooks / "own.yml").write_text(f"{OWN}        {spec}\n")
    (here,) = run_playbook("own", "here,", {}, check=True, diff=True).hosts
    assert not here.failed
    written = "\n".join(here.diffs)
    for said in ("mode: '0750'", "owner: '1000:50'", "swap: true", "name: '2024_01'"):
        assert re.search(rf"^\+.*{re.escape(said)}$", written, re.M), written


def test_a_name_that_yaml_takes_for_a_number_is_refused(playbooks: Path) -> None:
    datasets = "hostprep_datasets: [{name: 2024_01, source: /a}]"
    (playbooks / "own.yml").write_text(f"{OWN.rstrip()} {{{datasets}}}\n")
    (here,) = run_playbook("own", "here,", {}, check=True).hosts
    assert here.failed and not here.changed
    assert here.message is not None
    assert here.message.endswith('-> quote it where it is written: name: "2024_01"')


@pytest.mark.parametrize(
    "says",
    [
        "{hostprep_spec: {packages: [fio]}}",
        "{hostprep_spec: {volumes: }, hostprep_volumes: [{path: /a, size: 1G}]}",
    ],
)
def test_sections_that_are_not_named_or_said_of_the_host_are_no_bare_ones(
    playbooks: Path, says: str
) -> None:
    (playbooks / "own.yml").write_text(f"{OWN.rstrip()} {says}\n")
    (here,) = run_playbook("own", "here,", {"hostprep_prune": True}, check=True).hosts
    assert not here.failed and not here.predicted


@pytest.mark.parametrize("limit", ["~(", "@no-such-file", "@/"])
def test_a_limit_that_is_none_is_the_callers_mistake(tmp_path: Path, limit: str) -> None:
    (tmp_path / "hosts").write_text("here ansible_connection=local\n")
    with pytest.raises(UsageError, match=r"no host of .*hosts is meant: ") as caught:
        run_playbook("readiness", str(tmp_path / "hosts"), {}, limit=(limit,))
    assert caught.value.hint == "look at --limit and at the inventory"


def test_a_limit_that_no_host_meets_is_told_without_the_comma_of_a_list() -> None:
    words = "no host of a,b is meant: it has no host or group called c"
    with pytest.raises(UsageError, match=f"^{words}$"):
        run_playbook("readiness", "a,b,", {}, limit=("c",))


def test_what_picks_hosts_of_a_group_is_no_range_of_names() -> None:
    with pytest.raises(UsageError, match=r"it has no host or group called host$") as caught:
        run_playbook("readiness", "host1,host2,", {}, limit=("host[1:2]",))
    assert "`[1:3]` there picks hosts of a group" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (["~^(?:a|b)$"], ("~^(?:a|b)$,",)),
        (["~^(?:a|b)$", "c"], ("~^(?:a|b)$", "c")),
        (["~(?i:a)[0:1]"], ("~(?i:a)[0:1],",)),
        (["~a:~(?:b)"], ("~a:~(?:b)",)),
        (["~(?:a|b),c"], ("~(?:a|b),c",)),
        (["a[1:2]", "c"], ("a[1:2]", "c")),
    ],
)
def test_the_colons_of_a_regular_expression_divide_no_limit(
    given: list[str], taken: tuple[str, ...]
) -> None:
    assert limits(given) == taken


def test_a_program_that_names_no_host_is_told_without_what_ansible_thinks_of_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "hosts").write_text("#!/bin/sh\necho '{}'\n")
    (tmp_path / "hosts").chmod(0o755)
    with pytest.raises(NobodyMeant, match=r"hosts is meant: it names none$"):
        run_playbook("readiness", str(tmp_path / "hosts"), {})


def test_of_a_setting_that_ansible_ends_by_its_sense_is_told_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANSIBLE_TIMEOUT", "soon")
    with pytest.raises(HostprepError, match=r"status \d: .*ANSIBLE_TIMEOUT.*soon") as caught:
        run_playbook("readiness", "a,", {})
    assert "Traceback" not in caught.value.message


@pytest.mark.parametrize("kind", ["BECOME", "CONNECTION", "VAULT"])
@pytest.mark.parametrize(
    ("script", "said"),
    [
        (None, "assword file /.* was not found"),
        ("", "assword was provided from file"),
        ("#!/bin/sh\necho no such secret >&2\nexit 3\n", "(?s)no such secret|script .* 3"),
    ],
)
def test_what_gives_no_password_is_the_callers_mistake(
    tmp_path: Path, kind: str, script: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "passwords"
    if script is not None:
        file.write_text(script)
        file.chmod(0o700 if script else 0o600)
    monkeypatch.setenv(f"ANSIBLE_{kind}_PASSWORD_FILE", str(file))
    with pytest.raises(UsageError, match=said) as caught:
        run_playbook("readiness", "a,", {})
    assert caught.value.message.endswith("; no host was reached.")
    assert "WARNING" not in caught.value.message and "ERROR" not in caught.value.message
    assert f"ANSIBLE_{kind}_PASSWORD_FILE" in f"{caught.value.hint}"


def test_a_run_that_breaks_off_tells_why(playbooks: Path) -> None:
    (playbooks / "broken.yml").write_text(BROKEN)
    run = run_playbook("broken", "a,b,", {})
    assert run.failed == ("a", "b")
    for outcome in run.hosts:
        assert outcome.message is not None
        assert outcome.message.startswith("the run ended before this host was done: ")
        # The latter before ansible-core 2.19, which has no more to say of it.
        assert re.search("division by zero|Failed to convert the throttle", outcome.message)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        # As over ssh: on its terminal errors are output, and it takes its leave.
        ("echo no such wheel; echo 'Shared connection to a closed.' >&2; exit 3", "no such wheel"),
        ("echo working; echo no such wheel >&2; exit 3", "no such wheel"),
        ("exit 3", None),
    ],
)
def test_a_task_that_failed_tells_what_its_program_said(
    playbooks: Path, script: str, said: str | None
) -> None:
    (playbooks / "failing.yml").write_text(FAILING)
    (playbooks / "install.sh").write_text(f"#!/bin/sh\n{script}\n")
    (here,) = run_playbook("failing", "here,", {}).hosts
    assert here.message == (said or "non-zero return code")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        # unarchive's, of a full disk
        (
            {"msg": "failed to unpack a to b", "extract_results": {"err": "No space left\n"}},
            "failed to unpack a to b\nNo space left",
        ),
        ({"msg": "MODULE FAILURE\nSee stderr", "module_stderr": "tee: not found"},
         "tee: not found"),
        ({"msg": "MODULE FAILURE\nSee stderr"}, "MODULE FAILURE\nSee stderr"),
        # a host whose /tmp is full
        (
            {
                "msg": "MODULE FAILURE\nSee stderr",
                "module_stderr": 'Traceback (most recent call last):\n  File "<stdin>", line 266\n'
                "OSError: [Errno 28] No space left on device\n",
            },
            "OSError: [Errno 28] No space left on device\n"
            'Traceback (most recent call last):\n  File "<stdin>", line 266'
            " -> make room on the host: `df -h` there shows which file system is full",
        ),
    ],
)  # fmt: skip
def test_what_failed_speaks_and_not_what_called_it(
    playbooks: Path, answer: dict[str, Any], said: str
) -> None:
    (playbooks / "answering.yml").write_text(ANSWERING)
    (playbooks / "library/hostprep.py").write_text(ANSWER % json.dumps({"failed": True, **answer}))
    (here,) = run_playbook("answering", "here,", {}).hosts
    assert here.message == said


@pytest.mark.parametrize("name", ["site", "readiness"])
def test_an_inventory_of_which_a_file_cannot_be_read_is_not_begun_with(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "a.ini").write_text("here ansible_connection=local\n")
    (tmp_path / "b.yml").write_text("all:\n  hosts:\n    there: {\n")
    with pytest.raises(UsageError) as caught:
        run_playbook(name, str(tmp_path), {})
    first, *rest = caught.value.message.splitlines()
    assert first == f"{tmp_path}/b.yml cannot be read as an inventory; no host was reached."
    # The latter before ansible-core 2.19, which wraps its lines.
    told = " ".join(map(str.strip, rest))
    assert re.search("YAML parsing failed|Syntax Error while loading YAML", told)
    place = re.escape(f"{tmp_path}/b.yml")
    assert re.search(f"at {place}:4|in '{place}': line 4", told), "which line of it"


def test_an_inventory_that_is_encrypted_wants_the_vaults_password(tmp_path: Path) -> None:
    inventory = tmp_path / "lab.yml"
    inventory.write_text(f"$ANSIBLE_VAULT;1.1;AES256\n{'30' * 40}\n")
    with pytest.raises(UsageError, match="cannot be read as an inventory; no host") as caught:
        run_playbook("readiness", str(inventory), {})
    assert "ANSIBLE_VAULT_PASSWORD_FILE" in str(caught.value.hint)


def test_what_a_program_needs_that_prints_an_inventory_is_no_hosts(tmp_path: Path) -> None:
    """It is not a host that asks for this password, and none that Ansible is given helps."""
    inventory = tmp_path / "lab"
    inventory.write_text("#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
    inventory.chmod(0o755)
    with pytest.raises(UsageError, match="a password is required") as caught:
        run_playbook("readiness", str(inventory), {})
    assert str(caught.value.hint).startswith("fix it")


def test_what_a_hosts_shell_says_to_all_who_log_in_is_no_answer_of_its_python(
    playbooks: Path,
) -> None:
    """As an ``echo`` in root's ``.bashrc``, which Ansible's own modules outlive."""
    greeting = playbooks / "greeting"
    python = shlex.quote(sys.executable)
    greeting.write_text(f'#!/bin/sh\necho "Welcome {{}}"\nexec {python} "$@"\n')
    greeting.chmod(0o755)
    (playbooks / "surveying.yml").write_text(SURVEYING)
    (here,) = run_playbook("surveying", "here,", {}).hosts
    assert here.message == "a Python that fits: True"


# A package manager that has one package in its lists, and cannot bring them up to date.
WITHOUT_MIRROR = """
from ansible.module_utils.basic import AnsibleModule
taken = {"name": {"type": "list"}, "state": {}, "update_cache": {"type": "bool"}}
patience = {"lock_timeout": {"type": "int"}, "update_cache_retries": {"type": "int"}}
module = AnsibleModule({**taken, **patience}, supports_check_mode=True)
if module.params["update_cache"]:
    module.fail_json(msg="a source is gone:")
if module.params["name"] != ["listed"]:
    module.fail_json(msg="no such package")
module.exit_json(changed=False)
"""


def test_a_python_that_nothing_brings_is_told_and_what_could_not_be_installed(
    playbooks: Path,
) -> None:
    for manager in ("apt", "dnf", "dnf5"):
        (playbooks / "library" / f"{manager}.py").write_text(WITHOUT_MIRROR)
    packages = "[inventory_hostname] if inventory_hostname != 'here' else"
    (playbooks / "own.yml").write_text(
        OWN.replace("role: hostprep\n", "role: hostprep_install\n")
        + "        hostprep_install_python: /nowhere/python3.99\n"
        + "        hostprep_install_python_packages:"
        + f' "{{{{ {packages} __hostprep_install_system.packages }}}}"\n'
    )
    facts = {"distribution": "Debian", "version": "12", "family": "Debian", "uid": "0"}
    given = {"__hostprep_install_facts": facts}
    run = run_playbook("own", "here,listed,mirrorless,", given, check=True)
    for host in run.hosts:
        assert host.failed and host.changed_tasks == () and host.message is not None
        assert host.message.startswith("/nowhere/python3.99 of this host is not a Python 3.11 or")
    here, listed, mirrorless = (str(host.message) for host in run.hosts)
    for without in (here, listed):  # of which the latter's package was installed
        assert " would not make it one; hostprep was not installed. -> name one" in without
    assert (
        "with venv, and mirrorless could not be installed there (a source is gone); hostprep was"
        " not installed. -> install them on the host, have it reach a mirror of its packages, or"
    ) in mirrorless


def test_a_host_on_which_it_is_not_root_is_told_so_and_not_of_a_chown(playbooks: Path) -> None:
    (playbooks / "own.yml").write_text(
        OWN.replace("role: hostprep\n", "role: hostprep_install\n")
        + "        hostprep_install_dir: /nowhere\n"
    )
    facts = {"distribution": "Debian", "version": "12", "family": "Debian", "uid": "1001"}
    given = {"__hostprep_install_facts": facts}
    (here,) = run_playbook("own", "here,", given, check=True).hosts
    assert here.failed and not here.changed
    assert here.message is not None
    assert here.message.startswith("what is done on this host runs as the uid 1001, but only")
    assert "-> see what the inventory gives this host as ansible_become" in here.message


@pytest.mark.parametrize(
    "answer",
    [
        {"changed": True, "document": {"schema": "hostprep.apply/1", "done": [{}]}},
        {"changed": True, "document": {"schema": "hostprep.apply/1", "staged": 5}, "diff": 5},
        {"changed": True, "document": {}, "diff": [{"before": 5, "after": [None]}]},
        {"changed": True, "document": 5, "predicted": []},
        {"failed": True, "changed": True, "diff": {"prepared": 5}, "msg": [1]},
        *(
            {"changed": True, "document": {"deep": json.loads("[" * depth + "]" * depth)}}
            for depth in (190, 400, 900)
        ),
    ],
)
def test_whatever_a_host_answers_it_alone_has_failed(
    playbooks: Path, answer: dict[str, Any]
) -> None:
    (playbooks / "answering.yml").write_text(ANSWERING)
    (playbooks / "library/hostprep.py").write_text(ANSWER % json.dumps(answer))
    (here,) = understood(run_playbook("answering", "here,", {})).hosts
    assert here.failed


def test_no_host_holds_up_all_by_how_much_it_answers(
    playbooks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hostprep.fleet.environment, "data_path", playbooks.parent.joinpath)
    callback = playbooks / "callback/hostprep_events.py"
    callback.write_text(callback.read_text().replace("16 * 1024 * 1024", "100_000"))
    document = {"schema": "hostprep.apply/1", "ok": False}
    lines = [f"{number}\n" for number in range(1001)]
    differing = {"before": "".join(lines), "after": "".join(reversed(lines))}
    answers = {
        "wordy": {"failed": True, "msg": "Missing sudo" + "module interpreter '" * 5000 + " end"},
        "large": {"changed": True, "document": {**document, "x": "y" * 100_000}},
        "deep": {"changed": True, "document": {**document, "x": json.loads("[" * 40 + "]" * 40)}},
        "differing": {"changed": True, "document": document, "diff": differing},
    }
    (playbooks / "answering.yml").write_text(
        ANSWERING.replace("{}\n", '{spec: "{{ inventory_hostname }}"}\n')
    )
    (playbooks / "library/hostprep.py").write_text(EACH_ANSWERS % json.dumps(answers))
    run = run_playbook("answering", ",".join(answers), {})
    wordy, large, deep, differing_host = run.hosts
    assert wordy.message is not None and len(wordy.message) < 25_000
    assert wordy.message.startswith("Missing sudo") and wordy.message.endswith(" end")
    for host in (large, deep):
        assert host.failed and str(host.message).startswith("its answer is not understood")
    assert not differing_host.failed and differing_host.documents == (document,)
    assert differing_host.diffs == ("(too long to be compared)\n",)


def test_what_a_host_calls_a_fact_of_its_own_is_no_variable(playbooks: Path) -> None:
    """Else it could say by which program, and with which options, it is reached from here."""
    facts = {"token": "theirs", "ansible_sftp_executable": "/bin/sh"}
    (playbooks / "boasting.yml").write_text(BOASTING)
    (playbooks / "library/hostprep.py").write_text(ANSWER % json.dumps({"ansible_facts": facts}))
    (playbooks / "hosts").write_text("here token=ours\n")
    (here,) = run_playbook("boasting", str(playbooks / "hosts"), {}).hosts
    assert here.message == "none, ours"


def test_no_host_says_which_file_of_the_controller_it_is_sent(
    playbooks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it where the role is used in a playbook whose settings make variables of facts."""
    monkeypatch.setattr(hostprep.fleet.environment, "data_path", playbooks.parent.joinpath)
    settings = (playbooks / "ansible.cfg").read_text()
    (playbooks / "ansible.cfg").write_text(settings.replace("vars = false", "vars = true"))
    facts = {"hostprep_install_preview": {"archive": "/etc/passwd", "below": "/no/such"}}
    (playbooks / "library/hostprep.py").write_text(ANSWER % json.dumps({"ansible_facts": facts}))
    play, _ = OWN.split("  roles:")
    (playbooks / "own.yml").write_text(f"{play}  pre_tasks: [hostprep: ]\n  roles: [hostprep]\n")
    (here,) = run_playbook("own", "here,", {}, check=True).hosts
    assert not here.failed, here.message


def test_the_sockets_of_ssh_fit_wherever_temporary_files_lie(
    playbooks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a batch job, whose folder names user, partition and job."""
    deep = playbooks / ("job-" + "1" * 90)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    (playbooks / "one.yml").write_text(
        REACHED.replace("lookup('config', 'DEFAULT_REMOTE_USER')", f"lookup('env', {_SOCKETS!r})")
    )
    (here,) = run_playbook("one", "here,", {"token": ""}).hosts
    place = str(here.message).partition(",")[0]
    assert place.endswith("/ssh") and len(f"{place}/0123456789.0123456789abcdef") <= 107


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("readiness", "hostprep is not installed here"),
        ("site", "/dev/null is there and is not a link, so `hostprep provision` did not make it"),
    ],
)
def test_a_host_that_never_answers_does_not_keep_the_others_for_ever(
    playbooks: Path, name: str, said: str
) -> None:
    playbook = playbooks / f"{name}.yml"
    patient = playbook.read_text()
    at_once = "timeout: \"{{ 1 if inventory_hostname == 'stuck' else 60 }}\""
    playbook.write_text(patient.replace("timeout: 3600", at_once))
    assert playbook.read_text() != patient
    stuck = playbooks / "stuck"
    stuck.write_text("#!/bin/sh\nexec sleep 5\n")
    stuck.chmod(0o755)
    (playbooks / "hosts").write_text(
        f"stuck ansible_python_interpreter={stuck}\n"
        f"other ansible_python_interpreter=/usr/bin/python3\n"
        "[all:vars]\nansible_connection=local\nansible_become=false\n"
        "hostprep_executable=/no/such/hostprep\nhostprep_install_link=/dev/null\n"
    )
    first, other = run_playbook(name, str(playbooks / "hosts"), {}).hosts
    assert first.failed and "-> something hangs there, and what was begun may go on: log in" in str(
        first.message
    )
    assert str(other.message).startswith(said)


def test_staging_is_not_cut_short() -> None:
    text = data_path("playbooks", "roles", "hostprep", "tasks", "main.yml").read_text()
    (block,) = (task["block"] for task in yaml.safe_load(text) if "block" in task)
    assert [task["timeout"] for task in block if task["name"] == "Converge"] == [0]


def test_what_the_user_has_set_for_other_playbooks_does_not_count(
    playbooks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (
        ("RUN_TAGS", "mine"),
        ("SKIP_TAGS", "all,untagged"),
        ("STRATEGY", "debug"),
        ("ANY_ERRORS_FATAL", "true"),
        ("NO_LOG", "true"),
        ("TASK_TIMEOUT", "1"),
        ("INVENTORY_ENABLED", "yaml"),
        ("HASH_BEHAVIOUR", "merge"),
        ("ENABLE_TASK_DEBUGGER", "true"),
        ("VERBOSITY", "4"),
        ("STDOUT_CALLBACK", "minimal"),
        ("INJECT_FACT_VARS", "no such"),
    ):
        monkeypatch.setenv(f"ANSIBLE_{name}", value)
    (playbooks / "one.yml").write_text(ONE_FAILS)
    (playbooks.parent / "hosts.ini").write_text("bad\ngood\n")
    bad, good = run_playbook("one", str(playbooks.parent / "hosts.ini"), {}).hosts
    assert bad.message == "as it must"
    assert (good.message, good.failed, good.changed_tasks) == (None, False, ("Change",))


def test_how_the_user_reaches_hosts_and_reads_inventories_counts(
    playbooks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANSIBLE_REMOTE_USER", "admin")
    monkeypatch.setenv("ANSIBLE_SSH_COMMON_ARGS", "-J gate")
    monkeypatch.setenv("ANSIBLE_MY_INVENTORY_TOKEN", "secret")
    (playbooks / "one.yml").write_text(REACHED)
    script = playbooks.parent / "inventory.sh"
    found = '{"lab": {"hosts": ["a"], "vars": {"token": "%s"}}}'
    script.write_text(f"#!/bin/sh\nprintf '{found}' $ANSIBLE_MY_INVENTORY_TOKEN\n")
    script.chmod(0o755)
    (a,) = run_playbook("one", str(script), {}).hosts
    assert a.message == "admin, secret"


def test_ssh_is_given_the_password_wherever_ansible_is_installed(
    playbooks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if [*map(int, version("ansible-core").split(".")[:2])] < [2, 19]:
        pytest.skip("older ones want sshpass for it")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # as of /usr/local/bin/hostprep, a link
    (playbooks / "password").write_text("as-agreed\n")
    monkeypatch.setenv("ANSIBLE_CONNECTION_PASSWORD_FILE", str(playbooks / "password"))
    ssh = playbooks / "ssh"
    ssh.write_text(ASKING)
    ssh.chmod(0o755)
    (playbooks / "hosts").write_text(f"a ansible_ssh_executable={ssh}\n")
    (playbooks / "one.yml").write_text(
        "- hosts: all\n  gather_facts: false\n  tasks: [{ansible.builtin.command: id}]\n"
    )
    (a,) = run_playbook("one", str(playbooks / "hosts"), {}).hosts
    assert a.unreachable and "as-agreed" in str(a.message)


def test_what_has_the_scripts_name_beside_python_may_be_a_wrapper(
    playbooks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = playbooks / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    python.with_name("ansible-playbook").write_text("#!/bin/sh\nexec docker run ansible\n")
    monkeypatch.setattr(sys, "executable", str(python))
    (playbooks / "one.yml").write_text(REACHED)
    (a,) = run_playbook("one", "a,", {"token": "secret"}).hosts
    assert str(a.message).endswith(", secret")


def test_a_home_that_cannot_be_written_stops_no_run(
    playbooks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/proc/home")
    monkeypatch.delenv("ANSIBLE_HOME", raising=False)
    (playbooks / "one.yml").write_text(NAMED)
    (a,) = run_playbook("one", "a,", {}).hosts
    assert (a.failed, a.changed_tasks) == (False, ("Change",))
