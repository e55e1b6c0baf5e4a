"""Whether the source of a data set answers, asked in a child that may be left behind."""

from __future__ import annotations

import os
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.host.fscrypt import locked_out
from hostprep.readiness.context import Context
from hostprep.readiness.model import CannotTell, Level

# Of the 2.5 s of a quick check; comparing takes the rest.
_REACH_SECONDS = {Level.QUICK: 1.0, Level.FULL: 10.0}


@dataclass(frozen=True, slots=True)
class Origin:
    """How a source answers: fine, empty, missing, no_directory, locked, denied, failing or hangs.

    ``why`` says what is wrong with it, and ``cure`` what helps where it is locked; ``real`` is its
    path without symlinks, None if it hangs.
    """

    state: str
    why: str = ""
    real: str | None = None
    cure: str = ""


def ask_source(context: Context, source: str) -> Origin:
    """Return how a source answers, in a child that is left behind where it hangs."""

    def question() -> dict[str, Any]:
        try:
            real = os.path.realpath(source)
            with os.scandir(source) as entries:
                state = "empty" if next(entries, None) is None else "fine"
            found = {"state": state, "real": real}
        except FileNotFoundError:
            found = {"state": "missing", "why": "it does not exist"}
        except NotADirectoryError:
            return {"state": "no_directory", "why": "it is no directory"}
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
