"""What the host allows, from captured hosts and from hosts built here, file by file."""

from __future__ import annotations

from pathlib import Path

import pytest

from hostprep.loading.bounds import bounds, distinct_workers, main_memory, starting_point
from hostprep.loading.hazards import of_host
from hostprep.loading.model import Binding
from hostprep.loading.recommendation import Bound
from hostprep.loading.share import ranks_here, read_share, share_of_cpus, visible_gpus
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


def test_smt_workstation_starts_from_cores_not_from_threads() -> None:
    facts = read_share(1, "test", HOSTS / "smt-workstation")
    assert (facts.affinity_cpus, facts.physical_cores) == (24, 12)
    assert 12 < facts.capacity_cpus < 18
    workers, words = starting_point(facts)
    assert workers == 11
    assert "12 physical cores under 24" in words
    assert "each rank leaves one" in words and "shared by" not in words
    assert facts.descriptors_limit == 1024


def test_two_socket_server_is_shared_by_its_ranks() -> None:
    root = HOSTS / "two-sockets"
    facts = read_share(1, "test", root)
    assert (facts.affinity_cpus, facts.physical_cores) == (64, 32)
    assert starting_point(facts)[0] == 31
    of_four = read_share(4, "--ranks", root)
    workers, words = starting_point(of_four)
    assert workers == 7
    assert "4 ranks (--ranks)" in words
    # The threads of a core are neighbours in this host's numbers, and elsewhere half the host away.
    assert share_of_cpus(of_four, root) == [*range(16)]


def test_a_container_goes_by_its_own_quota_and_its_small_shm() -> None:
    facts = read_share(1, "test", HOSTS / "container-own-quota")
    assert facts.quota_cpus == 12
    assert facts.start_cpus == facts.physical_cores == 8  # fewer cores than that
    assert facts.shm_size_bytes == 64 * MIB
    assert "shm_small" in {hazard.code for hazard in of_host(facts)}
    assert facts.memory_available_bytes < 5 * GIB


def test_a_commit_limit_holds_for_workers_and_not_for_the_page_cache(tmp_path: Path) -> None:
    root = host(tmp_path, 4, 1)
    facts = read_share(1, "test", root)
    assert facts.cache_bytes == facts.memory_available_bytes == 104857600 * 1024
    with (root / "proc/meminfo").open("a") as meminfo:
        meminfo.write("CommitLimit: 65536000 kB\nCommitted_AS: 62390272 kB\n")
    (root / "proc/sys/vm").mkdir(parents=True)
    (root / "proc/sys/vm/overcommit_memory").write_text("2\n")
    limited = read_share(1, "test", root)
    assert limited.memory_available_bytes == 3145728 * 1024
    assert limited.cache_bytes == facts.cache_bytes


def test_a_container_is_held_to_the_quota_of_an_ancestor() -> None:
    facts = read_share(1, "test", HOSTS / "container-quota-above")
    assert (facts.quota_cpus, facts.quota_group) == (3.5, "/sys/fs/cgroup/jobs.slice")
    assert facts.memory_from.endswith("jobs.slice/docker-3f1c.scope")  # 5 GiB of the slice's 6
    workers, words = starting_point(facts)
    assert workers == 3
    assert "quota of cgroup /sys/fs/cgroup/jobs.slice" in words


def test_a_rank_is_measured_on_whole_cores_as_many_as_are_its_share(tmp_path: Path) -> None:
    root = host(tmp_path, 128, 2)
    facts = read_share(8, "--ranks", root)
    mine = share_of_cpus(facts, root)
    assert mine == [*range(16), *range(128, 144)]
    assert facts.capacity_per_rank == 16 + 0.25 * 16
    assert share_of_cpus(read_share(1, "test", root), root) is None


def test_a_quota_is_shared_by_the_ranks_too(tmp_path: Path) -> None:
    root = host(tmp_path, 64, 2)
    for quota, mine in ((16.0, [0, 1, 2, 3]), (3.0, [0]), (72.0, [*range(16), 64, 65])):
        facts = share(ranks=4, affinity_cpus=128, quota_cpus=quota)
        assert share_of_cpus(facts, root) == mine


def test_ranks_that_outnumber_the_cores_have_a_processor_each(tmp_path: Path) -> None:
    assert share_of_cpus(share(ranks=16), host(tmp_path, 4, 2)) == [0]


