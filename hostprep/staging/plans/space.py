"""Whether it fits: compares a plan's bytes and inodes with the target's beforehand."""

from __future__ import annotations

import os
from dataclasses import replace

from hostprep.dataclass import dataclass
from hostprep.errors import NoRoom, Refused
from hostprep.host.block import IN_MEMORY
from hostprep.host.quota import quota_left
from hostprep.staging.model import StageRequest
from hostprep.staging.plans.copy_plan import CopyPlan
from hostprep.staging.plans.in_flight import NOTHING, InFlight, in_flight, in_flight_in_memory
from hostprep.staging.target.place import mount_below, standing_directory
from hostprep.staging.target.private import footprint
from hostprep.units import GIB, PAGE_BYTES, format_bytes, format_count
from hostprep.volumes.budget import arithmetic, budget_of
from hostprep.volumes.facts import gather
from hostprep.volumes.model import INODE_BYTES, LiveVolume, RamBudget, VolumeRequest
from hostprep.volumes.plan import VolumePlan
from hostprep.volumes.settings import roomy_inodes

# On these, free but unavailable blocks are reserved for root; on others (btrfs) for no files at
# all.
_KEEP_FOR_ROOT = ("ext2", "ext3", "ext4", "f2fs", "ubifs", "ufs")
_QUOTA_OF = "this user's share, by quota (`quota -s`), of "
OUT_OF_MEMORY = (
    "choose another --to, on a disk, or a smaller --reserve; --force stages it all the same"
)


@dataclass(frozen=True, slots=True)
class Space:
    """What the copies take and what the target has, in bytes and inodes.

    ``free_*`` is None for a file system that has no such limit, or does not tell (ramfs, a tmpfs
    with size=0, some FUSE). ``reserved_bytes`` is what the file system, of type ``fstype``, keeps
    for root or itself; hostprep does not use it. What ``others`` will still take is not counted as
    free either. ``reclaimed_*`` is the part of the free ones that an unfinished run still holds.
    ``volume_bytes`` is the size of the volume, 0 for none. ``*_by_quota``: this user's quota allows
    no more, whatever the file system has; reserves and ``others`` do not count in it.
    """

    needed_bytes: int
    free_bytes: int | None
    needed_inodes: int
    free_inodes: int | None
    reserved_bytes: int = 0
    reclaimed_bytes: int = 0
    reclaimed_inodes: int = 0
    volume_bytes: int = 0
    where: str = ""
    fstype: str | None = None
    others: InFlight = NOTHING
    bytes_by_quota: bool = False
    inodes_by_quota: bool = False

    @property
    def bytes_where(self) -> str:
        """Name what the free bytes belong to."""
        return _QUOTA_OF + self.where if self.bytes_by_quota else self.where

    @property
    def inodes_where(self) -> str:
        """Name what the free inodes belong to."""
        return _QUOTA_OF + self.where if self.inodes_by_quota else self.where


def volume_request(
    request: StageRequest, files: CopyPlan, live: LiveVolume | None
) -> VolumeRequest:
    """Return the volume that the data set needs, with inodes for its contents."""
    assert request.volume_size_bytes is not None
    used = live.used_inodes + in_flight(request).inodes if live is not None else 0
    needed = _inodes(files, of_tmpfs=True)
    inodes = roomy_inodes(used, needed)
    if live is not None and live.inodes is not None and needed + used < live.inodes:
        inodes = live.inodes
    return VolumeRequest(
        path=request.parent,
        size_bytes=request.volume_size_bytes,
        of_ram=request.volume_of_ram,
        inodes=inodes,
        fstab=request.fstab,
        allow_shrink=False,
        reserve_bytes=request.reserve_bytes,
        force=request.force,
    )


def volume_space(request: StageRequest, files: CopyPlan, volume: VolumePlan) -> Space:
    """Return the calculation for a tmpfs volume as it will be after its own plan.

    If that plan is refused: as the volume was asked for.
    """
    refused = volume.refusal is not None
    size_bytes = volume.request.size_bytes if refused else volume.size_bytes
    inodes = (volume.request.inodes or 0) if refused else volume.inodes
    used_bytes = volume.live.used_bytes if volume.live is not None else 0
    used_inodes = volume.live.used_inodes if volume.live is not None else 0
    space = Space(
        needed_bytes=files.space_needed(),
        free_bytes=max(0, size_bytes - used_bytes),
        needed_inodes=_inodes(files, of_tmpfs=True),
        free_inodes=max(0, inodes - used_inodes),
        volume_bytes=size_bytes,
        where=f"a volume of {format_bytes(size_bytes)}",
    )
    return _beside(in_flight(request), space)


