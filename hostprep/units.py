"""Sizes, rates and durations: parsed as the contracts define them, formatted for people.

``30G`` means the same as in ``mount -o size=``: 30 x 2^30 bytes. ``30GB`` is decimal.
"""

from __future__ import annotations

import math
import os
import re

from hostprep.errors import UsageError

KIB = 1024
MIB = 1024**2
GIB = 1024**3
# Of this kernel: 4 KiB on x86, 16 or 64 KiB on some ARM. A file in a tmpfs takes whole pages.
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MOST_BYTES = 2**63 - 1  # file sizes are signed: the kernel misreads larger ones
# The most that a tmpfs takes as nr_inodes= (ULONG_MAX / BOGO_INODE_SIZE in mm/shmem.c): from 2^64
# on the number would wrap around in the kernel, to a small one or to 0, which means no limit.
MOST_INODES = (2**64 - 1) // 1024

_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SIZE = re.compile(
    r"(?P<number>[0-9]+)(?:(?P<unit>[kmgt])(?P<suffix>ib|b)?|(?P<percent>%))?", re.I | re.A
)
SIZE_FORMS = (
    "30G, 30GiB or 30g (x 2^30), 30GB (x 10^9), 512M, 1048576 (bytes), 50% (of the RAM);"
    " whole numbers, so 1536M for 1.5G"
)
RATE_FORMS = (
    "400M or 400MiB (x 2^20), 400MB (x 10^6), 2G, 1048576 (bytes), each also with /s;"
    " whole numbers, so 1536M for 1.5G"
)


def parse_size(text: str, *, ram_bytes: int | None = None) -> int:
    """Return ``text`` in bytes.

    ``ram_bytes`` is what a percentage refers to; without it a percentage is a usage error.
    Raises ``UsageError``, which shows the accepted forms or says that the size is too large.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a size.", f"accepted: {SIZE_FORMS}")
    digits = match["number"].lstrip("0") or "0"
    number = int(digits) if len(digits) <= len(str(MOST_BYTES)) else MOST_BYTES + 1
    if match["percent"]:
        if ram_bytes is None:
            raise UsageError(
                f"{text!r} is a percentage, and here a size in bytes is needed.",
                "accepted: 30G, 30GiB, 30GB, 512M, 1048576",
            )
        size_bytes = ram_bytes * number // 100 // PAGE_BYTES * PAGE_BYTES
    else:
        base = 1000 if (match["suffix"] or "").lower() == "b" else 1024
        size_bytes = int(number * base ** _POWER[(match["unit"] or "").lower()])
    if size_bytes > MOST_BYTES:
        raise UsageError(
            f"{text!r} is more than Linux can count (2^63 bytes).", "give a smaller size"
        )
    return size_bytes


def size_argument(size_bytes: int) -> str:
    """Return exactly this size as people write it on a command line: ``64M``, ``1000000``."""
    power = next((p for p in "tgmk" if size_bytes % 1024 ** _POWER[p] == 0), "")
    return f"{size_bytes // 1024 ** _POWER[power]}{power.upper()}" if size_bytes else "0"


def is_plain_number(text: str) -> bool:
    """Whether ``text`` has only ASCII digits, not grouped by ``_``.

    Python's own ``int`` and ``float`` also accept ``1_000`` and the digits of every script.
    """
    return text.isascii() and "_" not in text


def format_bytes(size_bytes: float) -> str:
    """Return a size for people in binary units, three significant digits: ``1.53 GiB``."""
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1023.5 or unit == "TiB":
            break
        value /= 1024
    if unit == "B":
        return f"{value:.0f} B"
    return f"{value:.{2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0}f} {unit}"


def lost_unit(size_bytes: int) -> str | None:
    """Return a warning about a volume's size whose unit seems to have been forgotten."""
    if size_bytes >= MIB:
        return None
    return (
        f"{format_bytes(size_bytes)} is next to nothing for a volume; a size without a unit is in"
        " bytes: 30 is 30 bytes, 30G is 30 GiB"
    )


def format_rate(bytes_per_s: float) -> str:
    """Return a transfer rate in decimal units, in which disks and networks are sold."""
    value = float(bytes_per_s)
    for unit in ("B/s", "kB/s", "MB/s", "GB/s"):
        if abs(value) < 999.5 or unit == "GB/s":
            break
        value /= 1000
    digits = 0 if unit == "B/s" or abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{value:.{digits}f} {unit}"


def format_number(number: float) -> str:
    """Return a rate of anything for people: ``3,420``, ``12``, ``4.7``, ``0.33``, ``0.0021``."""
    if number == 0 or abs(number) >= 9.95:
        return f"{number:,.0f}"
    return f"{number:.{1 - math.floor(math.log10(abs(number)))}f}"


def format_seconds(seconds: float) -> str:
    """Return a duration for people: ``45 ms``, ``3.2 s``, ``2 min 05 s``, ``1 h 10 min``."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def format_age(seconds: float) -> str:
    """Return how long ago something was, in a single unit: ``2 days ago``, ``just now``."""
    for size, noun in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            return f"{format_count(int(seconds // size), noun)} ago"
    return "just now"


def format_count(number: int, noun: str = "") -> str:
    """Return a count with thousands separators: ``15,000``; with ``noun``: ``1 entry``.

    The noun may have several words, of which the last takes the plural: ``2 hard links``.
    """
    if not noun:
        return f"{number:,}"
    if number != 1:
        consonant_y = noun.endswith("y") and noun[-2] not in "aeiou"
        noun = (
            f"{noun[:-1]}ies"
            if consonant_y
            else f"{noun}{'es' if noun.endswith(('ch', 'ss')) else 's'}"
        )
    return f"{number:,} {noun}"
