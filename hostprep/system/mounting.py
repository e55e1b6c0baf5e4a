"""Mounting, growing and unmounting tmpfs through mount(8), and asking the kernel what it takes.

Each is given the descriptor of the ``lock`` under which it is done, which the command holds until
it ends: where we are killed meanwhile it goes on, and the next run, which would look before it is
done, waits for it.
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

# Numbers of system calls, the same on every architecture; glibc names them since 2.36.
_FSOPEN, _FSCONFIG = 430, 431
_FSOPEN_CLOEXEC, _SET_FLAG, _SET_STRING = 1, 0, 1
_SHMEM_HUGE = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

# No helper, no utab, and no second look at symlinks: the path has been walked already.
_PLAIN = ("--internal-only", "--no-mtab", "--no-canonicalize", "-t", "tmpfs")


@dataclass(frozen=True, slots=True)
class TmpfsSupport:
    """Which tmpfs options this kernel takes; None where it could not be asked."""

    noswap: bool | None
    huge: bool | None


def mount_tmpfs(path: str, source: str, options: Sequence[str], lock: int) -> None:
    """Mount a new tmpfs on the directory ``path``; raise ``CommandFailed`` with mount's words."""
    _run(lock, "mount", *_PLAIN, "-o", ",".join(options), source, path)


def remount_tmpfs(path: str, source: str, options: Sequence[str], lock: int) -> None:
    """Change options of the tmpfs on ``path`` in place.

    Source and path are both given, because mount(8) merges options from fstab otherwise. Options
    of the mount point (``nosuid``) that are left out are cleared; those of the file system stay.
    """
    given = ",".join(["remount", *options])
    _run(lock, "mount", *_PLAIN, "-o", given, source, path)


def unmount(path: str, lock: int) -> None:
    """Unmount what is on ``path``, without force and not lazily."""
    _run(lock, "umount", "--internal-only", "--no-canonicalize", path)


def tmpfs_support() -> TmpfsSupport:
    """Ask the kernel what a tmpfs may be given; versions do not tell, for options are ported back.

    It is asked as mount(8) asks it, by options given to a file system that is being set up
    (fsopen(2), fsconfig(2)), and which is then never mounted.
    """
    try:
        return TmpfsSupport(noswap=_takes(b"noswap"), huge=_takes(b"huge", b"within_size"))
    except OSError as error:
        if error.errno == errno.ENOSYS:  # before Linux 5.2, and so long before noswap
            return TmpfsSupport(noswap=False, huge=os.path.exists(_SHMEM_HUGE))
        return TmpfsSupport(noswap=None, huge=None)


def _takes(option: bytes, value: bytes | None = None) -> bool:
    """Whether a tmpfs takes the option; OSError where this process may not set up any."""
    libc = ctypes.CDLL(None, use_errno=True)
    context = libc.syscall(_FSOPEN, b"tmpfs", _FSOPEN_CLOEXEC)
    if context < 0:
        raise OSError(ctypes.get_errno(), "fsopen(2) failed")
    with closing_fd(context):
        command = _SET_FLAG if value is None else _SET_STRING
        return bool(libc.syscall(_FSCONFIG, context, command, option, value, 0) == 0)


def _run(lock: int, *args: str) -> None:
    """Run the command to its end; an interruption comes after it.

    What is killed in a call of the kernel's goes when that returns, and what it was asked for is
    done by then: later than anybody looks, where others mount and unmount at the same time.
    """
    held = HeldSignals()
    try:
        run(args, wanted_for="mount tmpfs volumes", package="mount", hands_on=[lock])
    finally:
        held.release()
