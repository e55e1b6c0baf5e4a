"""What a shell completes: commands and options by Typer, and the names of what hostprep has here.

Typer's own ``--install-completion`` edits the user's files, and guesses the shell: ``--completion``
prints, of the shell that is named. Of a run for people nothing of this is imported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from enum import StrEnum

_REQUEST = "_HOSTPREP_COMPLETE"  # set by the shell's function, to what it wants
# The shells' functions evaluate what they are given: a name that is more than a word is left out.
_WORD = r"[A-Za-z0-9_.,+@%/-]+"


class Shell(StrEnum):
    """A shell whose completion is known."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def is_asked_for() -> bool:
    """Return whether this run is to answer a shell."""
    return _REQUEST in os.environ


def prepare() -> None:
    """Make the parser ready to answer a shell."""
    from typer.completion import completion_init  # type: ignore[attr-defined]

    completion_init()


def script(shell: str) -> str:
    """Return what makes ``shell`` ask hostprep for completions."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    return get_completion_script(prog_name="hostprep", complete_var=_REQUEST, shell=shell)


def dataset_names() -> list[str]:
    """Return the names of the data sets that are on record."""
    from hostprep.staging.record.records import all_records

    return _words(lambda: (record.name for record in all_records()))


def volume_paths() -> list[str]:
    """Return the mount points of hostprep's volumes."""
    from hostprep.volumes.records import all_records

    return _words(lambda: (record.path for record in all_records()))


def check_codes() -> list[str]:
    """Return the codes of all checks."""
    from hostprep.readiness.registry import all_checks

    return _words(lambda: (check.code for check in all_checks()))


def _words(names: Callable[[], Iterable[str]]) -> list[str]:
    """Return the names that are words; none where they cannot be had: a prompt takes no error."""
    try:
        return [name for name in dict.fromkeys(names()) if re.fullmatch(_WORD, name)]
    except Exception:
        return []
