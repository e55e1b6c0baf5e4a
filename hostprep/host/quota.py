"""What a quota leaves this user of a file system: quotactl(2), of an open file as of Linux 5.14.

Those of projects are not asked for: what is free by statvfs(3) is what they leave.
"""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.host.capabilities import Capability, has_capability, users_are_mapped
from hostprep.system.descriptors import closing_fd
from hostprep.units import KIB

_QUOTACTL_FD = 443  # glibc has no function for it; the number is one for all but MIPS and Alpha
_GET_OF_USER = 0x800007 << 8  # Q_GETQUOTA, USRQUOTA
# struct if_dqblk of linux/quota.h: limits of KiB (hard, soft), bytes; the same of inodes, which are
# counted in inodes; the end of the grace of each, and what of all that is told.
_TOLD = struct.Struct("=8QI4x")
# Q_XGETQSTAT of linux/dqblk_xfs.h, which all file systems answer: struct fs_quota_stat, the flags
# in whose second two bytes have FS_QUOTA_UDQ_ENFD where limits of users hold.
_GET_STATE, _STATE_BYTES, _USERS_ARE_HELD = 0x5805 << 8, 80, 1 << 1


@dataclass(frozen=True, slots=True)
class QuotaLeft:
    """The bytes and inodes that this user may still take of a file system; None: no limit."""

    size_bytes: int | None
    inodes: int | None


def quota_left(path: str, root: Path = Path("/")) -> QuotaLeft | None:
    """Return what this user's quota leaves on the file system of ``path``.

    None where there is none, where none holds (root; or it is switched off, and what is used is
    counted alone) or where it cannot be asked, as on NFS.
    """
    # What sys_resource lets pass, the kernel asks of its own user 0 alone.
    if has_capability(Capability.SYS_RESOURCE, root) and not users_are_mapped(root):
        return None
    told = _ask(path)
    return None if told is None else parse(told, time.time())


def parse(told: bytes, now: float) -> QuotaLeft:
    """Read what the kernel tells of a user's quota; ``now`` is in seconds since the epoch."""
    hard, soft, used, most, many, count, grace, grace_inodes, _ = _TOLD.unpack(told)
    return QuotaLeft(
        _left(hard * KIB, soft * KIB, used, is_over=0 < grace <= now),
        _left(most, many, count, is_over=0 < grace_inodes <= now),
    )


def _left(hard: int, soft: int, used: int, *, is_over: bool) -> int | None:
    """Return what is left of a limit, 0 being none; the soft one holds once its grace is over."""
    if soft and used > soft and is_over:
        return 0
    return max(0, hard - used) if hard else None


def _ask(path: str) -> bytes | None:
    try:
        with closing_fd(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as descriptor:
            state = _call(descriptor, _GET_STATE, 0, _STATE_BYTES)
            # Of one that is counted and does not hold, the limits are told all the same.
            if state is not None and not struct.unpack_from("=H", state, 2)[0] & _USERS_ARE_HELD:
                return None
            return _call(descriptor, _GET_OF_USER, os.geteuid(), _TOLD.size)
    except OSError:  # one may put files into what one may not read
        return None


def _call(descriptor: int, command: int, user: int, size: int) -> bytes | None:
    """Return the ``size`` bytes that the kernel answers, None where it does not."""
    import ctypes

    told = ctypes.create_string_buffer(size)
    words = ctypes.c_uint(command), ctypes.c_uint(user)
    return None if ctypes.CDLL(None).syscall(_QUOTACTL_FD, descriptor, *words, told) else told.raw