def test_processors_of_unknown_cores_are_shared_by_their_numbers(tmp_path: Path) -> None:
    root = host(tmp_path, 4, 2)
    for path in root.rglob("core_cpus_list"):
        path.unlink()
    assert share_of_cpus(share(ranks=2), root) == [0, 1, 2, 3]


def test_quota_in_an_ancestor_binds_before_the_cores() -> None:
    facts = read_share(1, "test", HOSTS / "cgroup-v2-ancestor")
    assert facts.quota_cpus == 3.5
    assert facts.capacity_cpus == 3.5
    workers, words = starting_point(facts)
    assert workers == 3
    assert "quota of cgroup" in words
    assert facts.memory_from.startswith("the memory limit of cgroup")


@pytest.fixture
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in (
        "LOCAL_WORLD_SIZE",
        "SLURM_NTASKS_PER_NODE",
        "SLURM_STEP_TASKS_PER_NODE",
        "SLURM_CPU_BIND_TYPE",
        "SLURM_CPU_BIND_LIST",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "CUDA_VISIBLE_DEVICES",
    ):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("listed", "left"),
    [
        (None, 8),
        ("3", 1),
        ("0,1,2,3", 4),
        (" 4, 5", 2),
        ("", 0),
        ("-1", 0),
        ("NoDevFiles", 0),
        ("none", 0),
        ("2,-1,3", 1),
        ("0,1,8,2", 2),  # there is no GPU 8, and CUDA looks no further
        ("1,1", 0),
        ("GPU-8932f937,GPU-45a2f6c1", 2),
        ("GPU-8932f937,3", 1),
        ("MIG-1,MIG-2,MIG-3,MIG-4,MIG-5,MIG-6,MIG-7,MIG-8,MIG-9", 9),
    ],
)
def test_gpus_are_counted_as_cuda_shows_them(
    listed: str | None, left: int, no_launcher: pytest.MonkeyPatch
) -> None:
    if listed is not None:
        no_launcher.setenv("CUDA_VISIBLE_DEVICES", listed)
    assert visible_gpus(8) == left
    assert visible_gpus(0) == 0
    ranks, words = ranks_here(8)
    assert ranks == max(1, left)
    assert ("CUDA_VISIBLE_DEVICES" in words) is (1 < left < 8)


def test_one_task_a_node_is_a_launcher_where_it_sees_more_gpus(
    no_launcher: pytest.MonkeyPatch,
) -> None:
    no_launcher.setenv("SLURM_NTASKS_PER_NODE", "1")
    assert ranks_here(8) == (8, "the number of GPUs")
    assert ranks_here(1) == (1, "$SLURM_NTASKS_PER_NODE")
    no_launcher.setenv("CUDA_VISIBLE_DEVICES", "5")
    assert ranks_here(8) == (1, "$SLURM_NTASKS_PER_NODE")
    no_launcher.delenv("CUDA_VISIBLE_DEVICES")
    no_launcher.setenv("SLURM_NTASKS_PER_NODE", "4")
    assert ranks_here(8) == (4, "$SLURM_NTASKS_PER_NODE")
    for nothing in ("0", "", "-2", "two", "\u00b2", "\u0662"):  # digits elsewhere, and none here
        no_launcher.setenv("LOCAL_WORLD_SIZE", nothing)
        assert ranks_here(8) == (4, "$SLURM_NTASKS_PER_NODE")
    no_launcher.setenv("LOCAL_WORLD_SIZE", "1")
    assert ranks_here(8) == (1, "$LOCAL_WORLD_SIZE")


@pytest.mark.parametrize(
    ("tasks", "ranks"), [("4", 4), ("4(x2)", 4), ("4,3", 1), ("1", 1), ("0", 1), ("many", 1)]
)
def test_tasks_that_srun_started_on_this_node_are_ranks(
    tasks: str, ranks: int, no_launcher: pytest.MonkeyPatch
) -> None:
    no_launcher.setenv("SLURM_NTASKS", "8")  # of a batch script it may be processors
    assert ranks_here(1)[0] == 1
    no_launcher.setenv("SLURM_STEP_TASKS_PER_NODE", tasks)
    assert ranks_here(1)[0] == ranks
    assert ranks_here(2)[0] == max(2, ranks)
    no_launcher.setenv("SLURM_NTASKS_PER_NODE", "2")
    assert ranks_here(1)[0] == 2


