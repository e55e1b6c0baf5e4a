"""Read files again and compare them with what is recorded of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from hostprep.staging.execute import Copied
from hostprep.staging.manifest import ManifestIndex, decode_line
from hostprep.staging.model import Recorded, Skipped
from hostprep.staging.observer import Observer
from hostprep.staging.plan import CopyPlan
from hostprep.staging.pool import OnResult, Pool
from hostprep.staging.private import PrivateDir
from hostprep.staging.reading import Reading
from hostprep.staging.tree import join
from hostprep.staging.worker import Job

_TASK_FILES = 64


def check_kept(
    plan: CopyPlan, source_fd: int, published_fd: int, processes: int, observer: Observer
) -> frozenset[str]:
    """Read all that would be kept, in the source and in the target; return what differs."""
    observer.phase("check", files=2 * plan.kept.files, size_bytes=2 * plan.kept.bytes)
    lines = [decode_line(line) for line in plan.keep_lines]
    wrong = _check(Job(source_fd, published_fd), lines, ("source", "target"), processes, observer)
    return frozenset(path for path, _ in wrong)


def check_written(
    reading: Reading, private: PrivateDir, copied: Copied, observer: Observer
) -> None:
    """Read back from the disk all that was copied, and add what differs to the problems."""
    journal = ManifestIndex(private.journals())
    try:
        lines = [(path, list(journal.records(path).values())) for path in journal.directories()]
    finally:
        journal.close()
    observer.phase("verify", files=copied.files, size_bytes=copied.bytes)
    job = Job(private.tree_fd, private.tree_fd)
    for path, reason in _check(job, lines, ("target",), reading.processes, observer):
        copied.problems.append(Skipped(path, f"read back, it {reason}", failed=True))


def _check(
    job: Job,
    lines: Iterable[tuple[str, list[Recorded]]],
    places: tuple[str, ...],
    processes: int,
    observer: Observer,
) -> list[tuple[str, str]]:
    wrong: list[tuple[str, str]] = []
    files = size_bytes = 0

    def tasks() -> Iterator[tuple[str, Any, OnResult]]:
        for directory, records in lines:
            known = [record for record in records if record.kind == "f" and record.content]
            for start in range(0, len(known), _TASK_FILES):
                some = known[start : start + _TASK_FILES]
                payload = [(record.name, record.size, record.content) for record in some]
                total = sum(record.size for record in some)

                def done(
                    result: Any,
                    directory: str = directory,
                    count: int = len(some),
                    total: int = total,
                ) -> None:
                    nonlocal files, size_bytes
                    files += count
                    size_bytes += total
                    wrong.extend((join(directory, name), reason) for name, reason in result)

                for place in places:
                    yield "check", (directory, payload, place), done

    with Pool(job, processes=processes, threads=4) as pool:
        pool.run(tasks(), lambda: observer.progress(files, size_bytes))
    observer.progress(files, size_bytes)
    return wrong
