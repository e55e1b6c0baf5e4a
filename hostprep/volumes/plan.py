"""What has to be done to make a volume as wanted: pure, from request and facts."""

from __future__ import annotations

import shlex

from hostprep.dataclass import dataclass
from hostprep.errors import Refused
from hostprep.units import format_bytes, format_count, lost_unit
from hostprep.volumes.budget import budget_warnings, check_budget
from hostprep.volumes.facts import VolumeFacts, check_in_sight
from hostprep.volumes.fstab import shown
from hostprep.volumes.fstab_plan import fstab_warnings, link_warnings, plan_fstab
from hostprep.volumes.model import (
    FLAGS,
    INODE_BYTES,
    Huge,
    LiveVolume,
    RamBudget,
    Step,
    Unchanged,
    VolumeRequest,
)
from hostprep.volumes.paths import not_empty_refusal, place_refusal
from hostprep.volumes.settings import (
    DEFAULT_MODE,
    KEPT_AT_REMOUNT,
    boot_options,
    default_inodes,
    first_known,
    huge_pages,
    kept_settings,
    making_writable,
    mount_options,
    new_inodes,
    new_size,
    read_only_warnings,
    whole_pages,
)


@dataclass(frozen=True, slots=True)
class VolumePlan:
    """What would be done, step by step, and what not; ``changes`` say it in words.

    With a ``refusal`` nothing may be done. ``options`` are the resulting mount options, with sizes
    in bytes; ``fstab_options`` those at the next boot, None if fstab is not asked for. ``mount``:
    it is a first mount. If ``remount_options`` is None, the mounted options stay; if ``mode`` and
    ``owner`` are None, the mounted directory needs no change.
    """

    request: VolumeRequest
    refusal: Refused | None = None
    changes: tuple[Step, ...] = ()
    unchanged: tuple[Unchanged, ...] = ()
    warnings: tuple[str, ...] = ()
    budget: RamBudget | None = None
    size_bytes: int = 0
    inodes: int = 0
    options: tuple[str, ...] = ()
    make_dirs: tuple[str, ...] = ()
    mount: bool = False
    remount_options: tuple[str, ...] | None = None
    mode: int | None = None
    owner: tuple[int, int] | None = None
    fstab_options: tuple[str, ...] | None = None
    live: LiveVolume | None = None

    @property
    def mounts(self) -> bool:
        """Whether the kernel has to mount or remount it."""
        return self.mount or self.remount_options is not None


def plan_volume(request: VolumeRequest, facts: VolumeFacts) -> VolumePlan:
    """Return the plan that makes the volume at ``facts.path`` as ``request`` wants it.

    Never raises because of the facts: the first rule that forbids it is the plan's ``refusal``.
    """
    try:
        _check_place(request, facts)
        return _plan_mount(request, facts) if facts.live is None else _plan_change(request, facts)
    except Refused as refusal:
        return VolumePlan(request=request, refusal=refusal, live=facts.live)


def _check_place(request: VolumeRequest, facts: VolumeFacts) -> None:
    path = facts.path
    if request.size_bytes <= 0:
        raise Refused(
            "a volume of size 0 would have no limit at all; nothing was changed.",
            "give it a size, such as 30G",
        )
    if request.inodes is not None and request.inodes <= 0:
        raise Refused("a volume needs at least one inode; nothing was changed.")
    if refusal := place_refusal(path, facts.place):
        raise refusal
    if facts.mount is not None and facts.mount.fstype != "tmpfs":
        raise Refused(
            f"{facts.mount.fstype} ({facts.mount.source}) is mounted on {path} already; nothing"
            " was changed.",
            "choose another path",
        )
    if facts.mount is not None and not facts.is_ours:
        raise Refused(
            f"the tmpfs on {path} was not mounted by hostprep, so it is left as it is.",
            f"choose another path, unmount it yourself first, or take it as it is: `hostprep stage"
            f" --to {shlex.quote(path)}`",
            spec_hint="choose another path, unmount it yourself first, or take it as it is: no"
            f" volume of the spec, and `to: {path}` of its data sets",
        )
    if facts.mount is None:
        check_in_sight(facts)
    if facts.mount is None and (refusal := not_empty_refusal(path, facts.place)):
        raise refusal