def directory_space(request: StageRequest, files: CopyPlan) -> Space:
    """Return the calculation for a directory, on whatever file system it is."""
    path = standing_directory(request.parent)
    st, mount = os.statvfs(path), mount_below(path)
    space = Space(
        needed_bytes=files.space_needed(st.f_frsize),
        free_bytes=st.f_bavail * st.f_frsize if st.f_blocks else None,
        needed_inodes=_inodes(files, of_tmpfs=mount is not None and mount.fstype == "tmpfs"),
        free_inodes=st.f_favail if st.f_files else None,
        reserved_bytes=(st.f_bfree - st.f_bavail) * st.f_frsize,
        where=f"the file system of {path}",
        fstype=None if mount is None else mount.fstype,
    )
    return _within_quota(_beside(in_flight(request), space), path)


def _inodes(files: CopyPlan, *, of_tmpfs: bool) -> int:
    """Return the inodes that the copies take; a tmpfs counts each further hard link as one, too."""
    return files.inodes_needed(of_tmpfs=of_tmpfs) + (len(files.links) if of_tmpfs else 0)


def _within_quota(space: Space, path: str) -> Space:
    """Leave no more room than this user's quota, which may be the tighter limit.

    What other runs will still take is not subtracted from the quota: they may be root's.
    """
    left = quota_left(path)
    if left is None:
        return space
    free_bytes = _fewer(space.free_bytes, left.size_bytes)
    free_inodes = _fewer(space.free_inodes, left.inodes)
    return replace(
        space,
        free_bytes=free_bytes,
        free_inodes=free_inodes,
        bytes_by_quota=free_bytes != space.free_bytes,
        inodes_by_quota=free_inodes != space.free_inodes,
    )


def _fewer(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)


def _beside(others: InFlight, space: Space) -> Space:
    """Count what ``others`` will still take as taken."""
    free_bytes, free_inodes = space.free_bytes, space.free_inodes
    return replace(
        space,
        free_bytes=None if free_bytes is None else max(0, free_bytes - others.size_bytes),
        free_inodes=None if free_inodes is None else max(0, free_inodes - others.inodes),
        others=others,
    )


def memory_budget(request: StageRequest, space: Space) -> RamBudget | None:
    """Return the memory budget of copies that are in memory, None if they are not.

    None also in a hostprep volume, which was counted as a whole when it was mounted, unless this
    process has a memory limit, to which its writes are charged, whoever mounted the volume.
    """
    mount = mount_below(request.parent)
    if mount is None or mount.fstype not in IN_MEMORY:
        return None
    try:
        facts = gather(mount.target)
    except Refused:
        return None  # no volume of ours can have this mount point
    budget = budget_of(memory_growth(space), facts, request.reserve_bytes)
    if not facts.is_ours:
        others = in_flight_in_memory(request)
        taken_bytes = others.size_bytes + others.inodes * INODE_BYTES
        return replace(budget, promised_bytes=budget.promised_bytes + taken_bytes)
    return replace(budget, promised_bytes=0, unlimited=()) if facts.headroom.is_limited else None


def memory_growth(space: Space) -> int:
    """Return how much memory the copies take, if they are in memory."""
    growth_bytes = space.needed_bytes - space.reclaimed_bytes
    growth_inodes = space.needed_inodes - space.reclaimed_inodes
    return max(0, growth_bytes + growth_inodes * INODE_BYTES)


def check_memory(request: StageRequest, budget: RamBudget) -> Refused | None:
    """Return a refusal if the copies would take memory that the machine needs, otherwise None."""
    if budget.fits or request.force:
        return None
    hint = OUT_OF_MEMORY
    spec_hint = "choose another `to`, on a disk, or a smaller --reserve of `hostprep apply`"
    if request.volume_size_bytes is not None:
        spec_hint = "run it where that limit does not apply, or with a smaller --reserve"
        hint = f"{spec_hint}; --force stages it all the same"
    return Refused(
        f"the data set does not fit into the memory that holds {request.parent}:"
        f" {arithmetic(budget)}; nothing was changed.",
        hint,
        spec_hint=spec_hint,
    )


def fits(space: Space) -> bool:
    """Whether bytes and inodes suffice."""
    enough = space.free_inodes is None or space.needed_inodes <= space.free_inodes
    return enough and (space.free_bytes is None or space.needed_bytes <= space.free_bytes)


def reclaiming(space: Space, size_bytes: int, inodes: int, files: CopyPlan) -> Space:
    """Count what an unfinished run left and is not taken over as free: it is removed first."""
    size_bytes = max(0, size_bytes - files.resumed.bytes - files.resumed.files * PAGE_BYTES)
    inodes = max(0, inodes - files.resumed.files)
    return replace(
        space,
        free_bytes=None if space.free_bytes is None else space.free_bytes + size_bytes,
        free_inodes=None if space.free_inodes is None else space.free_inodes + inodes,
        reclaimed_bytes=size_bytes,
        reclaimed_inodes=inodes,
    )


