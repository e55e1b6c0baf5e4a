"""Mounting, growing and unmounting tmpfs through mount(8), and asking the kernel what it takes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from hostprep.errors import HostprepError
from hostprep.system.run import run

# No helper, no utab, and no second look at symlinks: the path has been walked already.
_PLAIN = ("--internal-only", "--no-mtab", "--no-canonicalize", "-t", "tmpfs")


@dataclass(frozen=True, slots=True)
class TmpfsSupport:
    """Which tmpfs options this kernel takes; None where it could not be asked."""

    noswap: bool | None
    huge: bool | None


def mount_tmpfs(path: str, source: str, options: Sequence[str]) -> None:
    """Mount a new tmpfs on the directory ``path``; raise ``CommandFailed`` with mount's words."""
    _run("mount", *_PLAIN, "-o", ",".join(options), source, path)


def remount_tmpfs(path: str, source: str, options: Sequence[str]) -> None:
    """Change options of the tmpfs on ``path`` in place.

    Source and path are both given, because mount(8) merges options from fstab otherwise. Options
    of the mount point (``nosuid``) that are left out are cleared; those of the file system stay.
    """
    given = ",".join(["remount", *options])
    _run("mount", *_PLAIN, "-o", given, source, path)


def unmount(path: str) -> None:
    """Unmount what is on ``path``, without force and not lazily."""
    _run("umount", "--internal-only", "--no-canonicalize", path)


@functools.cache
def tmpfs_support() -> TmpfsSupport:
    """Ask the kernel by mounting: versions do not tell, since distributions port options back.

    Each attempt is a tmpfs of 4 KiB in a mount namespace of its own, which ends with the command,
    so that no other process ever sees it. Asked once a process; about 5 ms an attempt.
    """
    if _takes("noswap,huge=within_size"):  # as on most kernels by now, in one attempt
        return TmpfsSupport(noswap=True, huge=True)
    noswap, huge = _takes("noswap"), _takes("huge=within_size")
    if not (noswap or huge) and not _takes("size=4k"):
        return TmpfsSupport(noswap=None, huge=None)
    return TmpfsSupport(noswap=noswap, huge=huge)


def _takes(option: str) -> bool:
    mounting = ("mount", "--internal-only", "--no-mtab", "-t", "tmpfs", "-o", f"size=4k,{option}")
    try:
        # The new mount namespace is the command's alone; where in it the tmpfs lies is no matter.
        _run("unshare", "--mount", *mounting, "hostprep-probe", "/")
    except HostprepError:  # refused, or unshare(1) is missing: the attempt without options tells
        return False
    return True


def _run(*args: str) -> None:
    run(args, wanted_for="mount tmpfs volumes", package="mount")
