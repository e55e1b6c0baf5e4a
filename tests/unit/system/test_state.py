"""Where hostprep remembers: what may not be looked into is not taken for nothing."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hostprep.converging.boot_record import all_boot_records
from hostprep.errors import HostprepError, Refused, UsageError
from hostprep.staging.record import records as datasets
from hostprep.system.kept import this_host
from hostprep.system.locks import lock
from hostprep.system.state import (
    SYSTEM_STATE_DIR,
    boot_dir,
    check_own_records,
    readable_state_dirs,
    run_dir,
    state_dir,
)
from hostprep.system.systemd import unit_dir
from hostprep.volumes import records as volumes
from tests.kit.acls import ACCESS_ACL, access_acl

STRANGER, CALLER = 54321, 54322


@pytest.mark.parametrize("variable", ["HOSTPREP_STATE_DIR", "XDG_STATE_HOME"])
def test_records_of_somebody_else_are_an_error_and_not_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0)
    monkeypatch.delenv("HOSTPREP_STATE_DIR", raising=False)
    monkeypatch.setenv(variable, str(home / "state"))
    before = os.geteuid()
    os.seteuid(before or 65534)  # as `sudo -E` leaves it: another user, with the HOME of this one
    try:
        with pytest.raises(HostprepError) as caught:
            readable_state_dirs()
    finally:
        os.seteuid(before)
    assert "Permission denied; nothing was changed" in caught.value.message
    assert "HOSTPREP_STATE_DIR=DIR" in (caught.value.hint or "")


@pytest.mark.parametrize("folder", ["datasets", "volumes", "boot"])
@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.EMFILE])
def test_a_folder_of_records_that_cannot_be_listed_is_an_error_and_not_empty(
    folder: str, number: int, own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own_state / "state" / folder).mkdir(parents=True)
    listed = os.listdir

    def failing(path: Any) -> list[str]:
        if os.fspath(path) == str(own_state / "state" / folder):
            raise OSError(number, os.strerror(number), str(path))
        return listed(path)

    monkeypatch.setattr(os, "listdir", failing)
    with pytest.raises(HostprepError) as caught:
        for everything in (datasets.all_records, volumes.all_records, all_boot_records):
            everything()
    assert f"{folder} cannot be read: {os.strerror(number)}; nothing" in caught.value.message
    elsewhere = "another directory" in str(caught.value.hint)
    assert elsewhere is (number != errno.EMFILE)  # which no other directory would help


@pytest.mark.parametrize("home", ["/dev/null", "/nonexistent"])
def test_a_user_without_a_home_has_no_records(monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    monkeypatch.delenv("HOSTPREP_STATE_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", home)
    before = os.geteuid()
    os.seteuid(before or 65534)
    try:
        own = Path(home) / "hostprep"
        assert readable_state_dirs() == (own / f"on-{this_host()}", own, SYSTEM_STATE_DIR)
    finally:
        os.seteuid(before)


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Be a user whom no account knows, with nothing said of any directory."""
    for name in ("HOSTPREP_STATE_DIR", "HOSTPREP_RUN_DIR", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.geteuid", lambda: 54321)
    monkeypatch.setattr("os.getuid", lambda: 54321)
    yield monkeypatch


def test_a_user_without_home_and_account_has_no_records_in_the_current_directory(
    stranger: pytest.MonkeyPatch,
) -> None:
    assert state_dir() == Path("/.local/state/hostprep")
    assert run_dir() == Path("/.local/state/hostprep/lock")
    stranger.setenv("XDG_STATE_HOME", "relative")
    assert state_dir().is_absolute()


def test_a_login_and_a_job_of_one_user_share_their_locks(
    stranger: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They share the records; the runtime directory is the login's alone, or of another host."""
    stranger.setenv("HOME", str(tmp_path))
    beside = tmp_path / ".local/state/hostprep/lock"
    assert run_dir() == beside
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    if runtime.stat().st_uid == 0:
        os.chown(runtime, 54321, -1)
    for folder in (runtime, tmp_path / "gone"):
        stranger.setenv("XDG_RUNTIME_DIR", str(folder))
        assert run_dir() == beside


def test_a_user_who_moved_the_records_still_sees_those_of_the_machine(
    stranger: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As a job does that has no home, and waits for what root staged."""
    machine = tmp_path / "machine"
    stranger.setattr("hostprep.system.state.SYSTEM_STATE_DIR", machine)
    stranger.setenv("HOSTPREP_STATE_DIR", str(tmp_path / "job"))
    assert state_dir() == tmp_path / "job"
    assert readable_state_dirs() == (tmp_path / "job", machine)

    def closed(path: Any) -> Any:
        if Path(path) == machine:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        raise FileNotFoundError(path)

    stranger.setattr("os.scandir", closed)
    assert readable_state_dirs() == (tmp_path / "job",)
    stranger.setattr("os.geteuid", lambda: 0)
    assert readable_state_dirs() == (tmp_path / "job",)


@pytest.mark.parametrize(
    "chosen",
    ["/dev/null", "FOLDER/file", "FOLDER/file/below", "~", "~/state", "~root/state", "state", "."],
)
@pytest.mark.parametrize(
    ("variable", "directory"),
    [
        ("HOSTPREP_STATE_DIR", state_dir),
        ("HOSTPREP_RUN_DIR", run_dir),
        ("HOSTPREP_RUN_DIR", boot_dir),
        ("HOSTPREP_UNIT_DIR", unit_dir),
    ],
)
def test_what_can_be_no_directory_is_a_mistake_and_not_an_empty_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    directory: Callable[[], Path],
    chosen: str,
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, chosen.replace("FOLDER", str(tmp_path)))
    with pytest.raises(UsageError, match=variable):
        directory()


def test_a_relative_path_is_another_place_for_each_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOSTPREP_STATE_DIR", "my state")
    with pytest.raises(UsageError, match="'my state', which means another place in") as caught:
        state_dir()
    assert (caught.value.hint or "").endswith(f"HOSTPREP_STATE_DIR='{tmp_path}/my state'")


def test_a_directory_that_is_not_there_yet_is_made_where_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTPREP_STATE_DIR", f"{tmp_path}/a/b/")
    assert state_dir() == tmp_path / "a/b"


@pytest.mark.parametrize(
    ("mode", "cure"), [(0o757, "chmod go-w {}"), (0o1777, "one below it will do: {}/hostprep")]
)
def test_a_directory_that_is_meant_for_all_is_not_to_be_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, cure: str
) -> None:
    tmp_path.chmod(mode)
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(tmp_path))
    with pytest.raises(Refused) as caught:
        check_own_records()
    assert (caught.value.hint or "").endswith(cure.format(tmp_path))


@pytest.mark.parametrize(
    ("owner", "group", "mode", "link_owner", "who"),
    [
        (STRANGER, 0, 0o755, 0, f"belongs to uid {STRANGER}"),
        (0, 0, 0o757, 0, "is writable by everybody"),
        (0, 0, 0o1777, 0, "is writable by everybody"),
        (0, STRANGER, 0o770, 0, f"is writable by the group {STRANGER}"),
        (0, 0, 0o755, STRANGER, f"is a symlink of uid {STRANGER}"),
        (0, 0, 0o775, 0, None),
        (CALLER, 0, 0o755, CALLER, None),
    ],
)
def test_root_does_not_go_by_records_that_others_could_have_put_there(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: int,
    group: int,
    mode: int,
    link_owner: int,
    who: str | None,
) -> None:
    """A record says what ``unstage`` removes; the folder beside it has what hosts are given."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    place, link = tmp_path / "hostprep", tmp_path / "link"
    place.mkdir()
    os.chown(place, owner, group)
    place.chmod(mode)
    link.symlink_to(place)
    os.chown(link, link_owner, 0, follow_symlinks=False)
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(link))
    monkeypatch.setenv("SUDO_UID", str(CALLER))
    if who is None:
        assert state_dir() == link
        return
    with pytest.raises(Refused, match=who):
        state_dir()
    with pytest.raises(Refused, match=who):
        readable_state_dirs()


def test_nor_does_it_write_what_is_of_this_boot_where_others_lead_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a directory for locks everybody may have made that one first."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    monkeypatch.setenv("HOSTPREP_RUN_DIR", str(tmp_path))
    tmp_path.chmod(0o1777)
    boot = tmp_path / "boot"
    assert boot_dir() == boot
    boot.symlink_to(tmp_path)
    os.chown(boot, STRANGER, 0, follow_symlinks=False)
    with pytest.raises(Refused, match=f"boot, to which .* is a symlink of uid {STRANGER}"):
        boot_dir()
    boot.unlink()
    boot.mkdir()
    assert boot_dir() == boot
    os.chown(boot, STRANGER, 0)
    with pytest.raises(Refused, match=f"belongs to uid {STRANGER}"):
        boot_dir()


def test_nor_by_those_of_a_directory_whose_acl_lets_others_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group's bits are the mask of an ACL, whatever the group is, and root's own is trusted."""
    if os.geteuid() != 0:
        pytest.skip("of an ordinary user the group may write")
    os.setxattr(tmp_path, ACCESS_ACL, access_acl(0o700, user=STRANGER, permissions=0o7))
    assert os.stat(tmp_path).st_gid == 0
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(tmp_path))
    with pytest.raises(Refused, match="ACL"):
        state_dir()


def test_a_user_may_look_at_records_of_another_and_change_nothing_by_them(
    stranger: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = tmp_path / "theirs"
    place.mkdir()
    stranger.setenv("HOSTPREP_STATE_DIR", str(place))
    stranger.setenv("HOSTPREP_RUN_DIR", str(tmp_path / "run"))
    place.chmod(0o777)
    assert place in readable_state_dirs()
    with pytest.raises(Refused, match="is writable by everybody"), lock("stage-x", purpose="stage"):
        pass
    assert not (tmp_path / "run").exists()
