"""Removing a volume: refused while it is in use, holds data, or is not hostprep's."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError, Refused
from hostprep.host.capabilities import Capability, lacks_capability
from hostprep.host.elsewhere import mounted_places
from hostprep.host.mounts import Mount, mount_at, read_mounts
from hostprep.host.processes import PathUser, users_of
from hostprep.system.locks import lock
from hostprep.system.mounting import unmount
from hostprep.system.run import CommandFailed
from hostprep.units import format_bytes
from hostprep.volumes.apply import LOCK, FstabEdit, need_root, write_fstab
from hostprep.volumes.facts import VolumeFacts, check_in_reach, check_in_sight, gather
from hostprep.volumes.fstab_file import check_edit, fstab_path
from hostprep.volumes.fstab_line import remove_volume
from hostprep.volumes.fstab_plan import RELOAD, link_warnings
from hostprep.volumes.live import read_live
from hostprep.volumes.model import LiveVolume, Step, Unchanged
from hostprep.volumes.paths import check_path, is_system_dir, remove_dirs, symlink_refusal
from hostprep.volumes.records import delete_record

_SEE = "see what the kernel says of it (`dmesg`), and run the same command again"
# The step for a directory; whether it is empty shows only once the volume is unmounted.
REMOVE, IF_EMPTY = "remove directory", ", if it is empty"


@dataclass(frozen=True, slots=True)
class UnmountRequest:
    """A volume to remove. ``discard_data`` allows losing what is still in it."""

    path: str
    fstab: bool = False
    discard_data: bool = False


@dataclass(frozen=True, slots=True)
class UnmountPlan:
    """What would be done; with a ``refusal`` nothing may be."""

    request: UnmountRequest
    path: str
    refusal: Refused | None = None
    changes: tuple[Step, ...] = ()
    unchanged: tuple[Unchanged, ...] = ()
    warnings: tuple[str, ...] = ()
    unmount: bool = False
    edit_fstab: bool = False
    remove_dirs: tuple[str, ...] = ()
    forget: bool = False
    live: LiveVolume | None = None


class StillUsed(Refused):
    """The volume is in use, holds data or has other mounts inside, and stays until that is over."""


class NotUnmounted(HostprepError):
    """The kernel says that the volume is in use; nothing else was changed by then."""


class UnmountFailed(HostprepError):
    """The volume could not be unmounted although it is not in use; nothing else was changed."""


def gather_and_plan_unmount(request: UnmountRequest) -> UnmountPlan:
    """Read the facts and plan; changes nothing.

    Raises ``Refused`` for a path at which no volume can be, ``HostprepError`` as ``gather`` does.
    """
    try:
        path = check_path(request.path)
    except Refused as refusal:  # its advice, to choose another directory, is no help here
        hint = "no volume can be there; `hostprep status` shows which there are"
        raise Refused(refusal.message, hint) from None
    facts = gather(path)
    return plan_unmount(request, facts, others_in(facts.path) if facts.is_ours else ())


def plan_unmount(
    request: UnmountRequest, facts: VolumeFacts, users: tuple[PathUser, ...]
) -> UnmountPlan:
    """Return the plan that removes the volume; pure, and never raises because of the facts.

    It has a ``refusal`` if what is mounted is the system's, or not hostprep's volume; if the volume
    is in use, has other mounts inside, is or may be mounted out of sight, or holds data that
    ``request`` does not give up; if its line in fstab should be removed but cannot be; and if a
    symlink is on the way to a path at which no volume is known.
    """
    path = facts.path
    try:
        _check(request, facts, users)
        new_fstab = without_line(facts) if request.fstab else None
    except Refused as refusal:
        return UnmountPlan(request, path, refusal=refusal, live=facts.live)
    removes_line = new_fstab is not None
    reloads = request.fstab and facts.reload_is_due
    line_stays = facts.fstab_unknown or (facts.fstab_entry is not None and not removes_line)
    # With a line in fstab the volume comes back at boot, so its directories and record stay.
    forget = facts.record is not None and not line_stays
    made = facts.record.made_dirs if facts.record is not None and not line_stays else ()
    changes = []
    if facts.live is not None:
        held = format_bytes(facts.live.used_bytes)
        changes.append(Step(path, f"unmount (it holds {held} now)", "asked for"))
    if removes_line:
        changes.append(Step("fstab", "remove the volume's line", "asked for"))
    elif reloads:
        changes.append(RELOAD)
    changes.extend(
        Step(directory, REMOVE + IF_EMPTY, "hostprep made it for the volume")
        for directory in reversed(made)
    )
    if forget and not changes:
        changes.append(Step(path, "forget the volume", "it is not mounted any more"))
    unchanged = [] if changes else [Unchanged(path, "no volume is mounted there")]
    warnings = list(link_warnings(facts, changes))
    if line_stays and facts.fstab_unknown:
        assert facts.fstab_refusal is not None
        unread = facts.fstab_refusal.message.removesuffix(".")
        warnings.append(
            f"{unread}: if it has the volume's line, that mounts it again at the next boot, so the"
            " volume stays on record"
        )
    elif line_stays:
        entry = facts.fstab_entry
        assert entry is not None
        unchanged.append(Unchanged("fstab", "--fstab was not given"))
        warnings.append(
            f"line {entry.line_number} of fstab mounts the volume again at the next boot; --fstab"
            " removes it"
        )
    return UnmountPlan(
        request,
        path,
        changes=tuple(changes),
        unchanged=tuple(unchanged),
        warnings=tuple(warnings),
        unmount=facts.live is not None,
        edit_fstab=removes_line or reloads,
        remove_dirs=made,
        forget=forget,
        live=facts.live,
    )


def without_line(facts: VolumeFacts) -> bytes | None:
    """Return fstab without the volume's line, None if it has none. Pure.

    Raises ``Refused`` if somebody made something else of the line, or fstab cannot be replaced.
    """
    if facts.fstab_refusal is not None:
        raise facts.fstab_refusal
    assert facts.fstab is not None
    edited = remove_volume(facts.fstab, path=facts.path)
    if edited == facts.fstab:
        return None
    if facts.fstab_obstacle is not None:
        raise facts.fstab_obstacle
    return edited


def check_line_removal(path: str, on_wait: Callable[[str], None] | None) -> None:
    """Raise what would prevent removing the volume's line from fstab; changes nothing.

    For steps before the removal that could not be undone if it failed.
    """
    need_root(f"removing the line of {path} from fstab")
    check_edit(fstab_path(), _fstab_edit(path), on_wait)


def apply_unmount(
    plan: UnmountPlan, *, on_wait: Callable[[str], None] | None = None
) -> UnmountPlan:
    """Carry out ``plan``, after planning again under the lock; return what was done.

    Raises the refusal of either plan, ``NotUnmounted`` if the kernel says that it is in use,
    ``UnmountFailed`` if it is not unmounted for another reason, and ``HostprepError`` without root
    or its right to mount, or if another step fails.
    """
    if plan.refusal is not None:
        raise plan.refusal
    if not plan.changes:
        return plan
    need_root(f"unmounting {plan.path}")
    if problem := lacking_right_to_unmount(plan):
        raise problem
    purpose = f"unmount {plan.path}"
    with lock(LOCK, purpose=purpose, on_wait=on_wait, handed_on=True) as descriptor:
        fresh = gather_and_plan_unmount(plan.request)
        if fresh.refusal is not None:
            raise fresh.refusal
        edit = None
        if fresh.edit_fstab:
            edit = _fstab_edit(fresh.path)
            check_edit(fstab_path(), edit, on_wait)
        if fresh.unmount:
            warnings = (*fresh.warnings, *_unmount(fresh, descriptor))
            fresh = replace(fresh, warnings=warnings)
        if edit is not None:
            write_fstab(edit, "the volume is unmounted", on_wait)
        removed = remove_dirs(fresh.remove_dirs)
        if fresh.forget:
            done = "the volume is unmounted" if fresh.unmount else "no volume is mounted there"
            delete_record(fresh.path, done)
    return _as_done(fresh, removed)


def _as_done(plan: UnmountPlan, removed: Collection[str]) -> UnmountPlan:
    """Return the plan with what became of the directories that were to go if they are empty."""
    changes, unchanged = [], list(plan.unchanged)
    for step in plan.changes:
        if step.action != REMOVE + IF_EMPTY:
            changes.append(step)
        elif step.subject in removed:
            changes.append(replace(step, action=REMOVE))
        elif os.path.lexists(step.subject):
            unchanged.append(Unchanged(step.subject, "it is not empty, or still in use"))
    return replace(plan, changes=tuple(changes), unchanged=tuple(unchanged))


def lacking_right_to_unmount(plan: UnmountPlan) -> HostprepError | None:
    """Return why root in a container cannot unmount: else it is told to end the volume's users."""
    if not (plan.unmount and lacks_capability(Capability.SYS_ADMIN)):
        return None
    return HostprepError(
        f"unmounting {plan.path} needs CAP_SYS_ADMIN, which root does not have here, as in most"
        " containers; nothing was changed.",
        "do it on the host itself, from which the volume was handed in",
    )


