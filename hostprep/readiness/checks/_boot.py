"""The state of a data set's boot service, as one answer."""

from __future__ import annotations

import os
import time
from pathlib import Path

# Not within the question: a child could not import what another thread was just importing when it
# was forked, and would wait for ever.
from hostprep.converging.boot_command import astray, hindrance
from hostprep.converging.boot_links import link_of
from hostprep.converging.boot_record import load_boot_record, unit_name
from hostprep.converging.boot_state import boot_state
from hostprep.converging.boot_template import is_ours
from hostprep.dataclass import dataclass
from hostprep.readiness.context import Context
from hostprep.staging.record.records import load_record
from hostprep.staging.status import dataset_status
from hostprep.system import systemd, unit_commands


@dataclass(frozen=True, slots=True)
class BootService:
    """A boot service: its unit file, its boot record, and what keeps it from staging.

    ``systemd``: systemd runs here. ``installed``, ``enabled`` and ``masked`` describe the unit
    file. ``state`` is a ``converging.boot_state.Stage``, None without a boot record, and ``hint``
    says what helps if it is not well. ``source`` and ``target`` are from the boot record, without
    symlinks.

    ``lost_program`` is the program that it runs, if that does not exist, and ``lost_in`` the
    drop-in that names the program, if one does. ``overridden_by`` is a drop-in that makes it do
    something else than stage; ``edited``: its own lines do. ``ours``: hostprep wrote it.
    ``hindered_by`` is a setting with which it cannot stage or may be skipped (``User=alice``), and
    ``hindered_in`` the drop-in that has the setting, None for the unit itself. ``held``: the
    setting is a condition that already existed, and held, when systemd last checked it in this
    boot.
    """

    unit: str
    systemd: bool
    installed: bool
    enabled: bool
    state: str | None
    reason: str
    masked: bool = False
    hint: str | None = None
    source: str | None = None
    target: str | None = None
    lost_program: str | None = None
    lost_in: str | None = None
    overridden_by: str | None = None
    edited: bool = False
    ours: bool = True
    hindered_by: str | None = None
    hindered_in: str | None = None
    held: bool = False


def ask_boot(context: Context, name: str) -> BootService:
    """Return the state of the service that stages ``name`` at boot."""

    def question() -> dict[str, object]:
        unit, record = unit_name(name), load_boot_record(name)
        state = None
        if record is not None:
            staged = load_record(record.name, record.target)
            known = None if staged is None else dataset_status(staged)
            state = boot_state(record, known)
        return {
            "unit": unit,
            "systemd": systemd.systemd_runs(),
            "installed": (systemd.unit_dir() / unit).is_file(),
            "enabled": link_of(systemd.unit_dir(), unit).is_symlink(),
            "state": None if state is None else state.stage.value,
            "reason": "" if state is None else state.reason,
            # A masked unit is a link to /dev/null, which exists but is not a regular file.
            "masked": os.path.realpath(systemd.unit_dir() / unit) == os.devnull,
            "hint": None if state is None else state.hint,
            "source": None if record is None else record.source,
            "target": None if record is None else record.target,
            **_what_it_runs(systemd.unit_dir() / unit, name),
        }

    return BootService(**context.ask(f"boot service of {name}", question))


def _held(unit: Path) -> bool:
    """Whether a unit's conditions held when systemd last checked, and have not changed since."""
    looked_at, results = "ConditionTimestampMonotonic", ("ConditionResult", "AssertResult")
    shown = systemd.show_unit(unit.name, (looked_at, *results))
    if any(shown.get(each) != "yes" for each in results) or not shown.get(looked_at, "").isdigit():
        return False
    # systemd's timestamp is of a clock that stops during suspend, and the machine may have been
    # suspended since. Read both clocks at once: time between the two reads would count as before
    # systemd's check.
    looked = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + int(shown[looked_at]) / 1e6
    return max(file.stat().st_ctime for file in unit_commands.unit_files(unit)) < looked


def _what_it_runs(unit: Path, name: str) -> dict[str, object]:
    """Return what is wrong with what a unit runs; nothing if it stages, or may."""
    if not (unit.is_file() and os.access(unit, os.R_OK)):
        return {}  # there may be drop-ins all the same
    found = astray(unit, name)
    if found is None:
        setting = hindrance(unit)
        if setting is None:
            return {}
        drop_in = None if setting.drop_in is None else str(setting.drop_in)
        ours = is_ours(unit.read_bytes())
        return {
            "hindered_by": f"{setting.name}={setting.value}",
            "hindered_in": drop_in,
            "held": setting.name != "User" and _held(unit),
            "ours": ours,
        }
    drop_in = None if found.file == unit else str(found.file)
    if found.lost_program is not None:
        return {"lost_program": found.lost_program, "lost_in": drop_in}
    if drop_in is not None:
        return {"overridden_by": drop_in}
    return {"edited": True, "ours": is_ours(unit.read_bytes())}
