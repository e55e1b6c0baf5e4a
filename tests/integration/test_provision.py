"""One real run of the playbooks after the other, on this machine as its own host beside one down.

The host is reached without SSH and lives in the private mount namespace of the tests, with folders
of its own for what would lie in /opt, /usr/local/bin and /etc. ``tests/fleet`` has real hosts.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostprep import __version__
from hostprep.fleet import run_playbook
from hostprep.fleet.last_run import remember
from hostprep.fleet.model import FleetRun, HostOutcome
from tests.kit.stagecraft import hostprep


@pytest.fixture(scope="module")
def host(private_namespace: Path) -> Iterator[Path]:
    """Return the folder of a host: below it hostprep is installed and its volume mounted."""
    folder = private_namespace / "host"
    folder.mkdir(mode=0o755)
    yield folder
    subprocess.run(["umount", folder / "volume"], check=False)
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def lab(host: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the inventory; the state, of controller and host, outlives each test."""
    for name in ("STATE_DIR", "RUN_DIR", "FSTAB"):
        monkeypatch.setenv(f"HOSTPREP_{name}", str(host / name.lower()))
    (host / "fstab").touch()
    monkeypatch.chdir(host)
    python = host.parent / "a python"
    if not python.is_symlink():
        python.symlink_to(os.path.realpath(sys.executable))
    here = {
        "ansible_connection": "local",
        "ansible_python_interpreter": os.path.realpath(sys.executable),
        "hostprep_install_python": str(python),
        "hostprep_install_dir": str(host / "opt" / "hostprep"),
        "hostprep_install_link": str(host / "hostprep"),
        "hostprep_spec_dir": str(host / "etc"),
    }
    down = {"ansible_host": "127.0.0.1", "ansible_port": 1}
    inventory = host / "hosts.yml"
    inventory.write_text(json.dumps({"all": {"hosts": {"here": here, "down": down}}}))
    return inventory


def write_spec(host: Path, size: str) -> None:
    volume = {"path": str(host / "volume"), "size": size}
    (host / "hostprep.yml").write_text(json.dumps({"volumes": [volume]}))


def provision(*words: str, expect: int = 0) -> dict[str, Any]:
    return hostprep("provision", "-i", "hosts.yml", *words, expect=expect)


def here_of(document: dict[str, Any]) -> dict[str, Any]:
    return next(each for each in document["hosts"] if each["host"] == "here")


def mounted(host: Path) -> str:
    words = ["findmnt", "--noheadings", "--output", "OPTIONS", str(host / "volume")]
    return subprocess.run(words, capture_output=True, text=True).stdout


def make_bare(host: Path) -> None:
    """Take away what a test before may have brought there."""
    subprocess.run(["umount", host / "volume"], check=False, capture_output=True)
    for name in set(os.listdir(host)) - {"fstab", "hosts.yml"}:
        path = host / name
        path.unlink() if path.is_symlink() or path.is_file() else shutil.rmtree(path)
    (host / "fstab").write_text("")


@pytest.fixture
def installed(host: Path, lab: Path) -> str:
    """Have hostprep, a spec and a volume on the host; return how that is mounted."""
    if not (host / "etc" / "hostprep.yml").exists():
        write_spec(host, "16M")
        provision("--limit", "here")
    return mounted(host)


def unpacked() -> set[Path]:
    """Return the folders from which check mode plans."""
    return set(Path(os.environ["TMPDIR"]).glob("*.hostprep"))


def test_a_bare_host_is_converged_as_predicted_though_another_is_down(host: Path) -> None:
    make_bare(host)
    write_spec(host, "16M")
    before = unpacked()
    predicted = here_of(provision("--check", "--diff", "--limit", "here"))
    assert (predicted["failed"], predicted["predicted"], predicted["message"]) == (
        False, True, None
    )  # fmt: skip
    assert not unpacked() - before
    assert sorted(os.listdir(host)) == [
        "fstab",
        "hostprep.yml",
        "hosts.yml",
        "run_dir",
        "state_dir",
    ]
    assert mounted(host) == ""

    document = provision("--forks", "2", "--waves", "2", "--diff", expect=1)
    found, down = here_of(document), document["hosts"][1]
    assert (found["changed"], found["failed"]) == (True, False)
    assert predicted["changes"] == found["changes"]
    assert predicted["diffs"] == found["diffs"]
    assert (down["unreachable"], document["error"]["message"]) == (
        True,
        "1 of 2 hosts failed: down.",
    )
    assert down["message"].startswith("cannot be reached: ")  # though tasks of the controller ran
    assert "size=16384k" in mounted(host)
    assert (host / "etc" / "hostprep.yml").stat().st_mode & 0o7777 == 0o644
    assert subprocess.run([host / "hostprep", "--version"]).returncode == 0
    assert here_of(provision("--limit", "here"))["changes"] == []


