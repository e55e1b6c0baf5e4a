"""The durable replace: what is kept, in which order it happens, and when it does not happen."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from hostprep.errors import HostprepError, Refused
from hostprep.system.files import (
    ChangedMeanwhile,
    new_file_obstacle,
    read_snapshot,
    rehearse_replacing,
    remove_stale_temps,
    replace_file,
    replacing_refusal,
    writing_hint,
)
from hostprep.system.flushing import flush_directory, flush_file_system
from hostprep.system.own_files import write_atomically
from tests.kit.flushing import fail_to_flush_folders


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "etc" / "fstab"
    path.parent.mkdir()
    path.write_bytes(b"old\n")
    path.chmod(0o640)
    return path


def temps(path: Path) -> list[str]:
    return [name for name in os.listdir(path.parent) if name != path.name]


def test_replaces_the_content_and_keeps_the_mode(file: Path) -> None:
    replace_file(file, b"new\n", expected=read_snapshot(file))
    assert file.read_bytes() == b"new\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert temps(file) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_keeps_the_owner(file: Path) -> None:
    os.chown(file, 1234, 2345)
    replace_file(file, b"new\n", expected=read_snapshot(file))
    assert (file.stat().st_uid, file.stat().st_gid) == (1234, 2345)


def test_keeps_user_attributes(file: Path) -> None:
    set_or_skip(file, "user.note", b"theirs")
    replace_file(file, b"new\n", expected=read_snapshot(file))
    assert os.getxattr(file, "user.note") == b"theirs"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may set a label")
def test_keeps_the_selinux_label(file: Path) -> None:
    label = b"system_u:object_r:etc_t:s0\0"
    set_or_skip(file, "security.selinux", label)
    replace_file(file, b"new\n", expected=read_snapshot(file))
    assert os.getxattr(file, "security.selinux") == label


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may set a hash of the content")
def test_takes_no_hash_of_the_old_content_over(file: Path) -> None:
    set_or_skip(file, "security.ima", b"\x01" + b"x" * 20)
    replace_file(file, b"new\n", expected=read_snapshot(file))
    assert "security.ima" not in os.listxattr(file)


def test_keeps_an_acl_and_takes_no_default_acl_over(file: Path) -> None:
    def acl(user_permissions: int) -> bytes:
        # Version 2, then (tag, permissions, id): owner, user 1234, group, mask, others.
        none = 0xFFFFFFFF
        rows = [
            (1, 6, none),
            (2, user_permissions, 1234),
            (4, 4, none),
            (16, 6, none),
            (32, 0, none),
        ]
        return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *row) for row in rows)

    set_or_skip(file.parent, "system.posix_acl_default", acl(6))
    replace_file(file, b"new\n", expected=read_snapshot(file))
    assert "system.posix_acl_access" not in os.listxattr(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640

    os.setxattr(file, "system.posix_acl_access", acl(4))
    replace_file(file, b"newer\n", expected=read_snapshot(file))
    assert os.getxattr(file, "system.posix_acl_access") == acl(4)


def set_or_skip(path: Path, name: str, value: bytes) -> None:
    try:
        os.setxattr(path, name, value)
    except OSError as error:
        pytest.skip(f"{name} cannot be set here: {error.strerror}")


def test_makes_a_missing_file_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "fstab"
    assert read_snapshot(path) is None
    earlier = os.umask(0o077)
    try:
        replace_file(path, b"new\n", expected=None)
    finally:
        os.umask(earlier)
    assert path.read_bytes() == b"new\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_what_only_root_may_read_is_never_open_to_others(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []
    real = fcntl.flock

    def flock(descriptor: int, operation: int) -> None:  # the first that is done to the new file
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        real(descriptor, operation)

    file.chmod(0o600)
    monkeypatch.setattr(fcntl, "flock", flock)
    earlier = os.umask(0)
    try:
        replace_file(file, b"new\n", expected=read_snapshot(file))
    finally:
        os.umask(earlier)
    assert modes == [0o600]


def test_flushes_the_file_then_renames_then_flushes_the_directory(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[tuple[str, str, bytes]] = []
    real_fsync, real_rename = os.fsync, os.rename

    def fsync(descriptor: int) -> None:
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        content = b"" if os.path.isdir(name) else Path(name).read_bytes()
        events.append(("fsync", name, content))
        real_fsync(descriptor)

    def rename(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        events.append(("rename", f"{source} {target}", b""))
        real_rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", rename)
    replace_file(file, b"new\n", expected=read_snapshot(file))
    assert [event[0] for event in events] == ["fsync", "rename", "fsync"]
    temp = Path(events[0][1])
    assert temp.parent == file.parent
    assert events[0][2] == b"new\n"  # all of it was written before it was flushed
    assert events[1][1] == f"{temp.name} {file.name}"
    assert events[2][1] == str(file.parent)


def write_in_place(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"theirs\n")


def write_unnoticed_by_size_and_time(path: Path) -> None:
    status = path.stat()
    path.write_bytes(b"OLD\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def replace_by_rename(path: Path) -> None:
    other = path.with_name("theirs")
    other.write_bytes(b"theirs\n")
    other.rename(path)


def write_the_same_anew(path: Path) -> None:
    other = path.with_name("theirs")
    other.write_bytes(path.read_bytes())
    other.rename(path)


def change_mode(path: Path) -> None:
    path.chmod(0o600)


def remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(
    "interfere",
    [
        write_in_place,
        write_unnoticed_by_size_and_time,
        replace_by_rename,
        write_the_same_anew,
        change_mode,
        remove,
    ],
)
def test_stops_where_somebody_else_wrote_meanwhile(
    file: Path, interfere: Callable[[Path], None]
) -> None:
    theirs: list[object] = []

    def check(_: Path) -> None:
        interfere(file)
        theirs.append(read_snapshot(file))

    with pytest.raises(ChangedMeanwhile, match="somebody else wrote") as caught:
        replace_file(file, b"new\n", expected=read_snapshot(file), check=check)
    assert caught.value.exit_code == 5
    assert theirs == [read_snapshot(file)]
    assert [name for name in temps(file) if "hostprep" in name] == []


def test_stops_where_the_missing_file_has_come(tmp_path: Path) -> None:
    path = tmp_path / "fstab"
    with pytest.raises(ChangedMeanwhile):
        replace_file(path, b"new\n", expected=None, check=lambda _: path.write_bytes(b"x") and None)
    assert path.read_bytes() == b"x"


def test_a_missing_file_that_cannot_be_made_is_not_said_to_be_as_it_was() -> None:
    path = Path("/proc/hostprep.yml")  # where nobody can make a file
    with pytest.raises(HostprepError, match=r"/proc/hostprep.yml was not written: "):
        replace_file(path, b"new\n", expected=None)


def test_check_sees_the_whole_new_file_and_can_stop_it(file: Path) -> None:
    seen = []

    def check(candidate: Path) -> None:
        seen.append((candidate.read_bytes(), candidate.parent, candidate.stat().st_mode & 0o777))
        raise Refused("no")

    with pytest.raises(Refused, match="no"):
        replace_file(file, b"new\n", expected=read_snapshot(file), check=check)
    assert seen == [(b"new\n", file.parent, 0o640)]
    assert file.read_bytes() == b"old\n"
    assert temps(file) == []


def test_ctrl_c_leaves_the_old_file_and_no_litter(file: Path) -> None:
    def check(_: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replace_file(file, b"new\n", expected=read_snapshot(file), check=check)
    assert file.read_bytes() == b"old\n"
    assert temps(file) == []


def test_a_flush_that_fails_leaves_the_old_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(HostprepError, match=r"is as it was: Input/output error"):
        replace_file(file, b"new\n", expected=read_snapshot(file))
    assert file.read_bytes() == b"old\n"
    assert temps(file) == []


def test_a_directory_flush_that_fails_is_not_hidden(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_to_flush_folders(monkeypatch)
    with pytest.raises(HostprepError, match="may not survive a power cut"):
        replace_file(file, b"new\n", expected=read_snapshot(file))
    assert file.read_bytes() == b"new\n"


def test_what_is_replaced_is_not_said_to_be_as_it_was(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "unlink", failing)
    replace_file(file, b"new\n", expected=read_snapshot(file))
    assert file.read_bytes() == b"new\n"


def test_symlinks_are_refused_by_name(file: Path) -> None:
    link = file.with_name("link")
    link.symlink_to("fstab")
    with pytest.raises(Refused, match=r"link is a symlink to fstab"):
        read_snapshot(link)


def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", "."):
        with pytest.raises(Refused, match="not a regular file") as caught:
            read_snapshot(tmp_path / name)
        assert "move that away" in (caught.value.hint or "")


def test_a_directory_that_is_missing_is_an_error_with_the_path(tmp_path: Path) -> None:
    with pytest.raises(HostprepError, match="none/fstab"):
        replace_file(tmp_path / "none/fstab", b"", expected=None)


@pytest.fixture
def immutable_parent(file: Path) -> Iterator[Path]:
    """Make the file's directory immutable; return the file."""
    done = subprocess.run(["chattr", "+i", file.parent], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"chattr +i does not work here: {done.stderr.decode().strip()}")
    yield file
    subprocess.run(["chattr", "-i", file.parent], check=True)


