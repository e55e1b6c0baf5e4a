"""Times a real DataLoader with one number of workers; shares no code with hostprep.

  python -m benchmarks.recommend.point jpeg 4 2.5     workload, workers, seconds

Each measurement has a process of its own, which prints it as JSON.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

BATCH_SIZE = 32


def main() -> None:
    """Measure what the command line names."""
    name, workers, seconds = sys.argv[1:]
    print(json.dumps(time_point(name, int(workers), float(seconds))))


def time_point(name: str, workers: int, seconds: float) -> dict[str, float | None]:
    """Time a DataLoader: what was made ahead is discarded; whole rounds of all workers count."""
    from torch.utils.data import DataLoader

    from benchmarks.recommend.workloads import WORKLOADS

    loader = DataLoader(WORKLOADS[name](), batch_size=BATCH_SIZE, num_workers=workers, shuffle=True)
    batches = iter(loader)
    # Like a training, the loop holds a batch until the next one has come.
    for _ in itertools.islice(batches, 2 * workers + 4):
        pass
    busy, idle = processor_ticks()
    mine = own_ticks(batches)
    begin, count, step = time.perf_counter(), 0, max(1, workers)
    while True:
        for _ in itertools.islice(batches, step):
            pass
        count += step
        elapsed = time.perf_counter() - begin
        if elapsed >= seconds and count >= max(8, 3 * step):
            break
    busy_now, idle_now = processor_ticks()
    used = own_ticks(batches) - mine
    return {
        "samples_per_s": BATCH_SIZE * count / elapsed,
        "seconds": elapsed,
        "others": share_of_others(busy_now - busy, idle_now - idle, used),
    }


def share_of_others(busy: int, idle: int, mine: int) -> float | None:
    """Return the share of all processors that others took, None if the kernel does not count it."""
    return max(0, busy - mine) / (busy + idle) if busy + idle else None


def processor_ticks() -> tuple[int, int]:
    """Return the ticks in which processors were busy (or stolen), and idle."""
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return sum(fields) - idle, idle


def own_ticks(batches: Any) -> int:
    """Return the ticks that this process and its workers have used."""
    pids = [os.getpid(), *(worker.pid for worker in getattr(batches, "_workers", []))]
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(fields[11]) + int(fields[12]) for fields in stats)


if __name__ == "__main__":
    main()
