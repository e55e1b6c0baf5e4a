"""What the machine did meanwhile, by its own counters."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from hostprep.probing.counters import DiskCounts, Meter, disk_counts


def test_counters_add_up_the_disks_and_know_what_they_do_not_know(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").touch()
    stats = tmp_path / "proc/diskstats"
    line = "   8       {0} sd{1} 100 0 {2} 0 {3} 0 {4} 0 0 0 0 0 0 0 0 0 0\n"
    stats.write_text(line.format(0, "a", 1000, 3, 50) + line.format(16, "b", 24, 0, 0))
    assert disk_counts(["sda", "sdb"], tmp_path) == DiskCounts(1024 * 512, 50 * 512, 203, 200)
    assert disk_counts(["sda", "sdc"], tmp_path) is None
    assert disk_counts([], tmp_path) is None
    cpu = next(iter(os.sched_getaffinity(0)))
    ticks = tmp_path / "proc/stat"
    ticks.write_text(f"cpu 9 9 9 9\ncpu{cpu} 10 0 10 100 30 0 0 0 0 0\n")
    meter = Meter(["sda"], tmp_path)
    ticks.write_text(f"cpu 9 9 9 9\ncpu{cpu} 35 0 10 150 55 0 0 0 0 0\n")
    stats.write_text(line.format(0, "a", 1008, 5, 90))
    load = meter.load()
    assert (load.written_bytes, load.requests) == (40 * 512, 2)
    assert load.cpu_busy == pytest.approx(0.25)
    assert load.device_bytes == 8 * 512
    assert load.throttled is None
    assert load.cpu_own == pytest.approx(0, abs=1e-6) and load.seconds is not None
    subprocess.run(["sh", "-c", "i=0; while [ $i -lt 9999 ]; do i=$((i+1)); done"], check=True)
    assert 0 < (meter.load().cpu_own or 0) <= 1
    assert (meter.with_children(load).cpu_own or 0) > 0  # of a time that is over


def test_what_children_took_is_a_share_of_the_processors_that_the_scheduler_gives(
    tmp_path: Path,
) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("there is one processor, which cannot be taken away")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").touch()
    isolated = tmp_path / "sys/devices/system/cpu/isolated"
    isolated.parent.mkdir(parents=True)
    meter = Meter([], tmp_path)
    subprocess.run(["sh", "-c", "i=0; while [ $i -lt 9999 ]; do i=$((i+1)); done"], check=True)
    load = meter.load()
    isolated.write_text(",".join(map(str, cpus[1:])))
    left = meter.with_children(load)
    assert load.cpu_own and left.cpu_own == pytest.approx(len(cpus) * load.cpu_own)


def test_the_quota_that_holds_us_up_is_seen(tmp_path: Path) -> None:
    cpu = next(iter(os.sched_getaffinity(0)))
    inner = tmp_path / "sys/fs/cgroup/pod/container"
    inner.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/pod/container\n")
    (tmp_path / "proc/self/mountinfo").write_text(
        "30 20 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n"
    )
    (tmp_path / "proc/stat").write_text(f"cpu{cpu} 10 0 10 100 30 0 0 0 0 0\n")

    def count(group: Path, periods: int, throttled: int) -> None:
        text = f"usage_usec 900\nnr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec 7\n"
        (group / "cpu.stat").write_text(text)

    count(inner, 100, 50)
    count(inner.parent, 40, 0)
    meter = Meter([], tmp_path)
    assert meter.load().throttled == 0
    count(inner, 120, 51)
    count(inner.parent, 60, 15)
    assert meter.load().throttled == pytest.approx(0.75)
