"""Locks that cannot be had."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from hostprep.errors import HostprepError
from hostprep.system import lock_files
from hostprep.system.locks import Locked, is_locked, lock


def test_a_run_directory_that_cannot_be_made_is_no_bug(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOSTPREP_RUN_DIR", "/proc/run")
    with pytest.raises(HostprepError) as caught, lock("stage", purpose="test"):
        pass
    assert "No such file or directory; nothing was changed" in caught.value.message
    assert "HOSTPREP_RUN_DIR" in (caught.value.hint or "")


def test_a_file_system_without_locks_is_no_bug(
    own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(HostprepError) as caught, lock("stage", purpose="test"):
        pass
    assert "cannot be locked: No locks available; nothing was changed" in caught.value.message
    assert "HOSTPREP_RUN_DIR" in (caught.value.hint or "")


def test_a_service_that_may_not_write_locks_is_told_how_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setenv("HOSTPREP_RUN_DIR", str(tmp_path))
    monkeypatch.setattr("os.open", refuse)
    with pytest.raises(HostprepError) as caught, lock("stage", purpose="test"):
        pass
    assert f"ReadWritePaths={tmp_path}" in (caught.value.hint or "")
    # systemd starts no service whose ReadWritePaths= names what is not there.
    told = lock_files.no_lock(tmp_path / "none/a.lock", OSError(errno.EROFS, "read-only"))
    hint = told.hint or ""
    assert "ReadWritePaths" not in hint
    assert hint.endswith("RuntimeDirectory=NAME and Environment=HOSTPREP_RUN_DIR=%t/NAME")
    # An ordinary user's lie beside the records, which would fail next.
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("HOSTPREP_RUN_DIR")
    told = lock_files.no_lock(tmp_path / "state/lock/a", OSError(errno.EROFS, "read-only"))
    hint = told.hint or ""
    assert hint.endswith("StateDirectory=NAME and Environment=HOSTPREP_STATE_DIR=%S/NAME")
    # Unless they are there by a variable of their own, which keeps them there.
    monkeypatch.setenv("HOSTPREP_RUN_DIR", str(tmp_path / "state/lock"))
    told = lock_files.no_lock(tmp_path / "state/lock/a", OSError(errno.ENOSPC, "full"))
    assert (told.hint or "").endswith("moved with HOSTPREP_RUN_DIR")
    told = lock_files.no_lock(tmp_path / "state/lock/a", OSError(errno.EMFILE, "too many"))
    assert told.hint == "a limit on open files is reached: raise `ulimit -n`"


def a_link_to_a_file(path: Path) -> None:
    (path.parent / "precious").write_text("of somebody")
    path.symlink_to("precious")


@pytest.mark.parametrize("make", [os.mkdir, a_link_to_a_file])
def test_what_stands_in_the_way_of_a_lock_is_to_be_removed(
    make: Callable[[Path], None], own_state: Path
) -> None:
    path = own_state / "run/hostprep-volumes.lock"
    path.parent.mkdir()
    make(path)
    with pytest.raises(HostprepError) as caught, lock("volumes", purpose="test"):
        pass
    assert caught.value.hint == f"remove it: rm -d {path}"
    if path.is_symlink():
        assert path.read_text() == "of somebody"
    subprocess.run(["rm", "-d", str(path)], check=True)
    with lock("volumes", purpose="test"):
        pass


def test_what_a_hard_link_leads_to_is_not_overwritten(own_state: Path) -> None:
    path = own_state / "run/hostprep-volumes.lock"
    path.parent.mkdir()
    precious = own_state / "precious"
    precious.write_text("keep")
    os.link(precious, path)
    refused = pytest.raises(HostprepError, match="is a hard link to another file")
    with refused as caught, lock("volumes", purpose="test"):
        pass
    assert precious.read_text() == "keep"
    assert caught.value.hint == f"remove it: rm {path}"
    path.unlink()
    with lock("volumes", purpose="test"):
        pass


def made_by_somebody_else(path: Path) -> None:
    path.touch(mode=0o666)
    os.chown(path, 65534, 65534)


@pytest.mark.parametrize(
    ("make", "words"),
    [(os.mkfifo, "is not a regular file"), (made_by_somebody_else, "belongs to uid 65534")],
)
def test_a_file_that_others_could_hold_is_refused_and_not_waited_for(
    make: Callable[[Path], None], words: str, own_state: Path
) -> None:
    if make is made_by_somebody_else and os.geteuid() != 0:
        pytest.skip("needs root, to give a file away")
    path = own_state / "run/hostprep-volumes.lock"
    path.parent.mkdir()
    make(path)
    held = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert is_locked("volumes") is False
        refused = pytest.raises(HostprepError, match=words)
        with refused as caught, lock("volumes", purpose="test"):
            pass
    finally:
        os.close(held)
    assert "nothing was changed" in caught.value.message
    assert caught.value.hint == f"remove it: rm {path}"
    path.unlink()
    with lock("volumes", purpose="test"):
        assert is_locked("volumes") is True


def test_who_only_looks_is_not_at_work(own_state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with lock("volumes", purpose="test"):
        pass
    looking = os.open(own_state / "run/hostprep-volumes.lock", os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    timer = Timer(0.01, os.close, [looking])
    timer.start()
    monkeypatch.setattr("hostprep.system.locks._LOOK_SECONDS", 20.0)  # on a machine under load
    with lock("volumes", purpose="test", wait_seconds=0):
        pass
    timer.join()
    monkeypatch.setattr("hostprep.system.locks._LOOK_SECONDS", 0.01)
    refused = pytest.raises(Locked, match=r"`test` .* is at work")
    with lock("volumes", purpose="test"), refused, lock("volumes", purpose="x", wait_seconds=0):
        pass


def test_who_waits_is_told_of_who_has_it_now(own_state: Path) -> None:
    """Not of the one before, whose longer note is overwritten."""
    for purpose in ("one with much to say of itself", "test"):
        refused = pytest.raises(Locked, match=f"`{purpose}` .process {os.getpid()}, since")
        with lock("volumes", purpose=purpose), refused, lock("volumes", purpose="", wait_seconds=0):
            pass


@pytest.mark.parametrize("note", ["[" * 4000, '{"pid": 1, "purpose": "x", "since": 1e400}'])
def test_a_note_that_tells_no_time_costs_only_its_words(own_state: Path, note: str) -> None:
    refused = pytest.raises(Locked, match="another hostprep is at work")
    with lock("volumes", purpose="test"):
        (own_state / "run/hostprep-volumes.lock").write_text(note)
        with refused, lock("volumes", purpose="x", wait_seconds=0):
            pass


def test_who_waits_is_told_once_and_then_has_it(
    own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hostprep.system.locks._LOOK_SECONDS", 0.0)
    monkeypatch.setattr("hostprep.system.locks._POLL_SECONDS", 0.001)
    told: list[str] = []
    held = ExitStack()
    held.enter_context(lock("volumes", purpose="test"))

    def once_more(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            held.close()

    looks: list[float] = []
    monkeypatch.setattr("hostprep.system.locks.time.sleep", once_more)
    assert is_locked("volumes") is True
    with lock("volumes", purpose="next", on_wait=told.append):
        assert is_locked("volumes") is True
    assert is_locked("volumes") is False
    (sentence,) = told
    assert sentence.startswith("waiting for `test` (process")
    assert looks == [0.001] * 3
    assert is_locked("nobody") is False


@pytest.fixture
def of_a_user(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Be an ordinary user with records and a runtime directory; return the latter."""
    with tempfile.TemporaryDirectory(dir="/run" if os.geteuid() == 0 else None) as folder:
        runtime = Path(folder) / "runtime"
        runtime.mkdir()
        before = os.geteuid()
        if before == 0:
            for path in (folder, runtime):
                os.chown(path, 65534, 65534)
        monkeypatch.setenv("HOSTPREP_STATE_DIR", str(Path(folder) / "state"))
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
        monkeypatch.delenv("HOSTPREP_RUN_DIR")
        os.seteuid(65534 if before == 0 else before)
        try:
            yield runtime
        finally:
            os.seteuid(before)


