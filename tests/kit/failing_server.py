"""The process behind ``failing_fs``: asks the rules before it does what it is asked."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any

from tests.kit import serving
from tests.kit.failing_fs import Rule
from tests.kit.passthrough import ReadWrite, many_threads


class Rules:
    """The rules as the serving process sees them, read again whenever they were replaced."""

    def __init__(self, control: str, log: str) -> None:
        self._control, self._log = control, log
        self._version: tuple[int, int] | None = None
        self._rules: list[tuple[Rule, list[int]]] = []
        self._lock = threading.Lock()

    def meet(
        self, operation: str, path: str, size: int = 0, offset: int = 0, *, reading: bool = False
    ) -> int:
        """Do what the rules say of a request; return how many of its bytes to go on with.

        Raises the OSError that is to be returned.
        """
        wanted, hang_seconds, error = size, 0.0, None
        with self._lock:
            self._refresh()
            for rule, met in self._rules:
                if rule.operation != operation or not fnmatchcase(path, rule.pattern):
                    continue
                if rule.times is not None and met[0] >= rule.times:
                    continue
                if rule.error is not None and offset + size <= rule.after_bytes and size:
                    continue
                if rule.error is not None and offset < rule.after_bytes:
                    wanted = min(wanted, rule.after_bytes - offset)
                    continue  # as far as it goes; the next request fails
                met[0] += 1
                hang_seconds += rule.hang_seconds
                error = error or rule.error
                if reading and rule.short_bytes is not None:
                    wanted = min(wanted, rule.short_bytes)
                with open(self._log, "a") as log:
                    entry = {"operation": operation, "path": path, "error": rule.error}
                    log.write(json.dumps(entry) + "\n")
        if hang_seconds:
            time.sleep(hang_seconds)
        if error is not None:
            raise OSError(error, os.strerror(error))
        return wanted

    def _refresh(self) -> None:
        found = os.stat(self._control)
        version = (found.st_ino, found.st_mtime_ns)
        if version != self._version:
            with open(self._control) as file:
                self._rules = [(Rule(**rule), [0]) for rule in json.load(file)]
            self._version = version


class Failing(ReadWrite):
    """Each operation asks the rules first; those without sizes do so below."""

    def __init__(self, root: str, rules: Rules) -> None:
        super().__init__(root)
        self.rules = rules

    def open(self, path: str, fi: Any) -> int:
        self.rules.meet("open", path)
        fi.direct_io = 1
        return super().open(path, fi)

    def create(self, path: str, mode: int, fi: Any) -> int:
        self.rules.meet("create", path)
        fi.direct_io = 1
        return super().create(path, mode, fi)

    def read(self, path: str, size: int, offset: int, fi: Any) -> bytes:
        wanted = self.rules.meet("read", path, size, offset, reading=True)
        return super().read(path, wanted, offset, fi)

    def write(self, path: str, data: bytes, offset: int, fi: Any) -> int:
        wanted = self.rules.meet("write", path, len(data), offset)
        return super().write(path, data[:wanted], offset, fi)

    def readdir(self, path: str, fh: int) -> Iterable[Any]:
        self.rules.meet("readdir", path)  # now, not when the first entry is asked for
        return super().readdir(path, fh)


def _asking(name: str, go_on: Callable[..., Any]) -> Callable[..., Any]:
    def operation(self: Failing, path: str, *rest: Any) -> Any:
        self.rules.meet(name, rest[0] if name == "rename" else path)
        return go_on(self, path, *rest)

    return operation


for _name in (
    "getattr", "readlink", "statfs", "getxattr", "listxattr", "truncate", "fsync", "fsyncdir",
    "mkdir", "mknod", "symlink", "link", "rename", "unlink", "rmdir", "chmod", "chown", "utimens",
    "setxattr", "removexattr",
):  # fmt: skip
    setattr(Failing, _name, _asking(_name, getattr(Failing, _name)))


def _make(config: serving.Config) -> tuple[Any, dict[str, Any]]:
    options = {
        "ro": config["read_only"],
        "fsname": "failing",
        "use_ino": True,
        "entry_timeout": 0,
        "attr_timeout": 0,
        "negative_timeout": 0,
        **many_threads(32),
    }
    return Failing(config["root"], Rules(config["control"], config["log"])), options


if __name__ == "__main__":
    serving.main(_make)
