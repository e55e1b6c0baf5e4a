"""The Python that runs hostprep: starting processes with it, and installing packages for it."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Collection
from importlib.machinery import PathFinder
from pathlib import Path

# The folder that contains hostprep: site-packages, or a checkout.
_HOME = str(Path(__file__).parents[2])


def own_module(name: str, *arguments: str) -> list[str]:
    """Return the command that runs one of hostprep's modules, in ``own_environment``.

    -P: the owner of the current directory must not decide what is imported.
    """
    return [sys.executable, "-P", "-m", name, *arguments]


def own_environment() -> dict[str, str]:
    """Return the variables with which a process finds this hostprep; none if it needs none.

    ``python -m hostprep`` in a checkout finds it in the current directory, first in its path. Only
    that folder is named, from which this process runs already.
    """
    theirs = sys.path if sys.flags.safe_path else sys.path[1:]
    if _HOME in theirs:
        return {}
    folders = [_HOME, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(folders)}


def taken_by_pythonpath(error: BaseException, packages: Collection[str]) -> str | None:
    """Return the file from ``PYTHONPATH`` that replaces one which hostprep needs, or None.

    It belongs to one of ``packages`` or of Python's own modules, or ``error`` arose in it. A file
    that exists in no other folder replaces nothing.
    """
    import traceback  # not needed at every start

    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    folders = {os.path.realpath(folder) for folder in named} - {os.path.realpath(_HOME)}
    others = [folder for folder in sys.path if os.path.realpath(folder) not in folders]
    loaded = [
        getattr(module, "__file__", None)
        for name, module in list(sys.modules.items())
        if name in packages or name in sys.stdlib_module_names
    ]
    arose = [frame.filename for frame in reversed(traceback.extract_tb(error.__traceback__))]
    # A file that does not compile has no frame, and a missing name has none in the file.
    named_by_it = (getattr(error, "filename", None), getattr(error, "path", None))
    for file in filter(None, (*named_by_it, *arose, *loaded)):
        for folder in folders:
            inside = os.path.relpath(os.path.realpath(file), folder)
            name = inside.partition(os.sep)[0].partition(".")[0]
            if name and PathFinder.find_spec(name, others) is not None:
                return str(file)
    return None


def pip_line(*packages: str) -> str:
    """Return the command line that installs ``packages`` next to hostprep.

    hostprep itself is on no package index: ``pip install 'hostprep[torch]'`` would look for it on
    one, and install whatever somebody has put there under that name. So this names the packages of
    an extra, not the extra.
    """
    return shlex.join([sys.executable or "python3", "-m", "pip", "install", *packages])
