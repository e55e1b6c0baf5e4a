"""A huge directory in parts, by names, of which only one is in memory as objects.

Listings and records come in orders of their own, so the hash of a name decides its part. Until its
turn a part stays packed: some 80 bytes per entry, where objects take 300.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

PART_ENTRIES = 4096

_Item = TypeVar("_Item", bound="tuple[object, ...]")


def parts_for(entries: int) -> int:
    """Return in how many parts to look at this many entries."""
    return max(1, round(entries / PART_ENTRIES))


def part_of(name: str, parts: int) -> int:
    """Return which part a name is in; the same for the lifetime of this process."""
    return hash(name) % parts


def split(items: Iterable[_Item], parts: int) -> Iterator[list[_Item]]:
    """Split plain tuples that begin with a name into parts; the order within each is kept.

    All ``items`` are consumed before the first part is yielded.
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
    packed.reverse()  # a part is released once it was yielded
    while packed:
        yield [item for each in packed.pop() for item in marshal.loads(each)]