def test_only_the_host_that_failed_is_tried_again(lab: Path) -> None:
    outcome = HostOutcome("down", failed=True, unreachable=True)
    remember(str(lab), FleetRun((outcome,), 1.0), whole=True)
    document = provision("--retry-failed", expect=1)
    assert [each["host"] for each in document["hosts"]] == ["down"]


@pytest.mark.usefixtures("installed")
def test_a_folder_without_wheels_stops_no_host_that_needs_none(host: Path) -> None:
    (host / "run_dir" / "none").mkdir(parents=True)
    words = ("--limit", "here", "--wheelhouse", str(host / "run_dir" / "none"))
    assert here_of(provision(*words))["changes"] == []


def test_the_prediction_for_a_new_spec_is_what_then_happens(host: Path, installed: str) -> None:
    write_spec(host, "24M")
    spec = (host / "etc" / "hostprep.yml").read_text()
    predicted = here_of(provision("--check", "--diff", "--limit", "here"))
    assert predicted["predicted"]
    assert (host / "etc" / "hostprep.yml").read_text() == spec
    assert "size=24576k" not in installed == mounted(host)
    done = here_of(provision("--diff", "--limit", "here"))
    assert done["changes"] == predicted["changes"] != []
    assert done["diffs"] == predicted["diffs"]
    assert any("-volume" in diff and "+volume" in diff for diff in done["diffs"])
    assert "size=24576k" in mounted(host)


@pytest.mark.usefixtures("installed")
def test_the_inventory_says_what_differs_on_a_host(host: Path, lab: Path) -> None:
    inventory = json.loads(lab.read_text())
    inventory["all"]["hosts"]["here"]["hostprep_volumes"] = [
        {"path": str(host / "volume"), "size": "33M", "mode": "0750"}
    ]
    lab.write_text(json.dumps(inventory))
    found = here_of(provision("--limit", "here"))
    assert found["changed"]
    assert "size=33792k,nr_inodes" in mounted(host)
    assert (host / "volume").stat().st_mode & 0o7777 == 0o750


def test_what_the_host_refuses_is_said_and_fails_in_check_mode_too(
    host: Path, lab: Path, installed: str
) -> None:
    inventory = json.loads(lab.read_text())
    inventory["all"]["hosts"]["here"]["hostprep_volumes"] = [
        {"path": str(host / "volume"), "size": "900T"}
    ]
    lab.write_text(json.dumps(inventory))
    predicted, found = (
        here_of(provision("--limit", "here", *words, expect=1)) for words in (["--check"], [])
    )
    for said in (predicted, found):
        assert said["failed"]
        assert "RAM" in said["message"] or "memory" in said["message"]
    assert predicted["changes"] == found["changes"] != []
    assert installed == mounted(host)


@pytest.mark.parametrize(
    ("says", "sentence"),
    [
        ({"hostprep_volumes": [{"path": "/mnt/a", "size": "1G", "mode": 0o770}]}, "without quotes"),
        ({"hostprep_volumes": [], "hostprep_prune": True}, "the spec of this host is empty"),
    ],
)
def test_an_inventory_that_cannot_mean_what_it_says_fails_before_the_spec_is_written(
    host: Path, lab: Path, installed: str, says: dict[str, Any], sentence: str
) -> None:
    inventory = json.loads(lab.read_text())
    inventory["all"]["hosts"]["here"].update(says)
    write_spec(host, "16M")
    lab.write_text(json.dumps(inventory))
    spec = (host / "etc" / "hostprep.yml").read_text()
    for words in (["--check"], []):
        found = here_of(provision("--limit", "here", *words, expect=1))
        assert found["failed"] and sentence in found["message"]
    assert (host / "etc" / "hostprep.yml").read_text() == spec
    assert installed == mounted(host)


@pytest.mark.usefixtures("installed")
def test_a_host_that_is_given_no_waves_stages_in_one(lab: Path) -> None:
    inventory = json.loads(lab.read_text())
    inventory["all"]["hosts"]["here"]["hostprep_waves"] = 0
    lab.write_text(json.dumps(inventory))
    found = here_of(provision("--limit", "here", "--check"))
    assert (found["failed"], found["message"]) == (False, None)


