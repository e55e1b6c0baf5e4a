"""Which size a volume of the spec should have here, and whether there is enough memory for it."""

from __future__ import annotations

from collections.abc import Sequence

from hostprep.errors import HostprepError
from hostprep.readiness.context import Context
from hostprep.spec.model import VolumeSpec
from hostprep.units import KIB
from hostprep.volumes.budget import arithmetic, default_reserve
from hostprep.volumes.model import INODE_BYTES, LiveVolume, RamBudget
from hostprep.volumes.options import OptionValues
from hostprep.volumes.settings import default_inodes, is_same_share


def is_limited(volume: VolumeSpec, context: Context) -> bool:
    """Whether its size is a percentage and a cgroup, as far as known, limits this process."""
    try:
        return is_share(volume) and context.headroom.machine is not None
    except HostprepError:
        return False


def is_share(volume: VolumeSpec) -> bool:
    """Whether its size is a percentage: only then does it depend on the memory."""
    return volume.size.endswith("%")


def too_little_memory(volume: VolumeSpec, context: Context, *, anew: bool = False) -> str | None:
    """Return the calculation by which `hostprep mount` of it alone would be refused now.

    ``anew``: after emptying and unmounting it. None if it would not be refused, or if that cannot
    be calculated; then whoever tries it gets the error.
    """
    try:
        headroom, live = context.headroom, context.live(volume.path)
        others = [each.live for each in context.volumes if each.live and each.path != volume.path]
    except HostprepError:
        return None
    if context.euid != 0:  # root will mount it, outside of this job
        headroom = headroom.machine or headroom
    available_bytes = headroom.available_bytes
    size_bytes = volume.size_bytes(headroom.ram_bytes)
    if anew and live is not None:
        available_bytes += live.used_bytes
        live = None
    if live is not None and is_wanted_size(volume, live.size_bytes, size_bytes):
        size_bytes = live.size_bytes
    growth_bytes = _growth_bytes(volume, size_bytes, live)
    budget = RamBudget(
        growth_bytes=growth_bytes,
        available_bytes=available_bytes,
        reserve_bytes=default_reserve(headroom),
        available_from=headroom.available_from,
        promised_bytes=sum(each.promised_bytes for each in others),
    )
    return arithmetic(budget) if growth_bytes and not budget.fits else None


def _growth_bytes(volume: VolumeSpec, size_bytes: int, live: LiveVolume | None) -> int:
    """Return how much it may still grow once it is as wanted; 0 if it gets no more than it has."""
    inodes = volume.inodes or default_inodes(size_bytes)
    if live is None:
        return size_bytes + inodes * INODE_BYTES
    grows, allowed = size_bytes > live.size_bytes, live.inodes or 0
    inodes = max(allowed, inodes if grows or volume.inodes else 0)
    if not grows and inodes == allowed:
        return 0
    return max(0, size_bytes - live.used_bytes) + (inodes - live.used_inodes) * INODE_BYTES


def ram_for(options: Sequence[str], context: Context) -> int | None:
    """Return the RAM that "size=50%" in fstab refers to, None if no option has a percentage.

    The kernel uses the machine's RAM, whoever mounts it.
    """
    if not any(option.startswith("size=") and option.endswith("%") for option in options):
        return None
    return (context.headroom.machine or context.headroom).ram_bytes


def wanted_bytes(
    volume: VolumeSpec, context: Context, live: LiveVolume | None, line: OptionValues | None
) -> int:
    """Return the wanted size; a percentage is of the machine's RAM.

    `hostprep apply` takes it of the cgroup's limit if there is one. A limited job sees volumes that
    apply mounted outside of the job; in a container one sees those that apply mounted inside. So if
    the volume has the size by the limit, that is the wanted one.
    """
    if not is_share(volume):
        return volume.size_bytes(0)
    headroom = context.headroom
    by_machine = volume.size_bytes((headroom.machine or headroom).ram_bytes)
    by_limit = volume.size_bytes(headroom.ram_bytes)
    found = live.size_bytes if live is not None else line.size_bytes if line is not None else None
    return by_limit if found is not None and is_wanted_size(volume, found, by_limit) else by_machine


def is_wanted_size(volume: VolumeSpec, size_bytes: int, wanted_bytes: int) -> bool:
    """Whether a size is the wanted one: to the page, or approximately for a percentage."""
    if is_share(volume):
        return is_same_share(size_bytes, wanted_bytes)
    return is_same_size(size_bytes, wanted_bytes)


def is_same_size(size_bytes: int, other_bytes: int) -> bool:
    """Whether two sizes are equal when rounded to whole pages, which have 64 KiB at most."""
    return abs(size_bytes - other_bytes) < 64 * KIB
