"""Keeping a result for `hostprep check`. Failing to keep it does not fail the command."""

from __future__ import annotations

from collections.abc import Callable

from hostprep.cli.output import printable, say
from hostprep.errors import HostprepError, without_claim


def kept(store: Callable[[], object]) -> bool:
    """Store a result in the state directory; say so on stderr if that fails."""
    try:
        store()
    except (OSError, HostprepError) as error:
        why = without_claim(str(error))
        if isinstance(error, OSError):
            why = f"{error.strerror} ({error.filename})"
        say(printable(f"hostprep: the result could not be kept for `hostprep check`: {why}"))
        say("  -> HOSTPREP_STATE_DIR names another place for it")
        return False
    return True
