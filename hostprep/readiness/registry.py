"""Which checks there are: every module below ``hostprep.readiness.checks`` has one ``CHECK``."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from hostprep.errors import UsageError
from hostprep.readiness import checks as package
from hostprep.readiness.model import Check, Level

_CODE = re.compile(r"HP[0-9]{3}")


@dataclass(frozen=True, slots=True)
class Selection:
    """The checks that run, and the codes of those that do not, each with the reason."""

    checks: tuple[Check[Any], ...]
    left_out: tuple[tuple[str, str], ...]


def all_checks() -> tuple[Check[Any], ...]:
    """Return every check, by code. Raises ``ValueError`` where two have the same code."""
    names = sorted(found.name for found in pkgutil.iter_modules(package.__path__))
    return collect(importlib.import_module(f"{package.__name__}.{name}") for name in names)


def collect(modules: Iterable[ModuleType]) -> tuple[Check[Any], ...]:
    """Return the checks of ``modules`` by code; those whose name begins with ``_`` have none."""
    found: dict[str, str] = {}
    collected = []
    for module in modules:
        if module.__name__.rpartition(".")[2].startswith("_"):
            continue  # what several checks share
        check: Check[Any] = module.CHECK
        if not _CODE.fullmatch(check.code):
            raise ValueError(f"{module.__name__}: {check.code!r} is no code such as HP012")
        if check.code in found:
            raise ValueError(f"{check.code} is in {found[check.code]} and in {module.__name__}")
        found[check.code] = module.__name__
        collected.append(check)
    return tuple(sorted(collected, key=lambda check: check.code))


def select(
    checks: Collection[Check[Any]],
    *,
    level: Level,
    only: Collection[str] = (),
    skip: Collection[str] = (),
) -> Selection:
    """Return the checks that are to run: of the level, or those named, whatever their level.

    Raises ``UsageError`` for a code that there is not.
    """
    for code in (*only, *skip):
        find(checks, code)
    chosen, left_out = [], []
    for check in checks:
        reason = None
        if check.code in skip:
            reason = "--skip"
        elif only and check.code not in only:
            reason = "not in --only"
        elif not only and level is Level.QUICK and check.level is Level.FULL:
            reason = "needs --full"
        if reason is None:
            chosen.append(check)
        else:
            left_out.append((check.code, reason))
    return Selection(tuple(chosen), tuple(left_out))


def find(checks: Collection[Check[Any]], code: str) -> Check[Any]:
    """Return the check of this code; raise ``UsageError`` with the nearest where there is none."""
    by_code = {check.code: check for check in checks}
    if code in by_code:
        return by_code[code]
    near = difflib.get_close_matches(code.upper(), by_code, n=1, cutoff=0.5)
    nearest = f"did you mean {near[0]}? " if near else ""
    raise UsageError(f"there is no check {code!r}.", f"{nearest}`hostprep explain` lists all")
