"""How much of a plan one task carries: enough for each worker, and no directory in bits."""

from __future__ import annotations

import marshal
import stat
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest

from hostprep.staging.batches import BATCH_BYTES, pack_batches
from hostprep.staging.model import RANGE_BYTES, Entry, Totals
from hostprep.staging.plans.copy_plan import CopyPlan, HardLink, leaves_of
from hostprep.staging.processes.pool import Pool
from hostprep.staging.source.reading import Reading
from hostprep.staging.tasks import Copied, Tasks

MIB = 1 << 20


def plan_of(directories: int, files: int, size: int) -> CopyPlan:
    plan = CopyPlan()
    for directory in range(directories):
        entries = [
            Entry(f"{number}", stat.S_IFREG | 0o644, size, 0, 0, 0, -(-size // 512), 1, 1, number)
            for number in range(files)
        ]
        plan.batches += pack_batches(f"d{directory}", entries)
    return plan


def tasks_of(plan: CopyPlan, readers: int, task_files: int) -> list[list[tuple[str, bytes]]]:
    reading = Reading(readers, 1, "listed", False, False, task_files, "of a test")
    tasks = Tasks(cast(Pool, None), Copied()).all(plan, reading)
    return [batches for _, (batches, _), _ in tasks]


def entry(name: str, mode: int = stat.S_IFREG | 0o644, size: int = 10) -> Entry:
    return Entry(name, mode, size, 0, 0, 0, 1, 1, 1, 1)


def test_directories_are_finished_where_all_of_their_files_are_copied() -> None:
    """Each once, and no sooner: work in a directory changes its times."""
    plan = plan_of(20, 200, 1000)
    plan.batches += pack_batches("d0", [entry("last")])  # of hard links the first comes at the end
    names = [f"d{number}" for number in range(20)]
    plan.leaves = {name: entry(name, stat.S_IFDIR | 0o755) for name in names}
    reading = Reading(2, 1, "listed", False, False, 64, "of a test")
    copied = Copied()
    finished: list[str] = []
    for _, (batches, finishing), on_result in Tasks(cast(Pool, None), copied).all(plan, reading):
        assert set(finishing) <= {directory for directory, _ in batches}
        finished += finishing
        failed = ["d7"] if "d7" in finishing else []
        modes = [("d8", 0o700)] if "d8" in finishing else []
        on_result((0, (0, 0), b"", [], [], (0, []), 0, (failed, modes)))
    assert sorted(finished) == sorted(set(names) - {"d0"})
    assert copied.finished == set(names) - {"d0", "d7"} and copied.other_modes == {"d8": 0o700}
    plan.sequence = plan.batches
    tasks = Tasks(cast(Pool, None), copied).all(plan, reading)
    assert not any(finishing for _, (_, finishing), _ in tasks)


def test_directories_in_pieces_for_slow_readers_are_finished_with_the_last_of_them() -> None:
    """However many of the pieces a task has: files that come later would change the times."""
    size = BATCH_BYTES // 58
    folders = {"whole": 100, "halves": 116, "small": 20}
    plan = CopyPlan()
    for name, files in folders.items():
        plan.batches += pack_batches(name, [entry(f"{i}", size=size) for i in range(files)])
        plan.leaves[name] = entry(name, stat.S_IFDIR | 0o755)
    plan.copied = Totals(files=sum(folders.values()))
    reading = Reading(2, 4, "listed", False, False, 16, "of a test")
    finished: list[str] = []
    left = Counter(folders)
    for _, (batches, finishing), _ in Tasks(cast(Pool, None), Copied()).all(plan, reading):
        left.subtract(name for name, packed in batches for _ in marshal.loads(packed))
        assert not any(left[name] for name in finishing)
        finished += finishing
    assert finished == ["small"]


def test_leaves_hold_nothing_but_batches() -> None:
    """What is made in a directory later would change its times."""
    folder = entry("", stat.S_IFDIR | 0o755)
    directories = dict.fromkeys(("", "a", "a/b", "a/c", "d", "d/e", "f"), folder)
    plan = CopyPlan(
        large=[("a/b", entry("large"))],
        links=[HardLink("f", entry("link"), "a/c/first", None)],
    )
    assert set(leaves_of(plan, directories)) == {"a/c", "d/e"}


def test_small_files_of_one_directory_are_one_task() -> None:
    """Two workers in one directory wait for each other's turn to create files in it."""
    tasks = tasks_of(plan_of(20, 500, 100_000), readers=16, task_files=16)
    assert [{directory for directory, _ in task} for task in tasks] == [
        {f"d{number}"} for number in range(20)
    ]


@pytest.mark.parametrize(("directories", "files"), [(1, 400), (100, 4)])
def test_larger_files_are_shared_out(directories: int, files: int) -> None:
    tasks = tasks_of(plan_of(directories, files, 5 * MIB), readers=16, task_files=512)
    most = (RANGE_BYTES + BATCH_BYTES) // (5 * MIB)
    assert len(tasks) >= 400 // most
    assert max(len(task) for task in tasks) <= -(-RANGE_BYTES // BATCH_BYTES)


def test_one_reader_has_nobody_to_share_with() -> None:
    """An arm's next files are asked for to the end of a task."""
    assert len(tasks_of(plan_of(1, 400, 5 * MIB), readers=1, task_files=512)) == 1


class Taken:
    """A pool that notes what it is given."""

    def __init__(self) -> None:
        self.tasks: list[tuple[str, Any, Callable[[Any], None]]] = []

    def submit(self, *task: Any) -> None:
        self.tasks.append(task)


@pytest.mark.parametrize("grown_to", [1 << 57, (1 << 63) - 1])
def test_a_file_that_has_become_impossibly_large_is_not_tried_again(grown_to: int) -> None:
    """Nothing is laid out by the word of a program behind FUSE, which may say any size."""
    pool, copied = Taken(), Copied()
    large = entry("large", size=2 * RANGE_BYTES)
    reading = Reading(2, 1, "listed", False, False, 64, "of a test")
    for *_, on_result in Tasks(cast(Pool, pool), copied).all(
        CopyPlan(large=[("", large)]), reading
    ):
        on_result((b"", "changed"))
    for answer in (None, tuple(entry("large", size=grown_to))):
        *_, on_result = pool.tasks.pop()
        on_result(answer)
    assert pool.tasks == []
    assert [each.reason for each in copied.problems] == ["changed while it was copied, twice"]
