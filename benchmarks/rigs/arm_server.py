"""The process behind ``arm``: one thread, as there is one arm, and a clock that runs ahead.

Each request is answered when the model says that it is done. The model's time is kept as a sum, not
as many sleeps: if a sleep or this program takes too long, the next wait is shorter.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from pathlib import Path
from typing import Any

from benchmarks.rigs import arm
from benchmarks.rigs.common import Counters
from tests.kit import serving
from tests.kit.passthrough import ReadOnly, attributes

# The time that this program takes to answer and to fetch the next request is not the model's.
_OVERHEAD_SECONDS = 0.0002
# A disk's buffer holds what has passed under the head since the last request, so a read that
# continues there may come this much later and lose nothing; else none could have the full rate.
_LOOK_AHEAD_SECONDS = arm.READ_OVER_SECONDS
_NOT_WORTH_A_SLEEP_SECONDS = 0.0001


class Arm:
    """Where the arm is, and until when it is busy; the model, without any waiting."""

    def __init__(self, size_bytes: int, counters: Counters) -> None:
        self._size_bytes = size_bytes
        self._counters = counters
        self._head = 0
        self._busy_until = 0.0

    def read(self, offset: int, size: int, now: float) -> float:
        """Count a read that came at ``now``; return when it is done."""
        seek, transfer, late = 0.0, size / arm.BYTES_PER_SECOND, _LOOK_AHEAD_SECONDS
        gap = offset - self._head
        if 0 <= gap < arm.READ_OVER_SECONDS * arm.BYTES_PER_SECOND:
            transfer += gap / arm.BYTES_PER_SECOND
        else:
            seek, late = arm.seek_seconds(abs(gap), self._size_bytes), _OVERHEAD_SECONDS
            self._counters["seeks"] += 1
            self._counters["seek_seconds"] += seek
        self._counters["requests"] += 1
        self._counters["bytes"] += size
        self._counters["transfer_seconds"] += transfer
        self._head = offset + size
        self._busy_until = max(self._busy_until, now - late) + seek + transfer
        return self._busy_until


class OneFile(ReadOnly):
    """A directory with one file, ``disk``, that answers with the arm's latency."""

    def __init__(self, backing: str, counters: Counters) -> None:
        super().__init__(os.path.dirname(backing))
        self._file = os.open(backing, os.O_RDWR | os.O_CLOEXEC)
        self._counters = counters
        self._arm = Arm(os.fstat(self._file).st_size, counters)

    def getattr(self, path: str, fh: Any = None) -> dict[str, int]:
        if path == "/disk":
            return attributes(os.fstat(self._file))
        if path == "/":
            return {"st_mode": stat.S_IFDIR | 0o700, "st_nlink": 2}
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", "disk"]

    def open(self, path: str, fi: Any) -> int:
        fi.direct_io = 1
        return 0

    def read(self, path: str, size: int, offset: int, fi: Any) -> bytes:
        now = time.monotonic()
        data = os.pread(self._file, size, offset)
        if not self._counters["unmetered"]:
            left = self._arm.read(offset, len(data), now) - time.monotonic()
            if left > _NOT_WORTH_A_SLEEP_SECONDS:
                time.sleep(left)
        return data

    def write(self, path: str, data: bytes, offset: int, fi: Any) -> int:
        return os.pwrite(self._file, data, offset)

    def fsync(self, path: str, datasync: int, fi: Any) -> int:
        return 0  # a write is as safe as this disk, which disappears with its process

    def release(self, path: str, fi: Any) -> int:
        return 0


def _make(config: serving.Config) -> tuple[Any, dict[str, Any]]:
    counters = Counters(Path(config["counters"]), arm.COUNTER_NAMES)
    options = {"nothreads": True, "fsname": "arm"}
    return OneFile(config["backing"], counters), options


if __name__ == "__main__":
    serving.main(_make)
