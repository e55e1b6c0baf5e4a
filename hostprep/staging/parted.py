"""What there is of a huge directory in parts, by names, of which one is in memory as objects.

What lies there and what is on record of it come each in an order of its own, so a name's hash tells
its part. Until its turn comes a part is packed: some 80 bytes an entry, where objects take 300.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

PART_ENTRIES = 4096

_Item = TypeVar("_Item", bound="tuple[object, ...]")


def parts_for(entries: int) -> int:
    """Return in how many parts so many entries are to be looked at."""
    return max(1, round(entries / PART_ENTRIES))


def part_of(name: str, parts: int) -> int:
    """Return in which part a name is; it is the same as long as this process lives."""
    return hash(name) % parts


def split(items: Iterable[_Item], parts: int) -> Iterator[list[_Item]]:
    """Yield plain tuples that begin with a name in their parts; their order stays within each.

    All ``items`` are taken before the first part comes.
    """
    if parts == 1:
        yield list(items)
        return
    packed: list[list[bytes]] = [[] for _ in range(parts)]
    rest = iter(items)
    while some := list(islice(rest, PART_ENTRIES)):
        sorted_out: list[list[_Item]] = [[] for _ in range(parts)]
        for item in some:
            sorted_out[hash(item[0]) % parts].append(item)
        for kept, found in zip(packed, sorted_out, strict=True):
            if found:
                kept.append(marshal.dumps(found))
    packed.reverse()  # what was yielded is kept no longer
    while packed:
        yield [item for each in packed.pop() for item in marshal.loads(each)]
