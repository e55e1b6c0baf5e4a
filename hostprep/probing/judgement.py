"""What a probe's figures mean, as ``judge`` concludes from them; frozen, without side effects."""

from __future__ import annotations

from enum import StrEnum

from hostprep.dataclass import dataclass
from hostprep.host.block import StorageClass


class Verdict(StrEnum):
    """MEASURED: nothing was required. INVALID: doubts about the numbers leave it undecided."""

    PASS = "PASS"
    FAIL = "FAIL"
    INVALID = "INVALID"
    MEASURED = "MEASURED"


EXIT_CODES = {
    Verdict.PASS: 0,
    Verdict.MEASURED: 0,
    Verdict.FAIL: 3,
    Verdict.INVALID: 4,
}


class Behaviour(StrEnum):
    """How the storage answered, whatever the kernel calls it."""

    MEMORY = "memory"
    FLASH = "flash"
    ARM = "arm"
    LATENCY = "latency"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class Epoch:
    """Seconds that one pass over the data set takes to read, and what the page cache serves.

    ``cache_share`` is the part of the data set that fits into memory; the band gives the share of
    an epoch's reads that it serves, from plain LRU to a pinned subset: none if what is read does
    not stay in memory. ``hole_bytes`` come on top of ``size_bytes``: in shards they are not read.
    """

    files: int
    size_bytes: int
    estimated_size: bool
    readers: int
    cold_seconds: float
    cached_seconds: float | None
    staged_seconds: float | None
    cache_share: float
    hit_low: float
    hit_high: float
    next_low_seconds: float | None
    next_high_seconds: float | None
    hole_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Need:
    """A requirement: samples or bytes a second, and where it comes from."""

    text: str
    samples_per_s: float | None
    bytes_per_s: float | None
    source: str


@dataclass(frozen=True, slots=True)
class Judged:
    """A requirement compared with what was measured."""

    measured: float
    required: float
    unit: str
    of: str

    @property
    def share(self) -> float:
        """Return measured over required."""
        return self.measured / self.required


@dataclass(frozen=True, slots=True)
class Remedy:
    """One way out of a FAIL: ``enough`` says whether it would suffice, None if that is unknown."""

    action: str
    enough: bool | None
    why: str


@dataclass(frozen=True, slots=True)
class Reason:
    """Why the numbers cannot be trusted: a code for scripts, a sentence for people.

    ``of`` is the rate in question, as in ``Judged``; None means all of them.
    """

    code: str
    message: str
    of: str | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the measurement means."""

    storage_class: StorageClass
    behaviour: Behaviour
    agrees: bool
    class_reason: str
    ratio: float | None
    epoch: Epoch | None
    epoch_note: str | None
    invalid: tuple[Reason, ...]
    verdict: Verdict
    judged: Judged | None
    remedies: tuple[Remedy, ...]
