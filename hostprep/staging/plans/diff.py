"""Compare a source with what is staged, one directory at a time, and tell what is to be done.

Pure: four listings of one directory in, the decision for each name out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set

from hostprep.dataclass import dataclass
from hostprep.staging.model import Entry, Recorded


@dataclass(frozen=True, slots=True)
class DirectoryDiff:
    """The decisions for one directory.

    ``copy`` are entries to copy; ``keep`` records of what is published and stays; ``done`` records
    of what an interrupted run has copied and verified in its private tree; ``delete`` names that
    are published, ours, and gone from the source; ``foreign`` names that somebody else put there;
    ``blocked`` entries whose place somebody else has taken.
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
    links_stand: Callable[[Entry, Entry], bool] = lambda entry, here: True,
    verified: bool = False,
    promised: Set[str] = frozenset(),
) -> DirectoryDiff:
    """Compare the files and symlinks of one source directory with what is recorded and there.

    ``manifest`` records what is published, ``journal`` what an interrupted run did; ``published``
    and ``private`` are what lies in the two trees now. A record counts only where the entry that
    it speaks of is really there. ``subdirectories`` are the source's, never up for deletion.
    ``links_stand(entry, here)`` tells whether keeping a file keeps the groups of hard links right.
    Where all is to be ``verified``, what was copied without a hash is copied again. Names that are
    ``promised`` are recorded, and may not have been put there: what else is there is somebody's.
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
        if new is not None and _serves(new, entry, verified):
            if prepared is not None and new.present_as(prepared):
                done.append(new)
                continue
            # An update that was killed while it published has moved it to its place already.
            if here is not None and new.present_as(here) and links_stand(entry, here):
                keep.append(new)
                continue
        if (
            old is not None
            and here is not None
            and _serves(old, entry, verified)
            and old.present_as(here)
            and links_stand(entry, here)
        ):
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


def _serves(known: Recorded, entry: Entry, verified: bool) -> bool:
    """Whether what was recorded is what is wanted of ``entry``: its copy need not be made again.

    Not where it has become a hard link since it was staged as a file of its own. Symlinks with
    several names are staged one by one.
    """
    if not known.same_as(entry) or (verified and known.content is None):
        return False
    return known.kind != "f" or entry.nlink <= 1 or bool(known.group)
