"""What is published: opening it, and checking whether all of its names are there."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress

from hostprep.errors import Refused
from hostprep.staging.target.owned import IN_THE_WAY
from hostprep.system.trees import DIRECTORY_FLAGS, DirCache, names_in

# What each name adds to the size of a directory on a tmpfs (BOGO_DIRENT_SIZE).
_NAME_SIZE = 20


def open_published(parent_fd: int, name: str) -> int | None:
    """Return a descriptor of the published data set, None if nothing has its name.

    Raises ``Refused`` if something that is not a directory has it, OSError if the file system
    fails.
    """
    try:
        return os.open(name, DIRECTORY_FLAGS, dir_fd=parent_fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in IN_THE_WAY:
            raise
        raise Refused(
            f"{name} on the target is not a directory that can be opened ({error.strerror}); "
            "nothing was changed.",
            "look at what it is and move it away",
        ) from None


def has_names(tree_fd: int, directories: Collection[str], least: int) -> bool:
    """Whether a tree's directories have at least this many names; missing ones have none."""
    # By the sizes of directories, as tmpfs defines them, in a hundredth of the time of listing
    # them.
    # If that gives too few, or means something else on this file system, listing decides.
    return any(sum(count(tree_fd, directories)) >= least for count in (_by_size, _by_listing))


def _by_size(tree_fd: int, directories: Iterable[str]) -> Iterator[int]:
    for path in directories:
        try:
            st = os.stat(path or ".", dir_fd=tree_fd, follow_symlinks=False)
        except OSError:  # also for a path that is too long for one call
            continue
        yield st.st_size // _NAME_SIZE - 2  # "." and ".."


def _by_listing(tree_fd: int, directories: Iterable[str]) -> Iterator[int]:
    with DirCache(tree_fd) as tree:
        for path in directories:
            with suppress(FileNotFoundError):
                yield len(names_in(tree.fd(path)))
