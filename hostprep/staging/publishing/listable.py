"""Who may list every non-empty folder of a data set, so that its names are no secret to them.

According to the source, and to the copy if that is closed to more users: its file system may have
no ACLs, or it may be in a folder that is closed itself. Whatever is unknown counts as closed.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from hostprep.staging.record.readers import (
    ALL,
    LIST,
    PASS,
    ROOT,
    Readers,
    common,
    who_may,
    who_may_here,
)
from hostprep.staging.source.scan import Scan
from hostprep.system.following import followed

# A lookup takes 5 us or more: with a folder for each sample, a tenth of the whole run. Copies have
# the modes of their sources, and an ACL that allows less is mostly one for everything below it.
_MOST_COPIES = 2000


def who_may_list(
    scan: Scan,
    tree_fd: int | None,
    parent: str,
    passing: Mapping[str, Readers] = MappingProxyType({}),
) -> Readers:
    """Return who may list all that was staged; ``tree_fd`` are the copies, meant for ``parent``.

    Empty folders, such as ``lost+found``, do not matter. With None the copies are not looked at;
    they may be closed to more users, also by an ACL. ``passing`` says, by path, who will be let
    through folders above that are still to be changed.
    """
    readers = ALL if os.geteuid() == 0 else ROOT  # a user's own records do not depend on this
    for each in _one_by_one(scan, tree_fd, parent, passing):
        if readers == ROOT:
            break
        readers = common(readers, each)
    return readers


def _one_by_one(
    scan: Scan, tree_fd: int | None, parent: str, passing: Mapping[str, Readers]
) -> Iterator[Readers]:
    if scan.unreadable:  # the scan does not know what remains of these from before
        yield ROOT
    holding = _holding(scan)
    if not holding <= scan.directories.keys():  # a folder that the target could not hold
        yield ROOT
    folders = (entry for path, entry in scan.directories.items() if path in holding)
    for mode, uid, gid in {(entry.mode, entry.uid, entry.gid) for entry in folders}:
        yield who_may(LIST, mode, uid, gid)
    above = Path(followed(parent))
    for folder in map(str, (above, *above.parents)):
        yield passing.get(folder) or _on_target(PASS, folder)
    if tree_fd is not None:
        copies = (path for path in scan.directories if path in holding)  # upper folders come first
        for path in itertools.islice(copies, _MOST_COPIES):
            yield _on_target(LIST, f"/proc/self/fd/{tree_fd}/{path}")


def _holding(scan: Scan) -> set[str]:
    """Return the folders that contain anything, even a name that was left out."""
    found = {each.directory for each in scan.listings if each.files}
    found.update(path.rpartition("/")[0] for path in scan.directories if path)
    found.update(each.path.rpartition("/")[0] for each in scan.skipped)
    return found


def _on_target(bits: int, place: str) -> Readers:
    try:
        return who_may_here(bits, place)
    except (FileNotFoundError, NotADirectoryError):
        return ALL  # it was not staged
    except OSError:
        return ROOT
