"""Moving something to an unused name, and exchanging two names: renameat2(2)."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from pathlib import Path

_NOREPLACE, _EXCHANGE = 1, 2
_CURRENT_DIRECTORY = -100  # AT_FDCWD
# File systems without support (NFS, 9p, some FUSE) return EINVAL, old kernels ENOSYS.
_UNKNOWN = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)
# No C library that Python's wheels are made for lacks it; if one does, use the other way.
_renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
if _renameat2 is not None:
    _renameat2.argtypes = (
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_uint,
    )


def rename_new(old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
    """Move ``old`` below one directory to ``new`` below another; nothing is ever replaced.

    Raises FileExistsError if something has the name, and OSError as rename(2) does. If the file
    system cannot do it in one step, a file is moved by a hard link; without hard links, and for a
    directory, the name is checked right before the move.
    """
    if _renameat2 is not None:
        names = os.fsencode(old), os.fsencode(new)
        if _renameat2(src_dir_fd, names[0], dst_dir_fd, names[1], _NOREPLACE) == 0:
            return
        number = ctypes.get_errno()
        if number not in _UNKNOWN:
            raise OSError(number, os.strerror(number), old, None, new)
    _rename_by_steps(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)


def exchange(one: Path, other: Path) -> None:
    """Exchange what two names refer to, in one step, whatever that is.

    Raises OSError as rename(2) does, and if the file system cannot do that.
    """
    if _renameat2 is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    here = _CURRENT_DIRECTORY
    if _renameat2(here, os.fsencode(one), here, os.fsencode(other), _EXCHANGE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(one), None, str(other))


def _rename_by_steps(old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
    status = os.stat(old, dir_fd=src_dir_fd, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        try:
            os.link(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, follow_symlinks=False)
        except FileExistsError:
            raise
        except OSError:
            pass  # the file system has no hard links, or not for symlinks
        else:
            os.unlink(old, dir_fd=src_dir_fd)
            return
    try:
        os.stat(new, dir_fd=dst_dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
    else:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), old, None, new)
