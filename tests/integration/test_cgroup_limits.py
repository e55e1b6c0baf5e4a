"""Real cgroups: the memory budget and the processors follow their limits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.rigs import far
from hostprep.host.mounts import read_mounts
from tests.kit.compare import differences
from tests.kit.stagecraft import make_source

MIB = 1 << 20


def hierarchy(controller: str) -> tuple[int, Path]:
    """Return the version and a folder in which a cgroup with ``controller`` can be made.

    Below the group of this process with version 1; at the top with version 2, where a group that
    has processes of its own cannot hand its controllers down.
    """
    groups = dict(
        line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines()
    )
    for mount in read_mounts():
        if mount.fstype == "cgroup" and controller in mount.super_options:
            names = next((each for each in groups if controller in each.split(",")), None)
            if names is not None and mount.root == "/":
                return 1, Path(mount.target + groups[names])
    for mount in read_mounts():
        top = Path(mount.target)
        if mount.fstype == "cgroup2" and mount.root == "/":
            handed_down = top / "cgroup.subtree_control"
            if handed_down.exists() and controller in handed_down.read_text().split():
                return 2, top
    pytest.skip(f"no cgroup hierarchy here in which {controller} can be limited")


@contextmanager
def cgroup(parent: Path, suffix: bytes = b"") -> Iterator[Path]:
    group = parent / f"hostprep-test-{os.getpid()}{os.fsdecode(suffix)}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made in {parent}: {error.strerror}")
    try:
        yield group
    finally:
        for _ in range(50):  # the last process leaves its group a moment after it was waited for
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.1)


def inside(group: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a member of the group from its first instruction on."""
    enter = 'echo $$ > "$0/cgroup.procs"; exec "$@"'
    return subprocess.run(
        ["bash", "-c", enter, str(group), *args], capture_output=True, text=True, check=False
    )


def hostprep(group: Path, *words: str, expect: int = 0) -> dict[str, Any]:
    done = inside(group, sys.executable, "-m", "hostprep", *words, "--json")
    assert done.returncode == expect, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("readers", [(), ("--readers", "8")])
@pytest.mark.parametrize("most", [1, 2, 3, 6])
def test_staging_does_with_the_processes_that_are_allowed(
    most: int, readers: tuple[str, ...], safe_dir: Path, state: Path
) -> None:
    source = make_source(safe_dir / "data", directories=40, files=30)
    _, parent = hierarchy("pids")
    with cgroup(parent) as group:
        (group / "pids.max").write_text(str(most))
        words = ("stage", str(source), "--to", str(safe_dir / "fast"), *readers)
        found = hostprep(group, *words, expect=1 if most == 1 else 0)
    if most == 1:
        assert "no worker process could be started" in found["error"]["message"]
        assert "pids.max" in found["error"]["hint"]
    else:
        assert differences(source, safe_dir / "fast/data", owners=True) == []


def test_the_check_of_processes_knows_the_limit_of_an_ancestor(state: Path) -> None:
    """Root is held to it, and what is printed cures it."""
    _, parent = hierarchy("pids")
    with cgroup(parent) as group:
        (group / "pids.max").write_text("40")
        inner = group / "inner"
        inner.mkdir()
        try:
            (found,) = hostprep(inner, "check", "--only", "HP023")["checks"]
            assert (
                found["status"] == "WARN" and f"cgroup {group} allows only 40" in found["message"]
            )
            assert 30 < found["measured"]["value"] <= 40
            for command in found["remedy"]["commands"]:
                subprocess.run(["bash", "-c", command], check=True)
            (cured,) = hostprep(inner, "check", "--only", "HP023")["checks"]
            assert cured["status"] == "PASS" and f"cgroup {group}" in cured["message"]
        finally:
            inner.rmdir()


def test_a_far_source_is_staged_without_threads(safe_dir: Path, state: Path) -> None:
    """Those that look at how it answers side by side are not allowed either."""
    source = make_source(safe_dir / "data", directories=9, files=5)
    _, parent = hierarchy("pids")
    with far.far_source(source, safe_dir) as slow, cgroup(parent) as group:
        (group / "pids.max").write_text("2")
        hostprep(group, "stage", str(slow.mount), "--to", str(safe_dir / "fast"), "--name", "data")
    assert differences(source, safe_dir / "fast/data", owners=True, holes=False) == []


