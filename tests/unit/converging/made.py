"""Volumes of a spec with facts made by hand: no machine is touched."""

from __future__ import annotations

from dataclasses import replace

from hostprep.converging.volumes import VolumeLook
from hostprep.host.mounts import Mount
from hostprep.spec.model import VolumeSpec
from hostprep.units import GIB
from hostprep.volumes.facts import VolumeFacts
from hostprep.volumes.fstab import volume_id_for
from hostprep.volumes.fstab_line import set_volume
from hostprep.volumes.model import Huge
from hostprep.volumes.paths import Place, PointKind
from hostprep.volumes.records import VolumeRecord
from hostprep.volumes.settings import default_inodes
from tests.unit.volumes.made import MNT, ROOT, fresh, live_volume


def options(size_bytes: int, inodes: int | None = None) -> tuple[str, ...]:
    """Return the mount options that hostprep gives a volume of root's."""
    return (
        *("nosuid", "nodev", "noexec", "mode=0755", "uid=0", "gid=0"),
        f"size={size_bytes}",
        f"nr_inodes={inodes or default_inodes(size_bytes)}",
        *("huge=within_size", "noswap"),
    )


def mounted(path: str, size_bytes: int, *, used_bytes: int = 0) -> VolumeFacts:
    """Return the facts of a volume that hostprep mounted, with its line in fstab."""
    facts, inodes = fresh(path), default_inodes(size_bytes)
    live = live_volume(
        path=path,
        size_bytes=size_bytes,
        used_bytes=used_bytes,
        inodes=inodes,
        used_inodes=10,
        huge=Huge.WITHIN_SIZE,
        options=("rw", "nosuid", "nodev", "noexec"),
    )
    record = VolumeRecord(
        path,
        volume_id_for(path),
        "boot-1",
        "0:40",
        "hostprep",
        size_bytes,
        inodes,
        (),
        "uid 0",
        0.0,
    )
    line = set_volume(b"", path=path, options=options(size_bytes))
    return replace(
        facts,
        place=Place(PointKind.DIRECTORY, (ROOT, MNT)),
        mount=Mount(50, 27, "0:40", "/", path, "tmpfs", "hostprep", ("rw",), ("rw",)),
        live=live,
        record=record,
        fstab=line,
    )


def look(size: str, facts: VolumeFacts, ram_bytes: int = 64 * GIB) -> VolumeLook:
    """Return a volume of the spec with these facts."""
    spec = VolumeSpec(facts.path, size)
    return VolumeLook(spec, spec.size_bytes(ram_bytes), facts=facts)
