"""Hard links of what is kept: do source and target tie the same names together?"""

from __future__ import annotations

import stat

from hostprep.staging.model import Entry, Inode, Recorded


class Links:
    """Which inode of the source is which of the target, over all that is kept.

    ``kept`` has path and record of a copy that is in place for each linked file of the source.
    """

    def __init__(self) -> None:
        self.kept: dict[Inode, tuple[str, Recorded]] = {}
        self._there: dict[Inode, tuple[int, int]] = {}
        self._back: dict[tuple[int, int], Inode] = {}

    def stand(self, entry: Entry, here: Entry) -> bool:
        """Whether ``here`` can stay for ``entry``: no group of links is split or joined anew."""
        if not stat.S_ISREG(entry.mode) or (entry.nlink <= 1 and here.nlink <= 1):
            return True
        source, target = entry.inode, (here.dev, here.ino)
        if self._there.get(source, target) != target or self._back.get(target, source) != source:
            return False
        self._there[source], self._back[target] = target, source
        return True