def test_the_budget_follows_the_limit_of_an_ancestor(safe_dir: Path) -> None:
    version, parent = hierarchy("memory")
    point = str(safe_dir / "v")
    with cgroup(parent) as group:
        limit = group / ("memory.max" if version == 2 else "memory.limit_in_bytes")
        limit.write_text(str(512 * MIB))
        inner = group / "inner"
        inner.mkdir()
        try:
            small = ("mount", point, "--size", "50%", "--inodes", "1000", "--reserve", "64M")
            plan = hostprep(inner, *small, "--dry-run")
            assert plan["planned"]["size_bytes"] == 256 * MIB
            budget = plan["budget"]
            assert 256 * MIB < budget["available_bytes"] <= 512 * MIB
            assert budget["available_from"] == f"the memory limit of cgroup {group}"
            large = ("mount", point, "--size", "512M", "--inodes", "1000", "--reserve", "64M")
            refused = hostprep(inner, *large, expect=5)
            assert str(group) in refused["error"]["message"]
            # What is held in a tmpfs counts as used, though the kernel calls it cache.
            hostprep(inner, *small)
            fill = "import sys; open(sys.argv[1], 'wb').write(bytes(200 << 20))"
            assert inside(inner, sys.executable, "-c", fill, f"{point}/f").returncode == 0
            other = ("mount", f"{point}-2", "--size", "200M", "--inodes", "9", "--reserve", "64M")
            assert str(group) in hostprep(inner, *other, expect=5)["error"]["message"]
            hostprep(inner, "unmount", point, "--discard-data")
            assert hostprep(inner, *other, "--dry-run")["budget"]["fits"] is True
        finally:
            inner.rmdir()


def test_copies_into_a_tmpfs_that_is_there_follow_the_limit(safe_dir: Path) -> None:
    """Where the kernel would end a worker half-way, it is refused before anything is written."""
    version, parent = hierarchy("memory")
    source, target = safe_dir / "data", safe_dir / "ram"
    source.mkdir()
    (source / "file").write_bytes(bytes(200 * MIB))
    target.mkdir()
    with cgroup(parent) as group:
        limit = group / ("memory.max" if version == 2 else "memory.limit_in_bytes")
        limit.write_text(str(256 * MIB))
        stage = ("stage", str(source), "--to", str(target), "--reserve", "128M")
        refused = hostprep(group, *stage, expect=5)
    assert str(group) in refused["error"]["message"]
    assert list(target.iterdir()) == []


def test_a_run_that_the_kernel_stops_says_so(safe_dir: Path) -> None:
    """The kernel ends the worker that fills the memory, and not the run, which has no last word."""
    version, parent = hierarchy("memory")
    source, target = safe_dir / "data", safe_dir / "ram"
    source.mkdir()
    for number in range(160):
        (source / f"{number}").write_bytes(bytes(range(256)) * 4096)
    target.mkdir()
    with cgroup(parent) as group:
        limit = group / ("memory.max" if version == 2 else "memory.limit_in_bytes")
        limit.write_text(str(128 * MIB))
        stage = ("stage", str(source), "--to", str(target), "--force")
        told = hostprep(group, *stage, expect=1)
    assert told["error"]["message"].startswith("a worker process was ended by SIGKILL")
    why = f"the memory limit of cgroup {group} was reached" if version == 2 else "memory ran out"
    assert f": {why}, and the kernel killed it." in told["error"]["message"]
    assert "hostprep unstage" in told["error"]["hint"]
    assert not (target / "data").exists()


