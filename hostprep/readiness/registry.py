"""All checks there are: every module below ``hostprep.readiness.checks`` has one ``CHECK``."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import re
from collections.abc import Collection, Iterable, Mapping
from types import ModuleType
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError, UsageError
from hostprep.readiness import checks as package
from hostprep.readiness.model import Check, Level

_CODE = re.compile(r"HP[0-9]{3}")


@dataclass(frozen=True, slots=True)
class Selection:
    """The checks that run, and the codes of those that do not, each with the reason."""

    checks: tuple[Check[Any], ...]
    left_out: tuple[tuple[str, str], ...]


def all_checks() -> tuple[Check[Any], ...]:
    """Return every check, by code.

    Raises ``ValueError`` if two have the same code, ``HostprepError`` if they cannot be listed.
    """
    names = sorted(found.name for found in pkgutil.iter_modules(package.__path__))
    if not names:  # that is what comes of a folder that cannot be read
        raise HostprepError(
            f"hostprep's own checks in {package.__path__[0]} cannot be listed.",
            "raise `ulimit -n` if too many files are open; else see its mode, and dmesg",
        )
    return collect(importlib.import_module(f"{package.__name__}.{name}") for name in names)


def collect(modules: Iterable[ModuleType]) -> tuple[Check[Any], ...]:
    """Return the checks of ``modules`` by code; modules whose name begins with ``_`` have none."""
    found: dict[str, str] = {}
    collected = []
    for module in modules:
        if module.__name__.rpartition(".")[2].startswith("_"):
            continue  # code that several checks share
        check: Check[Any] = module.CHECK
        if not _CODE.fullmatch(check.code):
            raise ValueError(f"{module.__name__}: {check.code!r} is not a code such as HP012")
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
    """Return the checks to run: those of the level, or those named, whatever their level.

    Raises ``UsageError`` for an unknown code.
    """
    named, omitted = ({find(checks, code).code for code in codes} for codes in (only, skip))
    chosen, left_out = [], []
    for check in checks:
        reason = None
        if check.code in omitted:
            reason = "--skip"
        elif named and check.code not in named:
            reason = "not in --only"
        elif not named and level is Level.QUICK and check.level is Level.FULL:
            reason = "needs --full"
        if reason is None:
            chosen.append(check)
        else:
            left_out.append((check.code, reason))
    return Selection(tuple(chosen), tuple(left_out))


def find(checks: Collection[Check[Any]], code: str) -> Check[Any]:
    """Return the check of this code, in upper or lower case.

    If there is none, raises ``UsageError`` with the checks that may be meant.
    """
    by_code = {check.code: check for check in checks}
    if found := by_code.get(code.upper()):
        return found
    near = ", ".join(_near(by_code, code.strip()))
    meant = f"did you mean {near}? " if near else ""
    raise UsageError(f"there is no check {code!r}.", f"{meant}`hostprep explain` lists all")


def _near(by_code: Mapping[str, Check[Any]], written: str) -> list[str]:
    """Return the codes that a number, a mistyped code, or words of a title may mean."""
    if number := re.fullmatch("(?:HP)?0*([0-9]{1,3})", written.upper()):
        code = f"HP{int(number[1]):03d}"
        return [code] if code in by_code else [each for each in by_code if each[:4] == code[:4]]
    if close := difflib.get_close_matches(written.upper(), by_code, n=1, cutoff=0.7):
        return close
    titles = {check.code: check.title for check in by_code.values()}
    named = [code for code, title in titles.items() if written.lower() in title.lower()]
    return [f"{code} ({titles[code]})" for code in named] if written else []