def others_in(path: str) -> tuple[PathUser, ...]:
    """Return who else uses a volume; our own working directory does not count."""
    return tuple(user for user in users_of(path) if user.pid != os.getpid())


def _check(request: UnmountRequest, facts: VolumeFacts, users: tuple[PathUser, ...]) -> None:
    path, mount = facts.path, facts.mount
    if mount is None:
        check_in_sight(facts)
        check_in_reach(facts)
        if facts.place.symlink and facts.record is None and facts.fstab_entry is None:
            raise symlink_refusal(path, facts.place.symlink)
        return
    if is_system_dir(path):  # do not advise anybody to unmount this
        raise Refused(
            f"{path} belongs to the system; nothing was changed.",
            "`hostprep status` shows which volumes there are",
        )
    if not facts.is_ours:
        raise Refused(
            f"what is mounted on {path} ({mount.fstype}, {mount.source}) was not mounted by"
            " hostprep; nothing was changed.",
            f"if you are sure, unmount it yourself: umount {shlex.quote(path)}",
        )
    check_in_reach(facts)
    if facts.mounts_below:
        innermost = max(facts.mounts_below, key=lambda target: target.count("/"))
        raise StillUsed(
            f"{innermost} is mounted inside {path}; nothing was changed.",
            "unmount that first",
        )
    if users:
        raise StillUsed(
            f"{path} is in use: {'; '.join(map(str, users))}. Nothing was changed.",
            "end that first",
        )
    if facts.place.entries and not request.discard_data:
        assert facts.live is not None
        names = ", ".join(facts.place.entries)
        raise StillUsed(
            f"{path} still holds {format_bytes(facts.live.used_bytes)} ({names}), which would be"
            " lost; nothing was changed.",
            "remove data sets with `hostprep unstage`, or discard it all with"
            f" `hostprep unmount {shlex.quote(path)}{' --fstab' if request.fstab else ''}"
            " --discard-data`",
            spec_hint="remove data sets with `hostprep unstage`, and move away what else is in it",
        )


