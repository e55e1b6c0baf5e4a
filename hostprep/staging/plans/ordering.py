"""The order in which files are read: for a disk with an arm, their order on the disk."""

from __future__ import annotations

import marshal
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from hostprep.staging.batches import BATCH_FILES, Batch, pack_batches
from hostprep.staging.files.placing import place_by_inode
from hostprep.staging.model import Entry
from hostprep.staging.plans.copy_plan import CopyPlan
from hostprep.staging.processes.job import Job
from hostprep.staging.processes.pool import OnResult, Pool
from hostprep.staging.tree import Plain

# This process looks up this many itself before others would have started.
_FEW_FILES = 1000
# About 50 ms of lookups, so that progress shows and no worker waits for the last task.
_TASK_BATCHES = 16
_INDEX_BITS = 32


def order_files(
    plan: CopyPlan,
    order: str,
    source_fd: int,
    *,
    processes: int,
    gentle: bool = False,
    served: bool = False,
    on_tick: Callable[[int], None] | None = None,
) -> None:
    """Put the plan's files into ``order``: by ``inode`` number, or ``physical``.

    ``physical`` is the order of the first extents on the device (FIEMAP), or of inode numbers if
    the file system does not report extents. A disk's arm then sweeps over the data once instead of
    seeking for each file. A lookup takes about 25 us per file whose inode is in memory, on each of
    the ``processes``; ``on_tick`` is told how many files were looked up. If the source is
    ``served``, and may cease to answer, workers do it, however few files there are.
    """
    large: list[tuple[str, list[Plain]]] = [(path, [(*entry,)]) for path, entry in plan.large]
    if order == "inode":
        places = [place_by_inode(batch.entries()) for batch in plan.batches]
        large_places = [place_by_inode(entries) for _, entries in large]
    else:
        asked = [(batch.directory, batch.packed) for batch in plan.batches]
        asked += [(directory, marshal.dumps(entries)) for directory, entries in large]
        counts = [batch.files for batch in plan.batches] + [1] * len(large)
        job = Job(source_fd, gentle=gentle)
        here = sum(counts) <= _FEW_FILES and not served
        with Pool(job, processes=0 if here else processes) as pool:
            told = _ask(pool, asked, counts, on_tick)
        places, large_places = told[: len(plan.batches)], told[len(plan.batches) :]
    ranked = sorted(range(len(large)), key=lambda index: large_places[index][0])
    plan.large = [plan.large[index] for index in ranked]
    plan.sequence = Sequenced(plan.batches, places)


def _ask(
    pool: Pool,
    asked: Sequence[tuple[str, bytes]],
    counts: Sequence[int],
    on_tick: Callable[[int], None] | None,
) -> list[array[int]]:
    """Return for each of the packed batches where its files are, see ``files.placing``."""
    places: list[array[int]] = [array("Q")] * len(asked)
    done = 0

    def tasks() -> Iterator[tuple[str, Any, OnResult]]:
        for start in range(0, len(asked), _TASK_BATCHES):

            def take(result: list[bytes], start: int = start) -> None:
                nonlocal done
                for index, packed in enumerate(result, start):
                    places[index] = array("Q", packed)
                    done += counts[index]

            yield "place", asked[start : start + _TASK_BATCHES], take

    pool.run(tasks(), (lambda: on_tick(done)) if on_tick is not None else None)
    return places


class Sequenced:
    """The entries of batches in the order of their places; iterating yields batches again.

    A million files in scattered order are a million batches of one, which would take 250 bytes
    each, so they are made only when they are drawn, from some 100 bytes per file.
    """

    def __init__(self, batches: Sequence[Batch], places: Sequence[array[int]]) -> None:
        self._directories = [batch.directory for batch in batches]
        # The number of each batch's first entry, and where the packed form of each entry begins.
        self._firsts = array("Q", accumulate((len(each) for each in places), initial=0))
        self._offsets = array("Q", [0])
        self._packed = bytearray()
        for batch in batches:
            for entry in marshal.loads(batch.packed):
                self._packed += marshal.dumps(entry)
                self._offsets.append(len(self._packed))
        # Place and entry in one number sort without a key, in half of the memory.
        ranked = [
            place << _INDEX_BITS | index
            for index, place in enumerate(place for each in places for place in each)
        ]
        ranked.sort()
        mask = (1 << _INDEX_BITS) - 1
        self._order = array("L", (number & mask for number in ranked))

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches; neighbours from one directory share a batch."""
        run: list[Entry] = []
        directory = ""
        for index in self._order:
            found = self._directories[bisect_right(self._firsts, index) - 1]
            if run and (found != directory or len(run) == BATCH_FILES):
                yield from pack_batches(directory, run)
                run = []
            directory = found
            run.append(Entry._make(self._entry(index)))
        if run:
            yield from pack_batches(directory, run)

    def _entry(self, index: int) -> Plain:
        packed = memoryview(self._packed)[self._offsets[index] : self._offsets[index + 1]]
        entry: Plain = marshal.loads(packed)
        return entry
