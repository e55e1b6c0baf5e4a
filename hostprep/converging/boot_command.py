"""Whether the command of a boot service stages its data set, drop-ins included."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.system.unit_commands import UnitCommand, UnitSetting, unit_commands, unit_settings

_CONDITION = re.compile(r"Condition|Assert")
# Characters that are expanded in a unit's line, or in a shell command in it.
_PUT_IN = re.compile(r"[%$\\'\"`]")


@dataclass(frozen=True, slots=True)
class Astray:
    """Why a service does not stage: because of ``file``, the unit itself or a drop-in.

    ``lost_program`` is the program that it runs but that does not exist; with None, it does not run
    `hostprep restage`.
    """

    file: Path
    lost_program: str | None = None


def astray(unit: Path, name: str) -> Astray | None:
    """Return why the service in the file ``unit`` does not stage ``name``; None if it does, or may.

    Somebody may have installed hostprep elsewhere since, or edited the file. A command with the
    right words counts as staging whatever its program is, such as `ionice` before hostprep. Changes
    nothing.
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
    """Return the setting that keeps a service from staging, or may do so; None if there is none.

    That is a ``User=`` other than root, or a condition; hostprep writes neither. Changes nothing.
    """
    in_force: dict[str, UnitSetting] = {}
    for each in unit_settings(unit):
        if (each.section, each.name) == ("[Service]", "User"):
            kind, lifted = "User", each.value in ("", "root", "0")
        elif each.section == "[Unit]" and (condition := _CONDITION.match(each.name)):
            kind, lifted = condition[0], not each.value  # an empty one cancels all before it
        else:
            continue
        if lifted:
            in_force.pop(kind, None)
        else:
            in_force[kind] = each
    return in_force.get("User") or next(iter(in_force.values()), None)


def _may_stage(command: UnitCommand) -> bool:
    """Whether a command may stage: what systemd or a shell expands in it is not known here."""
    return not command.words or ("restage" in command.text and bool(_PUT_IN.search(command.text)))


def _is_gone(program: str) -> bool:
    try:
        os.stat(program)
    except (FileNotFoundError, NotADirectoryError):
        return os.path.isabs(program)
    except OSError:
        return False
    return False
