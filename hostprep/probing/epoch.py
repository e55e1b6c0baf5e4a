"""How long it takes to read a data set once, and how the page cache changes that."""

from __future__ import annotations

from hostprep.probing.judgement import Epoch
from hostprep.probing.model import DataSet, FioRun, SmallFiles, SmallRun
from hostprep.system.page_cache import lru_hit_rate

# Files read from memory take about the same time if their sizes are about the same.
_ALIKE = 1.1


def predict(
    dataset: DataSet, small: SmallFiles, memory_bytes: int, sequential: FioRun | None = None
) -> Epoch:
    """Predict the seconds of an epoch from the measured passes.

    The sample's files do not have exactly the data set's mean size: the line through the times of
    single files carries the cold rate over from one mean to the other (a regression estimator). It
    is no guide to a few files far larger than all in the sample: their bytes come no faster than
    those of the fastest pass. For reads from memory, if no such pass was made, no time is predicted
    for them.
    """
    best = small.best
    mean = small.mean_bytes if dataset.size_bytes is None else dataset.size_bytes / dataset.files
    size_bytes = round(mean * dataset.files)

    def single(size: float) -> float:
        return small.seconds_per_file + small.seconds_per_byte * size

    sampled = single(best.read_bytes / best.files)
    adjust = single(mean) / sampled if sampled > 0 else 1.0
    cold = dataset.files / best.files_per_s * adjust
    if sequential is not None:
        cold = max(cold, size_bytes / max(sequential.bytes_per_s, best.bytes_per_s))
    cached = _from_memory(small.cached, dataset.files, mean)
    if cached is not None:
        # No file takes longer without its disk: others used the processors in that short pass.
        cached = min(cached, cold)
    staged = _from_memory(small.staged, dataset.files, mean)
    share = min(1.0, memory_bytes / size_bytes) if size_bytes else 1.0
    low, high = lru_hit_rate(share), share
    if small.stays_in_memory is False:
        low = high = 0.0

    def after(hits: float) -> float | None:
        if not hits:
            return cold
        return None if cached is None else cold * (1 - hits) + cached * hits

    return Epoch(
        files=dataset.files,
        size_bytes=size_bytes,
        estimated_size=dataset.size_bytes is None,
        readers=best.readers,
        cold_seconds=cold,
        cached_seconds=cached,
        staged_seconds=staged,
        cache_share=share,
        hit_low=low,
        hit_high=high,
        next_low_seconds=after(high),
        next_high_seconds=after(low),
    )


def _from_memory(run: SmallRun | None, files: int, mean_bytes: float) -> float | None:
    """Return the seconds of ``files`` of that mean size; None if the pass does not tell.

    It read files of another mean size than the data set's if a few files have most of the bytes.
    """
    if run is None:
        return None
    seconds = files / run.files_per_s
    read_mean = run.bytes_per_s / run.files_per_s
    if mean_bytes <= _ALIKE * read_mean and read_mean <= _ALIKE * mean_bytes:
        return seconds
    if run.line is None or run.largest_bytes is None or mean_bytes > run.largest_bytes:
        return None
    per_file, per_byte = run.line
    return seconds * (per_file + per_byte * mean_bytes) / (per_file + per_byte * read_mean)


def predict_large(dataset: DataSet, sequential: FioRun, memory_bytes: int) -> Epoch:
    """Predict an epoch of files so large that reading them is sequential reading.

    ``dataset.size_bytes`` must be known. The rate from memory was not measured for such files.
    Holes cost the disks nothing, and programs with files that have huge ones (LMDB) do not read
    them.
    """
    assert dataset.size_bytes is not None
    size_bytes = dataset.size_bytes - dataset.hole_bytes
    share = min(1.0, memory_bytes / size_bytes) if size_bytes else 1.0
    return Epoch(
        files=dataset.files,
        size_bytes=size_bytes,
        estimated_size=False,
        readers=sequential.depth,
        cold_seconds=size_bytes / sequential.bytes_per_s,
        cached_seconds=None,
        staged_seconds=None,
        cache_share=share,
        hit_low=lru_hit_rate(share),
        hit_high=share,
        next_low_seconds=None,
        next_high_seconds=None,
        hole_bytes=dataset.hole_bytes,
    )