def test_a_look_shows_nothing_but_that_a_directory_is_missing(file: Path) -> None:
    for path in (file, file.parent / "new"):
        assert replacing_refusal(path) is None
    missing = replacing_refusal(file.parent / "none/fstab")
    assert missing is not None and "cannot be written: No such file" in missing.message


def test_a_look_shows_that_a_directory_takes_no_new_file(immutable_parent: Path) -> None:
    new = immutable_parent.with_name("new")
    for path, what in (
        (immutable_parent, "cannot be replaced and is as it was"),
        (new, "cannot be written"),
    ):
        found = replacing_refusal(path)
        assert found is not None and found.exit_code == 5
        assert found.message == f"{path} {what}: Operation not permitted; nothing was changed."
        with pytest.raises(HostprepError, match="Operation not permitted"):
            replace_file(path, b"new\n", expected=read_snapshot(path))


def test_what_may_only_be_appended_to_is_found_before_anything_is_done(file: Path) -> None:
    """No look shows it: access(2) has nothing against writing to it."""
    done = subprocess.run(["chattr", "+a", file], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"chattr +a does not work here: {done.stderr.decode().strip()}")
    try:
        assert replacing_refusal(file) is None
        before = read_snapshot(file)
        for replaces in (rehearse_replacing, replace_file):
            with pytest.raises(HostprepError, match="is as it was: Operation not permitted"):
                replaces(file, b"new\n", expected=before)
        assert read_snapshot(file) == before and temps(file) == []
    finally:
        subprocess.run(["chattr", "-a", file], check=True)
    rehearse_replacing(file, b"new\n", expected=read_snapshot(file))
    assert file.read_bytes() == b"old\n" and temps(file) == []


