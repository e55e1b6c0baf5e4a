"""How the boot service of a data set is doing, as one answer."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from hostprep.dataclass import dataclass
from hostprep.readiness.context import Context

if TYPE_CHECKING:
    from hostprep.system.unit_commands import UnitCommand

# What stands for something else in a unit's line, or in a shell's that it runs.
_PUT_IN = re.compile(r"[%$\\'\"`]")


@dataclass(frozen=True, slots=True)
class BootService:
    """``systemd``: it runs here. ``installed`` and ``enabled`` are the unit file's; ``state`` is a
    ``converging.boot_state.Stage``, None without a boot record, and ``hint`` what helps where that
    is none that is well. ``source`` and ``target`` are the boot record's, without symlinks.
    ``masked``: somebody forbade it. ``lost_program`` is what it runs, where that is not there, and
    ``lost_in`` the drop-in that names it, if one does. ``overridden_by`` is a drop-in for which it
    does not stage."""

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


def ask_boot(context: Context, name: str) -> BootService:
    """Return how the service that stages ``name`` at boot is doing."""
    from hostprep.converging.boot_links import link_of
    from hostprep.converging.boot_record import load_boot_record, unit_name
    from hostprep.converging.boot_state import boot_state
    from hostprep.staging.record.records import load_record
    from hostprep.staging.status import dataset_status
    from hostprep.system.systemd import systemd_runs, unit_dir

    def question() -> dict[str, object]:
        unit, record = unit_name(name), load_boot_record(name)
        state = None
        if record is not None:
            staged = load_record(record.name, record.target)
            known = None if staged is None else dataset_status(staged)
            state = boot_state(record, known)
        return {
            "unit": unit,
            "systemd": systemd_runs(),
            "installed": (unit_dir() / unit).is_file(),
            "enabled": link_of(unit_dir(), unit).is_symlink(),
            "state": None if state is None else state.state.value,
            "reason": "" if state is None else state.reason,
            # It is a link to /dev/null, which is there and is no file.
            "masked": os.path.realpath(unit_dir() / unit) == os.devnull,
            "hint": None if state is None else state.hint,
            "source": None if record is None else record.source,
            "target": None if record is None else record.target,
            **_what_it_runs(unit_dir() / unit, name),
        }

    return BootService(**context.ask(f"boot service of {name}", question))


def _what_it_runs(unit: Path, name: str) -> dict[str, str | None]:
    """Return what is wrong with what a unit runs, its drop-ins considered; nothing if unknown.

    Somebody may have installed hostprep elsewhere since, or edited the file. Whatever program it
    is, as `ionice` before hostprep: it stages if it has the words.
    """
    from hostprep.system.unit_commands import unit_commands

    commands, reset_by = unit_commands(unit)
    stages = re.compile(rf"\brestage\s+['\"]?{re.escape(name)}(?![\w.-])")
    ours = next((each for each in commands if stages.search(" ".join(each.words))), None)
    if ours is None:
        if reset_by is None or any(map(_may_stage, commands)):
            return {}
        return {"overridden_by": str(reset_by)}
    before = itertools.takewhile(lambda word: "restage" not in word, ours.words)
    for number, program in enumerate(before):
        if (number == 0 or os.path.basename(program) == "hostprep") and _is_gone(program):
            drop_in = ours.drop_in
            return {"lost_program": program, "lost_in": None if drop_in is None else str(drop_in)}
    return {}


def _may_stage(command: UnitCommand) -> bool:
    """Whether it may be one that stages: what systemd or a shell puts in is not known here."""
    return not command.words or ("restage" in command.text and bool(_PUT_IN.search(command.text)))


def _is_gone(program: str) -> bool:
    try:
        os.stat(program)
    except (FileNotFoundError, NotADirectoryError):
        return os.path.isabs(program)
    except OSError:
        return False
    return False
