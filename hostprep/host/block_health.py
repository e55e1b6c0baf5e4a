"""What a disk reports of its wear, by smartctl (JSON since smartmontools 7.0), if readable."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError
from hostprep.host.block_device import Device, Transport
from hostprep.kinds import is_count, is_flag, is_number, with_fields
from hostprep.system.run import Completed, run

WANTED_FOR, PACKAGE = "read a disk's wear", "smartmontools"
# Bits of smartctl's exit status (smartctl(8)): bad arguments, device not opened or asleep.
_NOT_READ = 0b0000_0011
_HAVE_SMART = (Transport.NVME, Transport.SATA, Transport.SCSI)


@dataclass(frozen=True, slots=True)
class Health:
    """SMART data of one disk. None means that the disk does not say.

    ``used_percent`` is the spent share of the rated writes; it may exceed 100.
    """

    passed: bool | None
    used_percent: int | None
    spare_percent: int | None
    media_errors: int | None
    temperature_celsius: int | None
    power_on_hours: int | None


def disks_with_health(disks: Iterable[Device]) -> list[str]:
    """Return the disks to ask for their SMART values, which only root can do."""
    if os.geteuid() != 0:
        return []
    return [disk.name for disk in disks if disk.transport in _HAVE_SMART and not disk.virtual]


def read_health(name: str, *, timeout_seconds: float) -> Health | None:
    """Return the health of disk ``name``, None if smartctl is missing or may not read it.

    Also None if that takes longer than ``timeout_seconds``.
    """
    try:
        done = run(
            smartctl_line(name),
            wanted_for=WANTED_FOR,
            package=PACKAGE,
            timeout_seconds=timeout_seconds,
            ok=range(256),
        )
    except HostprepError:
        return None  # wear is an extra: its absence is no reason to stop
    return health_in(done)


def smartctl_line(name: str) -> list[str]:
    """Return the command that reads disk ``name``, but lets it sleep if it does."""
    return ["smartctl", "--json", "--health", "--attributes", "--nocheck=standby", f"/dev/{name}"]


def health_in(done: Completed) -> Health | None:
    """Return the health that smartctl printed, None if it may not read the disk."""
    return None if done.returncode & _NOT_READ else parse_smartctl(done.stdout)


def parse_smartctl(text: str) -> Health | None:
    """Return the health in smartctl's JSON, None if it has none.

    A value that is not of its kind counts as not said: a disk may report anything, and wear is no
    reason to end what was asked for.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    nvme = _part(document, "nvme_smart_health_information_log")
    table = _part(document, "ata_smart_attributes").get("table")
    attributes = {
        entry["id"]: entry
        for entry in (table if isinstance(table, list) else ())
        if with_fields({"id": is_count})(entry)
    }
    passed = _part(document, "smart_status").get("passed")
    used, errors = _count(nvme, "percentage_used"), _count(nvme, "media_errors")
    celsius = _part(document, "temperature").get("current")
    health = Health(
        passed=passed if is_flag(passed) else None,
        used_percent=_ata_used_percent(attributes) if used is None else used,
        spare_percent=_count(nvme, "available_spare"),
        media_errors=_raw(attributes.get(197)) if errors is None else errors,
        temperature_celsius=celsius if isinstance(celsius, int) and is_number(celsius) else None,
        power_on_hours=_count(_part(document, "power_on_time"), "hours"),
    )
    return None if health == Health(None, None, None, None, None, None) else health


def _part(document: Any, name: str) -> dict[str, Any]:
    part = document.get(name) if isinstance(document, dict) else None
    return part if isinstance(part, dict) else {}


def _count(part: dict[str, Any], name: str) -> int | None:
    value = part.get(name)
    return value if is_count(value) else None


def _ata_used_percent(attributes: dict[int, dict[str, Any]]) -> int | None:
    """Return the wear of a SATA drive: the normalised value counts down from 100.

    231 is SSD life left, 233 the media wearout indicator (Intel), 177 the wear levelling count
    (Samsung), 202 the percentage of lifetime remaining (Micron, Crucial); which of these a drive
    has depends on its maker.
    """
    for number in (231, 233, 177, 202):
        value = _count(attributes.get(number, {}), "value")
        if value is not None and 0 < value <= 100:
            return 100 - value
    return None


def _raw(attribute: dict[str, Any] | None) -> int | None:
    return _count(_part(attribute, "raw"), "value")
