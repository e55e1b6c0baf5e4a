"""What a worker does: scans directories, copies batches and ranges, checks files.

Payloads and results are plain tuples that ``marshal`` can carry; see ``model.Entry`` for the order
of an entry's fields. ``serving`` transports them.
"""

from __future__ import annotations

import errno
import marshal
import os
from collections.abc import Callable
from typing import Any

from hostprep.staging.batches import Listed, list_batches, look_up_batches
from hostprep.staging.files import copying, ranges, transfer
from hostprep.staging.files.directories import finish_directory
from hostprep.staging.files.fatal import raise_if_of_all
from hostprep.staging.files.placing import place_by_extent
from hostprep.staging.files.rereading import difference
from hostprep.staging.files.standing import Anew, stands
from hostprep.staging.model import Entry, Verify
from hostprep.staging.processes.copier import Copier
from hostprep.staging.processes.descriptors import Descriptors
from hostprep.staging.processes.job import Job
from hostprep.staging.record import digest
from hostprep.staging.record.journal import Journal, record
from hostprep.staging.record.lines import encode_record
from hostprep.staging.tree import Plain, entry_of
from hostprep.system.trees import DirCache, join

# Of a directory, see ``files.standing.stands``: unchanged files, its result packed, lines apart.
_Stands = tuple[int, bytes, list[tuple[int, bytes]]] | None


class Stopped(OSError):
    """The worker was told to stop, and may have left part of its task undone."""

    def __init__(self) -> None:
        super().__init__(errno.ECANCELED, "a worker process was told to stop (SIGUSR1)")


