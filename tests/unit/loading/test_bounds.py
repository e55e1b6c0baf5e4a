"""What the host allows, from captured hosts and from hosts built here, file by file."""

from __future__ import annotations

from pathlib import Path

import pytest

from hostprep.loading.bounds import (
    bounds,
    distinct_workers,
    main_memory,
    read_share,
    starting_point,
)
from hostprep.loading.model import Binding
from hostprep.units import GIB, MIB
from tests.unit.loading.making import probe, share

HOSTS = Path(__file__).parents[2] / "fixtures" / "hosts"
LIMITS = "Limit                     Soft Limit           Hard Limit           Units\n"


def host(
    root: Path, cores: int, threads: int, *, shm: str | None = None, files: int = 1024
) -> Path:
    """Write a host as Linux numbers it: all first threads, then all second ones."""
    total = cores * threads
    cpus = root / "sys/devices/system/cpu"
    for number in range(total):
        folder = cpus / f"cpu{number}/topology"
        folder.mkdir(parents=True)
        siblings = ",".join(str(number % cores + cores * thread) for thread in range(threads))
        (folder / "core_cpus_list").write_text(siblings + "\n")
    (cpus / "online").write_text(f"0-{total - 1}\n")
    proc = root / "proc/self"
    proc.mkdir(parents=True)
    (proc / "status").write_text(f"Cpus_allowed_list:\t0-{total - 1}\n")
    (proc / "limits").write_text(f"{LIMITS}Max open files            {files}  524288  files\n")
    line = f"30 22 0:28 / /dev/shm rw,nosuid - tmpfs tmpfs rw,size={shm}\n" if shm else ""
    (proc / "mountinfo").write_text(line)
    (root / "proc/meminfo").write_text("MemTotal: 131072000 kB\nMemAvailable: 104857600 kB\n")
    return root


def test_smt_workstation_starts_from_cores_not_from_threads(tmp_path: Path) -> None:
    facts = read_share(1, "test", host(tmp_path, 16, 2, shm="65802260k"))
    assert (facts.affinity_cpus, facts.physical_cores) == (32, 16)
    assert 16 < facts.capacity_cpus < 24
    workers, words = starting_point(facts)
    assert workers == 15
    assert "16 physical cores under 32" in words
    assert facts.descriptors_limit == 1024
    assert facts.shm_size_bytes == 65802260 * 1024


def test_two_socket_server_is_shared_by_its_ranks(tmp_path: Path) -> None:
    root = host(tmp_path, 48, 2)
    assert starting_point(read_share(1, "test", root))[0] == 47
    workers, words = starting_point(read_share(8, "--ranks", root))
    assert workers == 5
    assert "8 ranks (--ranks)" in words


def test_quota_in_an_ancestor_binds_before_the_cores() -> None:
    facts = read_share(1, "test", HOSTS / "cgroup-v2-ancestor")
    assert facts.quota_cpus == 3.5
    assert facts.capacity_cpus == 3.5
    workers, words = starting_point(facts)
    assert workers == 3
    assert "quota of cgroup" in words
    assert facts.memory_from.startswith("the memory limit of cgroup")


def test_affinity_binds_in_a_container_with_a_larger_quota() -> None:
    facts = read_share(1, "test", HOSTS / "cgroup-v1-container")
    assert facts.start_cpus == 2  # four processors allowed are the threads of two cores
    assert starting_point(facts)[0] == 2


def test_there_is_always_one_worker(tmp_path: Path) -> None:
    assert starting_point(read_share(16, "test", host(tmp_path, 4, 1)))[0] == 1
    assert starting_point(share(start_cpus=0.5))[0] == 1


def test_unmounted_shm_is_unknown_not_zero(tmp_path: Path) -> None:
    facts = read_share(1, "test", host(tmp_path, 4, 1))
    assert facts.shm_size_bytes is None
    assert facts.shm_free_bytes is None


def workers_by(binding: Binding, **changed: object) -> int:
    given = {
        "batch_bytes": 20 * MIB,
        "tensors_per_batch": 2,
        "prefetch_factor": 2,
        "batches": 1000,
        "worker_memory_bytes": 200 * MIB,
        "main_descriptors": 30,
        "main_memory_bytes": 0,
        "distinct_workers": None,
    }
    facts = share(**{name: value for name, value in changed.items() if name not in given})
    given |= {name: value for name, value in changed.items() if name in given}
    found = bounds(facts, **given)  # type: ignore[arg-type]
    assert [bound.workers for bound in found] == sorted(bound.workers for bound in found)
    return next(bound.workers for bound in found if bound.binding is binding)


def test_shm_holds_what_workers_have_in_hand_and_what_the_training_took() -> None:
    docker = 64 * MIB  # of which 51 MiB count: four batches of 12 MiB
    assert workers_by(Binding.SHARED_MEMORY, shm_free_bytes=docker, batch_bytes=12 * MIB) == 1
    assert workers_by(Binding.SHARED_MEMORY, shm_free_bytes=docker, batch_bytes=13 * MIB) == 0
    docker_of_two = workers_by(
        Binding.SHARED_MEMORY, shm_free_bytes=docker, batch_bytes=12 * MIB, ranks=2
    )
    assert docker_of_two == 0
    assert workers_by(Binding.SHARED_MEMORY, shm_free_bytes=8 * GIB) == (327 - 2) // 2


def test_memory_counts_workers_and_their_batches() -> None:
    assert workers_by(Binding.MEMORY, memory_available_bytes=4 * GIB) == 2 * GIB // (240 * MIB)
    assert workers_by(Binding.MEMORY, memory_available_bytes=4 * GIB, ranks=4) == 2


def test_what_the_main_process_holds_is_not_left_for_workers() -> None:
    beside = workers_by(Binding.MEMORY, memory_available_bytes=4 * GIB, main_memory_bytes=2 * GIB)
    assert beside == GIB // (240 * MIB)
    none = workers_by(Binding.MEMORY, memory_available_bytes=4 * GIB, main_memory_bytes=5 * GIB)
    assert none == 0
    made = [probe(0, 100, main_memory_bytes=7), probe(4, 100)]
    assert main_memory(made) == 7


def test_workers_that_give_the_same_are_bounded_by_those_that_do_not() -> None:
    assert distinct_workers([probe(0, 100), probe(4, 100)]) is None
    found = distinct_workers([probe(2, 100), probe(4, 100, duplicate_workers=2)])
    assert found == 2
    assert workers_by(Binding.SHARDING, distinct_workers=found) == 2


def test_descriptors_and_length() -> None:
    assert workers_by(Binding.DESCRIPTORS, descriptors_limit=256) == 9
    assert workers_by(Binding.DESCRIPTORS, descriptors_limit=64) == 0
    assert workers_by(Binding.LENGTH, batches=3) == 3


@pytest.mark.parametrize("missing", ["shm_free_bytes", "descriptors_limit"])
def test_what_is_unknown_does_not_bind(missing: str) -> None:
    found = bounds(
        share(**{missing: None}),
        batch_bytes=MIB,
        tensors_per_batch=1,
        prefetch_factor=2,
        batches=None,
        worker_memory_bytes=None,
        main_descriptors=30,
    )
    assert len(found) == 2
