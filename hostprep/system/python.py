"""The Python that runs hostprep, and how to add to it."""

from __future__ import annotations

import shlex
import sys


def pip_line(*packages: str) -> str:
    """Return the line that installs ``packages`` beside hostprep.

    hostprep itself is on no package index: ``pip install 'hostprep[torch]'`` would ask one for it,
    and install whatever somebody has put there under that name. So the packages of an extra are
    named, not the extra.
    """
    return shlex.join([sys.executable or "python3", "-m", "pip", "install", *packages])