def test_the_replacing_of_what_is_not_there_yet_is_rehearsed_too(tmp_path: Path) -> None:
    rehearse_replacing(tmp_path / "fstab", b"new\n", expected=None)
    assert os.listdir(tmp_path) == []


def test_a_file_system_that_is_not_flushed_is_an_error() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        flush_file_system(-1)


@pytest.mark.parametrize(("number", "raised"), [(errno.EIO, True), (errno.EINVAL, False)])
def test_a_folder_that_is_not_flushed_is_told_of_where_it_could_be(
    number: int, raised: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="output error") if raised else nullcontext():
        flush_directory(tmp_path)


@pytest.mark.parametrize(
    ("room", "obstacle"),
    [
        ({"f_blocks": 9, "f_bfree": 1, "f_files": 9, "f_ffree": 1}, None),
        ({"f_blocks": 9, "f_bfree": 0, "f_files": 9, "f_ffree": 1}, errno.ENOSPC),
        ({"f_blocks": 9, "f_bfree": 1, "f_files": 9, "f_ffree": 0}, errno.ENOSPC),
        ({"f_blocks": 0, "f_bfree": 0, "f_files": 0, "f_ffree": 0}, None),  # a tmpfs without limits
        ({"f_flag": os.ST_RDONLY}, errno.EROFS),
    ],
)
def test_a_look_shows_what_a_file_system_has_no_more_room_for(
    room: dict[str, int], obstacle: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(**{"f_flag": 0, **room}))
    assert new_file_obstacle(tmp_path) == obstacle


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_of_our_own_is_flushed_before_it_has_its_name_and_its_folder_after(
    durable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "record"
    events: list[tuple[str, bytes | None]] = []

    def fsync(descriptor: int) -> None:
        what = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        events.append((what, path.read_bytes() if path.exists() else None))

    monkeypatch.setattr(os, "fsync", fsync)
    write_atomically(path, [b"a", b"b"], durable=durable)
    assert path.read_bytes() == b"ab"
    assert events == ([("file", None), ("folder", b"ab")] if durable else [])


def test_a_file_of_our_own_stays_ours_where_its_readers_cannot_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container that does not know their group, on a file system without ACLs."""

    def refusing(*_: object) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "fchown", refusing)
    monkeypatch.setattr(os, "setxattr", refusing)
    write_atomically(tmp_path / "record", [b"a"], durable=False, mode=0o640, gid=7, uid=1234)
    assert (tmp_path / "record").read_bytes() == b"a"
    assert stat.S_IMODE((tmp_path / "record").stat().st_mode) == 0o600


def test_a_file_of_our_own_that_could_not_be_written_leaves_the_old_one_and_no_litter(
    tmp_path: Path,
) -> None:
    def parts() -> Iterator[bytes]:
        yield b"new"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "record"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="No space") as caught:
        write_atomically(path, parts(), durable=False)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"old" and temps(path) == []


def test_a_disk_that_fails_has_a_hint(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("os.fsync", broken)
    with pytest.raises(HostprepError, match="is as it was: Input/output error") as caught:
        replace_file(file, b"new\n", expected=read_snapshot(file))
    assert "dmesg" in str(caught.value.hint)


def test_stale_temps_go_and_others_stay(file: Path) -> None:
    stale = file.with_name(".fstab.hostprep-0123456789abcdef")
    held = file.with_name(".fstab.hostprep-fedcba9876543210")
    theirs = [
        file.with_name(name)
        for name in (".fstab.hostprep-backup", "fstab.bak", ".group.hostprep-0123456789abcdef")
    ]
    link = file.with_name(".fstab.hostprep-aaaaaaaaaaaaaaaa")
    link.symlink_to("fstab")
    for path in (stale, held, *theirs):
        path.write_bytes(b"x")
    with held.open("rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        remove_stale_temps(file)
    others = {link.name, *(path.name for path in theirs)}
    assert set(temps(file)) == {held.name, *others}
    remove_stale_temps(file)
    assert set(temps(file)) == others


def test_a_folder_that_cannot_be_listed_is_not_said_to_hold_leftovers(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    stale = file.with_name(".fstab.hostprep-0123456789abcdef")
    stale.touch()
    with monkeypatch.context() as patch, pytest.raises(HostprepError) as caught:
        patch.setattr(os, "listdir", failing)
        remove_stale_temps(file)
    assert caught.value.message == (
        f"{file} was not written: its folder cannot be listed: Too many open files."
    )
    monkeypatch.setattr(os, "unlink", failing)
    with pytest.raises(HostprepError, match=f"{stale.name}, beside it, is left of a killed run"):
        remove_stale_temps(file)


def test_who_may_not_write_a_file_may_name_another_place() -> None:
    # Root as well: of a server it is nobody, so that "run it as root" helps neither.
    hint = writing_hint(PermissionError(errno.EACCES, "Permission denied"))
    assert hint == "run it as a user who may write there, or name another place"