class Worker:
    """Carries out tasks for one thread; the threads of a process share the journal.

    What it copies is counted in ``counters``, if there are any (see ``Effort``).
    """

    def __init__(
        self,
        job: Job,
        journal: Journal | None,
        may_open: Descriptors,
        counters: memoryview | None = None,
    ) -> None:
        self._job = job
        limit = may_open.directories
        self._source = DirCache(job.source_fd, limit=limit)
        self._target = None
        if job.target_fd is not None:
            self._target = DirCache(
                job.target_fd,
                create=not job.looks_only,
                fresh=job.journal_fd is not None,
                limit=limit,
            )
        self._copier = Copier(job, self._source, self._target, journal, may_open, counters)
        self._untold: set[int] = set()
        self._stopping = False
        self._tasks: dict[str, Callable[[Any], Any]] = {
            "scan": self._scan,
            "look up": self._look_up,
            "place": self._place,
            "copy": self._copier.copy,
            "range": self._range,
            "finish": self._finish,
            "directories": self._directories,
            "check": self._check,
            "standing": self._standing,
            "standing part": self._standing_part,
            "lstat": self._lstat,
            "discard": self._discard,
        }

    def do(self, kind: str, payload: Any) -> Any:
        """Carry out one task and return its result, plain enough for ``marshal``.

        Raises ``Stopped`` after ``stop``: a parent that asked for it no longer listens, and any
        other must not take unfinished work for done.
        """
        result = self._tasks[kind](payload)
        if self._stopping:
            raise Stopped
        return result

    def close(self) -> None:
        """Close what it has open."""
        self._source.close()
        if self._target is not None:
            self._target.close()
        self._copier.close()

    def stop(self) -> None:
        """End the current batch after the current file, keeping what is done."""
        self._stopping = self._copier.stopping = True

    # -- scanning

    def _scan(self, directories: list[str]) -> list[Listed]:
        """Return what ``list_batches`` does, for each directory."""
        from_server, encrypts = self._job.from_server, self._job.encrypts
        return [
            list_batches(self._source, directory, from_server=from_server, encrypts=encrypts)
            for directory in directories
        ]

    def _look_up(self, payload: tuple[str, list[str]]) -> tuple[float, tuple[Any, ...]]:
        """Return what ``look_up_batches`` does, for some names in a directory."""
        return look_up_batches(self._source, *payload, from_server=self._job.from_server)

    def _place(self, batches: list[tuple[str, bytes]]) -> list[bytes]:
        """Return for each batch where its files are, see ``placing``, as 64-bit numbers."""
        return [
            place_by_extent(self._source, directory, marshal.loads(packed), self._untold).tobytes()
            for directory, packed in batches
        ]

    # -- large files, in ranges

    def _range(self, payload: tuple[str, Plain, int, int]) -> tuple[bytes, str | None]:
        """Copy one range of a large file; see ``ranges.copy``."""
        assert self._target is not None
        if self._stopping:
            raise Stopped
        try:
            return ranges.copy(
                *payload, self._source, self._target, self._copier.style, self._copier.buffer
            )
        except OSError as error:
            raise_if_of_all(error, self._source)
            directory, item = payload[:2]
            return b"", copying.reason_below(error, directory, item[0], self._source)

    def _finish(self, payload: tuple[str, Plain, list[bytes]]) -> tuple[Any, ...]:
        """Complete a large file, and record it.

        Returns (digest sum, content, problem, 1 if its attributes were lost).
        """
        directory, item, digests = payload
        assert self._target is not None
        entry, content = Entry._make(item), None
        if self._job.verify is not Verify.NONE:
            content = transfer.content_of(digests)
        problem = ranges.finish(directory, entry, self._source, self._target, self._copier.style)
        if problem is not None:
            return b"", None, problem, 0
        path = join(directory, entry.name)
        group = path if entry.nlink > 1 else ""
        self._copier.record([(directory, [encode_record(*record(entry, "f", content, group))])])
        total = digest.entry_term("f", path, content) if content is not None else 0
        return digest.packed(total), content, None, self._copier.lost_xattrs()

    def _lstat(self, payload: tuple[str, str]) -> tuple[Any, ...] | str:
        """Return a source file's entry as it is now, or why it cannot be read."""
        directory, name = payload
        try:
            return tuple(entry_of(name, os.lstat(name, dir_fd=self._source.fd(directory))))
        except OSError as error:
            raise_if_of_all(error, self._source)
            return copying.reason_below(error, directory, name, self._source)

    def _discard(self, payload: tuple[str, str]) -> None:
        """Remove an unfinished file from the target."""
        assert self._target is not None
        ranges.discard(*payload, self._target)

    def _directories(
        self, payload: list[tuple[str, tuple[Any, ...]]]
    ) -> tuple[int, int, list[tuple[str, int]]]:
        """Finish directories.

        Returns (how many, how many of them lost attributes, those whose mode the target changed,
        with the new mode).
        """
        assert self._target is not None
        modes = []
        done = 0
        for path, item in payload:
            if self._stopping:
                break
            made = finish_directory(
                path,
                Entry._make(item),
                self._source,
                self._target,
                self._copier.style,
                self._job.inodes.get(path),
            )
            if made is not None:
                modes.append((path, made))
            done += 1
        return done, self._copier.lost_xattrs(), modes

    # -- looking at what is there already

    def _standing(
        self,
        payload: tuple[bool, list[tuple[str, list[bytes], list[Plain], list[bytes]]]],
    ) -> list[_Stands]:
        """Return for each directory its unchanged files, and the result of ``stands``, packed.

        And apart from that, so that they need not be kept, which lines are to be replaced by what.
        """
        verified, asked = payload
        target = self._target
        assert target is not None
        told: list[_Stands] = []
        for each in asked:
            found = stands(*each, (0, 1), target, verified=verified)
            if found is None:
                told.append(None)
            else:
                told.append((found[0], marshal.dumps((*found[:7], [], found[8])), found[7]))
        return told

    def _standing_part(self, payload: tuple[bool, int, tuple[int, int]]) -> list[_Stands]:
        """Return what ``_standing`` does for a part of one of the job's ``large`` directories."""
        verified, number, part = payload
        target = self._target
        assert target is not None
        directory, packed, singles, lines = self._job.large[number]
        found = stands(directory, packed, singles, Anew(lines), part, target, verified=verified)
        return [None if found is None else (found[0], marshal.dumps(found), [])]

    def _check(
        self, payload: tuple[str, list[tuple[str, str, int, str]], str]
    ) -> list[tuple[str, str]]:
        """Compare files with their hashes: payload (directory, files, "source" or "target").

        See ``rereading`` for the files and the results.
        """
        directory, files, where = payload
        cache = self._source if where == "source" else self._target
        assert cache is not None
        wrong = []
        for file in files:
            if self._stopping:
                break
            reason = difference(cache, directory, file, self._copier.buffer, cold=where == "target")
            if reason is not None:
                wrong.append((file[1], reason))
        return wrong