def _plan_mount(request: VolumeRequest, facts: VolumeFacts) -> VolumePlan:
    size_bytes = whole_pages(request.size_bytes)
    inodes = request.inodes or default_inodes(size_bytes)
    noswap = not request.swap and facts.support.noswap is True
    huge = huge_pages(request, facts)
    budget = check_budget(request, facts, size_bytes + inodes * INODE_BYTES)
    line = kept_settings(request, facts)
    mode = first_known(request.mode, line.mode, otherwise=DEFAULT_MODE)
    owner = (
        first_known(request.uid, line.uid, otherwise=0),
        first_known(request.gid, line.gid, otherwise=0),
    )
    options = mount_options(size_bytes, inodes, mode, owner, huge, noswap, facts.labels)
    missing = facts.place.missing
    changes = [Step(directory, "make directory", "it does not exist") for directory in missing]
    changes.append(
        Step(
            facts.path,
            f"mount a tmpfs of {format_bytes(size_bytes)} and {format_count(inodes, 'inode')}"
            f" ({','.join(options)})",
            "nothing is mounted there",
        )
    )
    fstab_options, fstab_changes, unchanged = plan_fstab(request, facts, options)
    return VolumePlan(
        request=request,
        changes=(*changes, *fstab_changes),
        unchanged=unchanged,
        warnings=(
            *_swap_warnings(request, facts, noswap=noswap),
            *_huge_warnings(huge),
            *budget_warnings(budget),
            *fstab_warnings(request, facts, options),
            *link_warnings(facts, fstab_changes),
            *_size_warnings(request),
            *_sight_warnings(facts),
            *_above_warnings(facts),
        ),
        budget=budget,
        size_bytes=size_bytes,
        inodes=inodes,
        options=options,
        make_dirs=missing,
        mount=True,
        fstab_options=fstab_options,
    )


def _plan_change(request: VolumeRequest, facts: VolumeFacts) -> VolumePlan:
    live = facts.live
    assert live is not None
    unchanged: list[Unchanged] = []
    size_bytes = new_size(request, live, unchanged)
    inodes = new_inodes(request, facts, live, size_bytes, unchanged)
    huge = live.huge if request.huge is None else huge_pages(request, facts)
    mode = live.mode if request.mode is None else request.mode
    uid = live.uid if request.uid is None else request.uid
    owner = (uid, live.gid if request.gid is None else request.gid)
    noswap_wanted = not request.swap and (live.noswap or facts.support.noswap is True)
    if noswap_wanted != live.noswap:
        unchanged.append(
            Unchanged(
                "noswap",
                "left as it is, not as was asked for: the kernel sets it only when a volume is"
                " mounted. To change it, unmount the volume and mount it again",
                as_wanted=False,
            )
        )
    budget = _growth_budget(request, facts, live, size_bytes, inodes)
    changes = _limit_changes(live, size_bytes, inodes, huge)
    remount = _remount_options(facts, live, size_bytes, inodes, huge) if changes else None
    changes += _directory_changes(live, mode, owner)
    options = mount_options(size_bytes, inodes, mode, owner, huge, live.noswap)
    at_boot = boot_options(request, facts, size_bytes, inodes, noswap_wanted)
    more_inodes_than_asked = request.inodes is not None and request.inodes < inodes
    read_only = read_only_warnings(live, mode, owner)
    if read_only:
        line = making_writable(live.path, live.options)
        words = f"it is read-only, and stays so: `{line}` makes it writable"
        unchanged.append(Unchanged(live.path, words, as_wanted=False))
    elif not changes and noswap_wanted == live.noswap and not more_inodes_than_asked:
        unchanged.append(Unchanged(live.path, "it is mounted as wanted"))
    fstab_options, fstab_changes, fstab_unchanged = plan_fstab(request, facts, at_boot)
    return VolumePlan(
        request=request,
        changes=(*changes, *fstab_changes),
        unchanged=(*unchanged, *fstab_unchanged),
        warnings=(
            *_swap_warnings(request, facts, noswap=live.noswap),
            *_huge_warnings(huge),
            *budget_warnings(budget),
            *read_only,
            *fstab_warnings(request, facts, at_boot),
            *link_warnings(facts, fstab_changes),
            *_size_warnings(request),
        ),
        budget=budget,
        size_bytes=size_bytes,
        inodes=inodes,
        options=options,
        remount_options=remount,
        mode=mode if mode != live.mode else None,
        owner=owner if owner != (live.uid, live.gid) else None,
        fstab_options=fstab_options,
        live=live,
    )


def _growth_budget(
    request: VolumeRequest, facts: VolumeFacts, live: LiveVolume, size_bytes: int, inodes: int
) -> RamBudget | None:
    """Return the budget of a volume that grows, None if it does not."""
    if size_bytes <= live.size_bytes and inodes <= (live.inodes or 0):
        return None
    growth = size_bytes - live.used_bytes + (inodes - live.used_inodes) * INODE_BYTES
    return check_budget(request, facts, max(0, growth))


