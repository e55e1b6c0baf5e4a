"""Tells what the target's file system cannot hold from what is wrong with the source."""

from __future__ import annotations

import errno
import os
import re
from types import TracebackType

from hostprep.host.capabilities import Capability, has_capability
from hostprep.staging.reasons import FILE_SIZE_LIMIT, NO_CHOWN, TARGET_CANNOT
from hostprep.system.limits import file_size_limit

THIS_NAME = "this name"
FOLDER_NAME = "the name of its folder"
SYMLINKS = "symlinks"
LINK_TIMES = "the times of symlinks"
_THIS_SYMLINK = "a symlink whose name or target is so long"  # XFS: 1,023 bytes
HARD_LINKS = "hard links"
OWNER = "its owner or mode"
_THIS_SIZE = "a file of this size"

# Errors of looking up or making an entry if the file system cannot hold its name.
NAME_REFUSALS = (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ)
_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL, errno.EMLINK)
# Allowed by every file system still in use; NTFS and SMB do not allow names that end with a dot.
_PLAIN = re.compile(r"[ !#-)+-.0-9;=@-Z\[\]^-{}~]{0,99}[!#-)+,0-9;=@-Z\[\]^-{}~-]", re.ASCII)
# If fewer inodes than this are left, inodes are what is lacking: tmpfs counts a file's attributes
# as inodes of 1 KiB, and one attribute may have 64 KiB.
_FEW_INODES = 65


def is_plain(name: str) -> bool:
    """Whether every file system can hold an entry of this name."""
    return _PLAIN.fullmatch(name) is not None


class holding:
    """Turn an error of making an entry into one that says that the target cannot hold ``what``.

    ``path`` is for entries that are made by name: exFAT reports "not found" for a name that it
    cannot hold. This is a class because a generator would cost as much as the system call itself.
    """

    __slots__ = ("_path", "_what")

    def __init__(self, what: str, path: str = "") -> None:
        self._what = what
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not isinstance(error, OSError):
            return
        links = _LINKS if self._what in (SYMLINKS, HARD_LINKS, OWNER) else ()
        nameless = error.errno == errno.ENOENT and not all(map(is_plain, self._path.split("/")))
        if error.errno in (*NAME_REFUSALS, *links) or (self._path and nameless):
            what = self._what
            # A container that was started without that capability.
            if what == OWNER and error.errno == errno.EPERM and _may_not_chown():
                raise OSError(error.errno, NO_CHOWN) from error
            if what == SYMLINKS and error.errno == errno.ENAMETOOLONG:
                what = _THIS_SYMLINK
            said = f"{TARGET_CANNOT}{what}: {error.strerror}"
            raise OSError(error.errno, said) from error


def _may_not_chown() -> bool:
    return os.geteuid() == 0 and not has_capability(Capability.CHOWN)


def is_unholdable(error: OSError) -> bool:
    """Whether ``holding`` raised it."""
    return (error.strerror or "").startswith(TARGET_CANNOT)


def reason_of(error: OSError) -> str:
    """Return the reason to report for an entry that could not be copied."""
    said = error.strerror or str(error)
    if error.errno != errno.EFBIG:
        return said
    limit = file_size_limit()
    if limit is not None:
        return f"{FILE_SIZE_LIMIT}{limit:,} bytes: {said}"
    return f"{TARGET_CANNOT}{_THIS_SIZE}: {said}"


def lacks_inodes(descriptor: int) -> bool:
    """Whether a full file system has run out of inodes, if it has a limit on them."""
    try:
        room = os.fstatvfs(descriptor)
    except OSError:
        return False
    # Other workers may already have freed what they could not fill.
    return room.f_files > 0 and room.f_favail < _FEW_INODES and room.f_bavail * room.f_frsize > 0


def is_full(descriptor: int) -> bool:
    """Whether a file system that has no room for one thing has none at all."""
    return lacks_inodes(descriptor) or os.fstatvfs(descriptor).f_bavail == 0
