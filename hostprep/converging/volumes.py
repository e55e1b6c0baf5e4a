"""A spec's volumes: all compared with one memory, each with its line in fstab."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from hostprep.converging.model import Kind, ObjectPlan, Unchanged
from hostprep.converging.volume_changes import explained_change
from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError, NoRoom, Refused
from hostprep.spec.model import VolumeSpec
from hostprep.staging.failures import unstage_first, unstage_leftovers
from hostprep.staging.observer import Observer
from hostprep.staging.record.readers import PASS, Readers, who_may
from hostprep.staging.record.records import staged_in
from hostprep.system.accounts import has_acl, owner_of
from hostprep.system.systemd import own_mount_unit
from hostprep.units import GIB, MIB, format_bytes
from hostprep.volumes.apply import Overtaken, apply_volume, mounting_problem
from hostprep.volumes.facts import VolumeFacts, gather
from hostprep.volumes.model import INODE_BYTES, Huge, VolumeRequest
from hostprep.volumes.paths import Folder, Place
from hostprep.volumes.plan import VolumePlan, plan_volume
from hostprep.volumes.settings import (
    DEFAULT_MODE,
    LineSettings,
    default_inodes,
    first_known,
    is_same_share,
    line_settings,
    roomy_inodes,
    whole_pages,
)


@dataclass(frozen=True, slots=True)
class VolumeLook:
    """A volume of the spec and its situation on this host; ``problem`` if it cannot be planned.

    ``size_bytes`` is the wanted size, calculated if it is a percentage; ``owner`` has the ids that
    were looked up; ``unit`` is the file of an admin's mount unit for the same path; ``barred`` says
    why root cannot mount. ``staged`` are data sets that are there in a plain directory.
    """

    spec: VolumeSpec
    size_bytes: int
    owner: tuple[int, int] | None = None
    facts: VolumeFacts | None = None
    problem: HostprepError | None = None
    unit: Path | None = None
    barred: HostprepError | None = None
    staged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Need:
    """What a data set will still take of its volume, in bytes and inodes."""

    dataset: str
    size_bytes: int
    inodes: int


@dataclass(frozen=True, slots=True)
class Freed:
    """Memory that volumes give back when they are unmounted first: their content and free room.

    ``promised_bytes`` is the part that the facts of the other volumes count as promised to them.
    """

    used_bytes: int = 0
    promised_bytes: int = 0


@dataclass(frozen=True, slots=True)
class VolumeTask:
    """Mounts or changes one volume, by steps that were shown only."""

    plan: VolumePlan

    def carry_out(self, observer: Observer) -> None:
        """Apply it, planning it again: earlier objects may have made its directories."""
        try:
            apply_volume(self.plan, on_wait=observer.note)
        except Overtaken as error:
            raise HostprepError(
                f"the state of {self.plan.request.path} changed while the host was planned; the"
                " volume was left as it is.",
                error.hint,
            ) from None


def look_at_volume(spec: VolumeSpec, ram_bytes: int) -> VolumeLook:
    """Read this host's facts about a volume of the spec; changes nothing."""
    size_bytes = spec.size_bytes(ram_bytes)
    try:
        owner = None if spec.owner is None else owner_of(spec.owner)
        facts, unit = gather(spec.path), own_mount_unit(spec.path)
        # Other users look at what root would do.
        barred = mounting_problem(facts.path) if os.geteuid() == 0 else None
        staged = staged_in(spec.path) if facts.place.entries and facts.mount is None else ()
        return VolumeLook(spec, size_bytes, owner, facts, None, unit, barred, staged)
    except HostprepError as problem:
        return VolumeLook(spec, size_bytes, problem=problem)


