"""Mounting, growing and unmounting tmpfs by mount(8), and asking the kernel what it supports.

Each command gets the descriptor of the ``lock`` under which it runs, and holds the lock until it
ends: if we are killed, it continues, and the next run waits for it instead of looking too early.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Sequence

from hostprep.dataclass import dataclass
from hostprep.system.descriptors import closing_fd
from hostprep.system.held_signals import HeldSignals
from hostprep.system.run import run

# System call numbers, the same on every architecture; glibc has had the functions since 2.36.
_FSOPEN, _FSCONFIG = 430, 431
_FSOPEN_CLOEXEC, _SET_FLAG, _SET_STRING = 1, 0, 1
_SHMEM_HUGE = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

# No helper, no utab, and no second look at symlinks: the path has already been checked.
_PLAIN = ("--internal-only", "--no-mtab", "--no-canonicalize", "-t", "tmpfs")


@dataclass(frozen=True, slots=True)
class TmpfsSupport:
    """Which tmpfs options this kernel supports; None if it could not be asked."""

    noswap: bool | None
    huge: bool | None


def mount_tmpfs(path: str, source: str, options: Sequence[str], lock: int) -> None:
    """Mount a new tmpfs at the directory ``path``; raise ``CommandFailed`` with mount's message."""
    _run(lock, "mount", *_PLAIN, "-o", ",".join(options), source, path)


def remount_tmpfs(path: str, source: str, options: Sequence[str], lock: int) -> None:
    """Change options of the tmpfs at ``path`` in place.

    Both source and path are given, because otherwise mount(8) merges options from fstab. Options of
    the mount point (``nosuid``) that are left out are cleared; those of the file system stay.
    """
    given = ",".join(["remount", *options])
    _run(lock, "mount", *_PLAIN, "-o", given, source, path)


def unmount(path: str, lock: int) -> None:
    """Unmount what is at ``path``, neither by force nor lazily."""
    _run(lock, "umount", "--internal-only", "--no-canonicalize", path)


def tmpfs_support() -> TmpfsSupport:
    """Ask the kernel which options it supports for tmpfs; versions do not tell, due to backports.

    It is asked as mount(8) does it, by giving options to a file system that is being set up
    (fsopen(2), fsconfig(2)), which is then never mounted.
    """
    try:
        return TmpfsSupport(noswap=_takes(b"noswap"), huge=_takes(b"huge", b"within_size"))
    except OSError as error:
        if error.errno == errno.ENOSYS:  # before Linux 5.2, which is long before noswap
            return TmpfsSupport(noswap=False, huge=os.path.exists(_SHMEM_HUGE))
        return TmpfsSupport(noswap=None, huge=None)


def _takes(option: bytes, value: bytes | None = None) -> bool:
    """Whether a tmpfs supports the option; OSError if this process may not set one up."""
    libc = ctypes.CDLL(None, use_errno=True)
    context = libc.syscall(_FSOPEN, b"tmpfs", _FSOPEN_CLOEXEC)
    if context < 0:
        raise OSError(ctypes.get_errno(), "fsopen(2) failed")
    with closing_fd(context):
        command = _SET_FLAG if value is None else _SET_STRING
        return bool(libc.syscall(_FSCONFIG, context, command, option, value, 0) == 0)


def _run(lock: int, *args: str) -> None:
    """Run the command to its end; an interruption takes effect after that.

    A process that is killed inside a system call ends when the call returns, and by then has done
    what it was asked for: later than anybody looks, if others mount and unmount at the same time.
    """
    held = HeldSignals()
    try:
        run(args, wanted_for="mount tmpfs volumes", package="mount", hands_on=[lock])
    finally:
        held.release()