def _limit_changes(live: LiveVolume, size_bytes: int, inodes: int, huge: Huge) -> list[Step]:
    """Return what a remount has to change."""
    changes: list[Step] = []
    if size_bytes != live.size_bytes:
        verb = "grow" if size_bytes > live.size_bytes else "shrink"
        action = f"{verb} to {format_bytes(size_bytes)} by a remount"
        reason = f"it is {format_bytes(live.size_bytes)}"
        changes.append(Step(live.path, action, reason))
    if inodes != live.inodes:
        action = f"allow {format_count(inodes, 'inode')} by a remount"
        reason = f"{format_count(live.inodes or 0)} are allowed"
        changes.append(Step(live.path, action, reason))
    if huge is not live.huge:
        changes.append(Step(live.path, f"set huge={huge} by a remount", f"it is {live.huge}"))
    lost = [flag for flag in FLAGS if not getattr(live, flag)]
    if lost:
        action = f"set {','.join(lost)} again by a remount"
        changes.append(Step(live.path, action, "somebody remounted it without"))
    return changes


def _remount_options(
    facts: VolumeFacts, live: LiveVolume, size_bytes: int, inodes: int, huge: Huge
) -> tuple[str, ...]:
    """Return the options of the remount; ``Refused`` if it would close the other mounts."""
    _check_read_only_here(facts)
    kept = [option for option in live.options if option in KEPT_AT_REMOUNT]
    limits = [f"size={size_bytes}", f"nr_inodes={inodes}"]
    limits += [f"huge={huge}"] if huge is not live.huge else []
    return (*dict.fromkeys([*FLAGS, *kept]), *limits)


def _directory_changes(live: LiveVolume, mode: int, owner: tuple[int, int]) -> list[Step]:
    """Return the changes to the volume's root directory, which a remount leaves as it is."""
    changes = []
    if mode != live.mode:
        changes.append(Step(live.path, f"set mode {mode:04o}", f"it is {live.mode:04o}"))
    if owner != (live.uid, live.gid):
        reason = f"it is {live.uid}:{live.gid}"
        changes.append(Step(live.path, f"set owner {owner[0]}:{owner[1]}", reason))
    return changes


def _check_read_only_here(facts: VolumeFacts) -> None:
    """Raise ``Refused`` if the mount is read-only but its file system is not (a ``bind``).

    A remount cannot change one without the other, so those who write to the volume through another
    of its mounts, for instance in a container, could no longer do so.
    """
    mount = facts.mount
    if mount is not None and "ro" in mount.mount_options and "ro" not in mount.super_options:
        raise Refused(
            f"{facts.path} is read-only at this mount point alone, and a remount would make it so"
            " wherever else it is mounted; nothing was changed.",
            f"mount -o remount,bind,rw {shlex.quote(facts.path)}, and run the same command again;"
            f" then mount -o remount,bind,ro {shlex.quote(facts.path)}",
        )


def _sight_warnings(facts: VolumeFacts) -> tuple[str, ...]:
    if not facts.stays_here:
        return ()
    return (
        "this process has mounts of its own (a mount namespace), as a service with PrivateTmp= or"
        f" ProtectSystem= has: {facts.path} is seen only by it and what it starts, and is gone"
        " when they end",
    )


def _above_warnings(facts: VolumeFacts) -> tuple[str, ...]:
    entry = facts.unmounted_above
    if entry is None:
        return ()
    return (
        f"line {entry.line_number} of fstab mounts {entry.described} on"
        f" {shown(entry.simple_target)}, where nothing is mounted now: once it is, it hides the"
        " volume; mount it first",
    )


def _swap_warnings(request: VolumeRequest, facts: VolumeFacts, *, noswap: bool) -> tuple[str, ...]:
    # What is swapped out to zram stays in RAM, compressed.
    if noswap or request.swap or not facts.headroom.swap_active or facts.headroom.swap_in_ram:
        return ()
    if facts.support.noswap:
        why = "the volume was mounted without noswap"
    elif facts.support.noswap is None:
        why = (
            "whether the kernel takes noswap could not be asked, which takes root and CAP_SYS_ADMIN"
        )
    else:
        why = "this kernel does not take noswap"
    return (f"{why}, and swap is active: the data may be written to the swap disk",)


def _huge_warnings(huge: Huge) -> tuple[str, ...]:
    if huge is not Huge.ALWAYS:
        return ()
    return (
        "huge=always gives every file whole huge pages (2 MiB on x86): small files took 5 times"
        " the space and 50 times the time; within_size is as fast for large files",
    )


def _size_warnings(request: VolumeRequest) -> tuple[str, ...]:
    words = lost_unit(request.size_bytes)
    return () if words is None else (f"{request.path}: {words}",)
