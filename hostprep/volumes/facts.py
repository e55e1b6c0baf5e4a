"""The facts that decide what happens to a volume, read once from the machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError, Refused
from hostprep.host.answering import PATIENCE_SECONDS, silent_ones
from hostprep.host.boot import boot_id
from hostprep.host.elsewhere import may_be_out_of_sight, mounts_elsewhere, stays_here
from hostprep.host.memory import Headroom, read_headroom
from hostprep.host.mounts import Mount, mount_at, read_mounts
from hostprep.host.processes import in_words
from hostprep.system.accounts import owner_of
from hostprep.system.files import replacing_refusal
from hostprep.system.following import followed
from hostprep.system.mounting import TmpfsSupport, tmpfs_support
from hostprep.volumes.fstab import FstabEntry, entries, foreign_entry, our_line
from hostprep.volumes.fstab_file import fstab_path, read_for_boot, reload_is_due
from hostprep.volumes.live import check_answers, read_live
from hostprep.volumes.model import SOURCE, VOLUME_SOURCES, LiveVolume
from hostprep.volumes.options import labels_in
from hostprep.volumes.paths import Place, check_path, look
from hostprep.volumes.records import VolumeRecord, all_records, read_record


@dataclass(frozen=True, slots=True)
class VolumeFacts:
    """The state of the machine around one path.

    ``mount`` is whatever is mounted at the path; ``live`` the same in numbers if it is a tmpfs.
    ``mounts_below`` are the mount points inside it. ``promised_bytes`` is how much other hostprep
    volumes may still grow, inodes included, without those that have no size limit: ``unlimited``,
    by path. ``fstab`` is None if it could not be read for a reason that matters only for editing
    it: ``fstab_refusal``; with ``fstab_unknown`` for another one, so that it may have our line.
    ``fstab_obstacle`` is what keeps root from replacing it, although it could be read; an ordinary
    user, who may not do that anyway, is only told of a symlink. ``fstab_aliases`` are targets in it
    that lead to the path through symlinks, ``fstab_names`` the number of the file's hard links.
    ``reload_is_due``: systemd has not read fstab since our last edit of it.
    ``seen_by`` is a process in whose mount namespace the volume is, if it is not in ours.
    ``out_of_reach``: it was mounted in another container, or outside of ours, and what is mounted
    there cannot be seen. ``stays_here``: only this process and its children will see what is
    mounted now. ``unmounted_above`` is the fstab line of something that belongs on a parent
    directory but is not mounted. ``line_owner`` are the ids of the user and group that the volume's
    line names; None if it gives no name, or one that this host does not know.
    """

    path: str
    boot_id: str
    place: Place
    mount: Mount | None
    live: LiveVolume | None
    mounts_below: tuple[str, ...]
    headroom: Headroom
    promised_bytes: int
    support: TmpfsSupport
    record: VolumeRecord | None
    fstab: bytes | None
    fstab_refusal: Refused | None
    reload_is_due: bool = False
    fstab_obstacle: Refused | None = None
    fstab_aliases: frozenset[str] = frozenset()
    fstab_names: int = 1
    seen_by: int | None = None
    out_of_reach: bool = False
    stays_here: bool = False
    unlimited: tuple[str, ...] = ()
    unmounted_above: FstabEntry | None = None
    line_owner: tuple[int | None, int | None] = (None, None)
    fstab_unknown: bool = False

    @property
    def fstab_entry(self) -> FstabEntry | None:
        """Our own line for this volume in fstab, if there is one."""
        return our_line(self.path, self.fstab or b"")

    @property
    def foreign_fstab_entry(self) -> FstabEntry | None:
        """Somebody else's line in fstab that mounts something on the same path."""
        return foreign_entry(
            self.fstab or b"",
            path=self.path,
            aliases=self.fstab_aliases,
        )

    @property
    def source(self) -> str:
        """The source name of the mount; the volume's line must have the same one.

        A volume that was mounted by its line, and a line without a mounted volume, keep theirs.
        """
        if self.mount is not None and self.is_ours:
            return self.mount.source
        line = self.fstab_entry
        return line.source if line is not None and line.source in VOLUME_SOURCES else SOURCE

    @property
    def labels(self) -> tuple[str, ...]:
        """The SELinux labels that somebody gave the volume in its line, as mount options."""
        line = self.fstab_entry
        return () if line is None else labels_in(line.options)

    @property
    def is_ours(self) -> bool:
        """Whether hostprep mounted the tmpfs that is there, directly or through its fstab line."""
        return self.mount is not None and mounted_by_us(
            self.mount, self.record, self.fstab_entry, self.boot_id
        )


