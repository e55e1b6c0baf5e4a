"""Whose copies in /dev/shm a logout takes away, and what is said of it before and after."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest

from hostprep.host.boot import boot_id
from hostprep.staging.record.records import Record
from hostprep.staging.status import dataset_status
from hostprep.staging.target.logout import logout_warning

LOGIND = """\
#!/bin/sh
case "$*" in
  "show-user --property=RemoveIPC") echo RemoveIPC={remove} ;;
  "show-user 54321 --property=Linger") {linger} ;;
  *) exit 2 ;;
esac
"""
CLEARS = {"remove": "yes", "linger": "echo Linger=no"}


@pytest.fixture(autouse=True)
def alice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


def _logind(folder: Path, **answers: str) -> None:
    program = folder / "loginctl"
    program.write_text(LOGIND.format(**CLEARS | answers))
    program.chmod(0o755)


def test_whoever_is_logged_in_is_warned_of_the_logout(tmp_path: Path) -> None:
    _logind(tmp_path)
    assert "when your last session there ends" in str(logout_warning("/dev/shm/none", set))
    assert "/run/user/54321 is removed" in str(logout_warning("/run/user/54321/data", set))
    for other in ("/var/tmp/none", "/dev/shmem", "/run/user/54322"):
        assert logout_warning(other, set) is None


@pytest.mark.parametrize(
    "answers",
    [{"remove": "no"}, {"linger": "echo Linger=yes"}, {"linger": "exit 1"}],
    ids=["turned off", "lingers", "not logged in"],
)
def test_nobody_is_whose_copies_stay(tmp_path: Path, answers: dict[str, str]) -> None:
    _logind(tmp_path, **answers)
    assert logout_warning("/dev/shm", set) is None


def test_the_directory_of_a_session_goes_with_it_in_any_case(tmp_path: Path) -> None:
    _logind(tmp_path, remove="no")
    assert logout_warning("/run/user/54321", set) is not None


@pytest.mark.parametrize("uid", [0, 999])
def test_root_and_services_have_no_sessions_that_count(
    uid: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _logind(tmp_path)
    program = tmp_path / "loginctl"
    program.write_text(program.read_text().replace("54321", str(uid)))
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert logout_warning("/dev/shm", set) is None


@pytest.mark.parametrize(
    ("owners", "answers", "told"),
    [
        ({0, 54321}, {}, True),
        ({54321}, {"linger": "exit 1"}, True),  # not logged in now
        ({54321}, {"linger": "echo Linger=yes"}, False),
        ({54321}, {"remove": "no"}, False),
        ({0, 999, 12345, 65534}, {}, False),  # services, a number without an account, nobody
    ],
)
def test_root_is_told_whose_copies_go_with_a_session(
    owners: set[int],
    answers: dict[str, str],
    told: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    _logind(tmp_path, **answers)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    accounts = {54321: "alice", 999: "service", 65534: "nobody"}
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_name=accounts[uid]))
    said = logout_warning("/dev/shm/shared", lambda: owners)
    assert ("files that belong to alice keep their owner" in (said or "")) is told
    assert told or said is None
    assert logout_warning("/mnt/volume", lambda: owners) is None


@pytest.mark.parametrize(
    ("place", "answers", "told"),
    [
        ("/run/user/54321/data", {"remove": "no"}, True),  # which is of /dev/shm alone
        ("/run/user/54321", {"linger": "exit 1"}, True),
        ("/run/user/54321", {"linger": "echo Linger=yes"}, False),
        ("/run/user/0/data", {}, False),
        ("/run/user/none", {}, False),
        ("/run/users", {}, False),
    ],
)
def test_root_is_told_whose_session_takes_all_in_its_directory_with_it(
    place: str,
    answers: dict[str, str],
    told: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Whoever owns what root stages there."""
    _logind(tmp_path, **answers)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_name="alice"))
    said = logout_warning(place, lambda: {0})
    assert ("when the last session of alice here ends" in (said or "")) is told
    assert told or said is None


def test_without_logind_no_session_takes_anything(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_name="alice"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert logout_warning("/run/user/54321", lambda: {0}) is None


def test_of_many_who_linger_a_few_are_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each by a program of its own, before every run of root."""
    asked = tmp_path / "asked"
    _logind(tmp_path)
    program = tmp_path / "loginctl"
    told = (
        f'echo >> {asked}; [ "$2" = --property=RemoveIPC ] && echo RemoveIPC=yes || echo Linger=yes'
    )
    program.write_text(f"#!/bin/sh\n{told}\n")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_name=f"u{uid}"))
    assert logout_warning("/dev/shm/shared", lambda: range(50_000, 50_100)) is None
    assert len(asked.read_text().splitlines()) <= 21


@pytest.mark.parametrize(
    ("target", "boot", "told"),
    [
        ("/dev/shm/hostprep-none/data", boot_id(), True),
        ("/dev/shm/hostprep-none/data", "another", False),
        ("/var/tmp/hostprep-none/data", boot_id(), False),
    ],
)
def test_what_is_gone_may_have_gone_with_the_session(
    own_state: Path, target: str, boot: str | None, told: bool
) -> None:
    record = Record("data", "/src", target, None, 1, 1, 2, None, "none", None, 0.0, boot_id=boot)
    found = dataset_status(record)
    assert found.state == "missing"
    assert ("logind's RemoveIPC" in found.reason) is told
