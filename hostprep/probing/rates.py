"""A requirement compared with measured rates, whether just measured or stored. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.probing.judgement import Judged, Need
from hostprep.probing.model import LARGE_BYTES, SEQUENTIAL_READS, SMALL_FILES, DataSet, Measured

# MLPerf Storage passes at an accelerator utilisation of 0.90.
PASS_SHARE = 0.9
# Share of their time: processors this busy hold back what is measured.
CPU_FULL_AT_LEAST = 0.95
# Doubts that can only mean that a rate is too low.
CPU_SATURATED, CPU_THROTTLED, READ_LIMITED = "cpu_saturated", "cpu_throttled", "read_limited"
TOO_LITTLE_TIME, DISK_BUSY = "too_little_time", "disk_busy"
_LOWER_BOUNDS = frozenset({CPU_SATURATED, CPU_THROTTLED, READ_LIMITED, TOO_LITTLE_TIME, DISK_BUSY})
# And one that can only mean that it is too high.
SLOWED = "slowed_down"
# Either: what came before was held up, or what came later is a cache's.
SPED_UP = "sped_up"
# No rate of storage that loses data is enough; one that is too low is so whatever else is wrong.
FAILING = "failing"
FAULT_HINT = "`dmesg` says which disk or server it is: copy away what exists only there"
_NO_BETTER = frozenset({SLOWED, FAILING})


@dataclass(frozen=True, slots=True)
class SmallRates:
    """The faster cold pass over whole files; ``source`` is dataset or made."""

    files_per_s: float
    bytes_per_s: float
    mean_bytes: float
    source: str


@dataclass(frozen=True, slots=True)
class Rates:
    """What a probe measured, None if it did not; ``large_files``: the data set is of shards."""

    sequential_bytes_per_s: float | None
    small: SmallRates | None
    large_files: bool


def rates_of(measured: Measured) -> Rates:
    """Return the rates of a measurement."""
    small, sequential = measured.small, measured.sequential
    return Rates(
        None if sequential is None else sequential.bytes_per_s,
        None
        if small is None
        else SmallRates(
            small.best.files_per_s, small.best.bytes_per_s, small.mean_bytes, small.source
        ),
        measured.dataset.large_files,
    )


def rates_in(document: Mapping[str, Any]) -> Rates:
    """Return the rates in a stored probe (``results.document``)."""
    small, sequential = document["small_files"], document["sequential"]
    dataset = document["dataset"]
    return Rates(
        None if sequential is None else sequential["bytes_per_s"],
        None
        if small is None
        else SmallRates(
            small["files_per_s"], small["bytes_per_s"], small["mean_bytes"], small["source"]
        ),
        DataSet(dataset["files"], dataset["complete"], dataset["size_bytes"]).large_files,
    )


def compare(rates: Rates, need: Need) -> Judged | None:
    """Compare the requirement with the rate that it is about; None if that is missing.

    One file is one sample, unless the data set is of shards: then a requirement in samples says
    nothing about files. Shards, and samples larger than any small file (a profile's), are judged by
    their bytes: at the sequential rate, unless files of that size were read whole.
    """
    small = rates.small
    if rates.large_files and small is not None and small.source == "made":
        small = None
    large = (
        need.samples_per_s is not None
        and need.bytes_per_s is not None
        and need.bytes_per_s / need.samples_per_s >= LARGE_BYTES
    )
    if large and (small is None or small.mean_bytes < LARGE_BYTES):
        small = None
    files_are_samples = not large and not rates.large_files
    if need.samples_per_s is not None and files_are_samples and small is not None:
        return Judged(small.files_per_s, need.samples_per_s, "samples/s", SMALL_FILES)
    if need.bytes_per_s is None:
        return None
    if small is not None:
        return Judged(small.bytes_per_s, need.bytes_per_s, "bytes/s", SMALL_FILES)
    if rates.sequential_bytes_per_s is None:
        return None
    return Judged(rates.sequential_bytes_per_s, need.bytes_per_s, "bytes/s", SEQUENTIAL_READS)


def is_certain(judged: Judged, doubts: Iterable[tuple[str, str | None]]) -> bool:
    """Return whether a comparison holds in spite of doubts: the codes and rates of ``Reason``.

    A doubt about another rate does not affect it. A doubt that the rate is too low leaves a PASS as
    it is: if the processors could do no more, the storage gives at least what was measured. A doubt
    that it is too high, or that the storage fails, leaves a FAIL.
    """
    harmless = _LOWER_BOUNDS if judged.share >= PASS_SHARE else _NO_BETTER
    return all(of not in (None, judged.of) or code in harmless for code, of in doubts)
