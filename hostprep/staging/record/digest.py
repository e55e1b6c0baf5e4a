"""The digest of a data set, by which two hosts can be compared.

Content of a file: xxh3_128 of its bytes; for a file above ``RANGE_BYTES`` (64 MiB) xxh3_128 of the
concatenated xxh3_128 digests of its 64 MiB ranges, so that ranges can be hashed side by side.

Data set: the sum modulo 2**128 over all entries of xxh3_128(kind, path, NUL, content), where
content is the file's digest or the symlink's target. A sum does not depend on the order of its
terms, so workers add up their own parts and an update need not read what it keeps (the idea is
AdHash of Bellare and Micciancio, 1997). The digest covers names, kinds and contents; owners, modes
and times are not in it. It detects damage and difference, not an adversary.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import xxhash

_MODULUS = 1 << 128


def entry_term(kind: str, path: str, content: str | None) -> int:
    """Return the term of one entry: ``content`` is a file's hex digest or a symlink's target."""
    tail = b"" if content is None else os.fsencode(content)
    return xxhash.xxh3_128_intdigest(kind.encode() + os.fsencode(path) + b"\0" + tail)


def terms_below(directory: str) -> Callable[[str, str, str], int]:
    """Return a faster ``entry_term`` for one directory's entries, by (kind, name, content)."""
    base = f"{directory}/" if directory else ""
    hashed = xxhash.xxh3_128_intdigest

    def term(kind: str, name: str, content: str) -> int:
        return hashed(f"{kind}{base}{name}\0{content}".encode("utf-8", "surrogateescape"))

    return term


def add(total: int, term: int) -> int:
    """Return the sum of two terms or partial sums."""
    return (total + term) % _MODULUS


def subtract(total: int, term: int) -> int:
    """Subtract a term from a sum."""
    return (total - term) % _MODULUS


def packed(total: int) -> bytes:
    """Return a sum of terms in the form sent between processes: 16 bytes."""
    return (total % _MODULUS).to_bytes(16, "big")


def unpacked(total: bytes) -> int:
    """Return the sum that was ``packed``."""
    return int.from_bytes(total, "big")


def to_hex(total: int) -> str:
    """Return the digest of a data set as it is printed, with its algorithm."""
    return f"xxh3sum:{total:032x}"
