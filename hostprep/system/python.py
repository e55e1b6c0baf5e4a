"""The Python that runs hostprep: processes of its own, and how to add to it."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

# What hostprep is in: site-packages, or a checkout.
_HOME = str(Path(__file__).parents[2])


def own_module(name: str, *arguments: str) -> list[str]:
    """Return the command that runs one of hostprep's modules, in ``own_environment``.

    -P: whoever owns the current directory must not choose what is imported there.
    """
    return [sys.executable, "-P", "-m", name, *arguments]


def own_environment() -> dict[str, str]:
    """Return what a process needs to find this hostprep, and no other: nothing where it does.

    ``python -m hostprep`` in a checkout has it from the current directory, the first of its path.
    That of all folders is named, which this process runs by already.
    """
    theirs = sys.path if sys.flags.safe_path else sys.path[1:]
    if _HOME in theirs:
        return {}
    folders = [_HOME, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(folders)}


def pip_line(*packages: str) -> str:
    """Return the line that installs ``packages`` beside hostprep.

    hostprep itself is on no package index: ``pip install 'hostprep[torch]'`` would ask one for it,
    and install whatever somebody has put there under that name. So the packages of an extra are
    named, not the extra.
    """
    return shlex.join([sys.executable or "python3", "-m", "pip", "install", *packages])
