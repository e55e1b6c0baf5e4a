"""What the target's file system cannot hold, told apart from what is wrong with the source."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

from hostprep.staging.model import TARGET_CANNOT

THIS_NAME = "this name"
FOLDER_NAME = "the name of its folder"
SYMLINKS = "symlinks"
HARD_LINKS = "hard links"
OWNER = "its owner or mode"
_THIS_SIZE = "a file of this size"

# What looking at, or making, an entry gives where the file system cannot hold its name.
NAME_REFUSALS = (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ)
_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL, errno.EMLINK)
# Holds on every file system that is still in use; NTFS and SMB also end no name with a dot.
_PLAIN = re.compile(r"[ !#-)+-.0-9;=@-Z\[\]^-{}~]{0,99}[!#-)+,0-9;=@-Z\[\]^-{}~-]", re.ASCII)


def is_plain(name: str) -> bool:
    """Whether every file system can hold an entry of this name."""
    return _PLAIN.fullmatch(name) is not None


@contextmanager
def holding(what: str, path: str = "") -> Iterator[None]:
    """Say of an error of making an entry that it is the target that cannot hold ``what``.

    ``path`` is of what is made, by its name: exFAT calls one that it cannot hold not found.
    """
    try:
        yield
    except OSError as error:
        links = _LINKS if what in (SYMLINKS, HARD_LINKS, OWNER) else ()
        nameless = error.errno == errno.ENOENT and not all(map(is_plain, path.split("/")))
        if error.errno not in (*NAME_REFUSALS, *links) and not (path and nameless):
            raise
        raise OSError(error.errno, f"{TARGET_CANNOT}{what}: {error.strerror}") from error


def is_unholdable(error: OSError) -> bool:
    """Whether ``holding`` raised it."""
    return (error.strerror or "").startswith(TARGET_CANNOT)


def reason_of(error: OSError) -> str:
    """Return what to say of an entry that could not be copied."""
    said = error.strerror or str(error)
    return f"{TARGET_CANNOT}{_THIS_SIZE}: {said}" if error.errno == errno.EFBIG else said
