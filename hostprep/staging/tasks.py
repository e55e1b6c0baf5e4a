"""From a plan to the workers' tasks, and from their results to what was copied."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from hostprep.dataclass import dataclass
from hostprep.staging.batches import Batch, split_batches
from hostprep.staging.files.transfer import Changed, Differs, WrongSize
from hostprep.staging.model import RANGE_BYTES, Entry, kind_of
from hostprep.staging.plans.copy_plan import CopyPlan
from hostprep.staging.processes.copier import MOST_NAMED
from hostprep.staging.processes.pool import OnResult, Pool
from hostprep.staging.processor_time import ProcessorTime
from hostprep.staging.reasons import Skipped
from hostprep.staging.record import digest
from hostprep.staging.source.reading import Reading
from hostprep.system.trees import join

_T = TypeVar("_T")

# By how many files a task may exceed its size in order to end with a directory.
_SLACK_FILES = 1024
# A task ends at this many bytes: with large files, the order of creating them does not matter
# compared with their content, of which little would be left for the other workers.
_TASK_BYTES = RANGE_BYTES
# The largest size to which a file may have grown before its second try, which no plan has checked:
# the digests of its ranges are kept in memory.
_MOST_BYTES_AGAIN = 1 << 44


@dataclass(slots=True)
class Copied:
    """The result of carrying out a plan; ``linked_bytes``, of hard links, are not in ``bytes``.

    ``digest_sum`` covers everything that was copied; ``hole_bytes`` are those of ``bytes`` that are
    holes of sparse files.

    ``readers`` is the number found best in the end, if it was adapted; ``processors`` says how much
    processor time this process and its workers got. ``linked`` has, by path, each copied file with
    several names: its entry as it was copied, and its content. ``outward`` counts the symlinks that
    lead out of the data set; ``outward_named`` are a few of them.

    ``finished`` are the directories that already have their modes, owners and times;
    ``other_modes`` has those whose mode the target changed.
    """

    files: int = 0
    bytes: int = 0
    hole_bytes: int = 0
    linked_bytes: int = 0
    digest_sum: int = 0
    problems: list[Skipped] = field(default_factory=list)
    lost_xattrs: int = 0
    readers: int | None = None
    processors: ProcessorTime | None = None
    linked: dict[str, tuple[Entry, str | None]] = field(default_factory=dict)
    outward: int = 0
    outward_named: list[str] = field(default_factory=list)
    finished: set[str] = field(default_factory=set)
    other_modes: dict[str, int] = field(default_factory=dict)

    @property
    def data_bytes(self) -> int:
        """What was read and written of ``bytes``: all but the holes of sparse files."""
        return self.bytes - self.hole_bytes

    def add(self, more: Copied) -> None:
        """Add the result of another plan."""
        self.files += more.files
        self.bytes += more.bytes
        self.hole_bytes += more.hole_bytes
        self.digest_sum = digest.add(self.digest_sum, more.digest_sum)
        self.problems.extend(more.problems)
        self.lost_xattrs += more.lost_xattrs
        self.linked.update(more.linked)
        self.outward += more.outward
        self.outward_named = [*self.outward_named, *more.outward_named][:MOST_NAMED]


class Tasks:
    """Turns a plan into tasks and their results into ``Copied``."""

    def __init__(self, pool: Pool, copied: Copied) -> None:
        self._pool = pool
        self._copied = copied

    def all(self, plan: CopyPlan, reading: Reading) -> Iterator[tuple[str, Any, OnResult]]:
        """Yield large files first, because their ranges keep all workers busy to the end.

        Ranges of several files alternate, because two workers that write one file wait for each
        other. For an arm, one file is read after the other.
        """
        large = (self._large(directory, entry, attempt=1) for directory, entry in plan.large)
        yield from _in_turns(large, 1 if reading.readers == 1 else 2 * reading.processes)
        # Workers that create files in the same directory wait for each other. If the source answers
        # at once, so that this would be their main wait, tasks end with a directory.
        slow = reading.threads > 1
        slack = 0 if slow else _SLACK_FILES
        task_files = reading.task_files
        if slow:
            # Every reader should get its share of a small set, in more than one task.
            task_files = min(task_files, max(1, plan.copied.files // (2 * reading.readers)))
        most_bytes = math.inf if reading.readers == 1 else _TASK_BYTES
        group: list[Batch] = []
        files = size_bytes = 0
        batches = plan.batches if plan.sequence is None else plan.sequence
        leaves = plan.leaves if plan.sequence is None else {}
        wanted = _files_by_directory(plan.batches) if leaves else {}
        for batch in split_batches(batches, task_files if slow else None):
            if size_bytes >= most_bytes or (
                files >= task_files
                and (files >= task_files + slack or batch.directory != group[-1].directory)
            ):
                yield self._copy(group, leaves, wanted)
                group, files, size_bytes = [], 0, 0
            group.append(batch)
            files += batch.files
            size_bytes += batch.size_bytes
        if group:
            yield self._copy(group, leaves, wanted)

    def _copy(
        self, batches: list[Batch], leaves: Mapping[str, Entry], wanted: Mapping[str, int]
    ) -> tuple[str, Any, OnResult]:
        """Return the task of copying batches; it finishes directories that are completely in it.

        ``wanted`` is how many files each directory is to have.
        """
        finishing = {}
        if leaves:
            finishing = {
                path: tuple(leaves[path])
                for path, files in _files_by_directory(batches).items()
                if path in leaves and files == wanted[path]
            }
        payload = [(batch.directory, batch.packed) for batch in batches], finishing
        return "copy", payload, partial(self._copied_batch, tuple(finishing))

    def _copied_batch(self, finishing: Sequence[str], result: Any) -> None:
        files, (size_bytes, hole_bytes), total, problems, linked, *rest = result
        (outward, named), lost, (unfinished, modes) = rest
        copied = self._copied
        copied.finished.update(finishing)
        copied.finished.difference_update(unfinished)
        copied.other_modes.update(modes)
        copied.files += files
        copied.bytes += size_bytes
        copied.hole_bytes += hole_bytes
        copied.digest_sum = digest.add(copied.digest_sum, digest.unpacked(total))
        copied.lost_xattrs += lost
        copied.problems.extend(Skipped(path, reason, failed=True) for path, reason in problems)
        for path, item, content in linked:
            copied.linked[path] = Entry._make(item), content
        copied.outward += outward
        copied.outward_named.extend(named[: MOST_NAMED - len(copied.outward_named)])

    def _large(
        self, directory: str, entry: Entry, *, attempt: int
    ) -> Iterator[tuple[str, Any, OnResult]]:
        offsets = range(0, entry.size, RANGE_BYTES)
        digests: list[bytes] = [b""] * len(offsets)
        troubles: list[str] = []
        left = len(offsets)
        counted = 0

        def finish_range(index: int, length: int, result: Any) -> None:
            nonlocal left, counted
            digests[index], trouble = result
            left -= 1
            if trouble is not None:
                troubles.append(trouble)
            else:
                self._copied.bytes += length
                counted += length
            if left:
                return
            if troubles:
                fail(troubles[0])
            else:
                self._pool.submit("finish", (directory, tuple(entry), digests), finish_file)

        def finish_file(result: Any) -> None:
            total, content, trouble, lost = result
            if trouble is not None:
                fail(trouble)
                return
            copied = self._copied
            copied.files += 1
            copied.digest_sum = digest.add(copied.digest_sum, digest.unpacked(total))
            copied.lost_xattrs += lost
            if entry.nlink > 1:
                copied.linked[join(directory, entry.name)] = entry, content

        def fail(trouble: str) -> None:
            self._copied.bytes -= counted
            self._retry(directory, entry, attempt, trouble)

        for index, offset in enumerate(offsets):
            length = min(RANGE_BYTES, entry.size - offset)

            def on_result(result: Any, index: int = index, length: int = length) -> None:
                finish_range(index, length, result)

            yield "range", (directory, tuple(entry), offset, length), on_result

    def _retry(self, directory: str, entry: Entry, attempt: int, trouble: str) -> None:
        """Copy a large file once more, or report it."""
        path = join(directory, entry.name)
        reasons = {
            "changed": Changed.twice,
            "wrong size": WrongSize.twice,
            "differs": Differs.twice,
        }
        if attempt == 2 or trouble not in reasons:
            self._pool.submit("discard", (directory, entry.name), lambda _: None)
            reason = reasons.get(trouble, trouble)
            self._copied.problems.append(Skipped(path, reason, failed=True))
            return

        # One after the other: no worker may remove what another one is already writing again.
        def on_discarded(_: Any) -> None:
            self._pool.submit("lstat", (directory, entry.name), on_lstat)

        def on_lstat(result: Any) -> None:
            if isinstance(result, str):
                self._copied.problems.append(Skipped(path, result, failed=True))
                return
            again = Entry._make(result)
            if RANGE_BYTES < again.size <= _MOST_BYTES_AGAIN and kind_of(again.mode) == "f":
                for task in self._large(directory, again, attempt=2):
                    self._pool.submit(*task)
            else:
                self._copied.problems.append(Skipped(path, reasons["changed"], failed=True))

        self._pool.submit("discard", (directory, entry.name), on_discarded)


def _files_by_directory(batches: Iterable[Batch]) -> Counter[str]:
    """Return how many files each directory has, however they are split into batches."""
    files: Counter[str] = Counter()
    for batch in batches:
        files[batch.directory] += batch.files
    return files


def _in_turns(streams: Iterator[Iterator[_T]], at_once: int) -> Iterator[_T]:
    """Yield from ``at_once`` streams in turn; when one ends, the next takes its place."""
    active = deque(islice(streams, at_once))
    while active:
        stream = active.popleft()
        for item in stream:
            yield item
            active.append(stream)
            break
        else:
            active.extend(islice(streams, 1))