def plan_volumes(
    looks: Sequence[VolumeLook],
    needs: Mapping[str, Sequence[Need]],
    *,
    reserve_bytes: int | None = None,
    freed: Freed = Freed(),
    leftovers: Mapping[str, Sequence[str]] = MappingProxyType({}),
    prune: bool = False,
) -> tuple[ObjectPlan, ...]:
    """Return the plans of a spec's volumes, in the order of execution.

    ``needs`` has, by path, what data sets will still take of the volume. The memory is shared: what
    one volume may take is not there for the next. ``leftovers`` has, by path, what hostprep staged
    into the volume and the spec does not name; with ``prune`` it is removed afterwards. Pure.
    """
    promised_bytes = -freed.promised_bytes
    made: set[str] = set()
    # For all of them, because one that shrinks may come before the one that contains it.
    roots = {look.spec.path: _root_then(look) for look in looks}
    plans = []
    for look in sorted(looks, key=_order):
        path = look.spec.path
        if look.facts is None:
            assert look.problem is not None
            plans.append(ObjectPlan.refused(Kind.VOLUME, path, look.problem))
            continue
        wanted = needs.get(path, ())
        facts = replace(
            look.facts,
            headroom=replace(
                look.facts.headroom,
                available_bytes=look.facts.headroom.available_bytes + freed.used_bytes,
            ),
            promised_bytes=look.facts.promised_bytes + promised_bytes,
            place=_place_then(look.facts.place, roots),
        )
        plan = plan_volume(_request(look, facts, wanted, reserve_bytes), facts)
        unstage_first(plan.refusal, look.staged)
        barred = look.barred if plan.mounts else None
        refused = plan.refusal or _too_small(plan, wanted) or barred
        unstage_leftovers(refused, leftovers.get(path, ()), prune=prune)
        if refused is None:
            promised_bytes += _more_promised(plan)
        planned = _object(plan, facts, refused, made)
        plans.append(replace(planned, warnings=(*planned.warnings, *_unit_warnings(look))))
        made |= set(plan.make_dirs)
    return tuple(plans)


def wanted_size(look: VolumeLook) -> int:
    """Return the size that the volume is to have, in whole pages.

    If the present size is a percentage calculated at an earlier boot, which differs only because
    the kernel reserves varying amounts of RAM, it stays as it is.
    """
    record = look.facts.record if look.facts is not None else None
    share = look.spec.size.endswith("%")
    if record is not None and share and is_same_share(record.size_bytes, look.size_bytes):
        return record.size_bytes
    return whole_pages(look.size_bytes)


def passing_then(looks: Iterable[VolumeLook]) -> dict[str, Readers]:
    """Return who will be let into those volumes whose owner or mode is to change, by path.

    Whether the names of a data set are for all is then another matter, which belongs to its plan.
    """
    found = {}
    for look in looks:
        live, then = look.facts.live if look.facts is not None else None, _root_then(look)
        if live is not None and (live.uid, live.gid, live.mode) != (then.uid, then.gid, then.mode):
            # A mode changes nothing of what an ACL says of users and groups.
            mode = then.mode & 0o700 if has_acl(then.path) else then.mode
            found[then.path] = who_may(PASS, mode, then.uid, then.gid)
    return found


def _order(look: VolumeLook) -> tuple[bool, int]:
    """Volumes that give memory back come first, and a volume before one that is inside it."""
    live = look.facts.live if look.facts is not None else None
    shrinks = live is not None and live.size_bytes > wanted_size(look)
    return not shrinks, look.spec.path.count("/")


def _place_then(place: Place, roots: Mapping[str, Folder]) -> Place:
    """Return what will be on the way to a volume once those of ``roots`` are as wanted."""
    inside = tuple(roots[path] for path in place.missing[:-1] if path in roots)
    there = tuple(roots.get(folder.path, folder) for folder in place.parents)
    return replace(place, parents=(*there, *inside))


def _root_then(look: VolumeLook) -> Folder:
    """Return the volume's root directory as it will be once it is as the spec wants it."""
    facts = look.facts
    live, line = (None, LineSettings()) if facts is None else (facts.live, line_settings(facts))
    uid, gid, mode = line.uid or 0, line.gid or 0, first_known(line.mode, otherwise=DEFAULT_MODE)
    if live is not None:
        uid, gid, mode = live.uid, live.gid, live.mode
    if look.owner is not None:
        uid, gid = look.owner
    return Folder(look.spec.path, uid, gid, mode if look.spec.mode is None else look.spec.mode)


