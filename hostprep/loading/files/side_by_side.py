"""Whether storage gives several readers more than one, which timing single files cannot tell.

A hard disk and a distant server take equally long for a file, but sixteen readers get hardly more
than one from the disk, and sixteen times as much from the server.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from hostprep.loading.files.model import SideBySide, Stages
from hostprep.loading.files.samples import read_whole

# With fewer files a reader, the first and the last ones dominate what is measured.
_LEAST_EACH = 2


def may_bind(stages: Stages, processors: int) -> bool:
    """Return whether one reader is slower than ``processors`` that do everything else."""
    names = ("read_as_is", "decode", "resize", "collate")
    cpu_seconds = sum(stages.stage(name).cpu_seconds for name in names)
    return stages.stage("read_as_is").seconds > cpu_seconds / processors


def read_side_by_side(names: Sequence[str], readers: int, seconds: float) -> SideBySide | None:
    """Read files, each once and as it is, by ``readers`` at once for ``seconds``.

    Returns None if there are too few of them for a rate. What cannot be read does not count.
    """
    files = iter(names)
    begin, cpu_begin = time.perf_counter(), time.process_time()

    def read() -> tuple[int, int]:
        tried = done = 0
        # A step of an iterator over a sequence is atomic, whoever takes the next one.
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