@pytest.mark.parametrize("by", ["volume", "directory"])
def test_copies_into_a_volume_that_was_mounted_elsewhere_follow_the_limit(
    by: str, safe_dir: Path
) -> None:
    """Who writes is charged, though all of the volume was counted when it was mounted."""
    version, parent = hierarchy("memory")
    source, point = safe_dir / "data", safe_dir / "v"
    source.mkdir()
    (source / "file").write_bytes(bytes(range(256)) * (200 * MIB // 256))
    mount = ("mount", str(point), "--size", "300M", "--inodes", "1000", "--reserve", "64M")
    assert subprocess.run([sys.executable, "-m", "hostprep", *mount], check=False).returncode == 0
    into = ("--to-tmpfs", "300M", "--at", str(point)) if by == "volume" else ("--to", str(point))
    stage = ("stage", str(source), *into, "--reserve", "64M")
    with cgroup(parent) as group:
        limit = group / ("memory.max" if version == 2 else "memory.limit_in_bytes")
        limit.write_text(str(256 * MIB))
        refused = hostprep(group, *stage, expect=5)["error"]
        assert str(group) in refused["message"] and "--force" in refused["hint"]
        assert list(point.iterdir()) == []
        limit.write_text(str(512 * MIB))
        assert hostprep(group, *stage)["copied_files"] == 1
        limit.write_text(str(300 * MIB))
        assert hostprep(group, *stage)["changed"] is False  # what takes no more is no matter
    assert differences(source, point / "data", owners=True) == []


def test_a_limited_job_finds_no_fault_with_the_volumes_of_the_machine(safe_dir: Path) -> None:
    """What is mounted outside of it has the size by the machine, and is not charged to it."""
    version, parent = hierarchy("memory")
    point, spec = safe_dir / "v", safe_dir / "hostprep.yml"
    mount = ("mount", str(point), "--size", "9%", "--inodes", "1000", "--reserve", "64M", "--fstab")
    mounted = subprocess.run([sys.executable, "-m", "hostprep", *mount], check=False)
    assert mounted.returncode == 0
    spec.write_text(f"volumes: [{{path: {point}, size: 9%}}]\n")
    with cgroup(parent) as group:
        limit = group / ("memory.max" if version == 2 else "memory.limit_in_bytes")
        limit.write_text(str(256 * MIB))
        found = hostprep(group, "check", str(spec), "--only", "HP002,HP004,HP021")
    assert [check["status"] for check in found["checks"]] == ["PASS"] * 3, found["checks"]
    (memory,) = (check for check in found["checks"] if check["code"] == "HP021")
    assert str(group) in memory["message"]


def test_usable_processors_follow_the_quota() -> None:
    version, parent = hierarchy("cpu")
    show = "from hostprep.host.cpu import read_cpu; c = read_cpu(); print(c.usable, c.usable_from)"
    with cgroup(parent) as group:
        if version == 2:
            (group / "cpu.max").write_text("75000 100000")
        else:
            (group / "cpu.cfs_period_us").write_text("100000")
            (group / "cpu.cfs_quota_us").write_text("75000")
        done = inside(group, sys.executable, "-c", show)
        assert done.stdout.strip() == f"0.75 the quota of cgroup {group}", done.stderr


def test_a_group_may_be_called_anything(safe_dir: Path) -> None:
    """As by a user of systemd-run: the name is bytes, a control character or no UTF-8 included."""
    version, parent = hierarchy("memory")
    with cgroup(parent, b" caf\xe9\x0c:\x1b") as group:
        limit = group / ("memory.max" if version == 2 else "memory.limit_in_bytes")
        limit.write_text(str(512 * MIB))
        told = hostprep(group, "facts")["headroom"]["available_from"]
        assert told == f"the memory limit of cgroup {group}"
        point = str(safe_dir / "v")
        for words in (
            ("recommend", "--no-measure"),
            ("mount", point, "--size", "50%", "--reserve", "64M", "--dry-run"),
            ("stage", "/etc/hostname", "--to", str(safe_dir / "fast"), "--dry-run"),
            ("check", "--only", "HP021,HP023,HP030"),
        ):
            done = inside(group, sys.executable, "-m", "hostprep", *words)
            assert "Error" not in done.stdout + done.stderr
            assert (done.stdout + done.stderr).replace("\n", "").isprintable()


def test_usable_processors_follow_the_affinity() -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one processor only")
    show = "from hostprep.host.cpu import read_cpu; c = read_cpu(); print(c.usable, c.usable_from)"
    one = str(min(os.sched_getaffinity(0)))
    done = subprocess.run(
        ["taskset", "--cpu-list", one, sys.executable, "-c", show], capture_output=True, text=True
    )
    assert done.stdout.startswith("1.0 the affinity"), done.stderr
