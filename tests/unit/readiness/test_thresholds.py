"""Where the pages of checks name a number: on either side of it, the verdict is as they say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from hostprep.host.block import StorageClass
from hostprep.host.block_health import Health
from hostprep.host.gpu import Gpu
from hostprep.host.memory import Headroom
from hostprep.probing.judgement import Judged
from hostprep.readiness.checks import (
    _room,
    clock,
    cpu_load,
    cpu_quota,
    cpu_thermal,
    disk_inodes,
    disk_readahead,
    disk_space,
    disk_wear,
    gpu_memory,
    memory_left,
    pressure,
    required_rate,
    shm_size,
)
from hostprep.readiness.space import Space
from hostprep.units import GIB, KIB, MIB

DAY = 86400.0


def shm(size: int, free: int, wanted: int | None = None, inodes: int = 0, left: int = 0) -> Any:
    return shm_size.Facts(True, Space(size, free, inodes, left), wanted, None)


def room(total: int, free: int, *, staged_to: bool = True) -> Any:
    space = Space(total, free, total, free)
    return _room.Facts((_room.Room("/nvme", ("/nvme/a",), staged_to, space, None),))


def pressures(io: float, cpu: float, memory: float) -> Any:
    return pressure.Facts(tuple(pressure.Pressure(100.0, each) for each in (io, cpu, memory)))


def rate(measured: float, age_seconds: float | None) -> Any:
    judged = Judged(measured, 1000.0, "samples/s", "small files")
    one = required_rate.Rate("a", "/a", "1000", "probe", judged, age_seconds, None)
    return required_rate.Facts((one,))


def memory(ram: int, available: int, promised: int = 0, unlimited: tuple[str, ...] = ()) -> Any:
    return memory_left.Facts(Headroom(ram, available, "MemAvailable", False), promised, unlimited)


def wear(percent: int) -> Any:
    health = Health(True, percent, None, 0, None, None)
    return disk_wear.Facts((disk_wear.Disk("sda", health),))


def quota(cpus: float) -> Any:
    return cpu_quota.Facts((cpu_quota.Quota("/job", cpus, 2, None, None),), 8, False)


def ahead(size: int) -> Any:
    return disk_readahead.Facts((disk_readahead.Device("sda", StorageClass.ARM, size),), "")


def gpu(total: int, used: int, busy: int | None = None) -> Any:
    unknown = dict.fromkeys(field.name for field in fields(Gpu))
    return Gpu(**{**unknown, "index": 0, "name": "GPU", "total_bytes": total, "used_bytes": used,
                  "utilisation_percent": busy})  # fmt: skip


def judge_gpu(one: Any) -> Any:
    return [gpu_memory._judge_one(one, True)]


@pytest.mark.parametrize(
    ("judge", "facts", "statuses"),
    [
        (shm_size.judge, shm(64 * MIB, 64 * MIB), "FAIL"),
        (shm_size.judge, shm(64 * MIB + 1, 64 * MIB), "WARN"),
        (shm_size.judge, shm(GIB - 1, GIB - 1), "WARN"),
        (shm_size.judge, shm(GIB, 1), "PASS"),
        (shm_size.judge, shm(2 * GIB, 99, 100), "FAIL"),
        (shm_size.judge, shm(2 * GIB, 100, 100), "WARN"),
        (shm_size.judge, shm(2 * GIB, 124, 100), "WARN"),
        (shm_size.judge, shm(2 * GIB, 125, 100), "PASS"),
        (shm_size.judge, shm(2 * GIB, GIB, None, 1000, 63), "FAIL"),
        (shm_size.judge, shm(2 * GIB, GIB, None, 1000, 64), "PASS"),
        (memory_left.judge, memory(16 * GIB, 4 * GIB), "PASS"),
        (memory_left.judge, memory(16 * GIB, 4 * GIB - 1), "WARN"),
        (memory_left.judge, memory(100 * GIB, 10 * GIB), "PASS"),
        (memory_left.judge, memory(100 * GIB, 10 * GIB - 1), "WARN"),
        (memory_left.judge, memory(8 * GIB, 2 * GIB), "PASS"),
        (memory_left.judge, memory(8 * GIB, 2 * GIB - 1), "WARN"),
        (memory_left.judge, memory(8 * GIB, 2 * GIB, 2 * GIB), "WARN"),
        (memory_left.judge, memory(8 * GIB, 2 * GIB, 2 * GIB + 1), "FAIL"),
        (memory_left.judge, memory(8 * GIB, 8 * GIB, 0, ("/mnt/ram",)), "WARN"),
        (memory_left.judge, memory(8 * GIB, GIB, 2 * GIB, ("/mnt/ram",)), "FAIL"),
        (cpu_quota.judge, quota(0.99), "FAIL"),
        (cpu_quota.judge, quota(1.0), "WARN"),
        (cpu_quota.judge, quota(7.9), "WARN"),
        (cpu_quota.judge, quota(8.0), "PASS"),
        (cpu_thermal.judge, cpu_thermal.Facts(8, 5, 9.9, 1000.0), "PASS"),
        (cpu_thermal.judge, cpu_thermal.Facts(8, 5, 10.0, 1000.0), "WARN"),
        (cpu_thermal.judge, cpu_thermal.Facts(8, 9, None, 1000.0), "PASS"),
        (cpu_thermal.judge, cpu_thermal.Facts(8, 10, None, 1000.0), "WARN"),
        (cpu_load.judge, cpu_load.Facts(3.99, 8), "PASS"),
        (cpu_load.judge, cpu_load.Facts(4.0, 8), "WARN"),
        (disk_space.judge, room(1000 * GIB, 50 * GIB), "PASS"),
        (disk_space.judge, room(1000 * GIB, 50 * GIB - 1), "WARN"),
        (disk_space.judge, room(1000 * GIB, 10 * GIB), "WARN"),
        (disk_space.judge, room(1000 * GIB, 10 * GIB - 1), "FAIL"),
        (disk_space.judge, room(100 * MIB, 21 * MIB), "PASS"),
        (disk_space.judge, room(100 * MIB, 20 * MIB), "WARN"),
        (disk_space.judge, room(100 * MIB, 16 * MIB), "WARN"),
        (disk_space.judge, room(100 * MIB, 15 * MIB), "FAIL"),
        (disk_space.judge, room(10 * GIB, 100 * MIB, staged_to=False), "WARN"),
        (disk_space.judge, room(10 * GIB, 100 * MIB - 1, staged_to=False), "FAIL"),
        (disk_inodes.judge, room(10_000_000, 1_000_000), "PASS"),
        (disk_inodes.judge, room(10_000_000, 999_999), "WARN"),
        (disk_inodes.judge, room(10_000_000, 99_999), "FAIL"),
        (disk_inodes.judge, room(10_000_000, 1000, staged_to=False), "WARN"),
        (disk_inodes.judge, room(10_000_000, 999, staged_to=False), "FAIL"),
        (judge_gpu, gpu(40 * GIB, 4 * GIB - 1), "PASS"),
        (judge_gpu, gpu(40 * GIB, 4 * GIB), "WARN"),
        (judge_gpu, gpu(4 * GIB, GIB - 1), "PASS"),
        (judge_gpu, gpu(4 * GIB, GIB), "WARN"),
        (judge_gpu, gpu(40 * GIB, 0, 9), "PASS"),
        (judge_gpu, gpu(40 * GIB, 0, 10), "WARN"),
        (disk_wear.judge, wear(79), "PASS"),
        (disk_wear.judge, wear(80), "WARN"),
        (disk_readahead.judge, ahead(128 * KIB), "PASS"),
        (disk_readahead.judge, ahead(128 * KIB - 1), "WARN"),
        (pressure.judge, pressures(19.9, 49.9, 9.9), "PASS PASS PASS"),
        (pressure.judge, pressures(20.0, 50.0, 10.0), "WARN WARN WARN"),
        (clock.judge, clock.Facts(True, 2.5), "PASS"),
        (clock.judge, clock.Facts(True, 2.51), "WARN"),
        (clock.judge, clock.Facts(False, 0.1), "WARN"),
        (required_rate.judge, rate(900.0, 30 * DAY), "PASS"),
        (required_rate.judge, rate(900.0, 30 * DAY + 1), "WARN"),
        (required_rate.judge, rate(900.0, None), "WARN"),
        (required_rate.judge, rate(899.9, 1.0), "FAIL"),
    ],
)
def test_a_verdict_changes_where_its_page_says(
    judge: Callable[[Any], Any], facts: Any, statuses: str
) -> None:
    assert [finding.status.value for finding in judge(facts)] == statuses.split()
