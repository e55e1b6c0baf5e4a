"""Opening the source of a run, and its name as that of a data set."""

from __future__ import annotations

import errno
import os
import re
import shlex
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hostprep.errors import (
    ROOT_KEPT_OUT,
    HostprepError,
    Refused,
    UsageError,
    failed_by_host,
    reading_hint,
)
from hostprep.host.answering import Impatience
from hostprep.host.block import MADE_UP, SERVED, StorageClass, is_remote
from hostprep.host.fscrypt import how_locked, locked_out, unlocking
from hostprep.host.mounts import (
    Mount,
    lies_in,
    mount_at,
    mount_containing,
    mount_of,
    mount_over,
    read_mounts,
)
from hostprep.spec.names import name_problem
from hostprep.staging.observer import Observer
from hostprep.system.links import leads_in_circle
from hostprep.system.trees import DIRECTORY_FLAGS

# `findmnt -T` says nothing of a path that is not there.
MISSING_HINT = (
    "is the path right, and its file system mounted? `findmnt --real` lists those that are"
)
# As of http://server/data, s3://bucket and server:/data.
_NO_FOLDER = re.compile(r"[^/]:/")
_MOUNT_HINT = (
    "if that is a URL, or a folder of another machine: mount it (NFS, sshfs, rclone mount), and"
    " name where"
)

_SMB = ("cifs", "smb3")
# With one of these the modes that SMB shows are the server's; otherwise the mount makes them up.
_MODES_OF_SERVER = ("cifsacl", "modefromsid", "posix", "unix")

_FOLLOWING = DIRECTORY_FLAGS & ~os.O_NOFOLLOW
_ON_THE_WAY = DIRECTORY_FLAGS | os.O_PATH


@contextmanager
def open_source(path: str, *, resolved: bool = False) -> Iterator[int]:
    """Open the source directory; ``path`` itself may be a symlink, since the user named it.

    One that is ``resolved`` has none: whoever may write above it could make one of a part of it
    since, and have root copy what nobody else may look into under the name of the user's data.

    Raises ``UsageError`` where it is no directory, ``HostprepError`` where it cannot be opened, and
    ``Refused`` for such a symlink, and where what is in it, or in a mount below it, is made up by
    the kernel.
    """
    try:
        descriptor = _open_resolved(path) if resolved else os.open(path, _FOLLOWING)
        try:
            os.fstat(descriptor)  # sshfs opens a folder that the server has no more
        except OSError:
            os.close(descriptor)
            raise
    except FileNotFoundError:
        if locked := locked_out(path):
            raise _locked(path, *locked) from None
        hint = _MOUNT_HINT if _NO_FOLDER.search(path) else MISSING_HINT
        raise UsageError(f"the source {path} does not exist.", hint) from None
    except NotADirectoryError:
        raise UsageError(
            f"the source {path} is a file; a data set is a directory.",
            "name the directory that holds it",
        ) from None
    except OSError as error:
        told = failed_by_host(error) or error.errno == errno.ELOOP
        advice = reading_hint(error) if told else None
        if isinstance(error, PermissionError):
            advice = "run it as one who may read it"
            if os.geteuid() == 0:
                advice += f"; {ROOT_KEPT_OUT}"
        raise HostprepError(
            f"the source {path} cannot be opened: {error.strerror}; nothing was changed.", advice
        ) from None
    try:
        _check_is_data(descriptor, path)
        yield descriptor
    finally:
        os.close(descriptor)


def _open_resolved(path: str) -> int:
    """Open a directory by a path without symlinks, each part of it from the one before."""
    above = os.open("/", _ON_THE_WAY)
    try:
        for part in filter(None, path.split("/")):
            try:
                below = os.open(part, _ON_THE_WAY, dir_fd=above)
            except NotADirectoryError:
                if stat.S_ISLNK(os.stat(part, dir_fd=above, follow_symlinks=False).st_mode):
                    if leads_in_circle(path):  # which has no path without symlinks
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path) from None
                    # Nor has one whose symlink this user may not read, as /proc/1/root is.
                    os.readlink(part, dir_fd=above)
                    raise Refused(
                        f"{part!r} on the way to the source {path} is a symlink, and was none a"
                        " moment ago: what it leads to may be another's; nothing was changed.",
                        f"namei -l {shlex.quote(path)} shows who may write there",
                    ) from None
                raise
            os.close(above)
            above = below
        return os.open(".", DIRECTORY_FLAGS, dir_fd=above)
    finally:
        os.close(above)