def _request(
    look: VolumeLook, facts: VolumeFacts, needs: Sequence[Need], reserve_bytes: int | None
) -> VolumeRequest:
    spec, size_bytes = look.spec, wanted_size(look)
    return VolumeRequest(
        path=spec.path,
        size_bytes=size_bytes,
        mode=spec.mode,
        uid=look.owner[0] if look.owner else None,
        gid=look.owner[1] if look.owner else None,
        inodes=_inodes(spec, facts, needs, size_bytes),
        huge=None if spec.huge is None else Huge(spec.huge),
        swap=spec.swap,
        fstab=True,
        keep_line=True,  # the spec does not ask for what a `chmod` by hand did
        reserve_bytes=reserve_bytes,
    )


def _inodes(
    spec: VolumeSpec, facts: VolumeFacts, needs: Sequence[Need], size_bytes: int
) -> int | None:
    """Return the least number of inodes: of the spec's, what hostprep set, and what will come.

    What hostprep set counts, so that a remount by hand with fewer is noticed and not adopted.
    If the spec leaves it open, a volume that is made or grows gets the default for its size.
    """
    least = [spec.inodes or 0, facts.record.inodes if facts.record is not None else 0]
    live = facts.live
    used = live.used_inodes if live is not None else 0
    coming = sum(need.inodes for need in needs)
    if live is None or live.inodes is None or coming + used >= live.inodes:
        least.append(roomy_inodes(used, coming) if coming else 0)
    if spec.inodes is None and (live is None or size_bytes > live.size_bytes):
        least.append(default_inodes(size_bytes))
    return max(least) or None


def _too_small(plan: VolumePlan, needs: Iterable[Need]) -> Refused | None:
    used_bytes = plan.live.used_bytes if plan.live is not None else 0
    coming = [need for need in needs if need.size_bytes]
    needed_bytes = used_bytes + sum(need.size_bytes for need in coming)
    if needed_bytes <= plan.size_bytes or not coming:
        return None
    names = ", ".join(need.dataset for need in coming)
    unit, word = (GIB, "G") if needed_bytes >= GIB else (MIB, "M")
    return NoRoom(
        f"{plan.request.path} is too small at {format_bytes(plan.size_bytes)}: it holds"
        f" {format_bytes(used_bytes)}, and {names} will take"
        f" {format_bytes(needed_bytes - used_bytes)} more; nothing was changed.",
        f"give it `size: {-(-needed_bytes // unit)}{word}` or more in the spec",
    )


def _more_promised(plan: VolumePlan) -> int:
    """Return how much more (or less) memory the volume may take once this is done."""
    live = plan.live
    if live is None:
        return plan.size_bytes + plan.inodes * INODE_BYTES
    more_inodes = plan.inodes - (live.inodes or 0)
    return plan.size_bytes - live.size_bytes + more_inodes * INODE_BYTES


def _object(
    plan: VolumePlan, facts: VolumeFacts, refused: HostprepError | None, made: set[str]
) -> ObjectPlan:
    path = facts.path
    if refused is not None:
        return ObjectPlan.refused(Kind.VOLUME, path, refused)
    unchanged = [
        Unchanged(Kind.FSTAB, path, each.reason)
        if each.subject == "fstab"
        else Unchanged(
            Kind.VOLUME, path, _of(path, each.subject, each.reason), as_wanted=each.as_wanted
        )
        for each in plan.unchanged
    ]
    changes = tuple(
        explained_change(step, plan, facts)
        for step in plan.changes
        if not (step.subject in made and step.subject in plan.make_dirs)
    )
    return ObjectPlan(
        Kind.VOLUME,
        path,
        changes=changes,
        unchanged=tuple(unchanged),
        warnings=plan.warnings,
        task=VolumeTask(plan) if changes else None,
    )


def _unit_warnings(look: VolumeLook) -> tuple[str, ...]:
    if look.unit is None:
        return ()
    return (
        f"at boot systemd uses {look.unit} for {look.spec.path}, whatever the line in fstab"
        " says: remove that unit, or make it say the same",
    )


def _of(path: str, subject: str, words: str) -> str:
    return words if subject == path else f"{subject}: {words}"
