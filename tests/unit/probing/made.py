"""Measurements to judge, made up: every figure can be set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hostprep.host.block import PathStorage, StorageClass
from hostprep.host.block_device import Device, Transport
from hostprep.host.mounts import Mount
from hostprep.probing.model import (
    DataSet,
    FioRun,
    Latency,
    Load,
    Measured,
    Settings,
    SmallFiles,
    SmallRun,
)

QUIET = Load(cpu_busy=0.2, device_bytes=None)
MOUNT = Mount(1, 0, "8:1", "/", "/data", "ext4", "/dev/sda1", ("rw",), ("rw",))


def disk(**changes: Any) -> Device:
    base = Device("sda", "disk", "8:0", "Model", None, Transport.SATA, True)
    return replace(base, **changes)


def storage(
    storage_class: StorageClass = StorageClass.ARM, disks: tuple[Device, ...] | None = None
) -> PathStorage:
    disks = (disk(),) if disks is None else disks
    return PathStorage("/data", MOUNT, disks, disks, storage_class, "the kernel's reason")


def fio_run(
    pattern: str, depth: int, iops: float, p50: float = 0.008, load: Load = QUIET
) -> FioRun:
    block = 1 << 20 if pattern == "read" else 4096
    return FioRun(
        pattern=pattern,
        block_bytes=block,
        depth=depth,
        read_bytes=int(iops * block * 3),
        seconds=3,
        bytes_per_s=iops * block,
        iops=iops,
        latency=Latency(p50, 2 * p50, 3 * p50),
        load=load,
    )


def four_runs(
    sequential: float, single: float, queued: float, p50: float = 0.008
) -> tuple[FioRun, ...]:
    return (
        fio_run("read", 1, sequential),
        fio_run("read", 32, sequential),
        fio_run("randread", 1, single, p50),
        fio_run("randread", 32, queued, p50),
    )


ARM_RUNS = four_runs(150, 90, 180)


def small_run(
    readers: int, files_per_s: float, mean_bytes: int = 100_000, load: Load = QUIET
) -> SmallRun:
    each = readers / files_per_s
    return SmallRun(
        readers=readers,
        files=int(files_per_s * 3),
        read_bytes=int(files_per_s * 3) * mean_bytes,
        seconds=3,
        files_per_s=files_per_s,
        bytes_per_s=files_per_s * mean_bytes,
        latency=Latency(each, 2 * each, 3 * each),
        load=load,
    )


def small_files(**changes: Any) -> SmallFiles:
    base = SmallFiles(
        source="dataset",
        cold=(small_run(1, 80), small_run(8, 100)),
        cached=small_run(8, 20_000),
        staged=small_run(8, 15_000),
        cached_share=0.0,
        metadata_cold=True,
        mean_bytes=100_000,
        seconds_per_file=0.01,
        seconds_per_byte=1e-8,
        unreadable=0,
        empty=0,
    )
    return replace(base, **changes)


def measured(**changes: Any) -> Measured:
    base = Measured(
        storage=storage(),
        settings=Settings(),
        fio_version="fio-3.33",
        direct=True,
        file_source="made",
        file_bytes=1 << 30,
        file_note=None,
        folder_note=None,
        layout_holes=False,
        file_cached_share=None,
        fio=ARM_RUNS,
        fio_note=None,
        small=small_files(),
        small_note=None,
        dataset=DataSet(10_000, True, 1_000_000_000),
        dataset_note=None,
        compressed=False,
        memory_bytes=16 << 30,
        link=None,
        health=(),
        seconds=20.0,
    )
    return replace(base, **changes)
