"""Memory, cgroup limits and processors, read from captured and authored hosts."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from hostprep.errors import HostprepError
from hostprep.host.capabilities import Capability, has_capability, knows_other_users
from hostprep.host.cgroup_folders import limits_are_hidden
from hostprep.host.cgroups import (
    MemoryLimit,
    ReadLimit,
    read_cpu_quotas,
    read_memory_limits,
    read_read_limits,
)
from hostprep.host.cpu import read_cpu, usable_cpus
from hostprep.host.memory import headroom, ram_for_percent, read_headroom, read_memory
from hostprep.host.mounts import read_mounts
from hostprep.units import GIB, KIB, MIB

HOSTS = Path(__file__).parents[2] / "fixtures" / "hosts"


def host(name: str) -> Path:
    return HOSTS / f"cgroup-{name}"


def test_meminfo_in_bytes() -> None:
    memory = read_memory(host("v2-ancestor"))
    assert memory.total_bytes == 64 * GIB
    assert memory.available_bytes == 60 * GIB
    assert (memory.swap_total_bytes, memory.swap_free_bytes) == (8 * GIB, 8 * GIB)
    assert memory.shmem_bytes == 8632 * KIB


def test_without_memavailable_tmpfs_does_not_count_as_cache() -> None:
    assert read_memory(host("v2-container")).available_bytes == 5 * GIB


def test_meminfo_without_a_total_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("HugePages_Total:       0\n")
    with pytest.raises(HostprepError, match="MemTotal") as caught:
        read_memory(tmp_path)
    assert "findmnt /proc/meminfo" in (caught.value.hint or "")


@pytest.mark.parametrize(("mode", "left_gib"), [("0", 48), ("1", 48), ("2", 12)])
def test_where_the_kernel_has_a_commit_limit_a_tmpfs_is_held_to_it_too(
    tmp_path: Path, mode: str, left_gib: int
) -> None:
    """Filled beyond it, no program on the machine would be given any more memory."""
    (tmp_path / "proc/sys/vm").mkdir(parents=True)
    (tmp_path / "proc/sys/vm/overcommit_memory").write_text(f"{mode}\n")
    amounts = {"MemTotal": 64, "MemAvailable": 48, "CommitLimit": 32, "Committed_AS": 20}
    lines = (f"{name}: {number * GIB // KIB} kB\n" for name, number in amounts.items())
    (tmp_path / "proc/meminfo").write_text("".join(lines))
    found = headroom(read_memory(tmp_path), ())
    assert found.available_bytes == left_gib * GIB
    assert ("commit limit" in found.available_from) == (mode == "2")
    assert found.ram_bytes == 64 * GIB and not found.is_limited
    # The page cache was promised to nobody, and is held to no such limit; but to a cgroup's it is.
    assert found.cache_bytes == 48 * GIB
    job = MemoryLimit("/job", 40 * GIB, 10 * GIB, 0)
    limited = headroom(read_memory(tmp_path), (job,))
    assert (limited.available_bytes, limited.cache_bytes) == (min(30, left_gib) * GIB, 30 * GIB)


@pytest.mark.parametrize(
    ("swaps", "behind", "in_ram"),
    [
        (("/dev/zram0",), None, True),  # a kernel whose zram writes to no disk
        (("/dev/zram0", "/zram1"), "none", True),  # seen from a container
        (("/dev/zram0",), "/dev/sda3", False),
        (("/dev/zram0", "/swapfile"), "none", False),
        (("/dev/zram2",), "none", False),  # sysfs, which would tell, is not there
        ((), "none", False),
    ],
)
def test_swap_is_in_ram_where_all_of_it_is_zram_without_a_disk(
    swaps: tuple[str, ...], behind: str | None, in_ram: bool, tmp_path: Path
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1024 kB\nSwapTotal: 512 kB\n")
    lines = (f"{name:40}partition\t512\t\t0\t\t100\n" for name in swaps)
    (tmp_path / "proc/swaps").write_text("Filename\tType\tSize\tUsed\tPriority\n" + "".join(lines))
    for name in ("zram0", "zram1"):
        (tmp_path / "sys/block" / name).mkdir(parents=True)
        if behind is not None:
            (tmp_path / "sys/block" / name / "backing_dev").write_text(f"{behind}\n")
    found = headroom(read_memory(tmp_path), ())
    assert (found.swap_active, found.swap_in_ram) == (True, in_ram)
    job = headroom(read_memory(tmp_path), (MemoryLimit("/job", 512, 256, 0),))
    assert job.swap_in_ram == in_ram


def test_hybrid_takes_the_tightest_ancestor_not_the_closest() -> None:
    root = host("hybrid")
    limits = read_memory_limits(root)
    assert [limit.group for limit in limits] == [
        "/sys/fs/cgroup/memory/jobs/train",
        "/sys/fs/cgroup/memory/jobs",
    ]
    # 8 GiB - 5 GiB + 1.5 GiB of file cache; the 8 GB in "cache" are tmpfs and cannot be dropped.
    assert limits[1].remaining_bytes == 4 * GIB + 512 * MIB
    headroom = read_headroom(root)
    assert headroom.available_bytes == 4 * GIB + 512 * MIB
    assert headroom.available_from == "the memory limit of cgroup /sys/fs/cgroup/memory/jobs"
    assert headroom.ram_bytes == ram_for_percent(root) == 8 * GIB
    assert not headroom.swap_active
    # What holds of the machine without the limits is known beside it.
    memory, machine = read_memory(root), headroom.machine
    assert machine is not None and machine.machine is None
    assert machine.ram_bytes == memory.total_bytes
    assert machine.available_bytes == memory.available_bytes > headroom.available_bytes


def test_v2_counts_memory_high_of_an_ancestor() -> None:
    root = host("v2-ancestor")
    headroom = read_headroom(root)
    assert headroom.available_bytes == 33 * GIB  # 40 - 10 + 3 of file cache
    assert headroom.available_from.endswith("/sys/fs/cgroup/user.slice")
    assert headroom.ram_bytes == 40 * GIB
    assert headroom.swap_active


def test_container_whose_mount_shows_only_its_subtree() -> None:
    root = host("v1-container")
    assert [limit.group for limit in read_memory_limits(root)] == ["/sys/fs/cgroup/memory"]
    assert read_headroom(root).available_bytes == 3 * GIB + 256 * MIB
    assert ram_for_percent(root) == 4 * GIB
    assert [(q.group, q.cpus) for q in read_cpu_quotas(root)] == [
        ("/sys/fs/cgroup/cpu,cpuacct", 8.0)
    ]


def test_container_whose_group_lies_outside_of_the_mount() -> None:
    root = host("v2-container")
    headroom = read_headroom(root)
    assert headroom.ram_bytes == 2 * GIB
    assert headroom.available_bytes == 0  # 3 GiB are used under a limit that was lowered to 2
    assert usable_cpus(root) == 1.5


_V2 = "31 22 0:26 {root} /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
_V1 = "32 22 0:27 {root} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"


@pytest.mark.parametrize(
    ("groups", "mounts", "hidden"),
    [
        ("0::/\n", "", True),
        ("0::/\n", _V2.format(root="/").replace("/sys", "/covered"), True),
        ("0::/\n", _V2.format(root="/"), False),
        ("0::/\n", _V2.format(root="/../.."), True),
        ("4:memory:/job\n1:cpu:/\n0::/\n", _V2.format(root="/"), True),
        ("4:memory:/job\n1:cpu:/\n0::/\n", _V1.format(root="/"), False),
        ("4:memory:/\n0::/\n", _V1.format(root="/.."), True),
        ("", "", False),  # a kernel without them
        ("1:cpu:/\n", "", False),
    ],
)
def test_limits_that_nothing_here_shows_are_not_taken_for_none(
    groups: str, mounts: str, hidden: bool, tmp_path: Path
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    (tmp_path / "proc/self/mountinfo").write_text(mounts)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1024 kB\nMemAvailable: 512 kB\n")
    assert limits_are_hidden("memory", tmp_path) is hidden
    assert read_headroom(tmp_path).limits_hidden is hidden


@pytest.mark.parametrize(
    ("files", "ram_mib", "available_mib"),
    [
        ({"memory.max": 600, "memory.high": 500}, 500, 400),  # above that it is stalled
        ({"memory.max": 500, "memory.high": 600}, 500, 400),
        ({"memory.max": 600}, 600, 500),
        ({"memory.max": 4096}, 1024, 512),  # more than there is
    ],
)
def test_the_least_of_the_limits_and_the_machine_counts(
    files: dict[str, int], ram_mib: int, available_mib: int, tmp_path: Path
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1048576 kB\nMemAvailable: 524288 kB\n")
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    (tmp_path / "proc/self/mountinfo").write_text(_V2.format(root="/"))
    folder = tmp_path / "sys/fs/cgroup"
    folder.mkdir(parents=True)
    for name, mib in {"memory.high": None, "memory.current": 100, **files}.items():
        (folder / name).write_text("max\n" if mib is None else f"{mib * MIB}\n")
    headroom = read_headroom(tmp_path)
    assert headroom.ram_bytes == ram_for_percent(tmp_path) == ram_mib * MIB
    assert headroom.available_bytes == available_mib * MIB
    assert headroom.is_limited is (available_mib < 512)


def test_a_container_is_told_of_a_limit_above_all_that_it_sees(tmp_path: Path) -> None:
    """As that of its pod or job: version 1 says so in the group's statistics, and version 2 not."""
    shutil.copytree(host("v1-container"), tmp_path, dirs_exist_ok=True)
    folder = tmp_path / "sys/fs/cgroup/memory"
    (folder / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert read_memory_limits(tmp_path) == ()
    for place in (folder, folder / "inner"):
        with (place / "memory.stat").open("a") as stat:
            stat.write("hierarchical_memory_limit 4294967296\n")
    assert read_memory_limits(tmp_path) == read_memory_limits(host("v1-container"))
    assert ram_for_percent(tmp_path) == 4 * GIB


def test_unlimited_machine_has_no_limits(tmp_path: Path) -> None:
    shutil.copytree(host("hybrid"), tmp_path, dirs_exist_ok=True)
    (tmp_path / "proc/self/cgroup").write_text("4:memory:/\n1:cpu:/\n0::/\n")
    assert read_memory_limits(tmp_path) == ()
    assert read_cpu_quotas(tmp_path) == ()
    assert read_headroom(tmp_path).available_from == "MemAvailable"


def test_processors_of_a_plain_machine() -> None:
    cpu = read_cpu(host("hybrid"))
    assert (cpu.online, cpu.affinity, cpu.physical_cores, cpu.threads_per_core) == (2, 2, 2, 1)
    assert cpu.model == "AMD EPYC"
    assert cpu.quota is None
    assert (cpu.usable, cpu.usable_from) == (2.0, "all processors that are online")


def test_quota_of_an_ancestor_binds_and_absent_processors_do_not_count() -> None:
    cpu = read_cpu(host("v2-ancestor"))
    assert (cpu.online, cpu.affinity) == (16, 16)  # 0-127 are allowed, 16 exist
    assert (cpu.physical_cores, cpu.threads_per_core) == (8, 2)
    assert cpu.usable == 3.5
    assert cpu.usable_from.startswith("the quota of cgroup /sys/fs/cgroup/user.slice/user-1000")


def test_affinity_binds_under_a_larger_quota() -> None:
    cpu = read_cpu(host("v1-container"))
    assert (cpu.online, cpu.affinity, cpu.physical_cores) == (32, 4, 2)
    assert cpu.quota is not None and cpu.quota.cpus == 8.0
    assert cpu.usable == 4.0
    assert cpu.usable_from.startswith("the affinity")


def test_unknown_topology_stays_unknown() -> None:
    cpu = read_cpu(host("v2-container"))
    assert cpu.physical_cores is None
    assert cpu.threads_per_core is None
    assert cpu.model is None


def test_topology_that_is_known_of_some_processors_alone_is_unknown(tmp_path: Path) -> None:
    shutil.copytree(host("hybrid"), tmp_path, dirs_exist_ok=True)
    topology = tmp_path / "sys/devices/system/cpu/cpu1/topology"
    for name in ("core_cpus_list", "thread_siblings_list"):
        (topology / name).unlink(missing_ok=True)
    cpu = read_cpu(tmp_path)
    assert (cpu.affinity, cpu.physical_cores, cpu.threads_per_core) == (2, None, None)
    # An older kernel has another name for the same, and one without /sys tells what is allowed.
    (topology / "thread_siblings_list").write_text("0-1\n")
    (tmp_path / "sys/devices/system/cpu/cpu0/topology/core_cpus_list").write_text("0-1\n")
    cpu = read_cpu(tmp_path)
    assert (cpu.physical_cores, cpu.threads_per_core) == (1, 2)
    (tmp_path / "sys/devices/system/cpu/online").unlink()
    assert read_cpu(tmp_path).affinity == 2


def test_the_most_threads_of_a_core_count_where_cores_differ(tmp_path: Path) -> None:
    shutil.copytree(host("hybrid"), tmp_path, dirs_exist_ok=True)
    cpus = tmp_path / "sys/devices/system/cpu"
    (cpus / "online").write_text("0-2\n")
    status = tmp_path / "proc/self/status"
    status.write_text(status.read_text().replace("0-1", "0-2"))
    for number, siblings in ((0, "0-1"), (1, "0-1"), (2, "2")):
        (cpus / f"cpu{number}/topology").mkdir(parents=True, exist_ok=True)
        (cpus / f"cpu{number}/topology/core_cpus_list").write_text(f"{siblings}\n")
    cpu = read_cpu(tmp_path)
    assert (cpu.affinity, cpu.physical_cores, cpu.threads_per_core) == (3, 2, 2)


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    """Of cgroups, and of programs, which the kernel cuts at 15 bytes, in mid-character too."""
    shutil.copytree(host("hybrid"), tmp_path, dirs_exist_ok=True)
    name = os.fsdecode(b"caf\xe9 \x0c\xe2\x80\xa8x")  # with what str.splitlines takes for line ends
    memory = tmp_path / "sys/fs/cgroup/memory/jobs"
    (memory / "train").rename(memory / name)
    groups = tmp_path / "proc/self/cgroup"
    groups.write_bytes(groups.read_bytes().replace(b"/jobs/train", os.fsencode(f"/jobs/{name}")))
    status = tmp_path / "proc/self/status"
    status.write_bytes(
        b"Name:\tabcdefghijklmn\xc3\n" + status.read_bytes() + b"\nCapEff:\t0000000000200000\n"
    )
    closest, _ = read_memory_limits(tmp_path)
    assert closest.group == f"/sys/fs/cgroup/memory/jobs/{name}"
    assert read_headroom(tmp_path) == read_headroom(host("hybrid"))
    assert read_cpu(tmp_path) == read_cpu(host("hybrid"))
    assert has_capability(Capability.SYS_ADMIN, tmp_path)


def test_without_proc_it_says_so(tmp_path: Path) -> None:
    for read in (read_mounts, read_memory, read_headroom):
        with pytest.raises(HostprepError, match=r"/proc/\S+ cannot be read") as error:
            read(tmp_path)
        assert error.value.hint == "is /proc mounted? mount -t proc proc /proc"


def test_what_a_limit_keeps_from_reading_proc_is_not_its_absence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(path: Path) -> bytes:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(Path, "read_bytes", broken)
    with pytest.raises(HostprepError, match="mountinfo cannot be read: Too many") as caught:
        read_mounts()
    assert "ulimit -n" in str(caught.value.hint)


def test_no_processors_at_all_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text("")
    with pytest.raises(HostprepError, match="processors"):
        read_cpu(tmp_path)


def test_this_machine_agrees_with_the_kernel() -> None:
    assert read_cpu().affinity == len(os.sched_getaffinity(0))
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert read_memory().total_bytes == total
    assert 0 < usable_cpus() <= read_cpu().online


@pytest.mark.parametrize(
    ("uid_map", "known"),
    [
        ("         0          0 4294967295\n", True),
        ("         0       1000          1\n", False),
        ("         0       1000          1\n         1     100000      65536\n", True),
        (None, True),
    ],
)
def test_whether_files_can_be_somebody_elses(
    uid_map: str | None, known: bool, tmp_path: Path
) -> None:
    """As user_namespaces(7) has it: first here, first outside, how many."""
    (tmp_path / "proc/self").mkdir(parents=True)
    if uid_map is not None:
        (tmp_path / "proc/self/uid_map").write_text(uid_map)
    assert knows_other_users(tmp_path) is known


def test_limits_of_reads_as_both_versions_write_them(tmp_path: Path) -> None:
    """As systemd and Docker set them; what limits writes alone is none."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("7:blkio:/job\n0::/a.slice/a.scope\n")
    (tmp_path / "proc/self/mountinfo").write_text(
        "31 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
        "32 22 0:27 / /sys/fs/blkio rw - cgroup cgroup rw,blkio\n"
    )
    for folder, name, text in (
        ("cgroup/a.slice/a.scope", "io.max", "254:0 rbps=max wbps=5000000 riops=max wiops=max\n"),
        ("cgroup/a.slice", "io.max", "254:0 rbps=5000000 wbps=max riops=100 wiops=max\n"),
        ("blkio/job", "blkio.throttle.read_bps_device", "254:16 1048576\n"),
        ("blkio/job", "blkio.throttle.read_iops_device", "254:16 50\n8:0 9\n"),
        ("blkio", "blkio.throttle.read_iops_device", "254:16 3\n"),  # holds none below it
    ):
        (tmp_path / "sys/fs" / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys/fs" / folder / name).write_text(text)
    assert read_read_limits(tmp_path) == (
        ReadLimit("/sys/fs/blkio/job", "254:16", 1048576, 50),
        ReadLimit("/sys/fs/blkio/job", "8:0", None, 9),
        ReadLimit("/sys/fs/cgroup/a.slice", "254:0", 5000000, 100),
    )


@pytest.mark.parametrize(
    ("allowed", "affinity"),
    [("0-3", 2), ("0", 1), ("2-3", 2)],  # of a cpuset, as it was started, pinned by somebody
)
def test_what_isolcpus_takes_from_the_scheduler_is_for_who_is_pinned_there(
    tmp_path: Path, allowed: str, affinity: int
) -> None:
    """A cpuset of version 2 gives it to the affinity of all that is in it, Linux 6.1 as others."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/status").write_text(f"Cpus_allowed_list:\t{allowed}\n")
    (tmp_path / "proc/self/mountinfo").write_text("")
    (tmp_path / "sys/devices/system/cpu").mkdir(parents=True)
    (tmp_path / "sys/devices/system/cpu/online").write_text("0-3\n")
    (tmp_path / "sys/devices/system/cpu/isolated").write_text("2-3\n")
    found = read_cpu(tmp_path)
    assert (found.affinity, found.usable) == (affinity, affinity)
    assert "isolcpus" in found.usable_from