def room_for(
    request: StageRequest, files: CopyPlan, space: Space, parent_fd: int | None, *, in_memory: bool
) -> tuple[Space, RamBudget | None]:
    """Return the room on the target and, for what may be ``in_memory``, that in the memory.

    What an unfinished run left in ``parent_fd`` counts as free if the plan would not fit otherwise;
    all of it has to be looked at to add it up.
    """
    memory = memory_budget(request, space) if in_memory else None
    if parent_fd is not None and not (fits(space) and (memory is None or memory.fits)):
        space = reclaiming(space, *footprint(parent_fd, request.name), files)
        memory = memory and memory_budget(request, space)
    return space, memory


def larger_volume(request: StageRequest, space: Space, lacking_bytes: int) -> str:
    """Return the hint if this much room is missing, in a volume if it is one."""
    if request.volume_size_bytes is None:
        return f"{_more_room(space, lacking_bytes)}, or choose another --to"
    enough = _enough(request, space.volume_bytes, lacking_bytes)
    return f"ask for a larger volume: --to-tmpfs {enough}"


def _larger_in_spec(request: StageRequest, space: Space, lacking_bytes: int) -> str:
    if request.volume_size_bytes is None:
        return f"{_more_room(space, lacking_bytes)}, or choose another `to`"
    enough = _enough(request, space.volume_bytes, lacking_bytes)
    return f"give the volume `size: {enough}` or more"


def _more_room(space: Space, lacking_bytes: int) -> str:
    free = f"free {format_bytes(lacking_bytes)} there"
    if space.fstype != "tmpfs" or space.bytes_by_quota:
        return free
    # Of a container's /dev/shm, which has 64 MB if nobody asks for more, there is little to free.
    return (
        f"{free}, make that tmpfs larger (mount -o remount,size=SIZE; in a container docker run"
        " --shm-size=SIZE or --tmpfs PATH:size=SIZE)"
    )


def _enough(request: StageRequest, volume_bytes: int, lacking_bytes: int) -> str:
    # The volume may be larger than was asked for, because staging never shrinks one.
    held_bytes = max(request.volume_size_bytes or 0, volume_bytes)
    return f"{-(-(held_bytes + lacking_bytes) // GIB)}G"


def check_space(request: StageRequest, space: Space) -> Refused | None:
    """Return a refusal with the calculation if the plan does not fit, otherwise None."""
    if space.free_bytes is not None and space.needed_bytes > space.free_bytes:
        lacking = space.needed_bytes - space.free_bytes
        beside = []
        if space.others.size_bytes and not space.bytes_by_quota:
            theirs = f"{format_bytes(space.others.size_bytes)} that {_at_work(space.others)}"
            beside.append(f"{theirs} still to write")
        if space.reserved_bytes and not space.bytes_by_quota:
            whom = "root only" if space.fstype in _KEEP_FOR_ROOT else "itself"
            beside.append(f"{format_bytes(space.reserved_bytes)} that it keeps for {whom}")
        reserved = f" (beside {' and '.join(beside)})" if beside else ""
        return NoRoom(
            f"the data set does not fit: {format_bytes(space.needed_bytes)} to copy, in whole "
            f"pages, and {space.bytes_where} has {format_bytes(space.free_bytes)} free{reserved}; "
            f"{format_bytes(lacking)} are missing. Nothing was changed.",
            larger_volume(request, space, lacking),
            spec_hint=_larger_in_spec(request, space, lacking),
        )
    if space.free_inodes is not None and space.needed_inodes > space.free_inodes:
        taken, hint = "", "choose a target with more inodes, or pack the data set into fewer files"
        if space.others.inodes and not space.inodes_by_quota:
            theirs = f"{format_count(space.others.inodes)} that {_at_work(space.others)}"
            taken = f" beside {theirs} still to make files in"
            if request.volume_size_bytes is not None:
                hint = "run the same command again: it gives the volume as many as all of them need"
        return NoRoom(
            f"too few inodes: {format_count(space.needed_inodes)} needed, and"
            f" {space.inodes_where} has {format_count(space.free_inodes)} free{taken}. Nothing was"
            " changed.",
            hint,
        )
    return None


def _at_work(others: InFlight) -> str:
    """Name the runs, as the subject of a sentence about what they will do."""
    *rest, last = map(repr, others.names)
    if not rest:
        return f"the run that stages {last} is"
    return f"the runs that stage {', '.join(rest)} and {last} are"
