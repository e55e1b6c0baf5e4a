"""Whether what a boot service runs stages its data set, its drop-ins considered."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.system.unit_commands import UnitCommand, UnitSetting, unit_commands, unit_settings

_CONDITION = re.compile(r"Condition|Assert")
# What stands for something else in a unit's line, or in a shell's that it runs.
_PUT_IN = re.compile(r"[%$\\'\"`]")


@dataclass(frozen=True, slots=True)
class Astray:
    """Why a service does not stage: the doing of ``file``, the unit itself or a drop-in.

    ``lost_program`` is what it runs and is not there; with None it runs no `hostprep restage`.
    """

    file: Path
    lost_program: str | None = None


def astray(unit: Path, name: str) -> Astray | None:
    """Return why the service in the file ``unit`` does not stage ``name``; None: it does, or may.

    Somebody may have installed hostprep elsewhere since, or edited the file. Whatever program it
    is, as `ionice` before hostprep: it stages if it has the words. Changes nothing.
    """
    if not (unit.is_file() and os.access(unit, os.R_OK)):
        return None
    commands, reset_by = unit_commands(unit)
    stages = re.compile(rf"\brestage\s+['\"]?{re.escape(name)}(?![\w.-])")
    ours = next((each for each in commands if stages.search(" ".join(each.words))), None)
    if ours is None:
        return None if any(map(_may_stage, commands)) else Astray(reset_by or unit)
    before = itertools.takewhile(lambda word: "restage" not in word, ours.words)
    for number, program in enumerate(before):
        if (number == 0 or os.path.basename(program) == "hostprep") and _is_gone(program):
            return Astray(ours.drop_in or unit, program)
    return None


def hindrance(unit: Path) -> UnitSetting | None:
    """Return the setting that keeps a service from staging, or may do so; None where there is none.

    A ``User=`` other than root, or a condition, of which hostprep writes neither. Changes nothing.
    """
    in_force: dict[str, UnitSetting] = {}
    for each in unit_settings(unit):
        if (each.section, each.name) == ("[Service]", "User"):
            kind, lifted = "User", each.value in ("", "root", "0")
        elif each.section == "[Unit]" and (condition := _CONDITION.match(each.name)):
            kind, lifted = condition[0], not each.value  # an empty one lifts all before it
        else:
            continue
        if lifted:
            in_force.pop(kind, None)
        else:
            in_force[kind] = each
    return in_force.get("User") or next(iter(in_force.values()), None)


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