def _unmount(plan: UnmountPlan, descriptor: int) -> tuple[str, ...]:
    """Unmount the volume; return warnings for the user."""
    path = plan.path
    mount = mount_at(path, read_mounts())
    with contextlib.suppress(OSError):
        if f"{os.getcwd()}/".startswith(f"{path}/"):
            os.chdir("/")  # our own working directory would keep it busy
    try:
        unmount(path, descriptor)
    except CommandFailed as error:
        # Otherwise it failed only to note it in a file of its own (umount(8), status 16).
        if _is_still_there(mount):
            raise _unmount_failed(path, error) from None
    if _is_still_there(mount):
        raise UnmountFailed(f"umount(8) reported success, but {path} is still mounted.", _SEE)
    if read_live(path) is not None:
        raise HostprepError(
            f"the volume is unmounted, and another tmpfs was mounted on {path} below it, which is"
            " left.",
            f"`findmnt {shlex.quote(path)}` shows it; once that is unmounted too, the same command"
            " removes what else is left of the volume",
        )
    # Asked afterwards, because the kernel may have unmounted others with it (mount_namespaces(7)).
    try:
        places = () if mount is None else mounted_places(mount)
    except HostprepError as error:  # it is unmounted here, and the rest goes on
        return (f"whether it is still mounted elsewhere is not known: {error.message}",)
    if not places:
        return ()
    held = "" if plan.live is None else f" ({format_bytes(plan.live.used_bytes)})"
    return (
        f"the volume is still mounted elsewhere ({'; '.join(places)}): its memory{held} is free"
        " once it is unmounted there too",
    )


def _unmount_failed(path: str, error: CommandFailed) -> HostprepError:
    users = "; ".join(map(str, others_in(path)))
    words = error.completed.complaint.rstrip(".")
    failed = f"{path} could not be unmounted: {users or words or error.message.rstrip('.')}."
    if users or "busy" in words:  # EBUSY, in the words of umount or of the C library
        return NotUnmounted(failed, "end what uses it, and run the same command again")
    return UnmountFailed(failed, _SEE)


def _is_still_there(mount: Mount | None) -> bool:
    # The next mount anywhere gets the number of one that is gone.
    return mount is not None and any(
        (each.mount_id, each.target) == (mount.mount_id, mount.target) for each in read_mounts()
    )


def _fstab_edit(path: str) -> FstabEdit:
    return partial(remove_volume, path=path)
