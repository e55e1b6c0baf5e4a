"""The process behind ``far``: a thread for each request, which sleeps for as long as it takes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mfusepy

from benchmarks.rigs import far
from benchmarks.rigs.common import Counters
from tests.kit import serving
from tests.kit.passthrough import ReadOnly, attributes, many_threads

_READDIR_PLUS, _FILL_DIR_PLUS = 1 << 0, 1 << 1  # of libfuse 3


class Far(ReadOnly):
    """The source, with its answers delayed."""

    def __init__(self, config: serving.Config, counters: Counters) -> None:
        super().__init__(config["source"])
        self._request_seconds: float = config["request_seconds"]
        self._metadata_seconds: float = config["metadata_seconds"]
        self._keep_cache: bool = config["keep_cache"]
        self._counters = counters
        self._lock = threading.Lock()
        self._under_way = 0
        self._names: dict[str, list[bytes]] = {}

    @contextmanager
    def _taking(self, seconds: float, counter: str) -> Iterator[None]:
        """Make a request last ``seconds`` from now, whatever is done meanwhile."""
        done = time.monotonic() + seconds
        with self._lock:
            self._counters[counter] += 1
            self._under_way += 1
            if self._under_way > self._counters["most_at_once"]:
                self._counters["most_at_once"] = self._under_way
        try:
            yield
            left = done - time.monotonic()
            if left > 0:
                time.sleep(left)
        finally:
            with self._lock:
                self._under_way -= 1

    def open(self, path: str, fi: Any) -> int:
        with self._taking(self._request_seconds, "opens"):
            fi.keep_cache = self._keep_cache
            return super().open(path, fi)

    def read(self, path: str, size: int, offset: int, fi: Any) -> bytes:
        with self._taking(self._request_seconds, "reads"):
            data = super().read(path, size, offset, fi)
            with self._lock:
                self._counters["bytes"] += len(data)
            return data

    def getattr(self, path: str, fh: Any = None) -> dict[str, int]:
        with self._taking(self._metadata_seconds, "metadata"):
            return super().getattr(path, fh)

    def readdir(self, path: str, fh: int) -> Iterable[Any]:
        with self._taking(self._metadata_seconds, "metadata"):
            return list(super().readdir(path, fh))

    def readdir_page(self, path: str, offset: int, fill: Any) -> None:
        """Fill one answer with names and attributes; unlike in ``readdir``, each is delayed.

        mfusepy cannot return attributes of what it lists, see ``_list_with_attributes``.
        """
        with self._taking(self._metadata_seconds, "metadata"):
            if not offset:
                self._names[path] = [b".", b"..", *sorted(os.listdir(self.real(path)))]
            for number, name in enumerate(self._names[path][offset:], offset + 1):
                if fill(name, os.lstat(os.path.join(self.real(path), name)), number):
                    return

    def readlink(self, path: str) -> str:
        with self._taking(self._metadata_seconds, "metadata"):
            return super().readlink(path)


def _list_with_attributes(
    self: Any, path: bytes, buffer: Any, filler: Any, offset: int, fip: Any, flags: int
) -> int:
    """Replaces ``mfusepy.FUSE.readdir_fuse_3``."""

    def fill(name: bytes, found: os.stat_result, following: int) -> int:
        status = mfusepy.c_stat()
        mfusepy.set_st_attrs(status, attributes(found), use_ns=True)
        plus = _FILL_DIR_PLUS if flags & _READDIR_PLUS else 0
        full: int = filler(buffer, name, status, following, plus)
        return full

    self.operations.readdir_page(path.decode(self.encoding, "surrogateescape"), offset, fill)
    return 0


def _make(config: serving.Config) -> tuple[Any, dict[str, Any]]:
    if config["plus"]:
        mfusepy.FUSE.readdir_fuse_3 = _list_with_attributes
    counters = Counters(Path(config["counters"]), far.COUNTER_NAMES)
    options = {
        "ro": True,
        "fsname": "far",
        "use_ino": True,
        "entry_timeout": 30,
        "attr_timeout": 30,
        **many_threads(config["at_once"]),
    }
    return Far(config, counters), options


if __name__ == "__main__":
    serving.main(_make)
