"""What readers of whole files did, taken together: pure arithmetic."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from math import inf, sqrt
from typing import NamedTuple

from hostprep.dataclass import dataclass
from hostprep.probing.model import Latency

# A limit that was unused for a while lets the first requests through at once: Linux's own lets
# through what it allows in a tenth of a second. After this share of a pass that no longer matters.
_EARLY_SHARE = 1 / 3
# A rate lasts if the later one is no lower than this share of it, or lower only by chance: at most
# by the standard deviation of a count.
_LASTS_FROM = 0.9


@dataclass(frozen=True, slots=True)
class Pass:
    """What all readers did: seconds and bytes of every file, and their rates added up.

    ``names`` are the files that were read, in the order of ``seconds`` and ``sizes``. The rates are
    those of the time when all readers were at work. ``empty`` files are not counted anywhere:
    opening one is not reading, and many would make any storage look fast. A large file for which
    time did not suffice is in the rates, by the share that was read, and in ``cut_bytes``.

    ``again_bytes`` are of files that were read once more. ``early_files_per_s`` is None if the rate
    lasted; else it is the early rate of files, the rates are the later ones, and ``later_seconds``
    what each of the later files took. ``fault`` is the error of failing storage for a file.
    """

    names: tuple[str, ...]
    seconds: array[float]
    sizes: array[int]
    files_per_s: float
    bytes_per_s: float
    wall_seconds: float
    unreadable: int
    empty: int
    again_bytes: int = 0
    cut_bytes: int = 0
    early_files_per_s: float | None = None
    later_seconds: Sequence[float] = ()
    fault: str | None = None


class Cut(NamedTuple):
    """A file for which time did not suffice: until when, how many bytes, which share of it."""

    end: float
    size: int
    share: float


@dataclass(frozen=True, slots=True)
class Told:
    """What one reader did with its share of the names; a file has the same place in four lists.

    ``ends`` are counted from the common beginning, without time that is not reading; ``indices``
    are places in the share. The first ``first`` of them were read for the first time. ``through``:
    it reached the end of its names before the time was over, and read none again.
    """

    seconds: array[float]
    ends: array[float]
    sizes: array[int]
    indices: array[int]
    first: int
    cut: Cut | None
    through: bool
    unreadable: int
    empty: int
    fault: str | None


def together(shares: list[Sequence[str]], results: list[Told]) -> Pass:
    """Return the pass of several readers, each with its share of the names."""
    names: list[str] = []
    seconds, sizes = array("d"), array("q")
    files_per_s = bytes_per_s = wall = 0.0
    again_bytes = cut_bytes = 0
    # Once the first reader has ended, the others have the machine to themselves.
    alone_from = min(
        (one.ends[one.first - 1] for one in results if one.through and one.first), default=inf
    )
    for share, one in zip(shares, results, strict=True):
        names += [share[index] for index in one.indices[: one.first]]
        seconds += one.seconds[: one.first]
        sizes += one.sizes[: one.first]
        again_bytes += sum(one.sizes[one.first :])
        whole = bisect_right(one.ends[: one.first], alone_from)
        read, took = sum(one.sizes[:whole]), one.ends[whole - 1] if whole else 0.0
        count = float(whole)
        if one.cut and one.cut.end <= alone_from:
            took, count, read = one.cut.end, count + one.cut.share, read + one.cut.size
            cut_bytes += one.cut.size
        if took:
            files_per_s += count / took
            bytes_per_s += read / took
            wall = max(wall, took)
    unreadable = sum(one.unreadable for one in results)
    empty = sum(one.empty for one in results)
    return Pass(
        tuple(names), seconds, sizes, files_per_s, bytes_per_s, wall, unreadable, empty,
        again_bytes, cut_bytes, fault=next(filter(None, (one.fault for one in results)), None),
    )  # fmt: skip


def lasting(done: Pass, results: list[Told]) -> Pass:
    """Return the pass with the rates that last, if it began with faster ones.

    They are measured from one file's end to another's, because a limit makes files come in bunches.
    And they must be lower both in files and in bytes, because files differ in size.
    """
    ended = [one.ends[-1] for one in results if one.ends]
    begin, end = _EARLY_SHARE * max(ended, default=0.0), min(ended, default=0.0)
    later = sorted(
        each
        for one in results
        for each in zip(one.ends, one.sizes, one.seconds, strict=True)
        if begin < each[0] <= end
    )
    took = later[-1][0] - later[0][0] if later else 0.0
    if took <= 0:
        return done
    count, expected = len(later) - 1, done.files_per_s * took
    size_bytes = sum(size for _, size, _ in later[1:])
    if (
        count >= _LASTS_FROM * expected
        or size_bytes >= _LASTS_FROM * done.bytes_per_s * took
        or expected - count <= sqrt(expected)
    ):
        return done
    return replace(
        done,
        files_per_s=count / took,
        bytes_per_s=size_bytes / took,
        early_files_per_s=done.files_per_s,
        later_seconds=array("d", (seconds for _, _, seconds in later)),
    )


def percentiles(seconds: Sequence[float]) -> Latency:
    """Return the percentiles of at least one time, by the nearest rank."""
    ordered = sorted(seconds)
    p50, p95, p99 = (ordered[-(-percent * len(ordered) // 100) - 1] for percent in (50, 95, 99))
    return Latency(p50, p95, p99)


def line_through(sizes: Sequence[int], seconds: Sequence[float]) -> tuple[float, float]:
    """Return seconds per file and per byte: least squares, the slope never below zero.

    If all files have the same size, everything is per file.
    """
    count = len(sizes)
    mean_size, mean_seconds = sum(sizes) / count, sum(seconds) / count
    spread = sum((size - mean_size) ** 2 for size in sizes)
    together = sum(
        (size - mean_size) * (time_ - mean_seconds)
        for size, time_ in zip(sizes, seconds, strict=True)
    )
    slope = max(0.0, together / spread) if spread > 0 else 0.0
    slope = min(slope, mean_seconds / mean_size) if mean_size > 0 else 0.0
    return mean_seconds - slope * mean_size, slope
