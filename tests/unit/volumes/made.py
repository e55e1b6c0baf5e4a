"""Volumes made by hand: mounted ones, and the facts of a place where none is yet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hostprep.host.memory import Headroom
from hostprep.system.mounting import TmpfsSupport
from hostprep.units import GIB
from hostprep.volumes.facts import VolumeFacts
from hostprep.volumes.model import Huge, LiveVolume
from hostprep.volumes.paths import Folder, Place, PointKind

ROOT = Folder("/", 0, 0, 0o755)
MNT = Folder("/mnt", 0, 0, 0o755)
_LIVE = LiveVolume(
    path="/mnt/hostprep",
    size_bytes=GIB,
    used_bytes=0,
    inodes=9999,
    used_inodes=1,
    mode=0o755,
    uid=0,
    gid=0,
    huge=Huge.NEVER,
    noswap=True,
    nosuid=True,
    nodev=True,
    noexec=True,
    options=(),
)


def live_volume(**fields: Any) -> LiveVolume:
    """Return a volume of 1 GiB at ``/mnt/hostprep`` with nothing in it, but for ``fields``."""
    return replace(_LIVE, **fields)


def fresh(path: str) -> VolumeFacts:
    """Return the facts of a path where nothing is yet, on a machine with 60 GiB to spare."""
    return VolumeFacts(
        path=path,
        boot_id="boot-1",
        place=Place(PointKind.MISSING, (ROOT, MNT), missing=(path,)),
        mount=None,
        live=None,
        mounts_below=(),
        headroom=Headroom(64 * GIB, 60 * GIB, "MemAvailable", swap_active=False),
        promised_bytes=0,
        support=TmpfsSupport(noswap=True, huge=True),
        record=None,
        fstab=b"",
        fstab_refusal=None,
    )
