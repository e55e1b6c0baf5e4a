"""Carries out a volume's plan: each step, and then a check of what the kernel made of it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError, without_claim
from hostprep.host.capabilities import Capability, lacks_capability
from hostprep.host.elsewhere import namespaces
from hostprep.host.mounts import Mount, mount_at, read_mounts
from hostprep.system.descriptors import closing_fd
from hostprep.system.flushing import NotFlushed
from hostprep.system.locks import lock
from hostprep.system.mounting import mount_tmpfs, remount_tmpfs, unmount
from hostprep.system.run import CommandFailed
from hostprep.system.systemd import NotReloaded
from hostprep.system.trees import DIRECTORY_FLAGS
from hostprep.volumes.facts import VolumeFacts, gather
from hostprep.volumes.fstab import volume_id_for
from hostprep.volumes.fstab_file import NotReadBack, check_edit, edit_fstab, fstab_path
from hostprep.volumes.fstab_plan import fstab_edit
from hostprep.volumes.live import is_on, read_live
from hostprep.volumes.model import LiveVolume
from hostprep.volumes.options import compare_options
from hostprep.volumes.paths import make_dirs, remove_dirs
from hostprep.volumes.plan import VolumePlan, plan_volume
from hostprep.volumes.records import VolumeRecord, delete_record, requester, write_record

FstabEdit = Callable[[bytes], bytes]
LOCK = "volumes"
WITHOUT_ROOT = (
    "; without root, /dev/shm is a tmpfs that you can use, but a logout may clear it (logind's"
    " RemoveIPC)"
)
_TAKEN_BACK = "the volume was unmounted again"
_ALONE = "run the same command again, once nothing else mounts or unmounts there"


@dataclass(frozen=True, slots=True)
class AppliedVolume:
    """What was done: the plan made under the lock, and the volume as the kernel now reports it."""

    plan: VolumePlan
    live: LiveVolume


class Overtaken(HostprepError):
    """Something else has to be done than was planned; nothing was changed."""


def apply_volume(
    plan: VolumePlan, *, on_wait: Callable[[str], None] | None = None
) -> AppliedVolume:
    """Carry out ``plan`` and return what was done.

    The facts are read and planned again under the lock, so that nothing is done that is out of date
    or that another run has already done. ``on_wait`` is told in a sentence which run this one waits
    for. A plan without changes touches only our own record. Raises ``Refused`` before anything is
    changed: the plan's refusal, or an objection to the new fstab; ``Overtaken`` if more has to be
    done by now; ``HostprepError`` without root or its right to mount, if a step fails, or if the
    volume is not as planned afterwards.
    """
    if plan.refusal is not None:
        raise plan.refusal
    if not plan.changes and plan.live is not None and os.geteuid() != 0:
        return AppliedVolume(plan, plan.live)
    need_root(f"mounting on {plan.request.path}", WITHOUT_ROOT)
    if problem := lacking_right_to_mount(plan):
        raise problem
    purpose = f"mount {plan.request.path}"
    with lock(LOCK, purpose=purpose, on_wait=on_wait, handed_on=True) as descriptor:
        facts = gather(plan.request.path)
        fresh = plan_volume(plan.request, facts)
        if fresh.refusal is not None:
            raise fresh.refusal
        # Another run may have done the same, or some of it: what is left was in our plan too.
        if not set(fresh.changes) <= set(plan.changes):
            raise Overtaken(
                f"the state of {facts.path} changed while the volume was planned; nothing was"
                " changed.",
                "run the same command again",
            )
        edit = None
        if fresh.fstab_options is not None:
            edit = fstab_edit(facts, fresh.fstab_options)
            check_edit(fstab_path(), edit, on_wait)
        live = (_mount if fresh.mount else _change)(fresh, facts, descriptor)
        if edit is not None:
            write_fstab(edit, "the volume is mounted", on_wait)
    return AppliedVolume(fresh, live)


def need_root(what: str, otherwise: str = "") -> None:
    """Raise ``HostprepError`` for an ordinary user; ``otherwise`` ends the hint."""
    if os.geteuid() != 0:
        raise HostprepError(
            f"{what} needs root; nothing was changed.", f"run it with sudo{otherwise}"
        )


def lacking_right_to_mount(plan: VolumePlan) -> HostprepError | None:
    """Return why root in a container cannot carry out the plan; a dry run also says so."""
    return mounting_problem(plan.request.path) if plan.mounts else None


def mounting_problem(path: str) -> HostprepError | None:
    """Return why root in a container cannot mount; mount(8) only says "permission denied"."""
    if not lacks_capability(Capability.SYS_ADMIN):
        return None
    return HostprepError(
        f"mounting on {path} needs CAP_SYS_ADMIN, which root does not have here, as in most"
        " containers; nothing was changed.",
        _in_container(path, "--to "),
        spec_hint=_in_container(path, "to: "),
    )


def _in_container(path: str, to: str) -> str:
    return (
        f"in a container, stage into a tmpfs that it was given: `{to}/dev/shm` after"
        f" `docker run --shm-size=32g`, or `{to}{path}` after `docker run --tmpfs"
        f" {path}:size=30g`, or in Kubernetes with an emptyDir of medium Memory there; or mount on"
        f" the host itself, and hand it in with `-v {path}:{path}`"
    )


def _forbidden(path: str, error: CommandFailed) -> HostprepError | None:
    """Return the error for a container's profile that forbids what the capability allows.

    AppArmor's for Docker answers EACCES, and mount(8) then tries it once more, read-only.
    """
    if not any(words in error.completed.stderr for words in ("permission denied", "read-only")):
        return None
    cure = (
        "docker run --security-opt apparmor=unconfined beside --cap-add=SYS_ADMIN (or, of another"
        " profile, seccomp=unconfined or label=disable); without: "
    )
    return HostprepError(
        f"mounting on {path} is forbidden in spite of CAP_SYS_ADMIN, as by AppArmor in a container;"
        " nothing was changed.",
        cure + _in_container(path, "--to "),
        spec_hint=cure + _in_container(path, "to: "),
    )


def _mount(plan: VolumePlan, facts: VolumeFacts, descriptor: int) -> LiveVolume:
    try:
        # The record comes first: if we are killed right after the mount, it must be known as ours.
        _remember(plan, facts, None, "nothing was mounted")
        make_dirs(plan.make_dirs)
        try:
            mount_tmpfs(facts.path, facts.source, plan.options, descriptor)
        except CommandFailed as error:
            raise _forbidden(facts.path, error) or error from None
        live = _verified(facts.path, plan.options)
        device = _mount_of(facts.path).device
        _remember(plan, facts, device, _TAKEN_BACK)
    except BaseException as error:
        _take_back(plan, facts, descriptor, error)
        raise
    return live


def _take_back(plan: VolumePlan, facts: VolumeFacts, descriptor: int, error: BaseException) -> None:
    """Remove what is there of a volume whose mount ended with ``error``.

    If that fails as well, the volume stays on record as ours, and the error says so.
    """
    try:
        _unmount_again(facts, descriptor)
    except HostprepError as another:
        if isinstance(error, HostprepError):
            said = without_claim(error.message).removesuffix(".").removesuffix(f"; {_TAKEN_BACK}")
            error.message = (
                f"{said}; what may be mounted on {facts.path} by now could not be unmounted, and"
                f" stays on record: {another.message}"
            )
        return
    with contextlib.suppress(HostprepError):  # report the original error
        remove_dirs(plan.make_dirs)
        if facts.record is None:
            delete_record(facts.path)
        else:
            write_record(facts.record)


def _unmount_again(facts: VolumeFacts, descriptor: int) -> None:
    """Unmount what is there of ours; raise if it stays, whatever the status of umount(8) is."""
    # Nothing was mounted there before, so what is there now is ours and empty.
    if not _is_mounted(facts):
        return
    failure = HostprepError("umount(8) reported success, but it is still mounted.")
    try:
        unmount(facts.path, descriptor)
    except HostprepError as error:
        failure = error
    if _is_mounted(facts):
        raise failure


def _change(plan: VolumePlan, facts: VolumeFacts, descriptor: int) -> LiveVolume:
    assert facts.mount is not None
    if plan.remount_options is not None:
        remount_tmpfs(facts.path, facts.mount.source, plan.remount_options, descriptor)
    if plan.owner is not None or plan.mode is not None:
        _set_owner_and_mode(facts, plan.owner, plan.mode)
    live = _verified(facts.path, plan.options)
    _remember(plan, facts, facts.mount.device, "what was to be changed of the volume is changed")
    return live


def _set_owner_and_mode(
    facts: VolumeFacts, owner: tuple[int, int] | None, mode: int | None
) -> None:
    """Change the mounted volume's root directory through a descriptor that is certainly its own.

    A remount ignores mode and owner, but returns success.
    """
    assert facts.mount is not None
    with closing_fd(os.open(facts.path, DIRECTORY_FLAGS)) as descriptor:
        if not is_on(descriptor, facts.mount):
            said = f"{facts.path} is now another file system; it was left alone."
            raise HostprepError(said, _ALONE)
        if owner is not None:
            os.fchown(descriptor, *owner)
        if mode is not None:
            os.fchmod(descriptor, mode)


def _verified(path: str, options: tuple[str, ...]) -> LiveVolume:
    """Read the volume again; raise if the kernel made something else of the options."""
    live = read_live(path)
    if live is None:
        raise HostprepError(
            f"mount(8) reported success, but no tmpfs is mounted on {path}.",
            "systemd may have unmounted it again: see `journalctl -b -t systemd`",
        )
    if differences := compare_options(live, options):
        raise HostprepError(
            f"the kernel mounted {path} with {'; '.join(differences)}.",
            f"{_ALONE}; if it stays so, the kernel's log may say why (dmesg)",
        )
    return live


def write_fstab(edit: FstabEdit, done: str, on_wait: Callable[[str], None] | None) -> None:
    """Edit fstab after the volume; ``done`` says what was changed before, if the edit fails."""
    try:
        edit_fstab(fstab_path(), edit, on_wait=on_wait)
    except (NotReloaded, NotFlushed, NotReadBack):
        raise  # it was written, and the error says what is left to do
    except HostprepError as error:
        # The error does not know that the volume was changed before.
        message = f"{done}, but fstab could not be edited: {without_claim(error.message)}"
        raise HostprepError(message, error.hint) from None


def _remember(plan: VolumePlan, facts: VolumeFacts, device: str | None, done: str) -> None:
    earlier = facts.record
    known = earlier.namespaces if earlier is not None and _is_of(earlier, facts) else None
    record = VolumeRecord(
        path=facts.path,
        volume_id=volume_id_for(facts.path),
        boot_id=facts.boot_id,
        device=device,
        source=facts.source,
        size_bytes=plan.size_bytes,
        inodes=plan.inodes,
        made_dirs=tuple(dict.fromkeys([*(earlier.made_dirs if earlier else ()), *plan.make_dirs])),
        requested_by=earlier.requested_by if earlier else requester(),
        created_unix_seconds=earlier.created_unix_seconds if earlier else time.time(),
        namespaces=known or namespaces(),
    )
    if record != earlier:
        write_record(record, done)


def _is_of(record: VolumeRecord, facts: VolumeFacts) -> bool:
    """Whether a record is of what is mounted now.

    A restarted container has other namespaces, and its line in fstab has mounted another tmpfs
    there; its boot id may be its own, or the machine's (LXC).
    """
    if facts.mount is None or record.boot_id != facts.boot_id:
        return False
    return record.device in (None, facts.mount.device)


def _mount_of(path: str) -> Mount:
    mount = mount_at(path, read_mounts())
    if mount is None:
        raise HostprepError(f"{path} was unmounted by somebody else in the meantime.", _ALONE)
    return mount


def _is_mounted(facts: VolumeFacts) -> bool:
    mount = mount_at(facts.path, read_mounts())
    return mount is not None and mount.source == facts.source
