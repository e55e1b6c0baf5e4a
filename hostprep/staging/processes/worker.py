"""What a worker does: scans directories, copies batches and ranges, checks files.

Payloads and results are plain tuples that ``marshal`` can carry; see ``model.Entry`` for the order
of an entry's fields. How they travel is ``serving``'s business.
"""

from __future__ import annotations

import errno
import marshal
import os
from collections.abc import Callable
from stat import S_IMODE, S_ISLNK
from time import monotonic
from typing import Any

from hostprep.staging.batches import Listed, list_batches, look_up_batches
from hostprep.staging.files import copying, ranges, transfer
from hostprep.staging.files.directories import finish_directory
from hostprep.staging.files.holding import FOLDER_NAME, holding, is_unholdable, reason_of
from hostprep.staging.files.lookahead import Lookahead
from hostprep.staging.files.metadata import CopyStyle
from hostprep.staging.files.placing import place_by_extent
from hostprep.staging.files.rereading import difference
from hostprep.staging.files.small import Unusual, copy_small
from hostprep.staging.files.standing import stands
from hostprep.staging.model import Entry, Verify
from hostprep.staging.processes.descriptors import Descriptors
from hostprep.staging.processes.job import Job
from hostprep.staging.record import digest
from hostprep.staging.record.journal import Journal, record
from hostprep.staging.record.manifest import encode_record
from hostprep.staging.tree import Plain, entry_of
from hostprep.system.trees import DirCache, join

# Errors that concern the whole run, not one file.
FATAL = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)
# What a worker that is killed has done for nothing is about the work of so long.
_JOURNAL_SECONDS = 0.5
# Of what is told to people, who see the kind of it by a few.
MOST_NAMED = 10


class Stopped(OSError):
    """The worker was told to stop, and may have left a part of its task undone."""

    def __init__(self) -> None:
        super().__init__(errno.ECANCELED, "a worker process was told to stop (SIGUSR1)")


class _Tally:
    """What came of a task so far; ``total`` is the plain sum of digest terms."""

    __slots__ = ("bytes", "files", "linked", "outward", "problems", "total")

    def __init__(self) -> None:
        self.files = self.bytes = self.total = 0
        self.outward: list[str] = []
        self.problems: list[tuple[str, str]] = []
        self.linked: list[tuple[tuple[Any, ...], str | None]] = []