@pytest.mark.parametrize(
    ("ranks", "kind", "masks", "workers"),
    [
        (4, "mask_cpu:", "0xF,0xF0,0xF00,0xF000", 3),
        (4, "mask_cpu:", "0xF0,0xF00,0xF000,0xF0000", 1),  # of another step: these are shared
        (4, "mask_cpu:", "0xF,0xF,0xF,0xF", 1),
        (4, "mask_cpu:", "0xF,0x3F,0xF00,0xF000", 1),
        (2, "mask_cpu:", "0xF,0xF0,0xF00,0xF000", 2),  # ranks of a task, as torchrun starts them
        (4, "map_cpu:", "0,1,2,3", 1),
        (4, "mask_cpu:", "", 1),
        (4, None, None, 1),
    ],
)
def test_processors_that_slurm_gave_each_task_are_not_shared_once_more(
    ranks: int,
    kind: str | None,
    masks: str | None,
    workers: int,
    no_launcher: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for name, value in (("SLURM_CPU_BIND_TYPE", kind), ("SLURM_CPU_BIND_LIST", masks)):
        if value is not None:
            no_launcher.setenv(name, value)
    root = host(tmp_path, 4, 1)
    facts = read_share(ranks, "$SLURM_NTASKS_PER_NODE", root)
    found, words = starting_point(facts)
    assert found == workers
    mine = workers == 3
    assert ("usable processors: 16 (Slurm bound each task to 4 of its own)" in words) is mine
    assert (facts.measured_cpus, facts.physical_cores) == (4, 16) if mine else (4 // ranks, 4)
    assert share_of_cpus(facts, root) == [*range(4 if mine else 4 // ranks)]


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


def test_shm_that_a_later_mount_hides_is_unknown(tmp_path: Path) -> None:
    mountinfo = host(tmp_path, 4, 1, shm="64m") / "proc/self/mountinfo"
    mountinfo.write_text(mountinfo.read_text() + "31 22 0:29 / /dev rw - devtmpfs dev rw\n")
    facts = read_share(1, "test", tmp_path)
    assert (facts.shm_size_bytes, facts.shm_free_bytes) == (None, None)


def test_shm_without_a_limit_is_neither_absent_nor_small(tmp_path: Path) -> None:
    facts = read_share(1, "test", host(tmp_path, 4, 1, shm="0k"))
    assert (facts.shm_size_bytes, facts.shm_free_bytes) == (0, None)
    assert not {hazard.code for hazard in of_host(facts)} & {"shm_absent", "shm_small"}


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
        "shared_bytes": None,
        "moved_bytes": 0,
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


def test_shm_also_holds_the_tensors_of_a_data_set_that_workers_were_sent() -> None:
    def left(moved: int, ranks: int = 1) -> int:
        return workers_by(
            Binding.SHARED_MEMORY,
            shm_free_bytes=GIB,
            batch_bytes=MIB,
            moved_bytes=moved,
            ranks=ranks,
        )

    assert left(0) == (819 - 2) // 2
    assert left(GIB // 2) == left(GIB // 4, ranks=2) * 2 + 1 == (409 - 2) // 2
    assert left(GIB + 1) == 0


def test_tensors_of_a_data_set_need_shm_also_where_batches_need_none_of_it() -> None:
    def found(moved: int) -> list[Bound]:
        host = share(shm_free_bytes=64 * MIB, ranks=2)
        known = bounds(
            host,
            batch_bytes=MIB,
            tensors_per_batch=0,
            prefetch_factor=2,
            batches=None,
            worker_memory_bytes=None,
            main_descriptors=0,
            shared_bytes=0,
            moved_bytes=moved,
        )
        return [each for each in known if each.binding is Binding.SHARED_MEMORY]

    assert found(0) == found(32 * MIB) == []
    (bound,) = found(33 * MIB)
    assert (bound.workers, bound.reason) == (
        0,
        "64.0 MiB free in /dev/shm, less than the 66.0 MiB of the data set's tensors",
    )


def test_what_goes_through_a_pipe_takes_no_shm() -> None:
    docker = {"shm_free_bytes": 64 * MIB, "batch_bytes": 100 * MIB}
    assert workers_by(Binding.SHARED_MEMORY, **docker, shared_bytes=MIB) == (51 - 2) // 2
    with pytest.raises(StopIteration):
        workers_by(Binding.SHARED_MEMORY, **docker, shared_bytes=0)


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
    assert distinct_workers([probe(2, 100), probe(4, 100, idle_workers=3)]) == 1
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
