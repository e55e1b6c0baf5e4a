"""Keeping a command's last result for `hostprep check`; that it cannot be kept fails nothing."""

from __future__ import annotations

from typing import Any

from hostprep.cli.output import say
from hostprep.errors import HostprepError


def keep(command: str, fields: dict[str, Any]) -> None:
    """Store the result in the state directory; where that cannot be, say so on stderr."""
    from hostprep.system.last_results import keep_last

    try:
        keep_last(command, fields)
    except (OSError, HostprepError) as error:
        why = str(error)
        if isinstance(error, OSError):
            why = f"{error.strerror} ({error.filename})"
        say(f"hostprep: the result could not be kept for `hostprep check`: {why}")
        say("  -> HOSTPREP_STATE_DIR names another place for it")
