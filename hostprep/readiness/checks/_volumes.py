"""The volumes that checks judge: the spec's, as they are mounted and as fstab has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hostprep.readiness.context import Context
from hostprep.readiness.model import Finding, Status
from hostprep.spec.model import VolumeSpec
from hostprep.volumes.model import LiveVolume
from hostprep.volumes.options import OptionValues, parse_options

# A percentage was worked out when the volume was mounted, of a RAM that differs from boot to boot.
_SAME_SIZE = 0.01


@dataclass(frozen=True, slots=True)
class VolumeLook:
    """A volume of the spec. ``size_bytes`` is the wanted size, a percentage worked out.

    ``live`` of None: no tmpfs is mounted there. ``line`` of None: fstab has no line of ours for it.
    ``owner`` of None: the spec does not say. ``noauto``: the line waits for somebody to mount it.
    """

    spec: VolumeSpec
    size_bytes: int
    live: LiveVolume | None
    line: OptionValues | None
    owner: tuple[int, int] | None = None
    noauto: bool = False

    def has_size(self, size_bytes: int) -> bool:
        """Whether ``size_bytes`` is the wanted size: to the page or, of a percentage, nearly."""
        slack = self.size_bytes * _SAME_SIZE if self.spec.size.endswith("%") else 1 << 16
        return abs(size_bytes - self.size_bytes) < slack


def look_at_volumes(context: Context) -> tuple[VolumeLook, ...] | None:
    """Return the spec's volumes; None where there is no spec."""
    if context.spec is None:
        return None
    from hostprep.system.accounts import owner_of

    ram_bytes = context.headroom.ram_bytes if context.spec.volumes else 0
    lines = {entry.target: entry for entry in context.fstab if entry.owner_id is not None}
    return tuple(
        VolumeLook(
            spec=volume,
            size_bytes=volume.size_bytes(ram_bytes),
            live=context.live(volume.path),
            line=parse_options(lines[volume.path].options, ram_bytes=ram_bytes)
            if volume.path in lines
            else None,
            owner=None if volume.owner is None else owner_of(volume.owner),
            noauto=volume.path in lines and "noauto" in lines[volume.path].options,
        )
        for volume in context.spec.volumes
    )


def nothing_to_judge(volumes: tuple[VolumeLook, ...] | None) -> Iterator[Finding]:
    """Yield the SKIP for a host on which no volume of the spec is mounted; else nothing."""
    if volumes is None:
        yield Finding(Status.SKIP, "volumes", "there is no spec file, so no volume is expected.")
    elif not volumes:
        yield Finding(Status.SKIP, "volumes", "the spec has no volumes.")
    elif not any(volume.live for volume in volumes):
        message = "no volume of the spec is mounted (HP001 says which)."
        yield Finding(Status.SKIP, "volumes", message)
