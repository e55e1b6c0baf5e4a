"""Replacing a system file durably: at any moment there is the old file or the new one.

The new content goes into a temporary file next to the old one, with its mode, owner, ACL and
SELinux label; it is flushed to disk, checked, and renamed over the old one; then the directory is
flushed. Right before the rename the old file is read again, and if somebody else wrote to it,
nothing happens. The tools that edit it share no lock, so this second look is the protection; what
remains is the instant between the look and the rename.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError, Refused, reading_hint
from hostprep.system.access import may_access
from hostprep.system.acls import ACCESS_ACL
from hostprep.system.descriptors import closing_fd
from hostprep.system.flushing import NotFlushed
from hostprep.system.trees import FILE_FLAGS

_TEMP_INFIX = ".hostprep-"
# The kernel computes these two from the content; a copy would be wrong or refused.
_XATTRS_OF_CONTENT = frozenset({"security.ima", "security.evm"})
_HINTS = {
    errno.EACCES: "run it as a user who may write there, or name another place",
    errno.EPERM: "`lsattr` shows whether it is immutable or append-only (as root: chattr -ia)",
    errno.ENOENT: "make its folder first (mkdir -p), or name another place",
    errno.EROFS: "its file system is mounted read-only; `findmnt -T` with the path names it",
    errno.ENOSPC: "its file system is full; `df` with the path names it",
    errno.EDQUOT: "its file system's quota is used up; `quota -s` shows it",
}


class ChangedMeanwhile(Refused):
    """Somebody else wrote to the file between our reading and our replacing it."""

    code = "changed_meanwhile"


@dataclass(frozen=True, slots=True)
class FileSnapshot:
    """A regular file at one moment; equal snapshots mean that nobody touched it in between."""

    content: bytes
    device: int
    inode: int
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    ctime_ns: int
    xattrs: tuple[tuple[str, bytes], ...]


def read_snapshot(path: Path) -> FileSnapshot | None:
    """Return the file as it is now, None if there is none.

    Raises ``Refused`` for a symlink and for anything else that is not a regular file.
    """
    try:
        descriptor = os.open(path, FILE_FLAGS)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _link_refusal(path) from None
        raise _failed(path, "cannot be read", error) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise Refused(
                f"{path} is not a regular file; nothing was changed.",
                "see what has its name (`ls -ld` with the path), and move that away",
            )
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read()
        return FileSnapshot(
            content=content,
            device=status.st_dev,
            inode=status.st_ino,
            mode=stat.S_IMODE(status.st_mode),
            uid=status.st_uid,
            gid=status.st_gid,
            mtime_ns=status.st_mtime_ns,
            ctime_ns=status.st_ctime_ns,
            xattrs=_xattrs(descriptor),
        )
    except OSError as error:
        raise _failed(path, "cannot be read", error) from None
    finally:
        os.close(descriptor)


def replace_file(
    path: Path,
    content: bytes,
    *,
    expected: FileSnapshot | None,
    check: Callable[[Path], None] | None = None,
) -> None:
    """Replace the file that ``expected`` describes by ``content``, durably.

    ``expected`` is None if there is no file yet; it is created with mode 0644 then. ``check`` gets
    the finished temporary file and stops everything by raising. Raises ``ChangedMeanwhile`` if the
    file is no longer as expected, ``HostprepError`` if the file system refuses; the old file is
    untouched in all these cases, except for ``NotFlushed``.
    """
    with _parent(path) as directory:
        replaced = False
        try:
            with _temporary(directory, path, content, expected, check) as name:
                if read_snapshot(path) != expected:
                    raise ChangedMeanwhile(
                        f"somebody else wrote to {path} in the meantime; their version stays, and"
                        " nothing of ours was written.",
                        "run the same command again when the other program is done",
                    )
                os.rename(name, path.name, src_dir_fd=directory, dst_dir_fd=directory)
                replaced = True
        except OSError as error:
            what = "could not be replaced and is as it was" if expected else "was not written"
            if not replaced:  # otherwise the temporary name is gone, even on a failing disk
                raise _failed(path, what, error) from None
        try:
            os.fsync(directory)
        except OSError as error:
            failed = _failed(path, "was replaced, but may not survive a power cut", error)
            raise NotFlushed(failed.message, failed.hint) from None


def rehearse_replacing(
    path: Path,
    content: bytes,
    *,
    expected: FileSnapshot | None,
    check: Callable[[Path], None] | None = None,
) -> None:
    """Do what ``replace_file`` does up to the rename, and leave no trace; raise as it would."""
    with _parent(path) as directory:
        try:
            with _temporary(directory, path, content, expected, check):
                if expected is not None:
                    # Renaming over an immutable file fails just as opening it for writing does.
                    os.close(os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC))
        except OSError as error:
            raise _failed(path, "cannot be replaced and is as it was", error) from None


def replacing_refusal(path: Path) -> Refused | None:
    """Return why ``replace_file`` would fail, as far as a look shows.

    For a plan, which must leave no trace at all: ``rehearse_replacing`` finds the rest.
    """
    if os.path.islink(path):
        return _link_refusal(path)
    code = _obstacle(path)
    if code is None:
        return None
    what = "cannot be replaced and is as it was" if os.path.lexists(path) else "cannot be written"
    failed = _failed(path, what, OSError(code, os.strerror(code)))
    return Refused(f"{failed.message.removesuffix('.')}; nothing was changed.", failed.hint)


def remove_stale_temps(path: Path) -> None:
    """Remove the temporary files that killed runs left next to ``path``.

    A running process holds a lock on its own, so those stay.
    """
    ours = re.compile(re.escape(f".{path.name}{_TEMP_INFIX}") + "[0-9a-f]{16}")
    try:
        names = os.listdir(path.parent)
    except OSError as error:
        raise _failed(path, "was not written: its folder cannot be listed", error) from None
    for name in filter(ours.fullmatch, names):
        try:
            _remove_unlocked(path.parent / name)
        except OSError as error:
            what = f"was not written: {name}, beside it, is left of a killed run, and stays"
            raise _failed(path, what, error) from None


def _link_refusal(path: Path) -> Refused:
    return Refused(
        f"{path} is a symlink to {os.readlink(path)}; replacing it would cut the link, so nothing"
        " was changed.",
        "make it a plain file, or change the file it points to yourself",
    )


def _obstacle(path: Path) -> int | None:
    code = new_file_obstacle(path.parent)
    if code is not None or not path.exists() or may_access(path, os.W_OK):
        return code
    return _not_permitted()


def new_file_obstacle(directory: Path) -> int | None:
    """Return the errno with which a new file in a directory would fail, as far as a look shows.

    None if nothing prevents it.
    """
    try:
        room = os.statvfs(directory)
    except OSError as error:
        return error.errno
    if room.f_flag & os.ST_RDONLY:
        return errno.EROFS
    # A file system without a limit reports no blocks, or inodes, at all.
    if (room.f_blocks and not room.f_bfree) or (room.f_files and not room.f_ffree):
        return errno.ENOSPC
    may_write = may_access(directory, os.W_OK | os.X_OK)
    return None if may_write else _not_permitted()


def _not_permitted() -> int:
    return errno.EPERM if os.geteuid() == 0 else errno.EACCES  # root's is immutable


@contextmanager
def _parent(path: Path) -> Iterator[int]:
    try:
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _failed(path, "was not written", error) from None
    with closing_fd(directory):
        yield directory


@contextmanager
def _temporary(
    directory: int,
    path: Path,
    content: bytes,
    expected: FileSnapshot | None,
    check: Callable[[Path], None] | None,
) -> Iterator[str]:
    """Yield the name of the finished and checked temporary file; remove it unless it is renamed."""
    name = f".{path.name}{_TEMP_INFIX}{os.urandom(8).hex()}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    temp = os.open(name, flags, 0o600, dir_fd=directory)
    try:
        fcntl.flock(temp, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with open(temp, "wb", closefd=False) as file:
            file.write(content)
        if expected is None:
            os.fchmod(temp, 0o644)
        else:
            _take_attributes(temp, expected)
        os.fsync(temp)
        if check is not None:
            check(path.parent / name)
        yield name
    finally:
        try:
            os.unlink(name, dir_fd=directory)
        except FileNotFoundError:
            pass  # it was renamed
        os.close(temp)


def _take_attributes(descriptor: int, model: FileSnapshot) -> None:
    # The owner first, because chown clears capabilities; the mode last, because ACLs change it.
    os.fchown(descriptor, model.uid, model.gid)
    wanted = dict(model.xattrs)
    have = dict(_xattrs(descriptor))
    if ACCESS_ACL in have and ACCESS_ACL not in wanted:
        os.removexattr(descriptor, ACCESS_ACL)  # inherited from the directory's default ACL
    for name, value in wanted.items():
        if have.get(name) != value:
            os.setxattr(descriptor, name, value)
    os.fchmod(descriptor, model.mode)


def _xattrs(descriptor: int) -> tuple[tuple[str, bytes], ...]:
    try:
        names = sorted(set(os.listxattr(descriptor)) - _XATTRS_OF_CONTENT)
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return ()
        raise
    return tuple((name, os.getxattr(descriptor, name)) for name in names)


def _remove_unlocked(path: Path) -> None:
    try:
        descriptor = os.open(path, FILE_FLAGS)
    except OSError:
        return  # it is gone, or not a file that we made
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
    except (BlockingIOError, FileNotFoundError):
        pass  # a running process's, or gone meanwhile
    finally:
        os.close(descriptor)


def writing_hint(error: OSError, otherwise: str | None = None) -> str:
    """Return what to do about a file that could not be written; ``otherwise`` if none is known."""
    return _HINTS.get(error.errno or 0) or otherwise or reading_hint(error)


def _failed(path: Path, what: str, error: OSError) -> HostprepError:
    return HostprepError(f"{path} {what}: {error.strerror}.", writing_hint(error))
