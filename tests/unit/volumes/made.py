"""A mounted volume made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hostprep.units import GIB
from hostprep.volumes.model import Huge, LiveVolume

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