def _check_is_data(descriptor: int, path: str) -> None:
    """Raise ``Refused`` where files of the source are made up by the kernel as they are read.

    They have no size to copy by, some never end, and reading others has effects. And where all of
    it is encrypted and locked.
    """
    mounts = read_mounts()
    mount = mount_of(descriptor, mounts)
    if mount is not None and mount.fstype in MADE_UP:
        raise Refused(
            f"the source {path} is no data set: the kernel makes up what is in {mount.fstype};"
            " nothing was changed.",
            "name a directory of files on a disk or a share",
        )
    if how := how_locked(descriptor):  # one that was staged before would be taken for exchanged
        raise _locked(path, f"is {how}", unlocking(path))
    real = os.readlink(f"/proc/self/fd/{descriptor}")
    for mount in mounts:
        inside = mount.fstype in MADE_UP and lies_in(mount.target, real)
        if inside and mount_at(mount.target, mounts) == mount and not mount_over(mount, mounts):
            raise Refused(
                f"{mount.target} ({mount.fstype}) is mounted in the source {path}: the kernel makes"
                " up what is there; nothing was changed.",
                "name a directory that has only data in it, or unmount that first",
            )


def _locked(path: str, said: str, cure: str) -> Refused:
    return Refused(
        f"the source {path} {said}; nothing was changed.", f"{cure} and run the same command again"
    )


def is_served(source: str, storage_class: StorageClass) -> bool:
    """Whether a server or a program stands before a source, or before what is mounted in it.

    That may cease to answer, and who waits for it cannot be interrupted: workers ask it.
    """
    return storage_class in SERVED or any(
        is_remote(mount) and lies_in(mount.target, source) for mount in read_mounts()
    )


def admission_warning(source: str) -> str | None:
    """Say where a server lets each user read what is theirs, and the copy everybody all of it.

    With ``multiuser`` an SMB server goes by who it is that reads, and the kernel looks at no mode.
    """
    mounts = read_mounts()
    below = mount_containing(source, mounts)
    for mount in mounts:
        if mount.fstype not in _SMB or not _admits_all(mount):
            continue
        inside = lies_in(mount.target, source) and mount_at(mount.target, mounts) == mount
        if mount == below or (inside and not mount_over(mount, mounts)):
            return (
                f"the server of {mount.target} decides for each user (multiuser) what to give, of"
                " which the modes that are copied say nothing: all users of this machine who get"
                " to the copy may read it; mounted with dir_mode=0750 and a gid=, only that group"
                " may, and with cifsacl those whom the server's ACLs let in"
            )
    return None


def _admits_all(mount: Mount) -> bool:
    made_up = all(mount.option(name) is None for name in _MODES_OF_SERVER)
    modes = [int(mount.option(name) or "0", 8) for name in ("file_mode", "dir_mode")]
    return (
        mount.option("multiuser") is not None
        and made_up
        and bool(modes[0] & stat.S_IROTH and modes[1] & stat.S_IXOTH)
    )


def patience_for(source: str, observer: Observer) -> Callable[[float], None]:
    """Return what is told how many seconds were waited for a source, and tells who keeps us."""
    impatience = Impatience(source, observer.note)

    def waited(seconds: float) -> None:
        impatience.waited(seconds)
        observer.progress(0, 0)  # nothing more: whose patience ends has to see that

    return waited


def check_name(name: str) -> str:
    """Return ``name`` if a data set may be called so, else raise ``UsageError``."""
    problem = name_problem(name)
    if problem:
        raise UsageError(
            f"{name!r} cannot name a data set: it {problem}.", "give another by --name NAME"
        )
    return name
