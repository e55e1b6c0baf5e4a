"""Compares a source with what is staged, one directory at a time, and decides what to do.

Pure: four listings of one directory in, the decision for each name out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from typing import TypeGuard

from hostprep.dataclass import dataclass
from hostprep.staging.model import Entry, Recorded


@dataclass(frozen=True, slots=True)
class DirectoryDiff:
    """The decisions for one directory.

    ``copy`` are entries to copy; ``keep`` are records of what is published and stays; ``done`` are
    records of what an interrupted run has copied and verified in its private tree; ``delete`` are
    names that are published, ours, and gone from the source; ``foreign`` are names that somebody
    else put there; ``blocked`` are entries whose place somebody else has taken.
    """

    copy: tuple[Entry, ...]
    keep: tuple[Recorded, ...]
    done: tuple[Recorded, ...]
    delete: tuple[str, ...]
    foreign: tuple[str, ...]
    blocked: tuple[Entry, ...]


def diff_directory(
    source: Iterable[Entry],
    *,
    manifest: Mapping[str, Recorded],
    journal: Mapping[str, Recorded],
    published: Mapping[str, Entry],
    private: Mapping[str, Entry],
    subdirectories: frozenset[str] = frozenset(),
    links_stand: Callable[[Entry, Entry, str], bool] = lambda entry, here, group: True,
    verified: bool = False,
    promised: Set[str] = frozenset(),
) -> DirectoryDiff:
    """Compare the files and symlinks of one source directory with the records and what is there.

    ``manifest`` records what is published, ``journal`` what an interrupted run did; ``published``
    and ``private`` are the present contents of the two trees. A record counts only if its entry is
    really there. ``subdirectories`` are the source's, which are never deleted.
    ``links_stand(entry, here, group)`` says whether keeping a file, which was recorded in a group,
    leaves the groups of hard links right; it is asked about everything that is as recorded, even if
    it is copied again.
    If all is to be ``verified``, entries copied without a hash are copied again. Names that are
    ``promised`` are recorded but may never have been put there: anything else there is not ours.
    """
    copy, keep, done, blocked = [], [], [], []
    seen = set()
    for entry in source:
        name = entry.name
        seen.add(name)
        old, new = manifest.get(name), journal.get(name)
        here, prepared = published.get(name), private.get(name)
        if (
            name in promised
            and here is not None
            and not any(known is not None and known.present_as(here) for known in (old, new))
        ):
            blocked.append(entry)
            continue
        if _stays(new, entry, prepared, links_stand, verified):
            done.append(new)
        # An update that was killed while publishing has already moved it to its place.
        elif _stays(new, entry, here, links_stand, verified):
            keep.append(new)
        elif _stays(old, entry, here, links_stand, verified):
            keep.append(old)
        elif here is not None and old is None and new is None:
            blocked.append(entry)
        else:
            copy.append(entry)
    delete, foreign = [], []
    for name, here in published.items():
        if name in seen or name in subdirectories:
            continue
        known = manifest.get(name) or journal.get(name)
        if known is not None and known.present_as(here):
            delete.append(name)
        else:
            foreign.append(name)
    return DirectoryDiff(
        tuple(copy), tuple(keep), tuple(done), tuple(delete), tuple(foreign), tuple(blocked)
    )


def _stays(
    known: Recorded | None,
    entry: Entry,
    there: Entry | None,
    links_stand: Callable[[Entry, Entry, str], bool],
    verified: bool,
) -> TypeGuard[Recorded]:
    """Whether ``there`` is as recorded, and the record is as ``entry`` requires."""
    if known is None or there is None or not (known.same_as(entry) and known.present_as(there)):
        return False
    # Asked even if the record will not do: it also shows which files of the two sides correspond.
    stands = links_stand(entry, there, known.group)
    return stands and _serves(known, entry, verified)


def _serves(known: Recorded, entry: Entry, verified: bool) -> bool:
    """Whether the record of an entry equal to ``entry`` is all that is wanted of it.

    Not if the file was staged by itself and has become a hard link since. Symlinks with several
    names are staged one by one.
    """
    if verified and known.content is None:
        return False
    return known.kind != "f" or entry.nlink <= 1 or bool(known.group)
