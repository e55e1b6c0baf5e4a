"""Command lines that several remedies share: for memory, volumes and data sets."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from hostprep.host.memory import COMMIT_LIMIT, Headroom
from hostprep.readiness.context import Context
from hostprep.readiness.model import Remedy
from hostprep.readiness.shell import quote
from hostprep.spec.model import DatasetSpec, Spec, VolumeSpec
from hostprep.staging.record.records import Record
from hostprep.units import size_argument
from hostprep.volumes.model import Huge, LiveVolume
from hostprep.volumes.options import parse_options
from hostprep.volumes.settings import DEFAULT_MODE

WHO_COMPUTES = "ps -eo pid,user,stat,pcpu,args --sort=-pcpu | head"
WHO_TAKES_MEMORY = "ps -eo pid,user,rss,args --sort=-rss | head"


def making_room(room: Headroom, promised: int = 0) -> Remedy:
    """Return the remedy if too little memory is left of ``room``, or ``promised`` to volumes."""
    commands: tuple[str, ...] = (WHO_TAKES_MEMORY,)
    hint = "end what takes it"
    if promised:
        commands = ("hostprep status", *commands)
        hint += ", or give the volumes a smaller `size:` in the spec and run `hostprep apply`"
    if "cgroup" in room.available_from:
        hint += "; or raise the limit of the cgroup (docker run --memory, systemd MemoryMax=,"
        hint += " Slurm's --mem, limits.memory of a pod)"
    elif room.available_from == COMMIT_LIMIT:
        hint += "; or raise the limit (sysctl vm.overcommit_ratio, or more swap)"
    elif "node" in room.available_from:
        hint += "; or give the process the other nodes too (numactl --membind, cpuset.mems)"
    return Remedy(commands, hint)


def mount_line(volume: VolumeSpec) -> str:
    """Return the line that mounts or changes a volume as the spec wants it, at every boot too."""
    words = ["hostprep", "mount", volume.path, "--size", volume.size, "--fstab"]
    for option, value in (
        ("--mode", None if volume.mode is None else f"{volume.mode:04o}"),
        ("--owner", volume.owner),
        ("--inodes", volume.inodes),
        ("--huge", volume.huge),
    ):
        if value is not None:
            words += [option, str(value)]
    return _line(*words, *(("--swap",) if volume.swap else ()))


def mount_anew_line(volume: VolumeSpec, context: Context, mounted: LiveVolume | None = None) -> str:
    """Return the line that mounts a volume where none is mounted, or none any more.

    It names a mode, owner and huge pages that the spec leaves open as the line in fstab has them,
    or, without one, as they are ``mounted``: `hostprep mount` could not know either by then. What
    equals a default is left out.
    """
    kept = _in_fstab(volume, context)
    if kept is None and mounted is not None:
        kept = _Kept(mounted.mode, f"{mounted.uid}:{mounted.gid}", mounted.huge)
    if kept is None:
        return mount_line(volume)
    mode, owner, huge = kept
    return mount_line(
        replace(
            volume,
            mode=mode if volume.mode is None and mode != DEFAULT_MODE else volume.mode,
            owner=owner if volume.owner is None and owner != "0:0" else volume.owner,
            huge=huge if volume.huge is None and huge != Huge.WITHIN_SIZE else volume.huge,
        )
    )


class _Kept(NamedTuple):
    """What a volume has that its spec may leave open."""

    mode: int
    owner: str
    huge: str


def _in_fstab(volume: VolumeSpec, context: Context) -> _Kept | None:
    try:
        lines = [each for each in context.fstab if each.simple_target == volume.path]
    except OSError:  # HP004 reports it
        return None
    options = next((each.options for each in lines if each.is_ours), None)
    if options is None:
        return None
    said, given = parse_options(options), dict(each.partition("=")[::2] for each in options)
    mode = said.mode if "mode" in given and said.mode >= 0 else DEFAULT_MODE
    # A name stays as it is written: whoever runs the line learns whether it exists.
    owner = f"{given.get('uid') or 0}:{given.get('gid') or 0}"
    return _Kept(mode, owner, said.huge if said.huge in {*Huge} else Huge.WITHIN_SIZE)


def stage_line(dataset: DatasetSpec, spec: Spec, *options: str) -> str:
    """Return the line that stages a data set of the spec, or brings it up to date."""
    size = next((each.size for each in spec.volumes if each.path == dataset.volume), None)
    return _stage(dataset.source, dataset.name, dataset.parent, size, options)


def stage_again_line(record: Record, live: LiveVolume | None, *options: str) -> str | None:
    """Return the same for a data set only on record; None if its volume's size is not known."""
    if record.volume is not None and (live is None or not live.size_bytes):
        return None
    size = None if live is None else size_argument(live.size_bytes)
    return _stage(record.source, record.name, os.path.dirname(record.target), size, options)


def aside_line(path: str) -> str:
    """Return the line that renames whatever is at ``path`` to a name that ends in ``.old``."""
    # -T does not move it into a folder that already has the new name, for instance from the last
    # time; that folder gets a number.
    return _line("mv", "-T", "--backup=numbered", path, f"{path}.old")


def _stage(source: str, name: str, parent: str, size: str | None, options: Iterable[str]) -> str:
    where = ("--to", parent) if size is None else ("--to-tmpfs", size, "--at", parent)
    return _line("hostprep", "stage", source, *where, "--name", name, *options)


def _line(*words: str) -> str:
    return " ".join(map(quote, words))
