"""Hard links of kept files: do source and target tie the same names together?"""

from __future__ import annotations

import stat
from collections.abc import Set

from hostprep.staging.model import Entry, Inode, Recorded

# A file of the target: device and inode, or the group on record.
_Target = tuple[int, int] | str


class Links:
    """Which inode of the source corresponds to which of the target, over all that is as recorded.

    ``kept`` has path and record of a copy in place for each linked file of the source. Files that
    an earlier pass over all names found ``torn`` are not kept under any name. Without ``numbered``
    the target's inode numbers mean nothing: many such file systems (sshfs) show each name of a file
    as one of its own, so there the record says which were linked.
    """

    def __init__(self, torn: Set[Inode] = frozenset(), *, numbered: bool = True) -> None:
        self.kept: dict[Inode, tuple[str, Recorded]] = {}
        self._torn = torn
        self._numbered = numbered
        self._there: dict[Inode, _Target] = {}
        self._back: dict[_Target, Inode] = {}
        self._astray: set[tuple[Inode, _Target]] = set()

    def stand(self, entry: Entry, here: Entry, group: str = "") -> bool:
        """Whether ``here`` can stay for ``entry`` without splitting or joining groups of links.

        ``group`` is the one that ``here`` is recorded in.
        """
        if not stat.S_ISREG(entry.mode) or (entry.nlink <= 1 and here.nlink <= 1):
            return True
        source: Inode = entry.inode
        target: _Target = (here.dev, here.ino)
        if group and here.nlink <= 1 and not self._numbered:
            target = group
        if source in self._torn:
            return False
        if self._there.get(source, target) != target or self._back.get(target, source) != source:
            self._astray.add((source, target))
            return False
        self._there[source], self._back[target] = target, source
        return True

    def torn(self) -> frozenset[Inode]:
        """Return the files of the source whose copies did not stay together; call it at the end.

        If a group was split, or joined or exchanged with another, size and time do not show which
        name has whose content now, and the name seen first may be as wrong as a later one. So if
        two groups are mixed up, neither is kept.
        """
        sources = {source for source, _ in self._astray}
        sharing = (self._back.get(target) for _, target in self._astray)
        return frozenset(sources.union(source for source in sharing if source is not None))
