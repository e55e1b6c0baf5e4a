"""Whether the paths of a spec answer, and where they lead, asked in a child that may hang."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.host.fscrypt import locked_out
from hostprep.readiness.context import Context
from hostprep.readiness.model import CannotTell, Level
from hostprep.system.following import followed

# A quick check has 2.5 s; comparing takes the rest.
_REACH_SECONDS = {Level.QUICK: 1.0, Level.FULL: 10.0}
_WAY_SECONDS = {Level.QUICK: 0.8, Level.FULL: 10.0}


@dataclass(frozen=True, slots=True)
class Origin:
    """How a source answers: fine, empty, missing, no_directory, locked, denied, failing or hangs.

    ``why`` says what is wrong, and ``cure`` what helps if it is locked; ``real`` is its path
    without symlinks, None if it hangs.
    """

    state: str
    why: str = ""
    real: str | None = None
    cure: str = ""


def ask_source(context: Context, source: str) -> Origin:
    """Return how a source answers, asked in a child that is abandoned if it hangs."""

    def question() -> dict[str, Any]:
        try:
            real = followed(source)
            with os.scandir(source) as entries:
                state = "empty" if next(entries, None) is None else "fine"
            found = {"state": state, "real": real}
        except FileNotFoundError:
            found = {"state": "missing", "why": "it does not exist"}
        except NotADirectoryError:
            return {"state": "no_directory", "why": "it is not a directory"}
        except PermissionError:
            return {"state": "denied", "why": "this user may not read it"}
        except OSError as error:
            return {"state": "failing", "why": error.strerror or str(error)}
        if locked := locked_out(source):
            said, cure = locked
            return {"state": "locked", "why": f"it {said}", "real": real, "cure": cure}
        return found

    patience = _REACH_SECONDS[context.level]
    try:
        return Origin(**context.ask(f"source {source}", question, patience_seconds=patience))
    except CannotTell as error:
        return Origin("hangs", error.message)


@dataclass(frozen=True, slots=True)
class Way:
    """Where a path leads: ``real`` is it without symlinks, None if it does not answer (``why``).

    ``closed`` is the directory that keeps this user from finding out, None if there is none.
    """

    real: str | None
    closed: str | None = None
    why: str = ""


def ask_way(context: Context, path: str) -> Way:
    """Return where a target's directory leads, asked in a child that is abandoned if it hangs."""
    root = context.root

    def question() -> dict[str, str | None]:
        below = str(root / path.lstrip("/"))
        closed = None
        try:
            real = os.path.realpath(below, strict=True)
        except OSError as error:
            real = followed(below)
            if isinstance(error, PermissionError):
                closed = os.path.dirname(str(error.filename))
        if root != Path("/") and Path(real).is_relative_to(root):
            real = f"/{Path(real).relative_to(root)}"
        return {"real": real, "closed": closed}

    patience = _WAY_SECONDS[context.level]
    name = f"where {path} leads"
    try:
        found = context.ask(name, question, patience_seconds=patience, below_root=True)
    except CannotTell as error:
        return Way(None, why=error.message.rstrip("."))
    return Way(**found)
