"""Hard links of kept files: do source and target tie the same names together?"""

from __future__ import annotations

import stat
from collections.abc import Set

from hostprep.staging.model import Entry, Inode, Recorded


class Links:
    """Which inode of the source corresponds to which of the target, over all that is as recorded.

    ``kept`` has path and record of a copy in place for each linked file of the source. Files that
    an earlier pass over all names found ``torn`` are not kept under any name.
    """

    def __init__(self, torn: Set[Inode] = frozenset()) -> None:
        self.kept: dict[Inode, tuple[str, Recorded]] = {}
        self._torn = torn
        self._there: dict[Inode, tuple[int, int]] = {}
        self._back: dict[tuple[int, int], Inode] = {}
        self._astray: set[tuple[Inode, tuple[int, int]]] = set()

    def stand(self, entry: Entry, here: Entry) -> bool:
        """Whether ``here`` can stay for ``entry`` without splitting or joining groups of links."""
        if not stat.S_ISREG(entry.mode) or (entry.nlink <= 1 and here.nlink <= 1):
            return True
        source, target = entry.inode, (here.dev, here.ino)
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