def test_a_users_run_of_an_early_version_is_waited_for(of_a_user: Path) -> None:
    """Until commit 80f90b84 a user's locks were in the runtime directory."""
    theirs = of_a_user / "hostprep-stage-data.lock"
    theirs.write_text('{"pid": 7, "purpose": "hostprep stage data", "since": 1795899659.5}')
    with theirs.open() as early:
        fcntl.flock(early, fcntl.LOCK_EX)
        assert is_locked("stage-data")
        with pytest.raises(Locked) as caught, lock("stage-data", purpose="test", wait_seconds=0):
            pass
        assert "`hostprep stage data` (process 7" in caught.value.message
    assert not is_locked("stage-data")
    with lock("stage-data", purpose="test"), theirs.open() as early:
        assert f'"pid": {os.getpid()}' in theirs.read_text()
        with pytest.raises(BlockingIOError):
            fcntl.flock(early, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with theirs.open() as early:
        fcntl.flock(early, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_no_lock_is_made_where_no_early_version_had_one(of_a_user: Path) -> None:
    with lock("stage-data", purpose="test"):
        assert list(of_a_user.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else as well")
@pytest.mark.parametrize("chosen", [True, False], ids=["chosen", "in HOME"])
def test_sudo_helps_only_where_the_directory_may_be_meant_for_root(
    chosen: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HOSTPREP_RUN_DIR")
    monkeypatch.delenv("HOSTPREP_STATE_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", "/var/lib")  # as the HOME of a container's user: closed
    if chosen:
        monkeypatch.setenv("HOSTPREP_STATE_DIR", "/var/lib/hostprep")
    os.seteuid(65534)
    try:
        with pytest.raises(HostprepError) as caught, lock("volumes", purpose="test"):
            pass
    finally:
        os.seteuid(0)
    assert caught.value.hint is not None
    assert ("sudo" in caught.value.hint) is chosen
    assert "export HOSTPREP_STATE_DIR=DIR" in caught.value.hint


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else as well")
@pytest.mark.parametrize("owner", [0, 1000])
def test_an_ordinary_user_sees_that_root_is_at_work(
    owner: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = Path(tempfile.mkdtemp(dir="/run"))  # where everybody may look into
    system.chmod(0o1777)
    monkeypatch.setattr("hostprep.system.state.SYSTEM_RUN_DIR", system)
    monkeypatch.setattr("hostprep.system.state.SYSTEM_BOOT_DIR", system / "boot")
    monkeypatch.delenv("HOSTPREP_RUN_DIR")

    def seen() -> bool:
        os.seteuid(65534)
        try:
            return is_locked("stage-data")
        finally:
            os.seteuid(0)

    try:
        with lock("stage-data", purpose="test"):
            # A file that somebody else made there says nothing of root.
            os.chown(system / "hostprep-stage-data.lock", owner, -1)
            assert seen() is (owner == 0)
        assert seen() is False
    finally:
        shutil.rmtree(system)


@pytest.mark.parametrize("handed_on", [False, True])
def test_a_child_that_is_stuck_keeps_only_a_lock_that_was_handed_on(
    own_state: Path, handed_on: bool
) -> None:
    with lock("stage", purpose="test", handed_on=handed_on) as descriptor:
        child = os.dup(descriptor)  # as a fork would have it
    assert is_locked("stage") is handed_on
    os.close(child)
    assert not is_locked("stage")


def a_file(path: Path) -> None:
    path.touch(mode=0o666)


def a_full_directory(path: Path) -> None:
    (path / "below").mkdir(parents=True)


def a_link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))


def a_hard_link(path: Path) -> None:
    a_file(path)
    os.link(path, path.with_name("another"))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file away")
@pytest.mark.parametrize(
    "make", [a_file, a_full_directory, a_link, a_socket, a_hard_link, os.mkfifo]
)
def test_root_puts_aside_what_others_made_in_the_place_of_a_lock(
    make: Callable[[Path], None], own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In /run/lock, where everybody may make files, it is nobody's lock."""
    path = own_state / "run/hostprep-volumes.lock"
    path.parent.mkdir()
    path.parent.chmod(0o1777)
    monkeypatch.chdir(path.parent)  # the path of a socket must be short
    make(path)
    os.chown(path, 65534, 65534, follow_symlinks=False)
    theirs = os.lstat(path).st_ino
    with lock("volumes", purpose="test"):
        assert is_locked("volumes")
        with pytest.raises(Locked), lock("volumes", purpose="x", wait_seconds=0):
            pass
    (aside,) = path.parent.glob("hostprep-put-aside-*.lock")
    assert os.lstat(aside).st_ino == theirs
    assert (path.stat().st_uid, path.stat().st_mode & 0o777) == (0, 0o600)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file away")
@pytest.mark.parametrize(("owner", "mode"), [(0, 0o777), (0, 0o1755), (65534, 0o1777)])
def test_root_moves_nothing_in_a_directory_that_is_not_for_all(
    owner: int, mode: int, own_state: Path
) -> None:
    """There it is that directory's owner who may have locks, or names can be exchanged."""
    path = own_state / "run/hostprep-volumes.lock"
    path.parent.mkdir()
    path.touch()
    for theirs, uid in ((path, 65534), (path.parent, owner)):
        os.chown(theirs, uid, uid)
    path.parent.chmod(mode)
    refused = pytest.raises(HostprepError, match="belongs to uid 65534")
    with refused, lock("volumes", purpose="test"):
        pass
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file away")
def test_where_roots_runs_cannot_keep_apart_nothing_is_put_aside(own_state: Path) -> None:
    """What one moves might be what another has just made, and holds."""
    path = own_state / "run/hostprep-volumes.lock"
    path.parent.mkdir()
    path.parent.chmod(0o1777)
    (path.parent / "boot").touch()  # the directory of what keeps them apart
    path.touch()
    os.chown(path, 65534, 65534)
    refused = pytest.raises(HostprepError, match="belongs to uid 65534")
    with refused, lock("volumes", purpose="test"):
        pass
    assert sorted(os.listdir(path.parent)) == ["boot", path.name]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file away")
def test_what_a_run_puts_aside_is_not_what_another_has_just_made(
    own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is made while the other one looks: what was somebody else's may have gone by then."""
    path = own_state / "run/hostprep-volumes.lock"
    path.parent.mkdir()
    path.parent.chmod(0o1777)
    path.touch()
    os.chown(path, 65534, 65534)
    held: list[str] = []

    def watched(name: str) -> None:
        inner = getattr(lock_files, name)

        def step(*args: object) -> object:
            guard = os.open(own_state / "run/boot/making-locks", os.O_RDWR)
            try:
                with pytest.raises(BlockingIOError):
                    fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
            finally:
                os.close(guard)
            held.append(name)
            return inner(*args)

        monkeypatch.setattr(lock_files, name, step)

    for name in ("_is_of_others", "_make", "exchange"):
        watched(name)
    with lock("volumes", purpose="test"), lock("fstab", purpose="test"):
        pass
    assert held == ["_is_of_others", "_make", "exchange", "_make"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file away")
def test_the_lock_of_a_user_whose_records_root_works_on_is_not_put_aside(
    own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", "65534")
    path = own_state / "run/hostprep-volumes.lock"
    for folder in (path.parent, own_state / "state"):
        folder.mkdir()
    path.parent.chmod(0o1777)
    path.touch()
    for theirs in (path, own_state / "state"):
        os.chown(theirs, 65534, 65534)
    refused = pytest.raises(HostprepError, match="belongs to uid 65534")
    with refused, lock("volumes", purpose="test"):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who is refused what a user mounted")
def test_what_a_user_mounted_on_the_name_of_a_lock_is_for_root_to_unmount(
    own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FUSE tells nobody but the user of it, root neither: not even whose it is."""
    path = own_state / "run/hostprep-volumes.lock"
    path.parent.mkdir()
    path.parent.chmod(0o1777)
    for name in ("open", "lstat"):
        inner = getattr(os, name)

        def refused(asked: Any, *args: Any, inner: Any = inner, **words: Any) -> Any:
            if os.fspath(asked) == str(path):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return inner(asked, *args, **words)

        monkeypatch.setattr(os, name, refused)

    def busy(*_: Path) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    monkeypatch.setattr(lock_files, "exchange", busy)
    failed = pytest.raises(HostprepError, match="Permission denied; nothing was changed")
    with failed as caught, lock("volumes", purpose="test"):
        pass
    assert (caught.value.hint or "").endswith(f"umount {path}")
    assert not [*path.parent.glob("hostprep-put-aside-*")]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file away")
@pytest.mark.parametrize(("owner", "told"), [(65534, True), (4711, False)])
def test_locks_on_a_server_that_makes_all_nobodys_are_to_be_moved(
    owner: int, told: bool, own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removed, as is said elsewhere, they would be nobody's again at the next run but one."""
    path = own_state / "state/lock/hostprep-volumes.lock"
    path.parent.mkdir(parents=True)
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(own_state / "state"))
    monkeypatch.setenv("HOSTPREP_RUN_DIR", str(path.parent))
    path.touch()
    os.chown(path, owner, owner)
    refused = pytest.raises(HostprepError, match="belongs to uid")
    with refused as caught, lock("volumes", purpose="test"):
        pass
    hint = caught.value.hint or ""
    assert hint.startswith("remove it: rm ") and ("HOSTPREP_STATE_DIR=DIR" in hint) is told
    path.unlink()
    os.chown(own_state / "state", owner, owner)
    with pytest.raises(HostprepError) as caught, lock("volumes", purpose="test"):
        pass
    hint = caught.value.hint or ""
    assert "or run it as that user" in hint and ("NFS" in hint) is told
