"""The known crashes: found where they are, silent where they are not, each with its cure."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import sqlite3
import zipfile
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import cv2
import pytest
import torch

from hostprep.loading import hazards
from hostprep.loading.child import processes
from hostprep.loading.child.opening import Opened, describe
from hostprep.loading.model import Binding, FailedProbe
from hostprep.loading.recommendation import Bound
from hostprep.units import GIB, MIB
from tests.unit.loading.making import probe, share
from tests.unit.loading.test_verdict import subject


def codes(found: tuple[hazards.Hazard, ...]) -> set[str]:
    assert all(hazard.cure for hazard in found)
    return {hazard.code for hazard in found}


def of_probes(**changed: Any) -> set[str]:
    return codes(hazards.of_probes(share(), [probe(8, 1000, **changed)], (), 600_000))


def test_a_sound_host_has_none() -> None:
    assert hazards.of_host(share()) == ()
    assert hazards.of_host(share(descriptors_limit=None, quota_cpus=8.0, quota_group="/job")) == ()
    assert hazards.of_subject(subject(4)) == ()
    assert of_probes() == set()


def test_hosts_that_break_loaders() -> None:
    assert codes(hazards.of_host(share(shm_size_bytes=64 * MIB))) == {"shm_small"}
    (smaller,) = hazards.of_host(share(shm_size_bytes=16 * MIB))
    assert smaller.message.startswith("/dev/shm has 16.0 MiB: a worker")
    assert codes(hazards.of_host(share(shm_size_bytes=None))) == {"shm_absent"}
    assert codes(hazards.of_host(share(descriptors_limit=1024))) == {"descriptors_few"}
    for needed, told in ((152, set()), (1000, {"descriptors_few"})):
        assert codes(hazards.of_host(share(descriptors_limit=1024), needed)) == told
    quota = share(quota_cpus=2.0, quota_group="/sys/fs/cgroup/jobs")
    (hazard,) = hazards.of_host(quota)
    assert hazard.code == "cpu_quota"
    assert "/sys/fs/cgroup/jobs gives 2 of the 8 processors" in hazard.message


def test_bounds_are_hazards_only_for_who_wants_more() -> None:
    bounds = [Bound(Binding.SHARED_MEMORY, 1, "64 MiB"), Bound(Binding.LENGTH, 2, "short")]
    assert codes(hazards.of_bounds(share(), 8, bounds)) == {"shared_memory_short"}
    assert hazards.of_bounds(share(), 1, bounds) == ()


def test_where_memory_is_short_for_copies_of_the_data_set_workers_should_share_it() -> None:
    bounds = [Bound(Binding.MEMORY, 1, "half of it")]

    def cures(**changed: Any) -> list[str]:
        loader = dataclasses.replace(subject(8), **changed)
        found = (
            *hazards.of_bounds(share(), 8, bounds, loader),
            *hazards.of_setting(share(), loader, bounds),
        )
        return [hazard.cure for hazard in found]

    copied = cures(start_method="forkserver", pickle_bytes=3 * GIB)
    assert len(copied) == 2
    for cure in copied:
        assert "started by forkserver, each has a copy of it (3.00 GiB pickled)" in cure
        assert "multiprocessing_context='fork'" in cure
    for shared in (cures(pickle_bytes=3 * GIB), cures(start_method="spawn", pickle_bytes=9999)):
        assert len(shared) == 2 and not any("copy" in cure for cure in shared)
    loader = dataclasses.replace(subject(8), start_method="spawn", tensor_bytes=GIB)
    short = [Bound(Binding.SHARED_MEMORY, 1, "64 MiB")]
    (hazard,) = hazards.of_bounds(share(), 8, short, loader)
    assert hazard.cure.startswith("multiprocessing_context='fork'")
    (hazard,) = hazards.of_bounds(share(), 8, short, dataclasses.replace(loader, tensor_bytes=9))
    assert "fork" not in hazard.cure


def test_no_cure_makes_a_large_shared_memory_smaller() -> None:
    bounds = [Bound(Binding.SHARED_MEMORY, 1, "all that is free")]
    failed = [FailedProbe(4, Binding.SHARED_MEMORY, "a worker died of a bus error.")]

    def cures(size: int) -> list[str]:
        host = share(shm_size_bytes=size)
        loader = subject(8)
        found = (
            *hazards.of_bounds(host, 8, bounds),
            *hazards.of_setting(host, loader, bounds),
            *hazards.of_probes(host, (), failed, None),
        )
        return [hazard.cure for hazard in found]

    small, large = cures(64 * MIB), cures(24 * GIB)
    assert len(small) == len(large) == 3
    assert all("remount,size=8G" in cure for cure in small)
    assert all("larger than its 24.0 GiB" in cure and "8G" not in cure for cure in large)


class Holding:
    """A data set that opened something in its constructor."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        return index


