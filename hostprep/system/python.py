"""The Python that runs hostprep: processes of its own, and how to add to it."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Collection
from importlib.machinery import PathFinder
from pathlib import Path

# What hostprep is in: site-packages, or a checkout.
_HOME = str(Path(__file__).parents[2])


def own_module(name: str, *arguments: str) -> list[str]:
    """Return the command that runs one of hostprep's modules, in ``own_environment``.

    -P: whoever owns the current directory must not choose what is imported there.
    """
    return [sys.executable, "-P", "-m", name, *arguments]


def own_environment() -> dict[str, str]:
    """Return the variables by which a process finds this hostprep; none where it does without.

    ``python -m hostprep`` in a checkout finds it in the current directory, first in its path. That
    folder alone is named: this process runs from it already.
    """
    theirs = sys.path if sys.flags.safe_path else sys.path[1:]
    if _HOME in theirs:
        return {}
    folders = [_HOME, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(folders)}


def taken_by_pythonpath(error: BaseException, packages: Collection[str]) -> str | None:
    """Return the file that ``PYTHONPATH`` put in the place of one that hostprep needs, or None.

    It is one of ``packages``, one of Python's own modules, or where ``error`` arose. A file that no
    other folder has takes nobody's place.
    """
    import traceback  # not at every start

    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    folders = {os.path.realpath(folder) for folder in named} - {os.path.realpath(_HOME)}
    others = [folder for folder in sys.path if os.path.realpath(folder) not in folders]
    loaded = [
        getattr(module, "__file__", None)
        for name, module in list(sys.modules.items())
        if name in packages or name in sys.stdlib_module_names
    ]
    arose = [frame.filename for frame in reversed(traceback.extract_tb(error.__traceback__))]
    # A file that does not compile has no frame, and one that lacks a name none of its own.
    named_by_it = (getattr(error, "filename", None), getattr(error, "path", None))
    for file in filter(None, (*named_by_it, *arose, *loaded)):
        for folder in folders:
            inside = os.path.relpath(os.path.realpath(file), folder)
            name = inside.partition(os.sep)[0].partition(".")[0]
            if name and PathFinder.find_spec(name, others) is not None:
                return str(file)
    return None


def pip_line(*packages: str) -> str:
    """Return the line that installs ``packages`` beside hostprep.

    hostprep itself is on no package index: ``pip install 'hostprep[torch]'`` would ask one for it,
    and install whatever somebody has put there under that name. So the packages of an extra are
    named, not the extra.
    """
    return shlex.join([sys.executable or "python3", "-m", "pip", "install", *packages])
