"""How long one pass over a data set takes to read, and what the page cache does about it."""

from __future__ import annotations

from hostprep.probing.model import DataSet, Epoch, FioRun, SmallFiles
from hostprep.system.page_cache import lru_hit_rate


def predict(
    dataset: DataSet, small: SmallFiles, memory_bytes: int, sequential: FioRun | None = None
) -> Epoch:
    """Predict the seconds of an epoch from the measured passes.

    The sample's files are not exactly of the data set's mean size: the line through the times of
    single files carries the cold rate over from one mean to the other (a regression estimator). It
    is no guide to a few files far beyond all of the sample: their bytes come no faster than those
    of the fastest pass.
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
    cached = dataset.files / small.cached.files_per_s if small.cached else None
    staged = dataset.files / small.staged.files_per_s if small.staged else None
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


def predict_large(dataset: DataSet, sequential: FioRun, memory_bytes: int) -> Epoch:
    """Predict an epoch of files so large that reading them is reading sequentially.

    ``dataset.size_bytes`` must be known. What memory would give was not measured for such files.
    """
    assert dataset.size_bytes is not None
    share = min(1.0, memory_bytes / dataset.size_bytes) if dataset.size_bytes else 1.0
    return Epoch(
        files=dataset.files,
        size_bytes=dataset.size_bytes,
        estimated_size=False,
        readers=sequential.depth,
        cold_seconds=dataset.size_bytes / sequential.bytes_per_s,
        cached_seconds=None,
        staged_seconds=None,
        cache_share=share,
        hit_low=lru_hit_rate(share),
        hit_high=share,
        next_low_seconds=None,
        next_high_seconds=None,
    )