def cures_of(pickle_errors: dict[str, str]) -> set[str]:
    found = hazards.of_subject(dataclasses.replace(subject(4), pickle_errors=pickle_errors))
    assert codes(found) == {"unpicklable"}
    return {hazard.cure for hazard in found}


@pytest.mark.parametrize(
    "handle",
    [
        lambda path: path.open(),
        lambda path: path.open("rb"),
        lambda path: zipfile.ZipFile(path, "w"),
        lambda path: sqlite3.connect(":memory:"),
        lambda path: cv2.VideoCapture(),
    ],
)
def test_handles_are_to_be_opened_in_the_worker(handle: Any, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with contextlib.ExitStack() as stack:
        held = handle(path)
        stack.callback(held.release if isinstance(held, cv2.VideoCapture) else held.close)
        opened = Opened(Holding(held), None, None, None, 8, "dataset", "mine")
        (cure,) = cures_of(describe(opened, thoroughly=True).pickle_errors)
    assert "in the worker" in cure
    assert "multiprocessing_context" not in cure


def test_tensors_stay_where_they_are_when_pickling_is_tried() -> None:
    tensors = [torch.zeros(100) for _ in range(50)]
    opened = Opened(Holding(tensors), None, None, None, 8, "dataset", "mine")
    before = processes.open_descriptors()
    assert describe(opened, thoroughly=True).pickle_errors == {}
    assert processes.open_descriptors() == before
    assert not any(tensor.is_shared() for tensor in tensors)


def test_the_tensors_that_would_be_moved_to_be_shared_are_counted_once() -> None:
    whole = torch.zeros(1000)
    tensors = [whole, whole[:10], whole.view(10, 100), torch.zeros(500).share_memory_()]
    opened = Opened(Holding(tensors), None, None, None, 8, "dataset", "mine")
    found = describe(opened, thoroughly=True)
    assert found.tensor_bytes == 4000
    assert dataclasses.replace(found, start_method="spawn").moved_bytes == 4000
    assert dataclasses.replace(found, start_method="fork").moved_bytes == 0


def test_what_goes_to_a_spawned_worker_alone_can_be_pickled() -> None:
    spawning = multiprocessing.get_context("spawn")
    held = (spawning.Lock(), spawning.Value("i", 3), spawning.Queue(), spawning.RawArray("d", 9))
    opened = Opened(Holding(held), None, None, None, 8, "dataset", "mine")
    assert describe(opened, thoroughly=True).pickle_errors == {}


@pytest.mark.parametrize(
    ("error", "in_worker"),
    [
        ("TypeError: h5py objects cannot be pickled", True),
        ("TypeError: cannot pickle 'Environment' object", True),
        ("TypeError: no default __reduce__ due to non-trivial __cinit__", True),
        ("AttributeError: Can't pickle local object 'Environment.step.<locals>.<lambda>'", False),
        ("TypeError: cannot pickle '_thread.lock' object", True),
        ("TypeError: cannot pickle 'mmap.mmap' object", True),
        ("TypeError: cannot pickle 'builtins.safe_open' object", True),
        ("TypeError: cannot pickle 'generator' object", True),
        ("NotImplementedError: ('{} cannot be pickled', '_SingleProcessDataLoaderIter')", True),
        ("TypeError: cannot pickle '_queue.SimpleQueue' object", True),
        (
            "PicklingError: Can't pickle local object <function WorkerContext.prepare.<locals>"
            ".create_context at 0x7f76458875e0>",
            True,
        ),
    ],
)
def test_what_else_pickle_says(error: str, in_worker: bool) -> None:
    (cure,) = cures_of({"dataset": error})
    assert ("in the worker" in cure) is in_worker


@pytest.mark.parametrize("kind", [ThreadPoolExecutor, ThreadPool])
def test_a_pool_of_threads_is_not_to_be_forked(kind: Any) -> None:
    with kind(1) as pool:
        opened = Opened(Holding(pool), None, None, None, 8, "dataset", "mine")
        (cure,) = cures_of(describe(opened, thoroughly=True).pickle_errors)
    assert "make pools of threads in the worker" in cure
    assert "multiprocessing_context" not in cure


class Collating(Holding):
    """A data set that makes its batches itself."""

    def collate(self, samples: list[int]) -> torch.Tensor:
        return torch.tensor(samples)


@pytest.mark.parametrize(
    ("dataset", "given", "named"),
    [
        (Holding(1), {"collate_fn": lambda batch: batch}, {"collate_fn"}),
        (Holding(1), {"worker_init_fn": lambda worker: None}, {"worker_init_fn"}),
        (Holding(lambda: 1), {}, {"the data set"}),
        (Holding(lambda: 1), {"collate_fn": lambda b: b}, {"the data set", "collate_fn"}),
        (held := Collating(lambda: 1), {"collate_fn": held.collate}, {"the data set"}),
        (held := Collating(1), {"collate_fn": held.collate}, set()),
    ],
)
def test_what_cannot_be_pickled_is_named_and_nothing_else(
    dataset: Holding, given: dict[str, Any], named: set[str]
) -> None:
    loader = torch.utils.data.DataLoader(dataset, **given)
    opened = Opened(dataset, loader, None, loader.collate_fn, 8, "dataloader", "mine")
    told = hazards.of_subject(describe(opened, thoroughly=True))
    found = [hazard for hazard in told if hazard.code == "unpicklable"]
    assert {hazard.message.partition(" cannot be pickled")[0] for hazard in found} == named
    for hazard in found:
        name = hazard.message.split()[0]
        assert f"define {'its classes' if name == 'the' else name}" in hazard.cure


@pytest.mark.parametrize(("threads", "told"), [(None, False), (1, False), (2, True)])
def test_threads_of_opencv_compete_if_each_worker_starts_several(
    threads: int | None, told: bool
) -> None:
    found = hazards.of_subject(dataclasses.replace(subject(4), opencv_threads=threads))
    assert [hazard.code for hazard in found] == ["opencv_threads"] * told


@pytest.mark.parametrize(("threads", "told"), [(None, False), (4, False), (5, True)])
def test_a_pool_in_each_worker_is_told_of(threads: int | None, told: bool) -> None:
    found = hazards.of_probes(share(), [probe(2, 1000, worker_threads=threads)], (), None)
    assert [hazard.code for hazard in found] == ["worker_threads"] * told


def test_what_workers_showed() -> None:
    assert of_probes(worker_affinity_cpus=1) == {"affinity_shrunk"}


@pytest.mark.parametrize(
    ("quota", "pinned_to", "shrunk"), [(6.0, 1, False), (8.0, 2, False), (8.0, 1, True)]
)
def test_workers_of_a_rank_have_the_processors_that_its_measurement_had(
    quota: float, pinned_to: int, shrunk: bool
) -> None:
    host = share(ranks=4, affinity_cpus=16, quota_cpus=quota, quota_group="/jobs")
    found = hazards.of_probes(host, [probe(8, 1000, worker_affinity_cpus=pinned_to)], (), None)
    assert ("affinity_shrunk" in codes(found)) is shrunk
    assert of_probes(worker_threads=12) == {"worker_threads"}
    # 8 workers that grow by a MiB a second, in the 600 s of an epoch: 4.7 GiB of 16
    assert of_probes(worker_growth_bytes_per_s=float(MIB)) == {"worker_growth"}
    failed = FailedProbe(16, Binding.SHARED_MEMORY, "16 workers failed: Bus error")
    (hazard,) = hazards.of_probes(share(memory_available_bytes=GIB), (), [failed], None)
    assert "shm" in hazard.cure


def test_what_workers_keep_of_a_sample_is_the_same_beside_busy_programs() -> None:
    """Of 600,000 samples 9.4 GiB, though alone they would take a quarter of the time."""
    grew = {"worker_growth_bytes_per_s": 4.0 * MIB, "undisturbed_samples_per_s": 4000.0}
    (hazard,) = hazards.of_probes(share(), [probe(4, 1000, **grew)], (), 600_000)
    assert hazard.message == (
        "workers grew by 16.4 KiB with each sample: over an epoch of 600,000 that would be 9.38 GiB"
        " in all."
    )


def test_workers_that_keep_something_do_so_in_each_probe() -> None:
    """Of images of 2000 pixels an allocator held now 33 MiB, now 61 MiB, and kept none."""
    grew = [probe(4, 1000, worker_growth_bytes_per_s=each * MIB) for each in (24.0, 4.0)]
    found = hazards.of_probes(share(), [probe(0, 300), *grew], (), 600_000)
    assert [hazard.message[:24] for hazard in found] == ["workers grew by 16.4 KiB"]
    assert hazards.of_probes(share(), [*grew, probe(2, 500)], (), 600_000) == ()


def test_workers_that_give_nothing_have_their_cure() -> None:
    (hazard,) = hazards.of_probes(share(), [probe(4, 1000, idle_workers=3)], (), None)
    assert hazard.cure.endswith("until then num_workers=1 at most")
    assert hazard.code == "idle_workers"
    assert "1 of 4 workers gave all batches" in hazard.message
    assert "num_workers=1 at most" in hazard.cure


def test_workers_that_give_the_same_have_their_cure() -> None:
    (hazard,) = hazards.of_probes(share(), [probe(8, 1000, duplicate_workers=7)], (), None)
    assert hazard.cure.endswith("until then num_workers=1 at most")
    assert hazard.code == "unsharded"
    assert "8 workers gave the batches of 1" in hazard.message
    assert "get_worker_info" in hazard.cure