def gather(path: str, root: Path = Path("/")) -> VolumeFacts:
    """Read the facts about a volume at ``path`` from the kernel, fstab and our records.

    ``root`` is where /proc and /sys are read. Raises ``Refused`` for a path that is unsafe as text,
    ``HostprepError`` if something essential cannot be read, or a server on the way to the path does
    not answer. Changes nothing.
    """
    path = check_path(path)
    check_answers(path, "; nothing was changed")
    mounts = read_mounts(root)
    fstab, fstab_error = _read_fstab()
    fstab_refusal = None if fstab_error is None else Refused(fstab_error.message, fstab_error.hint)
    lines = fstab or b""
    mount, record, boot = mount_at(path, mounts), read_record(path), boot_id(root)
    lost = record if record is not None and record.boot_id == boot and mount is None else None
    others = _others(path, mounts, lines)
    return VolumeFacts(
        path=path,
        boot_id=boot,
        place=look(path),
        mount=mount,
        live=read_live(path, mounts),
        mounts_below=tuple(m.target for m in mounts if m.target.startswith(path + "/")),
        headroom=read_headroom(root),
        promised_bytes=sum(each.promised_bytes for each in others),
        support=tmpfs_support() if os.geteuid() == 0 else TmpfsSupport(None, None),
        record=record,
        fstab=fstab,
        fstab_refusal=fstab_refusal,
        reload_is_due=reload_is_due(fstab_path()),
        fstab_obstacle=_fstab_obstacle(),
        fstab_aliases=aliases(path, lines),
        fstab_names=_names_of_fstab(),
        seen_by=None if lost is None else _seen_by(path, lost.device, root),
        out_of_reach=_is_out_of_reach(record, boot, root),
        stays_here=mount is None and stays_here(path, root),
        unlimited=tuple(each.path for each in others if not each.size_bytes),
        unmounted_above=_unmounted_above(path, mounts, lines),
        line_owner=_line_owner(our_line(path, lines)),
        fstab_unknown=not isinstance(fstab_error, Refused | None),
    )


def check_in_sight(facts: VolumeFacts) -> None:
    """Raise ``Refused`` if the volume is mounted, but in another mount namespace than ours.

    A job or container with its own mount namespace does not see what was mounted outside later, but
    may share the records. From there nobody may forget or remove what others use, or mount a second
    volume, to which the record would then belong.
    """
    if facts.seen_by is not None:
        raise Refused(
            f"the volume {facts.path} is out of sight here, but mounted in the mount namespace of"
            f" {in_words(facts.seen_by)}; nothing was changed.",
            f"do it there: nsenter --mount --target {facts.seen_by} hostprep ...",
        )


def check_in_reach(facts: VolumeFacts) -> None:
    """Raise ``Refused`` if the volume may be mounted where it cannot be seen from here.

    Containers may share the records. Forgetting the volume would take it from its users, and
    removing its directory makes the kernel unmount what is mounted on it there, in use or not
    (rmdir(2)). Not checked before it is mounted again: after a container restart its volume is
    gone.
    """
    if facts.out_of_reach:
        hint = "do it there"
        if facts.mount is None:
            hint += (
                "; if it is gone for good, mount it anew and run the same command again, or give"
                " up a data set of it with `hostprep unstage --forget`"
            )
        raise Refused(
            f"the volume {facts.path} was mounted outside of this container, or in another one, and"
            " whether it is mounted there still cannot be seen from here; nothing was changed.",
            hint,
        )


def _is_out_of_reach(record: VolumeRecord | None, boot: str, root: Path) -> bool:
    if record is None or record.boot_id != boot or record.namespaces is None:
        return False
    return may_be_out_of_sight(record.namespaces, root)


