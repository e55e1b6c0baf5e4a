"""The state of hostprep's volumes, compared with what was mounted and what fstab says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError, Refused, without_claim
from hostprep.host.boot import boot_id
from hostprep.host.memory import read_memory
from hostprep.host.mounts import Mount, mount_at, read_mounts
from hostprep.units import format_bytes
from hostprep.volumes.facts import aliases, mounted_by_us
from hostprep.volumes.fstab import FstabEntry, entries, foreign_entry, volume_id_for
from hostprep.volumes.fstab_file import fstab_path, read_for_boot
from hostprep.volumes.fstab_plan import other_source
from hostprep.volumes.live import read_live
from hostprep.volumes.model import FLAGS, VOLUME_SOURCES, LiveVolume
from hostprep.volumes.options import compare_options, parse_options, size_drift
from hostprep.volumes.records import VolumeRecord, all_records


@dataclass(frozen=True, slots=True)
class VolumeStatus:
    """A volume on record or in fstab. ``live`` is None if it is not mounted, or has a ``problem``.

    ``problem`` says why it cannot be looked at although something is mounted there, or that this is
    not hostprep's. ``drift`` says where the mounted volume differs from what hostprep mounted,
    ``fstab_drift`` where it differs from its line in fstab, or what that line lacks for a boot;
    ``in_fstab`` whether there is a line, None if fstab cannot be read. ``foreign_line`` is somebody
    else's line for the same path, in words, or the volume's own that somebody pointed at another
    path.
    """

    path: str
    live: LiveVolume | None
    in_fstab: bool | None
    drift: tuple[str, ...]
    fstab_drift: tuple[str, ...]
    problem: str | None = None
    foreign_line: str | None = None


def volume_statuses() -> tuple[VolumeStatus, ...]:
    """Return the status of every volume that hostprep mounted or put into fstab, by path.

    A volume that cannot be looked at has a ``problem``, and does not hide the others. If fstab
    cannot be read, those that only it knows are missing: ``unread_fstab`` says so.
    """
    records = {record.path: record for record in all_records()}
    fstab, unread = _read_fstab()
    lines = {entry.simple_target: entry for entry in entries(fstab) if entry.is_ours}
    mounts = read_mounts()
    found = []
    for path in sorted(records.keys() | lines.keys()):
        status = _status(path, mounts, records.get(path), lines.get(path), unread)
        found.append(replace(status, foreign_line=_foreign_line(path, fstab)))
    return tuple(found)


def unread_fstab() -> HostprepError | None:
    """Return why it is not known what fstab says of volumes; None if it is known."""
    return _read_fstab()[1]


def _read_fstab() -> tuple[bytes, HostprepError | None]:
    """Return the bytes of fstab, and why they could not be read."""
    place = fstab_path()
    try:
        return read_for_boot(place), None
    except Refused:
        return b"", None  # unfit to be edited, so nothing of ours was written there
    except HostprepError as error:
        return b"", error


def _foreign_line(path: str, fstab: bytes) -> str | None:
    entry = foreign_entry(fstab, path=path, aliases=aliases(path, fstab))
    if entry is not None:
        there = "there" if entry.simple_target == path else f"on {entry.place(path)}"
        return (
            f"line {entry.line_number}, which is not hostprep's, mounts {entry.described} {there}"
        )
    for own in entries(fstab):
        if own.owner_id == volume_id_for(path) and own.simple_target != path:
            return f"line {own.line_number}, which was made for it, is for {own.simple_target} now"
    return None


def _status(
    path: str,
    mounts: Sequence[Mount],
    record: VolumeRecord | None,
    line: FstabEntry | None,
    unread: HostprepError | None,
) -> VolumeStatus:
    in_fstab = None if unread is not None else line is not None
    try:
        live = read_live(path, mounts)
    except HostprepError as error:
        problem = without_claim(error.message).removesuffix(".")
        return VolumeStatus(path, None, in_fstab, (), (), problem)
    mount = mount_at(path, mounts)
    if mount is not None and not mounted_by_us(mount, record, line, boot_id()):
        problem = f"what is mounted there ({mount.fstype}, {mount.source}) is not hostprep's"
        if unread is not None and mount.source in VOLUME_SOURCES:  # a boot may have mounted it
            problem = f"whether it is hostprep's cannot be told: {unread.message.removesuffix('.')}"
        return VolumeStatus(path, None, in_fstab, (), (), problem)
    drift: tuple[str, ...] = ()
    fstab_drift: tuple[str, ...] = ()
    if mount is not None and line is not None and line.source != mount.source:
        fstab_drift = (other_source(line, mount.source),)
    if live is not None and record is not None:
        drift = _drift(live, record)
    if live is not None and line is not None:
        fstab_drift += (*compare_options(live, line.options), *_line_drift(live, line.options))
    if line is not None and "nofail" not in line.options and "noauto" not in line.options:
        fstab_drift += ("its line lacks nofail: the boot stops if the mount fails",)
    return VolumeStatus(path, live, in_fstab, drift, fstab_drift)


def _drift(live: LiveVolume, record: VolumeRecord) -> tuple[str, ...]:
    found = []
    if live.size_bytes != record.size_bytes:
        found.append(size_drift(live.size_bytes, record.size_bytes))
    if live.inodes != record.inodes:
        found.append(f"nr_inodes {live.inodes or 0} instead of {record.inodes}")
    found += [f"{flag} is missing" for flag in FLAGS if not getattr(live, flag)]
    if "ro" in live.options:
        found.append("it is mounted read-only")
    return tuple(found)


def _line_drift(live: LiveVolume, options: Sequence[str]) -> tuple[str, ...]:
    """Return differences between the volume and its line that ``compare_options`` leaves out.

    These are being read-only, and a size that the line does not give, or not as a number. A share
    of the RAM may differ by a hundredth, because the kernel counts the RAM a little differently.
    """
    found = []
    if "ro" in live.options and "ro" not in options:
        found.append("it is mounted read-only")
    ram_bytes = read_memory().total_bytes
    given = next((option for option in reversed(options) if option.startswith("size=")), None)
    wanted = parse_options(options, ram_bytes=ram_bytes).size_bytes
    # A tmpfs without a limit has a size of 0.
    has = f"size {format_bytes(live.size_bytes)}" if live.size_bytes else "no size limit"
    if given is None:
        found.append(f"{has} instead of half the RAM: the line gives no size")
    elif wanted is None:
        found.append(f"{has} instead of {given}, which is not a size")
    elif given.endswith("%") and abs(live.size_bytes - wanted) > ram_bytes // 100:
        found.append(size_drift(live.size_bytes, wanted))
    return tuple(found)
