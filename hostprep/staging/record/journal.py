"""The journal of a run: what is copied and verified, kept next to the copies themselves."""

from __future__ import annotations

import os
import stat
import threading

from hostprep.staging.model import Entry, Recorded
from hostprep.staging.record.lines import join_line


class Journal:
    """What one process has copied and verified, a line of JSON per batch, in the private directory.

    A line is written by one call, so a killed worker leaves at most one torn line, which readers
    ignore. The file is made when the first line is written: if that fails, a task can report it.
    """

    def __init__(self, directory_fd: int) -> None:
        self._directory_fd = directory_fd
        self._fd: int | None = None
        self._making = threading.Lock()

    def close(self) -> None:
        """Close its file; what was written stays."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def write(self, done: list[tuple[str, list[str]]]) -> None:
        """Append what was done, as (directory, encoded records)."""
        data = b"".join(join_line(directory, records) for directory, records in done if records)
        while data:
            data = data[os.write(self._file(), data) :]

    def _file(self) -> int:
        with self._making:
            if self._fd is None:
                name = f"journal.{os.getpid()}.{os.urandom(4).hex()}"
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
                self._fd = os.open(name, flags, 0o600, dir_fd=self._directory_fd)
            return self._fd


def record(entry: Entry, kind: str, content: str | None, group: str) -> Recorded:
    """Return what is kept of an entry that was copied."""
    mode = stat.S_IMODE(entry.mode)
    return Recorded(
        entry.name, kind, entry.size, entry.mtime_ns, mode, entry.uid, entry.gid, content, group
    )
