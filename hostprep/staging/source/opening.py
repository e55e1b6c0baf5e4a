"""Opening the source of a run, and checking a data set's name."""

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
# As in http://server/data, s3://bucket and server:/data.
_NO_FOLDER = re.compile(r"[^/]:/")
_MOUNT_HINT = (
    "if that is a URL, or a folder of another machine: mount it (NFS, sshfs, rclone mount), and"
    " name the mount point"
)

_SMB = ("cifs", "smb3")
# With one of these options the modes on an SMB mount are the server's; otherwise they are made up.
_MODES_OF_SERVER = ("cifsacl", "modefromsid", "posix", "unix")

_FOLLOWING = DIRECTORY_FLAGS & ~os.O_NOFOLLOW
_ON_THE_WAY = DIRECTORY_FLAGS | os.O_PATH


@contextmanager
def open_source(path: str, *, resolved: bool = False) -> Iterator[int]:
    """Open the source directory; ``path`` itself may be a symlink, because the user named it.

    A ``resolved`` path has none: otherwise, whoever may write above it could since have replaced
    part of it by a symlink, and made root copy what nobody else may read as the user's data.

    Raises ``UsageError`` if it is not a directory, ``HostprepError`` if it cannot be opened, and
    ``Refused`` for such a symlink, or if the kernel makes up its contents or those of a mount below
    it.
    """
    try:
        descriptor = _open_resolved(path) if resolved else os.open(path, _FOLLOWING)
        try:
            os.fstat(descriptor)  # sshfs opens even a folder that is gone from the server
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
            advice = "run it as a user who may read it"
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
                    if leads_in_circle(path):  # such a path cannot be resolved
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path) from None
                    # Nor can one with a symlink that this user may not read, such as /proc/1/root.
                    os.readlink(part, dir_fd=above)
                    raise Refused(
                        f"{part!r} on the way to the source {path} is a symlink now, and was not"
                        " a moment ago: it may lead to somebody else's files;"
                        " nothing was changed.",
                        f"namei -l {shlex.quote(path)} shows who may write there",
                    ) from None
                raise
            os.close(above)
            above = below
        return os.open(".", DIRECTORY_FLAGS, dir_fd=above)
    finally:
        os.close(above)


def _check_is_data(descriptor: int, path: str) -> None:
    """Raise ``Refused`` if the kernel makes up files of the source as they are read.

    Such files have no size to copy by, some never end, and reading others has side effects. Also
    raises it if the whole source is encrypted and locked.
    """
    mounts = read_mounts()
    mount = mount_of(descriptor, mounts)
    if mount is not None and mount.fstype in MADE_UP:
        raise Refused(
            f"the source {path} is not a data set: the kernel generates all that is in"
            f" {mount.fstype}; nothing was changed.",
            "name a directory of files on a disk or a share",
        )
    if how := how_locked(descriptor):  # it would look like a different source
        raise _locked(path, f"is {how}", unlocking(path))
    real = os.readlink(f"/proc/self/fd/{descriptor}")
    for mount in mounts:
        inside = mount.fstype in MADE_UP and lies_in(mount.target, real)
        if inside and mount_at(mount.target, mounts) == mount and not mount_over(mount, mounts):
            raise Refused(
                f"{mount.target} ({mount.fstype}) is mounted in the source {path}: the kernel"
                " generates all that is there; nothing was changed.",
                "name a directory that has only data in it, or unmount that first",
            )


def _locked(path: str, said: str, cure: str) -> Refused:
    return Refused(
        f"the source {path} {said}; nothing was changed.", f"{cure} and run the same command again"
    )


def is_served(source: str, storage_class: StorageClass) -> bool:
    """Whether a server or a program is behind a source, or behind something mounted in it.

    Those may cease to answer, and a process that waits for them cannot be interrupted, so workers
    ask them.
    """
    return storage_class in SERVED or any(
        is_remote(mount) and lies_in(mount.target, source) for mount in read_mounts()
    )


def admission_warning(source: str) -> str | None:
    """Warn if a server lets each user read only their own files, but the copy would not.

    With ``multiuser``, an SMB server checks which user reads, and the kernel ignores the modes.
    """
    mounts = read_mounts()
    below = mount_containing(source, mounts)
    for mount in mounts:
        if mount.fstype not in _SMB or not _admits_all(mount):
            continue
        inside = lies_in(mount.target, source) and mount_at(mount.target, mounts) == mount
        if mount == below or (inside and not mount_over(mount, mounts)):
            return (
                f"the server of {mount.target} decides for each user (multiuser) what they may"
                " read, which the copied modes do not show: every user of this machine who can"
                " reach the copy may read it; if it is mounted with dir_mode=0750 and a gid=,"
                " only that group may, and with cifsacl those whom the server's ACLs admit"
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
    """Return a callback for the seconds waited for a source, which tells the user about it."""
    impatience = Impatience(source, observer.note)

    def waited(seconds: float) -> None:
        impatience.waited(seconds)
        observer.progress(0, 0)  # no progress: this lets an observer notice that nothing moves

    return waited


def check_name(name: str) -> str:
    """Return ``name`` if a data set may have this name, otherwise raise ``UsageError``."""
    problem = name_problem(name)
    if problem:
        raise UsageError(
            f"{name!r} cannot name a data set: it {problem}.", "give another with --name NAME"
        )
    return name
