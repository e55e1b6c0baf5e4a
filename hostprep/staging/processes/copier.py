"""Copies batches of small entries, which most of a run's time is spent on."""

from __future__ import annotations

import errno
import marshal
import os
from dataclasses import field
from stat import S_IMODE, S_ISLNK
from time import monotonic
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.host.capabilities import knows_other_users
from hostprep.staging.files import copying, transfer
from hostprep.staging.files.directories import finish_directory
from hostprep.staging.files.fatal import raise_if_of_all
from hostprep.staging.files.holding import FOLDER_NAME, holding, is_unholdable, reason_of
from hostprep.staging.files.lookahead import Lookahead
from hostprep.staging.files.metadata import CopyStyle
from hostprep.staging.files.settling import settle
from hostprep.staging.files.small import Unusual, copy_link, copy_small, finish_new
from hostprep.staging.model import Entry
from hostprep.staging.processes.descriptors import Descriptors
from hostprep.staging.processes.job import Job
from hostprep.staging.reasons import GONE
from hostprep.staging.record import digest
from hostprep.staging.record.journal import Journal
from hostprep.staging.record.lines import encode_record
from hostprep.staging.tree import Plain
from hostprep.system.trees import DirCache, join

# How much work, in time, is lost if a worker is killed.
_JOURNAL_SECONDS = 0.5
# How many examples are shown to people.
MOST_NAMED = 10


@dataclass(slots=True)
class _Tally:
    """The result of a task so far; ``total`` is the plain sum of digest terms."""

    files: int = 0
    bytes: int = 0
    holes: int = 0
    total: int = 0
    outward: list[str] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    linked: list[tuple[str, tuple[Any, ...], str | None]] = field(default_factory=list)
    unfinished: set[str] = field(default_factory=set)
    modes: list[tuple[str, int]] = field(default_factory=list)