def test_the_text_of_a_spec_is_a_path_and_no_template(host: Path) -> None:
    ran = host / "ran"
    source = host / f"{{{{ lookup('pipe', 'touch {ran}') }}}}"
    source.mkdir(parents=True, exist_ok=True)
    (source / "file").write_text("data\n")
    dataset = {"name": "odd", "source": str(source), "to": str(host / "disk")}
    (host / "hostprep.yml").write_text(json.dumps({"datasets": [dataset]}))
    assert here_of(provision("--limit", "here"))["changed"]
    assert (host / "disk" / "odd" / "file").read_text() == "data\n"
    assert not ran.exists()


def test_hostprep_is_not_installed_into_what_is_somebody_elses(host: Path, lab: Path) -> None:
    theirs = host / "theirs"
    shutil.rmtree(theirs, ignore_errors=True)
    theirs.mkdir()
    (theirs / "build-notes").write_text("years of work\n")
    write_spec(host, "16M")
    inventory = json.loads(lab.read_text())
    inventory["all"]["hosts"]["here"]["hostprep_install_dir"] = str(theirs)
    lab.write_text(json.dumps(inventory))
    for words in (["--check"], []):
        found = here_of(provision("--limit", "here", *words, expect=1))
        assert found["message"].startswith(f"{theirs} is there and is not a virtual environment")
        assert found["changes"] == []
    assert os.listdir(theirs) == ["build-notes"]


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_command_of_somebody_elses_is_not_replaced_and_check_mode_says_so(
    host: Path, lab: Path, kind: str
) -> None:
    write_spec(host, "16M")
    (host / "theirs").mkdir(exist_ok=True)
    theirs, tool = host / "theirs" / kind, host / "theirs" / "tool"
    (tool if kind == "link" else theirs).write_text("#!/bin/sh\n")
    if kind == "link":
        theirs.symlink_to(tool)
    inventory = json.loads(lab.read_text())
    new = {"hostprep_install_link": str(theirs), "hostprep_install_dir": str(host / "opt" / "new")}
    inventory["all"]["hosts"]["here"].update(new)
    lab.write_text(json.dumps(inventory))
    said = f"leads to {tool}" if kind == "link" else "is not a link"
    for words in (["--check"], []):
        found = here_of(provision("--limit", "here", *words, expect=1))
        assert found["message"].startswith(f"{theirs} is there and {said}, so `hostprep provision`")
        assert found["changes"] == []
    assert theirs.is_symlink() == (kind == "link")
    assert theirs.read_text() == "#!/bin/sh\n"
    assert not (host / "opt" / "new").exists()


@pytest.mark.usefixtures("installed")
def test_reports_of_readiness_are_collected(host: Path, lab: Path) -> None:
    run = run_playbook("readiness", str(lab), {})
    here, down = run.hosts
    assert [document["schema"] for document in here.documents] == ["hostprep.check/1"]
    assert not here.changed
    assert down.unreachable


@pytest.mark.usefixtures("installed")
def test_a_newer_hostprep_is_named_with_the_older_one_that_would_take_its_place(host: Path) -> None:
    home = host / "opt" / "hostprep"
    (home / "bin" / "hostprep").write_text("#!/bin/sh\necho hostprep 91.10.2\n")
    (stamp,) = home.glob("build-*")
    stamp.rename(home / f"build-{'0' * 16}")
    found = here_of(provision("--check", "--limit", "here"))
    assert "Install hostprep" in [each["subject"] for each in found["changes"]]
    (warning,) = found["warnings"]
    assert warning.startswith(
        f"hostprep 91.10.2 in {home} is newer than this controller's {__version__}, which would"
    )


@pytest.mark.usefixtures("installed")
def test_a_broken_installation_is_mended_as_predicted_by_the_new_one(host: Path) -> None:
    write_spec(host, "48M")
    (host / "opt" / "hostprep" / "bin" / "hostprep").write_text("#!/bin/false\n")
    predicted = here_of(provision("--check", "--limit", "here"))
    assert predicted["predicted"]
    found = here_of(provision("--limit", "here"))
    assert found["changes"] == predicted["changes"]
    assert {"Install hostprep", f"volume {host}/volume"} <= {
        each["subject"] for each in found["changes"]
    }
    assert subprocess.run([host / "hostprep", "--version"]).returncode == 0
