"""The Ansible module: which command it runs, and how it puts the document into Ansible's words."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.kit.stagecraft import REPOSITORY

MODULE = REPOSITORY / "playbooks" / "library" / "hostprep.py"
STEP = {"kind": "volume", "subject": "/mnt/a", "action": "mount it", "reason": "it is not there"}
PROBLEM = {"kind": "dataset", "subject": "city", "message": "no space.", "hint": "make some"}


class Host:
    """A host whose ``hostprep`` notes its arguments and its spec, and prints what it is told to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.executable = folder / "hostprep"
        self.spec = folder / "hostprep.yml"
        self.spec.write_text("old: spec\n")

    def says(self, document: dict[str, Any] | str) -> None:
        (self.folder / "says").write_text(
            document if isinstance(document, str) else json.dumps(document)
        )
        self.executable.write_text(
            f"#!/bin/sh\nprintf '%s\\n' \"$@\" >{self.folder}/words\n"
            f'[ -f "$2" ] && cat "$2" >{self.folder}/read\ncat {self.folder}/says\nexit 3\n'
        )
        self.executable.chmod(0o755)

    def module(self, *, check: bool = False, **parameters: Any) -> dict[str, Any]:
        arguments = {
            "executable": str(self.executable),
            "spec": str(self.spec),
            "_ansible_check_mode": check,
            **parameters,
        }
        done = subprocess.run(
            [sys.executable, MODULE],
            input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.stdout, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        assert done.returncode == int(bool(found.get("failed")))
        return found

    @property
    def words(self) -> list[str]:
        return (self.folder / "words").read_text().splitlines()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_it_applies_and_shows_what_was_done(host: Host) -> None:
    document = {"ok": True, "changed": True, "changes": [STEP, STEP], "done": [STEP]}
    host.says(document)
    result = host.module(prune=True)
    assert host.words == ["apply", str(host.spec), "--yes", "--prune", "--json"]
    assert (result["changed"], result["document"]) == (True, document)
    assert result["diff"]["before"] == "volume /mnt/a: it is not there\n"
    assert result["diff"]["after"] == "volume /mnt/a: mount it\n"


def test_a_spec_that_another_run_wrote_before_is_not_applied(host: Host) -> None:
    """Two admins at one host: the second would be told that it is as their own spec says."""
    host.says({"ok": True, "changed": True, "done": [STEP]})
    result = host.module(content="my: spec\n")
    assert "which was not applied" in result["msg"]
    # Both may be one host to this very run.
    assert "under two names" in result["msg"]
    assert not (host.folder / "words").exists()


def test_a_spec_that_another_run_writes_meanwhile_is_not_taken_for_ones_own(host: Host) -> None:
    document = {"ok": True, "changed": True, "changes": [STEP], "done": [STEP]}
    host.says(document)
    with host.executable.open("a") as script:
        script.truncate(script.seek(0, os.SEEK_END) - len("exit 3\n"))
        script.write(f"echo 'their: spec' >{host.spec}\n")
    result = host.module(content="old: spec\n")
    assert "may be what was applied" in result["msg"]
    assert (result["changed"], result["document"]) == (True, document)


def test_ones_own_spec_is_applied(host: Host) -> None:
    host.says({"ok": True, "changed": False, "done": []})
    assert not host.module(content=host.spec.read_text())["changed"]


def test_check_mode_plans_against_the_spec_that_is_to_come(host: Host) -> None:
    host.says({"ok": True, "changes": [STEP], "refusals": []})
    result = host.module(check=True, content="new: spec\n")
    assert host.words[0] == "plan"
    assert host.words[2:] == ["--json"]
    assert (host.folder / "read").read_text() == "new: spec\n"
    assert host.spec.read_text() == "old: spec\n"
    assert not Path(host.words[1]).exists()
    assert (result["changed"], result["predicted"]) == (True, True)


def test_what_check_mode_plans_with_goes_though_the_controller_is_gone(host: Host) -> None:
    """As where somebody presses Ctrl-C while it plans: no later task removes the folder then."""
    unpacked = host.folder / "ansible.x.hostprep"
    unpacked.mkdir()
    host.executable = unpacked / "hostprep"
    host.says({"ok": True, "changes": [], "refusals": []})
    host.executable.write_text(f"#!/bin/sh\ntouch {host.folder}/began\nexec sleep 20\n")
    arguments = {
        "executable": str(host.executable),
        "spec": str(host.spec),
        "content": "{}",
        "unpacked": str(unpacked),
        "_ansible_check_mode": True,
    }
    run = subprocess.Popen(
        [sys.executable, MODULE],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert run.stdin is not None and run.stdout is not None
    run.stdin.write(json.dumps({"ANSIBLE_MODULE_ARGS": arguments}))
    run.stdin.close()
    while not (host.folder / "began").exists():
        assert run.poll() is None
        time.sleep(0.01)
    run.stdout.close()
    os.killpg(run.pid, signal.SIGTERM)
    run.wait(timeout=60)
    assert not unpacked.exists()


@pytest.mark.parametrize("way", [{"command": "validate"}, {"check": True}])
def test_a_mistake_is_named_by_its_key_and_not_by_a_file_that_is_gone(
    host: Host, way: dict[str, Any]
) -> None:
    host.executable.write_text(
        '#!/bin/sh\nfor file; do [ ! -f "$file" ] || break; done\n'
        f'cat "$file" >{host.folder}/read\n'
        """printf '{"ok": false, "error": {"hint": "correct the file", "message": """
        """"%s:4: volumes[0].size: none.\\\\n%s:9: datasets: none."}}' "$file" "$file"\n"""
    )
    host.executable.chmod(0o755)
    result = host.module(content="new: spec\n", **way)
    assert (host.folder / "read").read_text() == "new: spec\n"
    assert result["failed"] and result["msg"] == (
        "the spec of this host: volumes[0].size: none.\nthe spec of this host: datasets: none."
        " -> correct hostprep.yml, or the inventory if it gives this host a section of its own"
    )


def test_a_spec_without_mistakes_is_no_change(host: Host) -> None:
    host.says({"ok": True, "volumes": []})
    result = host.module(command="validate", content="new: spec\n")
    assert host.words[:2] == ["spec", "check"] and not Path(host.words[2]).exists()
    assert result["changed"] is False and "document" not in result


def test_check_mode_reads_a_spec_as_utf8_whatever_the_hosts_locale(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("LC_ALL", "C"), ("PYTHONUTF8", "0"), ("PYTHONCOERCECLOCALE", "0")):
        monkeypatch.setenv(name, value)
    host.says({"ok": True, "changes": [], "refusals": []})
    assert not host.module(check=True, content="# städte\n").get("failed")
    assert (host.folder / "read").read_bytes() == "# städte\n".encode()


def test_nothing_to_do_is_no_change(host: Host) -> None:
    host.says({"ok": True, "changed": False, "changes": [], "refusals": [], "done": []})
    assert host.module()["changed"] is False
    assert host.module(check=True)["changed"] is False


def test_without_content_check_mode_plans_the_file_itself(host: Host) -> None:
    """A copy would have its relative sources elsewhere, and of none hostprep says what is wrong."""
    host.says({"ok": True, "changes": [], "refusals": []})
    host.module(check=True)
    assert host.words == ["plan", str(host.spec), "--json"]
    host.spec.unlink()
    host.says({"ok": False, "error": {"message": "there is no such file.", "hint": "name another"}})
    assert host.module(check=True)["msg"] == "there is no such file. -> name another"


def test_without_hostprep_a_change_is_certain_and_its_extent_unknown(host: Host) -> None:
    result = host.module(check=True)
    assert (result["changed"], result["predicted"], result["document"]) == (True, False, None)
    for command in ("converge", "check"):
        failed = host.module(command=command)
        assert f"not installed here: there is no {host.executable}" in failed["msg"]


def test_what_failed_is_said_once_and_what_is_left_to_do_with_it(host: Host) -> None:
    left = {**STEP, "kind": "dataset", "subject": "city"}
    document = {
        "ok": False, "changed": True, "done": [STEP], "failed": [PROBLEM], "refusals": [],
        "pending": [left, STEP], "error": {"message": "the sum", "hint": None},
    }  # fmt: skip
    host.says(document)
    result = host.module()
    assert result["msg"].splitlines() == [
        "dataset city: no space. -> make some",
        "volume /mnt/a: still to do: mount it (it is not there)",
    ]
    assert (result["failed"], result["changed"], result["document"]) == (True, True, document)


def test_a_refusal_fails_check_mode_as_it_would_the_run(host: Host) -> None:
    host.says({"ok": True, "changes": [STEP], "refusals": [PROBLEM]})
    result = host.module(check=True)
    assert (result["failed"], result["msg"]) == (True, "dataset city: no space. -> make some")


def test_an_error_without_details_is_said_itself(host: Host) -> None:
    host.says({"ok": False, "error": {"message": "the spec is wrong", "hint": "fix it"}})
    assert host.module()["msg"] == "the spec is wrong -> fix it"


@pytest.mark.parametrize("said", ["", "Traceback", "[1]", "null"])
def test_what_is_no_document_is_shown(host: Host, said: str) -> None:
    host.says(said)
    result = host.module()
    assert result["failed"]
    assert "hostprep apply ended with 3" in result["msg"]
    assert (said or "it said nothing") in result["msg"]


def test_a_verdict_is_no_failure_of_the_module(host: Host) -> None:
    document = {"schema": "hostprep.check/1", "ok": True, "verdict": "FAIL", "checks": []}
    host.says(document)
    result = host.module(command="check", arguments=["--quick"])
    assert host.words == ["check", "--quick", str(host.spec), "--json"]
    assert (result["changed"], result["document"]) == (False, document)
    host.spec.unlink()
    host.module(command="check", arguments=["--quick"])
    assert host.words == ["check", "--quick", "--json"]


def test_a_spec_that_lies_where_the_user_logs_in_is_none_of_the_hosts(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.says("""{"schema": "hostprep.check/1", "ok": true}\n""")
    script = host.executable.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\npwd >{tmp_path}/cwd\n")
    host.executable.write_text(script)
    monkeypatch.chdir(tmp_path)
    host.module(command="check")
    assert (tmp_path / "cwd").read_text() == "/\n"
