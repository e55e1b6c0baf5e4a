"""``hostprep facts``: what hostprep knows about this machine and bases its decisions on."""

from __future__ import annotations

import os
import platform
import stat
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hostprep.cli.options import JsonOption
from hostprep.cli.output import emit_json, emit_text, printable
from hostprep.errors import HostprepError, UsageError
from hostprep.units import format_bytes, format_count

if TYPE_CHECKING:
    from hostprep.host.block import PathStorage


def facts(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATH...]", help="Also show what these paths are stored on."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the facts about this machine that hostprep relies on.

    Shows processors and memory, how much of them may be used, and what tmpfs supports.
    """
    from hostprep.host.cgroup_folders import limits_are_hidden
    from hostprep.host.cpu import read_cpu
    from hostprep.host.memory import read_headroom, read_memory
    from hostprep.system.mounting import TmpfsSupport, tmpfs_support

    storages = [_located(path) for path in paths or ()]
    cpu, memory, headroom = read_cpu(), read_memory(), read_headroom()
    cpu_hidden = limits_are_hidden("cpu")
    tmpfs = tmpfs_support() if os.geteuid() == 0 else TmpfsSupport(None, None)
    if as_json:
        emit_json(
            "facts",
            {
                "kernel": platform.release(),
                "cpu": {**asdict(cpu), "limits_hidden": cpu_hidden},
                "memory": asdict(memory),
                "headroom": asdict(headroom),
                "tmpfs": asdict(tmpfs),
                "paths": [_fields(storage) for storage in storages],
            },
        )
        return
    physical = ""
    if cpu.physical_cores is not None:
        physical = f", {format_count(cpu.physical_cores, 'physical core')}"
    swap = "on" if headroom.swap_active else "off"
    if headroom.swap_in_ram:
        swap = "on, only in zram"
    lines = [
        f"kernel   {platform.release()}",
        f"cpu      {cpu.model or 'unknown model'}: {cpu.usable:g} of {cpu.online} usable"
        f" ({cpu.usable_from}){physical}",
        f"memory   {format_bytes(memory.total_bytes)}, {format_bytes(headroom.available_bytes)}"
        f" available ({headroom.available_from}), {format_bytes(memory.shmem_bytes)} in tmpfs and"
        f" shared memory, swap {swap}",
        f"tmpfs    noswap {_taken(tmpfs.noswap)}, huge=within_size {_taken(tmpfs.huge)}",
    ]
    limited = (("processor time", cpu_hidden), ("memory", headroom.limits_hidden))
    if hidden := [what for what, is_hidden in limited if is_hidden]:
        what = " and ".join(hidden)
        lines.append(f"cgroup   not shown by /sys/fs/cgroup: it may limit {what} further")
    lines += [
        f"{storage.path}: {storage.storage_class.value} ({storage.reason})" for storage in storages
    ]
    for line in lines:
        emit_text(printable(line))


def _fields(storage: PathStorage) -> dict[str, Any]:
    return {
        "path": storage.path,
        "class": storage.storage_class.value,
        "reason": storage.reason,
        "mount": asdict(storage.mount),
        "disks": [disk.name for disk in storage.disks],
    }


def _located(path: str) -> PathStorage:
    """Find the storage under a path, in a child process: a dead network mount never answers."""
    from hostprep.host.answering import PATIENCE_SECONDS, no_answer
    from hostprep.host.block import locate
    from hostprep.host.fscrypt import locked_out
    from hostprep.system.apart import work_apart
    from hostprep.system.bounded import NoAnswerInTime

    def look(tell: Any) -> PathStorage:
        try:
            mode = os.stat(path).st_mode
        except (FileNotFoundError, NotADirectoryError) as error:
            if isinstance(error, FileNotFoundError) and (locked := locked_out(path)):
                said, cure = locked
                raise HostprepError(f"{path} {said}.", cure) from None
            raise UsageError(
                f"{path} does not exist.", "name something that exists, such as a folder above it"
            ) from None
        except OSError:
            mode = 0  # `locate` fails on it too, and reports it better
        if stat.S_ISBLK(mode) or stat.S_ISCHR(mode):  # that is, on the devtmpfs at /dev
            raise UsageError(
                f"{path} is a device; facts shows what files and folders lie on.",
                "name a folder on it: `lsblk` shows where each disk is mounted",
            )
        return locate(path)

    try:
        return work_apart(look, lambda told: None, silence_seconds=PATIENCE_SECONDS)
    except NoAnswerInTime:
        raise no_answer(f"{path} does not answer within {PATIENCE_SECONDS:g} s.") from None


def _taken(answer: Any) -> str:
    lacking = "CAP_SYS_ADMIN" if os.geteuid() == 0 else "root"
    return {True: "supported", False: "not supported", None: f"unknown without {lacking}"}[answer]
