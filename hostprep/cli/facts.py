"""``hostprep facts``: what this machine is, as hostprep sees it and decides by."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from typing import Annotated, Any

import typer

from hostprep.cli.options import JsonOption
from hostprep.cli.output import emit_json, emit_text, printable
from hostprep.errors import UsageError
from hostprep.units import format_bytes


def facts(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATH...]", help="Also say what these paths sit on."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what this machine is, as hostprep decides by it.

    Processors and memory, what of them may be used, and what tmpfs can do.
    """
    from hostprep.host.block import locate
    from hostprep.host.cpu import read_cpu
    from hostprep.host.memory import read_headroom, read_memory
    from hostprep.system.mounting import TmpfsSupport, tmpfs_support

    for path in paths or ():
        if not os.path.exists(path):
            raise UsageError(f"{path} does not exist.")
    cpu, memory, headroom = read_cpu(), read_memory(), read_headroom()
    tmpfs = tmpfs_support() if os.geteuid() == 0 else TmpfsSupport(None, None)
    storages = [locate(path) for path in paths or ()]
    if as_json:
        emit_json(
            "facts",
            {
                "kernel": platform.release(),
                "cpu": asdict(cpu),
                "memory": asdict(memory),
                "headroom": asdict(headroom),
                "tmpfs": asdict(tmpfs),
                "paths": [
                    {
                        "path": storage.path,
                        "class": storage.storage_class.value,
                        "reason": storage.reason,
                        "mount": asdict(storage.mount),
                        "disks": [disk.name for disk in storage.disks],
                    }
                    for storage in storages
                ],
            },
        )
        return
    physical = "" if cpu.physical_cores is None else f", {cpu.physical_cores} physical cores"
    lines = [
        f"kernel   {platform.release()}",
        f"cpu      {cpu.model or 'unknown model'}: {cpu.usable:g} of {cpu.online} usable"
        f" ({cpu.usable_from}){physical}",
        f"memory   {format_bytes(memory.total_bytes)}, {format_bytes(headroom.available_bytes)}"
        f" available ({headroom.available_from}), {format_bytes(memory.shmem_bytes)} in tmpfs and"
        f" shared memory, swap {'on' if headroom.swap_active else 'off'}",
        f"tmpfs    noswap {_taken(tmpfs.noswap)}, huge=within_size {_taken(tmpfs.huge)}",
    ]
    lines += [
        f"{storage.path}: {storage.storage_class.value} ({storage.reason})" for storage in storages
    ]
    for line in lines:
        emit_text(printable(line))


def _taken(answer: Any) -> str:
    lacking = "CAP_SYS_ADMIN" if os.geteuid() == 0 else "root"
    return {True: "is taken", False: "is not taken", None: f"unknown without {lacking}"}[answer]
