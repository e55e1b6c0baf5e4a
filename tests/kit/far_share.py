"""A share that fstab can mount: a FUSE passthrough that serves until it is unmounted.

An fstab line of the type ``fuse`` names a program, as mount.fuse3(8) says; ``program`` writes one.
Stop the server (SIGSTOP) and whoever touches the share hangs, as with a dead NFS server.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from tests.kit.stagecraft import REPOSITORY, processes_with

_MODULE = "tests.kit.far_share"


def program(folder: Path) -> Path:
    """Write the program that serves a share; mount.fuse calls it with ROOT POINT -o OPTIONS."""
    path = folder / "far-share"
    path.write_text(
        f"#!/bin/sh\ncd {shlex.quote(str(REPOSITORY))}\n"
        f'exec {shlex.quote(sys.executable)} -m {_MODULE} "$1" "$2"\n'
    )
    path.chmod(0o755)
    return path


def servers(root: Path) -> list[int]:
    """Return the processes that serve ``root``."""
    return [pid for pid in processes_with(_MODULE) if pid in processes_with(str(root))]


def _serve(root: str, point: str) -> None:
    import mfusepy

    from tests.kit.passthrough import ReadOnly

    mfusepy.FUSE(
        ReadOnly(root),
        point,
        foreground=False,
        raw_fi=True,
        allow_other=True,
        ro=True,
        fsname="far-share",
        use_ino=True,
        attr_timeout=0,
        entry_timeout=0,
    )


if __name__ == "__main__":
    _serve(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]))