class Copier:
    """Copies for one thread, in the job's style, and journals what is done.

    ``stopping`` ends a batch after the current file. What is copied is counted in ``counters``, if
    there are any (see ``Effort``). The caches of directories remain the caller's; there is no
    ``target`` in a run that only scans.
    """

    def __init__(
        self,
        job: Job,
        source: DirCache,
        target: DirCache | None,
        journal: Journal | None,
        may_open: Descriptors,
        counters: memoryview | None,
    ) -> None:
        self._source = source
        self._target = target
        self._journal = journal
        self._room: memoryview | None = None
        self.stopping = False
        self.style = CopyStyle(
            verify=job.verify,
            look_ahead=job.look_ahead,
            own_uid=os.geteuid(),
            own_gid=os.getegid(),
            may_chown=os.geteuid() == 0 and knows_other_users(),
            drop_behind=job.drop_behind,
            in_ram=job.in_ram,
        )
        if counters is not None:
            self.style.counters = counters
        self._ahead = None
        if job.look_ahead:
            self._ahead = Lookahead(
                job.source_fd, self.style, files=may_open.ahead, directories=may_open.directories
            )

    def close(self) -> None:
        """Close what it has opened itself."""
        if self._ahead is not None:
            self._ahead.close()

    @property
    def buffer(self) -> memoryview:
        """The buffer for files that are not small; of many threads, few may ever need one."""
        if self._room is None:
            self._room = transfer.new_buffer()
        return self._room

    def record(self, done: list[tuple[str, list[str]]]) -> None:
        """Journal what was done, as (directory, encoded records)."""
        if self._journal is not None:
            self._journal.write(done)

    def lost_xattrs(self) -> int:
        """Return how many entries lost attributes since the last call."""
        lost, self.style.lost_xattrs = self.style.lost_xattrs, 0
        return lost

    def copy(
        self, payload: tuple[list[tuple[str, bytes]], dict[str, tuple[Any, ...]]]
    ) -> tuple[Any, ...]:
        """Copy batches, and finish the directories that are given with them.

        Returns (files, (bytes, those of them in holes), digest sum, problems, linked files as
        copied, how many symlinks lead out of the data set and a few of them, how many entries lost
        attributes, (directories that are not finished, modes of those that are, if the target
        changed them)).
        """
        batches, finishing = payload
        tally = _Tally()
        journal: list[tuple[str, list[str]]] = []
        unpacked = [(directory, marshal.loads(packed)) for directory, packed in batches]
        settle(item[3] for _, entries in unpacked for item in entries)
        if self._ahead is not None:
            self._ahead.begin((path, item) for path, items in unpacked for item in items)
        last = {directory: index for index, (directory, _) in enumerate(unpacked)}
        due = monotonic() + _JOURNAL_SECONDS
        for index, (directory, entries) in enumerate(unpacked):
            done: list[str] = []
            journal.append((directory, done))
            problems = len(tally.problems)
            try:
                if opened := self._opened(directory, entries, tally):
                    self._copy_below(directory, opened, entries, done, tally)
            except OSError:
                self.record(journal)
                raise
            tally.files += len(done)
            if opened is None or len(tally.problems) > problems:
                tally.unfinished.add(directory)
            elif (
                last[directory] == index
                and directory in finishing
                and directory not in tally.unfinished
            ):
                self._finish(directory, opened, Entry._make(finishing[directory]), tally)
            if monotonic() >= due:
                self.record(journal)
                journal.clear()
                due = monotonic() + _JOURNAL_SECONDS
        self.record(journal)
        lost = self.lost_xattrs()
        total = digest.packed(tally.total)
        outward = len(tally.outward), tally.outward[:MOST_NAMED]
        sizes = tally.bytes, tally.holes
        finished = list(tally.unfinished), tally.modes
        return tally.files, sizes, total, tally.problems, tally.linked, outward, lost, finished

    def _opened(
        self, directory: str, entries: list[Plain], tally: _Tally
    ) -> tuple[int, int] | None:
        """Open a directory of source and target, or note why ``entries`` cannot be copied.

        Raises OSError for errors that concern the whole run.
        """
        assert self._target is not None
        try:
            source_dir = self._source.fd(directory)
        except OSError as error:
            raise_if_of_all(error, self._source)
            reason = GONE if error.errno == errno.ENOENT else error.strerror or str(error)
            tally.problems.extend((join(directory, item[0]), reason) for item in entries)
            return None
        try:
            with holding(FOLDER_NAME, directory):
                return source_dir, self._target.fd(directory)
        except OSError as error:
            if is_unholdable(error):
                tally.problems.extend(
                    (join(directory, item[0]), reason_of(error)) for item in entries
                )
                return None
            # This ends the whole run, because no file is at fault; but the directory must be named.
            raise OSError(error.errno, f"{directory!r}: {error.strerror}") from error

    def _finish(self, directory: str, opened: tuple[int, int], entry: Entry, tally: _Tally) -> None:
        """Finish a directory in which all is copied; problems are left for a later attempt."""
        assert self._target is not None
        try:
            finish_new(*opened, entry, self.style)
            return
        except (Unusual, OSError):
            pass
        try:
            made = finish_directory(directory, entry, self._source, self._target, self.style)
        except OSError:
            tally.unfinished.add(directory)
        else:
            if made is not None:
                tally.modes.append((directory, made))

    def _copy_below(
        self,
        directory: str,
        opened: tuple[int, int],
        entries: list[Plain],
        done: list[str],
        tally: _Tally,
    ) -> None:
        """Copy entries of one directory.

        Raises OSError for errors that concern the whole run. This loop runs once for each file of a
        data set, so attributes are looked up outside of it.
        """
        source_dir, target_dir = opened
        ahead, style, term_of = self._ahead, self.style, digest.terms_below(directory)
        counters = style.counters
        for item in entries:
            if self.stopping:
                break
            try:
                asked = None if ahead is None else ahead.take(directory, item[0])
                content = (
                    copy_link(item, source_dir, target_dir, style)
                    if S_ISLNK(item[1])
                    else copy_small(item, source_dir, target_dir, style, asked)
                )
                counters[0] += 1
                counters[1] += item[2]
            except (Unusual, OSError):
                try:
                    item, content = self._copy_with_care(item, source_dir, target_dir)
                except OSError as error:
                    raise_if_of_all(error, self._source)
                    reason = copying.reason_below(error, directory, item[0], self._source)
                    tally.problems.append((join(directory, item[0]), reason))
                    continue
                except (transfer.Changed, transfer.Differs) as trouble:
                    tally.problems.append((join(directory, item[0]), trouble.twice))
                    continue
            name, mode, size, mtime_ns, uid, gid, blocks, nlink, _, _ = item
            kind = "l" if S_ISLNK(mode) else "f"
            group = ""
            if nlink > 1 and kind == "f":
                group = join(directory, name)
                tally.linked.append((group, tuple(item), content))
            elif kind == "l" and copying.leads_out(directory, content or ""):
                tally.outward.append(join(directory, name))
            if content is not None:
                tally.total += term_of(kind, name, content)
            tally.bytes += size
            if blocks * 512 < size and kind == "f":
                tally.holes += size - blocks * 512
            mode = S_IMODE(mode)
            done.append(encode_record(name, kind, size, mtime_ns, mode, uid, gid, content, group))

    def _copy_with_care(self, item: Plain, source_dir: int, target_dir: int) -> copying.Copy:
        """Copy a file or symlink, and copy it again if it changed or came back differently."""
        entry, style, buffer = Entry._make(item), self.style, self.buffer
        try:
            if S_ISLNK(entry.mode):
                return copying.copy_symlink(entry, source_dir, target_dir, style)
            return copying.copy_file(entry, source_dir, target_dir, style, buffer)
        except (transfer.Changed, transfer.Differs):
            return copying.copy_again(entry, source_dir, target_dir, style, buffer)
