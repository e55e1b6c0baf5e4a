"""The process that forks a loader's workers, as in a training (Python's default from 3.14 on).

In a training it has imported what the training script imports, above all torch, and workers are
forked from that: they share its memory and start at once. The measuring child is not a script, so
it names the loader's module instead.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from multiprocessing import forkserver, get_context

# Earlier versions left the script out, and each worker imported all of it anew.
_IMPORTS_SCRIPTS = {(3, 13): (3, 13, 8), (3, 14): (3, 14, 1)}
_SCRIPT = ["__main__"]
_ENDING = "hostprep.loading.child.ending"


def imports_once(start_method: str) -> bool:
    """Return whether workers are forked from a process that has imported the training script.

    If the user's own code has set a list of modules for it, that list replaces the script.
    """
    first = _IMPORTS_SCRIPTS.get(sys.version_info[:2])
    imports = sys.version_info >= (3, 14) if first is None else sys.version_info >= first
    named = forkserver._forkserver._preload_modules  # type: ignore[attr-defined]
    return start_method == "forkserver" and imports and named == _SCRIPT


def start(modules: Iterable[str] | None) -> None:
    """Start it with ``modules`` imported (None: its usual imports), and wait until it can fork.

    Started by this thread: it ends with the thread that started it.
    """
    context = get_context("forkserver")
    named = forkserver._forkserver._preload_modules  # type: ignore[attr-defined]
    context.set_forkserver_preload([_ENDING, *(named if modules is None else modules)])
    first = context.Process(target=int)
    try:
        first.start()
    except (OSError, EOFError):
        # One of the modules ended it. The workers report what is wrong there in their own words.
        context.set_forkserver_preload([_ENDING])
    else:
        first.join()
