"""Directories get their metadata, once all work in them is done."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Set
from time import monotonic
from typing import Any

from hostprep.staging.model import Entry
from hostprep.staging.observer import Observer
from hostprep.staging.processes.descriptors import share_descriptors
from hostprep.staging.processes.job import Job
from hostprep.staging.processes.pool import Pool, TaskFailed
from hostprep.staging.processes.worker import Worker

# Slower than memory and most disks: worth starting workers.
_SLOW_SECONDS = 1e-3
_GRACE_SECONDS = 50e-3
_A_TASK = 4
# If memory answers, larger tasks cost less, and still end before anybody misses the progress.
_PROMPT_SECONDS = 100e-6
_A_PROMPT_TASK = 64


def finish_directories(
    directories: dict[str, Entry],
    source_fd: int,
    tree_fd: int,
    *,
    processes: int,
    threads: int,
    finished: Set[str] = frozenset(),
    inodes: Mapping[str, int] | None = None,
    gentle: bool = False,
    served: bool = False,
    observer: Observer,
) -> tuple[int, dict[str, int]]:
    """Set the modes, owners, ACLs, attributes and times of a tree's directories.

    Deepest first, because work in a directory changes its time; missing ones are made. Workers do
    it if the source is slow to answer, or is ``served`` and may cease to, or if the run must be
    ``gentle``, which only workers can be. Those ``finished`` are left alone; ``inodes`` are as for
    ``Job``. Returns how many had attributes that the target cannot hold, and the modes of those
    whose mode the target changed.
    """
    left = [path for path in directories if path not in finished]
    observer.phase("directories", files=len(left))
    work = _Finishing(directories, left, observer)
    job = Job(source_fd, tree_fd, gentle=gentle, inodes=inodes or {})
    if not (gentle or served):
        _finish_here(work, job, alone=processes * threads == 1)
    if not work.levels:
        return work.lost, work.other_modes
    try:
        with Pool(job, processes=processes, threads=threads) as pool:
            while work.levels:
                while task := work.next_task():
                    pool.submit("directories", task, work.take)
                pool.run(on_tick=work.tick)  # until all is done, before the next level up begins
                work.levels.popleft()
    except TaskFailed as error:
        raise OSError(error.errno, error.reason, error.named) from error
    return work.lost, work.other_modes


class _Finishing:
    """Which directories have yet to be finished, by level, and the results for the others."""

    def __init__(
        self, directories: dict[str, Entry], paths: Iterable[str], observer: Observer
    ) -> None:
        self.levels = _by_depth(paths)
        self.done = self.lost = 0
        self.other_modes: dict[str, int] = {}
        self._directories = directories
        self._observer = observer
        self._started = monotonic()

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return monotonic() - self._started

    def next_task(self) -> list[tuple[str, tuple[Any, ...]]]:
        """Return some directories of the deepest remaining level, none at its end."""
        prompt = self.seconds < self.done * _PROMPT_SECONDS
        most = _A_PROMPT_TASK if prompt else _A_TASK
        some = itertools.islice(self.levels[0], most)
        return [(path, tuple(self._directories[path])) for path in some]

    def take(self, found: tuple[int, int, list[tuple[str, int]]]) -> None:
        """Take the result of a task."""
        done, lost, modes = found
        self.done += done
        self.lost += lost
        self.other_modes.update(modes)

    def tick(self) -> None:
        """Report progress."""
        self._observer.progress(self.done, 0)


def _finish_here(work: _Finishing, job: Job, *, alone: bool) -> None:
    """Finish directories in this process: all of them if it is ``alone`` or they are fast."""
    local = Worker(job, None, share_descriptors(1))
    try:
        while work.levels and (alone or work.seconds < _GRACE_SECONDS + work.done * _SLOW_SECONDS):
            if task := work.next_task():
                work.take(local.do("directories", task))
                work.tick()
            else:
                work.levels.popleft()
    finally:
        local.close()


def _by_depth(directories: Iterable[str]) -> deque[Iterator[str]]:
    """Return the directories of each depth, the deepest first."""

    def depth(path: str) -> int:
        return path.count("/") + bool(path)

    # Within a depth by name, so that the directories of a task share their parents.
    ordered = sorted(sorted(directories), key=depth, reverse=True)
    return deque(iter(list(paths)) for _, paths in itertools.groupby(ordered, depth))