def _seen_by(path: str, device: str | None, root: Path) -> int | None:
    """Return a process that sees a volume, by path and device: device numbers are reused."""
    return next(
        (
            pid
            for pid, mount in mounts_elsewhere(root)
            if (mount.target, mount.device) == (path, device)
        ),
        None,
    )


def _unmounted_above(path: str, mounts: Sequence[Mount], fstab: bytes) -> FstabEntry | None:
    for entry in entries(fstab):
        # A volume of our own is mounted before anything inside it.
        mounted_at_boot = not entry.is_ours and "noauto" not in entry.options
        above = path.startswith(f"{entry.simple_target}/")
        if above and mounted_at_boot and mount_at(entry.simple_target, mounts) is None:
            return entry
    return None


def _line_owner(line: FstabEntry | None) -> tuple[int | None, int | None]:
    """Return the ids of the user and group that a line gives by name, None for numbers."""
    user = group = None
    for option in () if line is None else line.options:
        name, _, value = option.partition("=")
        with suppress(HostprepError):
            if name == "uid":
                user = None if value.isdecimal() else owner_of(f"{value}:0")[0]
            elif name == "gid":
                group = None if value.isdecimal() else owner_of(f"0:{value}")[1]
    return user, group


def is_volume(mount: Mount) -> bool:
    """Whether what is mounted there is a volume that hostprep mounted, directly or through fstab.

    Raises ``HostprepError`` for a record that cannot be read.
    """
    fstab, _ = _read_fstab()
    line = our_line(mount.target, fstab or b"")
    return mounted_by_us(mount, read_record(mount.target), line, boot_id())


def aliases(path: str, fstab: bytes) -> frozenset[str]:
    """Return the targets in ``fstab`` that lead to ``path`` through symlinks.

    Only targets with the same last name are looked at, and their last part is not: if it is a mount
    whose server is gone, that would hang. Those on the way to which one does not answer are left
    out.
    """
    parent, name = os.path.split(path)
    above = {
        entry.target: os.path.dirname(entry.simple_target)
        for entry in entries(fstab)
        if entry.target.startswith("/")
        and os.path.basename(entry.simple_target) == name
        and entry.simple_target != path
    }
    silent = silent_ones(list(above.values()), PATIENCE_SECONDS)
    return frozenset(
        target
        for target, folder in above.items()
        if folder not in silent and followed(folder) == parent
    )


def mounted_by_us(
    mount: Mount, record: VolumeRecord | None, line: FstabEntry | None, boot_id: str
) -> bool:
    """Whether a mount is a volume that hostprep mounted, by its record or its line in fstab."""
    if mount.fstype != "tmpfs":
        return False
    # Compare the name too, because the kernel reuses device numbers. A record without a device was
    # written right before a mount that was then interrupted.
    recorded = (
        record is not None
        and record.boot_id == boot_id
        and record.device in (None, mount.device)
        and record.source == mount.source
    )
    return recorded or (line is not None and mount.source in VOLUME_SOURCES)


def _read_fstab() -> tuple[bytes | None, HostprepError | None]:
    try:
        return read_for_boot(fstab_path()), None
    except HostprepError as error:
        return None, error


def _names_of_fstab() -> int:
    try:
        return os.lstat(fstab_path()).st_nlink
    except OSError:
        return 1


def _fstab_obstacle() -> Refused | None:
    path = fstab_path()
    return replacing_refusal(path) if os.geteuid() == 0 or os.path.islink(path) else None


def _others(path: str, mounts: Sequence[Mount], fstab: bytes) -> tuple[LiveVolume, ...]:
    """Return the other volumes, by path.

    Including those that only have a line in fstab: a power cut may lose a record.
    """
    known = {record.path for record in all_records()}
    known |= {
        mount.target
        for mount in mounts
        if mount.source in VOLUME_SOURCES and our_line(mount.target, fstab) is not None
    }
    found = []
    for other in sorted(known - {path}):
        # One may have been unmounted since the list of mounts was read.
        with suppress(HostprepError):
            found.append(read_live(other, mounts))
    return tuple(filter(None, found))
