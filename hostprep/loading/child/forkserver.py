"""The process that forks a loader's workers, as a training has it (Python's default from 3.14 on).

There it has imported what the training's script imports, torch above all, and its workers are
forked from that: they share the memory and start at once. This process is no script, so the module
of the loader is named instead.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from multiprocessing import forkserver, get_context

# Before, it passed the script by, and each worker imported all of it anew.
_IMPORTS_SCRIPTS = {(3, 13): (3, 13, 8), (3, 14): (3, 14, 1)}
_SCRIPT = ["__main__"]
_ENDING = "hostprep.loading.child.ending"


def imports_once(start_method: str) -> bool:
    """Return whether workers are forked from a process that has imported a training's script.

    A list of modules that the user's own code has set for it stands instead of the script.
    """
    first = _IMPORTS_SCRIPTS.get(sys.version_info[:2])
    imports = sys.version_info >= (3, 14) if first is None else sys.version_info >= first
    named = forkserver._forkserver._preload_modules  # type: ignore[attr-defined]
    return start_method == "forkserver" and imports and named == _SCRIPT


def start(modules: Iterable[str] | None) -> None:
    """Start it, with ``modules`` imported or None for what it imports anyway, until it can fork.

    By this thread: it ends with the one that started it.
    """
    context = get_context("forkserver")
    named = forkserver._forkserver._preload_modules  # type: ignore[attr-defined]
    context.set_forkserver_preload([_ENDING, *(named if modules is None else modules)])
    first = context.Process(target=int)
    try:
        first.start()
    except (OSError, EOFError):
        # One of the modules ended it. What is wrong there, the workers tell in their own words.
        context.set_forkserver_preload([_ENDING])
    else:
        first.join()
