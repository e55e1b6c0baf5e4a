"""Whether storage gives more to several readers than to one: what no time of a single file tells.

A disk with one arm and a server far away take as long for a file; of the one sixteen readers get
hardly more than one, of the other sixteen times as much.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from hostprep.loading.files.model import SideBySide, Stages
from hostprep.loading.files.samples import read_whole

# Fewer files a reader, and the first and the last of them are most of what is seen.
_LEAST_EACH = 2


def may_bind(stages: Stages, processors: int) -> bool:
    """Return whether one reader is slower than ``processors`` that do all the rest."""
    names = ("read_as_is", "decode", "resize", "collate")
    cpu_seconds = sum(stages.stage(name).cpu_seconds for name in names)
    return stages.stage("read_as_is").seconds > cpu_seconds / processors


def read_side_by_side(names: Sequence[str], readers: int, seconds: float) -> SideBySide | None:
    """Read files, each once and as it is, by ``readers`` at once for ``seconds``.

    Returns None where there are too few of them for a rate. What cannot be read counts for nothing.
    """
    files = iter(names)
    begin, cpu_begin = time.perf_counter(), time.process_time()

    def read() -> tuple[int, int]:
        tried = done = 0
        # One step of an iterator over a sequence is whole, whoever else takes the next.
        for name in files:
            tried += 1
            with suppress(OSError):
                read_whole(name)
                done += 1
            if time.perf_counter() - begin > seconds:
                break
        return tried, done

    with ThreadPoolExecutor(readers) as pool:
        counts = list(pool.map(lambda _: read(), range(readers)))
    elapsed, cpu = time.perf_counter() - begin, time.process_time() - cpu_begin
    tried, done = map(sum, zip(*counts, strict=True))
    if done < _LEAST_EACH * readers:
        return None
    return SideBySide(readers, tried, done / elapsed, cpu / elapsed)