class Worker:
    """Carries out tasks for one thread; threads of a process share the journal.

    What it copies it counts in ``counters``, where they are given (see ``Effort``).
    """

    def __init__(
        self,
        job: Job,
        journal: Journal | None,
        may_open: Descriptors,
        counters: memoryview | None = None,
    ) -> None:
        self._job = job
        self._journal = journal
        limit = may_open.directories
        self._source = DirCache(job.source_fd, limit=limit)
        self._target = None
        if job.target_fd is not None:
            self._target = DirCache(job.target_fd, create=not job.looks_only, limit=limit)
        self._room: memoryview | None = None
        self._style = CopyStyle(
            verify=job.verify,
            look_ahead=job.look_ahead,
            own_uid=os.geteuid(),
            own_gid=os.getegid(),
            may_chown=os.geteuid() == 0,
            drop_behind=job.drop_behind,
        )
        if counters is not None:
            self._style.counters = counters
        self._ahead = None
        if job.look_ahead:
            self._ahead = Lookahead(
                job.source_fd, self._style, files=may_open.ahead, directories=limit
            )
        self._untold: set[int] = set()
        self._stopping = False
        self._tasks: dict[str, Callable[[Any], Any]] = {
            "scan": self._scan,
            "look up": self._look_up,
            "place": self._place,
            "copy": self._copy,
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

        Raises ``Stopped`` after ``stop``: the parent does not listen any more where it was the one
        to say so, and must not take what was left out for done where somebody else was.
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
        if self._ahead is not None:
            self._ahead.close()

    def stop(self) -> None:
        """End the batch in hand after the current file, keeping what is done."""
        self._stopping = True

    @property
    def _buffer(self) -> memoryview:
        """What files pass through that are not small: of many threads, few may ever need one."""
        if self._room is None:
            self._room = transfer.new_buffer()
        return self._room

    # -- scanning

    def _scan(self, directories: list[str]) -> list[Listed]:
        """Return of each directory what ``list_batches`` does."""
        from_server = self._job.from_server
        return [
            list_batches(self._source, directory, from_server=from_server)
            for directory in directories
        ]

    def _look_up(self, payload: tuple[str, list[str]]) -> tuple[float, tuple[Any, ...]]:
        """Return of some names in a directory what ``look_up_batches`` does."""
        return look_up_batches(self._source, *payload, from_server=self._job.from_server)

    def _place(self, batches: list[tuple[str, bytes]]) -> list[bytes]:
        """Return for each batch where its files lie, see ``placing``: numbers of 64 bits."""
        return [
            place_by_extent(self._source, directory, marshal.loads(packed), self._untold).tobytes()
            for directory, packed in batches
        ]

    # -- copying

    def _copy(self, batches: list[tuple[str, bytes]]) -> tuple[Any, ...]:
        """Copy batches.

        Returns (files, bytes, digest sum, problems, linked files as copied, how many symlinks lead
        out of the data set and a few of them, how many entries lost attributes).
        """
        tally = _Tally()
        journal: list[tuple[str, list[str]]] = []
        unpacked = [(directory, marshal.loads(packed)) for directory, packed in batches]
        if self._ahead is not None:
            self._ahead.begin((path, item) for path, items in unpacked for item in items)
        due = monotonic() + _JOURNAL_SECONDS
        for directory, entries in unpacked:
            done: list[str] = []
            journal.append((directory, done))
            try:
                self._copy_below(directory, entries, done, tally)
            except OSError:
                self._record(journal)
                raise
            tally.files += len(done)
            if monotonic() >= due:
                self._record(journal)
                journal.clear()
                due = monotonic() + _JOURNAL_SECONDS
        self._record(journal)
        lost, self._style.lost_xattrs = self._style.lost_xattrs, 0
        total = (tally.total % (1 << 128)).to_bytes(16, "big")
        outward = len(tally.outward), tally.outward[:MOST_NAMED]
        return tally.files, tally.bytes, total, tally.problems, tally.linked, outward, lost

    def _copy_below(
        self, directory: str, entries: list[Plain], done: list[str], tally: _Tally
    ) -> None:
        """Copy entries of one directory.

        Raises OSError for what concerns the whole run. This loop runs once for each file of a
        data set, so names are looked up outside of it.
        """
        assert self._target is not None
        ahead, style, term_of = self._ahead, self._style, digest.terms_below(directory)
        counters = style.counters
        try:
            source_dir = self._source.fd(directory)
        except OSError as error:
            reason = error.strerror or str(error)
            tally.problems.extend((join(directory, item[0]), reason) for item in entries)
            return
        try:
            with holding(FOLDER_NAME, directory):
                target_dir = self._target.fd(directory)
        except OSError as error:
            if is_unholdable(error):
                tally.problems.extend(
                    (join(directory, item[0]), reason_of(error)) for item in entries
                )
                return
            # For the whole run, as it is no file's fault: but whose it is has to be told.
            raise OSError(error.errno, f"{directory!r}: {error.strerror}") from error
        for item in entries:
            if self._stopping:
                break
            try:
                opened = None if ahead is None else ahead.take(directory, item[0])
                content = copy_small(item, source_dir, target_dir, style, opened)
                counters[0] += 1
                counters[1] += item[2]
            except (Unusual, OSError):
                try:
                    item, content = self._copy_with_care(item, source_dir, target_dir)
                except OSError as error:
                    if error.errno in FATAL:
                        raise
                    tally.problems.append((join(directory, item[0]), reason_of(error)))
                    continue
                except (transfer.Changed, transfer.Differs) as trouble:
                    tally.problems.append((join(directory, item[0]), trouble.twice))
                    continue
            name, mode, size, mtime_ns, uid, gid, _, nlink, _, _ = item
            kind = "l" if S_ISLNK(mode) else "f"
            group = ""
            if nlink > 1 and kind == "f":
                group = join(directory, name)
                tally.linked.append((tuple(item), content))
            elif kind == "l" and copying.leads_out(directory, content or ""):
                tally.outward.append(join(directory, name))
            if content is not None:
                tally.total += term_of(kind, name, content)
            tally.bytes += size
            mode = S_IMODE(mode)
            done.append(encode_record(name, kind, size, mtime_ns, mode, uid, gid, content, group))

    def _copy_with_care(self, item: Plain, source_dir: int, target_dir: int) -> copying.Copy:
        """Copy a file or symlink, and once more where it changed or came back differently."""
        entry, style, buffer = Entry._make(item), self._style, self._buffer
        try:
            if S_ISLNK(entry.mode):
                return copying.copy_symlink(entry, source_dir, target_dir, style)
            return copying.copy_file(entry, source_dir, target_dir, style, buffer)
        except (transfer.Changed, transfer.Differs):
            return copying.copy_again(entry, source_dir, target_dir, style, buffer)

    def _record(self, done: list[tuple[str, list[str]]]) -> None:
        if self._journal is not None:
            self._journal.write(done)

    # -- large files, in ranges

    def _range(self, payload: tuple[str, Plain, int, int]) -> tuple[bytes, str | None]:
        """Copy one range of a large file; see ``ranges.copy``."""
        assert self._target is not None
        if self._stopping:
            raise Stopped
        try:
            return ranges.copy(*payload, self._source, self._target, self._style, self._buffer)
        except OSError as error:
            if error.errno in FATAL:
                raise
            return b"", reason_of(error)

    def _finish(self, payload: tuple[str, Plain, list[bytes]]) -> tuple[Any, ...]:
        """End a large file, and record it.

        Returns (digest sum, content, problem, 1 where its attributes were lost).
        """
        directory, item, digests = payload
        assert self._target is not None
        entry, content = Entry._make(item), None
        if self._job.verify is not Verify.NONE:
            content = transfer.content_of(digests)
        problem = ranges.finish(directory, entry, self._source, self._target, self._style)
        if problem is not None:
            return b"", None, problem, 0
        lost, self._style.lost_xattrs = self._style.lost_xattrs, 0
        path = join(directory, entry.name)
        group = path if entry.nlink > 1 else ""
        self._record([(directory, [encode_record(*record(entry, "f", content, group))])])
        total = digest.entry_term("f", path, content) if content is not None else 0
        return total.to_bytes(16, "big"), content, None, lost

    def _lstat(self, payload: tuple[str, str]) -> tuple[Any, ...] | None:
        """Return a source file's entry as it is now, None where it is gone."""
        directory, name = payload
        try:
            return tuple(entry_of(name, os.lstat(name, dir_fd=self._source.fd(directory))))
        except OSError:
            return None

    def _discard(self, payload: tuple[str, str]) -> None:
        """Remove an unfinished file from the target."""
        assert self._target is not None
        ranges.discard(*payload, self._target)

    def _directories(
        self, payload: list[tuple[str, tuple[Any, ...]]]
    ) -> tuple[int, int, list[tuple[str, int]]]:
        """Finish directories.

        Returns (how many, of how many attributes were lost, those whose mode the target made
        another one, with that).
        """
        assert self._target is not None
        modes = []
        done = 0
        for path, item in payload:
            if self._stopping:
                break
            made = finish_directory(
                path, Entry._make(item), self._source, self._target, self._style
            )
            if made is not None:
                modes.append((path, made))
            done += 1
        lost, self._style.lost_xattrs = self._style.lost_xattrs, 0
        return done, lost, modes

    # -- looking at what is there already

    def _standing(
        self,
        payload: tuple[bool, list[tuple[str, list[bytes], list[Plain], list[bytes]]]],
    ) -> list[tuple[Any, ...] | None]:
        """Return of each directory what ``standing.stands`` does."""
        verified, asked = payload
        target = self._target
        assert target is not None
        return [stands(*each, (0, 1), target, verified=verified) for each in asked]

    def _standing_part(
        self, payload: tuple[bool, int, tuple[int, int]]
    ) -> list[tuple[Any, ...] | None]:
        """Return of a part of one of the job's ``large`` directories what ``stands`` does."""
        verified, number, part = payload
        target = self._target
        assert target is not None
        return [stands(*self._job.large[number], part, target, verified=verified)]

    def _check(
        self, payload: tuple[str, list[tuple[str, str, int, str]], str]
    ) -> list[tuple[str, str]]:
        """Compare files with their hashes: payload (directory, files, "source" or "target").

        See ``rereading`` for the files and for what is returned.
        """
        directory, files, where = payload
        cache = self._source if where == "source" else self._target
        assert cache is not None
        wrong = []
        for file in files:
            if self._stopping:
                break
            reason = difference(cache, directory, file, self._buffer, cold=where == "target")
            if reason is not None:
                wrong.append((file[1], reason))
        return wrong
