"""Carrying out the plan of a volume: each step, then a look at what the kernel made of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from hostprep.errors import HostprepError
from hostprep.host.mounts import Mount, mount_at, read_mounts
from hostprep.system.locks import lock
from hostprep.system.mounting import mount_tmpfs, remount_tmpfs, unmount
from hostprep.volumes.facts import SOURCE, VolumeFacts, gather
from hostprep.volumes.fstab import set_volume
from hostprep.volumes.fstab_file import edit_fstab, fstab_path
from hostprep.volumes.live import read_live
from hostprep.volumes.model import Change, LiveVolume
from hostprep.volumes.options import compare_options
from hostprep.volumes.paths import make_dirs, remove_dirs
from hostprep.volumes.plan import VolumePlan, plan_volume
from hostprep.volumes.records import VolumeRecord, delete_record, requester, write_record

Observer = Callable[[Change], None]
LOCK = "volumes"


def apply_volume(plan: VolumePlan, observer: Observer | None = None) -> LiveVolume:
    """Carry out ``plan`` and return the volume as the kernel then reports it.

    The facts are read and planned once more under the lock, so that nothing is done that has been
    overtaken. ``observer`` is told each change when it is done. A plan without changes touches no
    more than our own record. Raises the plan's refusal, ``HostprepError`` without root, where a
    step fails, and where the volume is afterwards not as planned.
    """
    if plan.refusal is not None:
        raise plan.refusal
    if not plan.changes and plan.live is not None and os.geteuid() != 0:
        return plan.live
    need_root(f"mounting on {plan.request.path}")
    with lock(LOCK, purpose=f"mount {plan.request.path}"):
        facts = gather(plan.request.path)
        fresh = plan_volume(plan.request, facts)
        if fresh.refusal is not None:
            raise fresh.refusal
        if fresh.changes != plan.changes:
            raise HostprepError(
                f"the state of {facts.path} changed while the volume was planned; nothing was"
                " changed.",
                "run the same command again",
            )
        live = _mount(fresh, facts) if fresh.mount else _change(fresh, facts)
        if fresh.fstab_options is not None:
            _write_fstab(fresh.fstab_options, facts)
        for change in fresh.changes:
            if observer is not None:
                observer(change)
    return live


def need_root(what: str) -> None:
    """Raise ``HostprepError`` for an ordinary user."""
    if os.geteuid() != 0:
        raise HostprepError(
            f"{what} needs root; nothing was changed.",
            "run it with sudo; without root, /dev/shm is a tmpfs that you can use, but a logout"
            " may clear it (logind's RemoveIPC)",
        )


def _mount(plan: VolumePlan, facts: VolumeFacts) -> LiveVolume:
    # The record comes first: were we killed right after the mount, it must be known as ours.
    _remember(plan, facts, device=None)
    try:
        make_dirs(plan.make_dirs)
        mount_tmpfs(facts.path, SOURCE, plan.options)
        live = _verified(facts.path, plan.options)
        _remember(plan, facts, device=_mount_of(facts.path).device)
    except BaseException:
        # Nothing was mounted there before, so what is there now is ours and empty: taken back.
        if _is_mounted(facts.path):
            unmount(facts.path)
        remove_dirs(plan.make_dirs)
        if facts.record is None:
            delete_record(facts.path)
        else:
            write_record(facts.record)
        raise
    return live


def _change(plan: VolumePlan, facts: VolumeFacts) -> LiveVolume:
    assert facts.mount is not None
    if plan.remount_options is not None:
        remount_tmpfs(facts.path, facts.mount.source, plan.remount_options)
    if plan.owner is not None or plan.mode is not None:
        _set_owner_and_mode(facts, plan.owner, plan.mode)
    live = _verified(facts.path, plan.options)
    _remember(plan, facts, device=facts.mount.device)
    return live


def _set_owner_and_mode(
    facts: VolumeFacts, owner: tuple[int, int] | None, mode: int | None
) -> None:
    """Change the root of the mounted volume through a descriptor that is certain to be it.

    A remount ignores the mode and the owner, and returns success.
    """
    assert facts.mount is not None
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(facts.path, flags)
    try:
        device = os.fstat(descriptor).st_dev
        if f"{os.major(device)}:{os.minor(device)}" != facts.mount.device:
            raise HostprepError(f"{facts.path} is another file system by now; it was left alone.")
        if owner is not None:
            os.fchown(descriptor, *owner)
        if mode is not None:
            os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def _verified(path: str, options: tuple[str, ...]) -> LiveVolume:
    """Read the volume again; raise where the kernel made something else of the options."""
    live = read_live(path)
    if live is None:
        raise HostprepError(
            f"mount(8) reported success, but no tmpfs is mounted on {path}.",
            "systemd may have unmounted it again: see `journalctl -b -t systemd`",
        )
    if differences := compare_options(live, options):
        raise HostprepError(f"the kernel mounted {path} with {'; '.join(differences)}.")
    return live


def _write_fstab(options: tuple[str, ...], facts: VolumeFacts) -> None:
    def edit(content: bytes) -> bytes:
        return set_volume(content, volume_id=facts.volume_id, path=facts.path, options=options)

    try:
        edit_fstab(fstab_path(), edit)
    except HostprepError as error:
        error.message = f"the volume is mounted, but not in fstab: {error.message}"
        raise


def _remember(plan: VolumePlan, facts: VolumeFacts, device: str | None) -> None:
    earlier = facts.record
    record = VolumeRecord(
        path=facts.path,
        volume_id=facts.volume_id,
        boot_id=facts.boot_id,
        device=device,
        source=SOURCE if facts.mount is None else facts.mount.source,
        size_bytes=plan.size_bytes,
        inodes=plan.inodes,
        made_dirs=tuple(dict.fromkeys([*(earlier.made_dirs if earlier else ()), *plan.make_dirs])),
        requested_by=earlier.requested_by if earlier else requester(),
        created_unix_seconds=earlier.created_unix_seconds if earlier else time.time(),
    )
    if record != earlier:
        write_record(record)


def _mount_of(path: str) -> Mount:
    mount = mount_at(path, read_mounts())
    if mount is None:
        raise HostprepError(f"{path} was unmounted by somebody else in the meantime.")
    return mount


def _is_mounted(path: str) -> bool:
    mount = mount_at(path, read_mounts())
    return mount is not None and mount.source == SOURCE
