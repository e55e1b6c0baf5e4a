"""Read files again and compare them with their records."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

from hostprep.staging.batches import BATCH_BYTES, pack_batches
from hostprep.staging.files.copying import leads_out
from hostprep.staging.model import Recorded, Totals
from hostprep.staging.observer import Observer
from hostprep.staging.plans.copy_plan import CopyPlan
from hostprep.staging.processes.job import Job
from hostprep.staging.processes.pool import OnResult, Pool
from hostprep.staging.reasons import READ_BACK, Differing, Skipped
from hostprep.staging.record import digest
from hostprep.staging.record.lines import decode_line, encode_line
from hostprep.staging.record.manifest import ManifestIndex
from hostprep.staging.target.private import PrivateDir
from hostprep.staging.tasks import Copied
from hostprep.staging.tree import entry_of
from hostprep.system.trees import DirCache, join, writable

_TASK_FILES = 64
# Smaller files are not searched for holes.
_MAY_HAVE_HOLES_BYTES = 1024 * 1024
_OPEN_AT_ONCE = 4


def check_kept(
    plan: CopyPlan,
    source_fd: int,
    published_fd: int,
    processes: int,
    observer: Observer,
    *,
    gentle: bool,
) -> tuple[Differing, ...]:
    """Read everything that would be kept, in source and target; return what differs.

    That includes symlinks, which can be changed to lead elsewhere with the same length and time.
    """
    observer.phase("check", files=2 * plan.kept.files, size_bytes=2 * plan.kept.bytes)
    lines = map(decode_line, plan.keep_lines)  # one by one: all at once take 800 bytes a file
    job = Job(source_fd, published_fd, gentle=gentle, looks_only=True)
    wrong = _check(job, lines, ("source", "target"), processes, observer, links=True)
    return tuple(sorted(wrong, key=lambda each: (each.place, each.path)))


def check_published(
    published_fd: int,
    lines: Iterable[tuple[str, list[Recorded]]],
    processes: int,
    observer: Observer,
) -> list[tuple[str, str]]:
    """Read the files of ``lines`` below ``published_fd``; return those that differ, and how."""
    job = Job(published_fd, published_fd, looks_only=True)
    wrong = _check(job, lines, ("target",), processes, observer)
    return [(each.path, each.reason) for each in wrong]


def check_written(
    source_fd: int,
    private: PrivateDir,
    plan: CopyPlan,
    copied: Copied,
    processes: int,
    observer: Observer,
    copy_again: Callable[[CopyPlan], Copied],
    *,
    gentle: bool,
    taken_up_alone: bool = False,
) -> None:
    """Read back from the disk all that was copied; what differs is copied once more.

    What differs again is removed and added to the problems. ``taken_up_alone``: read only what the
    ``plan`` takes over from an earlier run. Symlinks are compared as well: if the disk did not
    store one, lstat still shows that it is there.
    """
    lines = plan.done_lines if taken_up_alone else None
    wrong = dict(_check_private(private, processes, observer, gentle=gentle, lines=lines))
    if not wrong:
        return
    _withdraw(wrong, private, plan, copied)
    again = CopyPlan()
    holes: dict[str, int] = {}
    with DirCache(source_fd) as source:
        for path in wrong:
            parent, _, name = path.rpartition("/")
            try:
                entry = entry_of(name, os.lstat(name, dir_fd=source.fd(parent)))
            except OSError as error:
                reason = error.strerror or str(error)
                copied.problems.append(Skipped(path, reason, failed=True))
                continue
            again.batches.extend(pack_batches(parent, [entry]))
            again.copied += Totals.of(entry)
            holes[path] = entry.hole_bytes
    # Subtracted for both copies, as their bytes were: what differs twice has no holes left.
    copied.hole_bytes = max(0, copied.hole_bytes - sum(holes.values()))
    observer.phase("copy", files=again.copied.files, size_bytes=again.copied.data_bytes)
    copied.add(copy_again(again))
    still = dict(_check_private(private, processes, observer, gentle=gentle, only=wrong))
    _withdraw(still, private, plan, copied)
    copied.hole_bytes = max(0, copied.hole_bytes - sum(holes.get(path, 0) for path in still))
    for path, reason in still.items():
        copied.problems.append(Skipped(path, f"{READ_BACK}, it {reason}, twice", failed=True))


def _check_private(
    private: PrivateDir,
    processes: int,
    observer: Observer,
    *,
    gentle: bool,
    only: Iterable[str] | None = None,
    lines: Sequence[bytes] | None = None,
) -> list[tuple[str, str]]:
    """Read what was copied, or ``only`` these paths; return what differs, and how.

    ``lines`` are the records of what to read, None for those of the journals.
    """
    journal = ManifestIndex(private.journals())
    wanted = None if only is None else _by_directory(only)

    def known() -> Iterator[tuple[str, list[Recorded]]]:
        """Yield records one directory at a time: all at once would take 800 bytes per file."""
        if lines is not None:
            yield from map(decode_line, lines)
            return
        for path in journal.directories() if wanted is None else wanted:
            found = journal.records(path).items()
            yield path, [each for name, each in found if wanted is None or name in wanted[path]]

    with closing(journal), DirCache(private.tree_fd, limit=_OPEN_AT_ONCE) as tree:
        to_read = partial(_data_bytes, tree)
        # From the journals, which also have what an interrupted run copied but did not read back.
        files = size_bytes = 0
        for directory, records in known():
            for record in filter(_may_be_compared, records):
                files += 1
                size_bytes += to_read(directory, record)
        observer.phase("verify", files=files, size_bytes=size_bytes)
        job = Job(
            private.tree_fd, private.tree_fd, gentle=gentle, looks_only=True, then=private.then
        )
        where = ("target",)
        wrong = _check(job, known(), where, processes, observer, links=True, to_read=to_read)
        return [(each.path, each.reason) for each in wrong]


def _data_bytes(tree: DirCache, directory: str, record: Recorded) -> int:
    """Return the bytes that the disk delivers for a file: all but holes, if it is large.

    Counted as read, holes would make a rate that no disk reaches.
    """
    if record.size < _MAY_HAVE_HOLES_BYTES:
        return record.size
    try:
        there = os.stat(record.name, dir_fd=tree.fd(directory), follow_symlinks=False)
    except OSError:
        return record.size  # reading it will report the error
    return min(record.size, there.st_blocks * 512)


def _whole(directory: str, record: Recorded) -> int:
    return record.size


def _portions(records: list[Recorded]) -> Iterator[list[Recorded]]:
    """Split what would keep one task reading for too long while others have nothing to do."""
    portion: list[Recorded] = []
    size_bytes = 0
    for record in records:
        portion.append(record)
        size_bytes += record.size
        if len(portion) >= _TASK_FILES or size_bytes >= BATCH_BYTES:
            yield portion
            portion, size_bytes = [], 0
    if portion:
        yield portion


def _is_hashed(record: Recorded) -> bool:
    return record.kind == "f" and bool(record.content)


def _may_be_compared(record: Recorded) -> bool:
    return _is_hashed(record) or (record.kind == "l" and bool(record.content))


def _by_directory(paths: Iterable[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path in paths:
        directory, _, name = path.rpartition("/")
        found.setdefault(directory, set()).add(name)
    return found


def _withdraw(paths: Container[str], private: PrivateDir, plan: CopyPlan, copied: Copied) -> None:
    """Remove copies from the private tree, its journals, the sums and the digest again.

    What the ``plan`` takes over from an earlier run is in the plan's own sums.
    """
    taken_up = _not_taken_up(paths, plan)
    lines = []
    with (
        closing(ManifestIndex(private.journals())) as journal,
        DirCache(private.tree_fd) as tree,
    ):
        for directory in journal.directories():
            kept = []
            for record in journal.records(directory).values():
                path = join(directory, record.name)
                if path not in paths:
                    kept.append(record)
                    continue
                # A run killed while publishing may already have closed the directory to its owner.
                os.unlink(record.name, dir_fd=writable(tree.fd(directory)))
                if path in taken_up:
                    continue
                copied.files -= 1
                copied.bytes -= record.size
                if record.kind == "l" and leads_out(directory, record.content or ""):
                    copied.outward -= 1
                    copied.outward_named = [each for each in copied.outward_named if each != path]
                term = digest.entry_term(record.kind, path, record.content)
                copied.digest_sum = digest.subtract(copied.digest_sum, term)
            if kept:
                lines.append(encode_line(directory, kept))
    private.replace_journals(lines)


def _not_taken_up(paths: Container[str], plan: CopyPlan) -> set[str]:
    """Make the ``plan`` take over none of ``paths``; return those that it would have taken over."""
    found = set()
    for index, (directory, records) in enumerate(map(decode_line, plan.done_lines)):
        kept = [each for each in records if join(directory, each.name) not in paths]
        if len(kept) == len(records):
            continue
        plan.done_lines[index] = encode_line(directory, kept)
        for record in records:
            path = join(directory, record.name)
            if path not in paths:
                continue
            found.add(path)
            plan.resumed += Totals(-1, -record.size, 0, -1)
            term = digest.entry_term(record.kind, path, record.content)
            plan.digest_sum = digest.subtract(plan.digest_sum, term)
    if found:  # their hard links are to be made to the new copies
        plan.links = [
            replace(link, kept=None) if link.primary in found else link for link in plan.links
        ]
    return found


def _check(
    job: Job,
    lines: Iterable[tuple[str, list[Recorded]]],
    places: tuple[str, ...],
    processes: int,
    observer: Observer,
    *,
    links: bool = False,
    to_read: Callable[[str, Recorded], int] = _whole,
) -> list[Differing]:
    wrong: list[Differing] = []
    files = size_bytes = 0

    def tasks() -> Iterator[tuple[str, Any, OnResult]]:
        for directory, records in lines:
            known = [*filter(_may_be_compared if links else _is_hashed, records)]
            for some in _portions(known):
                payload = [(each.kind, each.name, each.size, each.content) for each in some]
                total = sum(to_read(directory, record) for record in some)

                def done(
                    result: Any,
                    place: str,
                    directory: str = directory,
                    count: int = len(some),
                    total: int = total,
                ) -> None:
                    nonlocal files, size_bytes
                    files += count
                    size_bytes += total
                    wrong.extend(
                        Differing(join(directory, name), place, reason) for name, reason in result
                    )

                for place in places:
                    yield "check", (directory, payload, place), partial(done, place=place)

    processes, threads = (1, 1) if job.gentle else (processes, 4)
    with Pool(job, processes=processes, threads=threads) as pool:
        pool.run(tasks(), lambda: observer.progress(files, size_bytes))
    observer.progress(files, size_bytes)
    return wrong
