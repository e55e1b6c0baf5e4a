"""What a quota leaves this user on a file system: quotactl(2), for an open file since Linux 5.14.

Project quotas are not queried: what statvfs(3) reports as free is what they leave.
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

_QUOTACTL_FD = 443  # glibc has no function for it; the number is the same on all but MIPS and Alpha
_GET_OF_USER = 0x800007 << 8  # Q_GETQUOTA, USRQUOTA
# struct if_dqblk of linux/quota.h: limits in KiB (hard, soft), usage in bytes; the same for inodes,
# counted in inodes; the end of each grace period, and which of these fields are valid.
_TOLD = struct.Struct("=8QI4x")
# Q_XGETQSTAT of linux/dqblk_xfs.h, which all file systems answer: struct fs_quota_stat, with the
# flags in its second two bytes, including FS_QUOTA_UDQ_ENFD if user limits are enforced.
_GET_STATE, _STATE_BYTES, _USERS_ARE_HELD = 0x5805 << 8, 80, 1 << 1


@dataclass(frozen=True, slots=True)
class QuotaLeft:
    """The bytes and inodes that this user may still take on a file system; None: no limit."""

    size_bytes: int | None
    inodes: int | None


def quota_left(path: str, root: Path = Path("/")) -> QuotaLeft | None:
    """Return what this user's quota leaves on the file system of ``path``.

    None if there is none, if none is enforced (for root; or switched off, with usage only counted)
    or if it cannot be queried, as on NFS.
    """
    # The exemption by CAP_SYS_RESOURCE applies only to the kernel's own user 0.
    if has_capability(Capability.SYS_RESOURCE, root) and not users_are_mapped(root):
        return None
    told = _ask(path)
    return None if told is None else parse(told, time.time())


def parse(told: bytes, now: float) -> QuotaLeft:
    """Parse what the kernel says about a user's quota; ``now`` is in seconds since the epoch."""
    hard, soft, used, most, many, count, grace, grace_inodes, _ = _TOLD.unpack(told)
    return QuotaLeft(
        _left(hard * KIB, soft * KIB, used, is_over=0 < grace <= now),
        _left(most, many, count, is_over=0 < grace_inodes <= now),
    )


def _left(hard: int, soft: int, used: int, *, is_over: bool) -> int | None:
    """Return what is left of a limit, 0 being none; the soft one applies once its grace is over."""
    if soft and used > soft and is_over:
        return 0
    return max(0, hard - used) if hard else None


def _ask(path: str) -> bytes | None:
    try:
        with closing_fd(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as descriptor:
            state = _call(descriptor, _GET_STATE, 0, _STATE_BYTES)
            # If quotas are only counted and not enforced, the limits are reported nevertheless.
            if state is not None and not struct.unpack_from("=H", state, 2)[0] & _USERS_ARE_HELD:
                return None
            return _call(descriptor, _GET_OF_USER, os.geteuid(), _TOLD.size)
    except OSError:  # a user may write into what that user may not read
        return None


def _call(descriptor: int, command: int, user: int, size: int) -> bytes | None:
    """Return the kernel's answer of ``size`` bytes, None if it gives none."""
    import ctypes

    told = ctypes.create_string_buffer(size)
    words = ctypes.c_uint(command), ctypes.c_uint(user)
    return None if ctypes.CDLL(None).syscall(_QUOTACTL_FD, descriptor, *words, told) else told.raw
