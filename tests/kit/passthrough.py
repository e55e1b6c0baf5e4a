"""FUSE operations that pass everything through to a directory: what rigs and faults build upon."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Any

import mfusepy

_STAT_FIELDS = (
    "st_mode", "st_ino", "st_nlink", "st_uid", "st_gid", "st_size", "st_blocks", "st_blksize",
    "st_rdev",
)  # fmt: skip
# The kernel has dealt with both before it asks; the latter would want aligned buffers here.
_KERNELS_OWN = os.O_APPEND | os.O_DIRECT
# What libfuse puts for a time that is not to be set, or to be set to now: no seconds and these.
_UTIME_OMIT, _UTIME_NOW = (1 << 30) - 2, (1 << 30) - 1


def many_threads(count: int) -> dict[str, int]:
    """Return the options to serve ``count`` requests at once (libfuse 3.12 brought a limit: 10)."""
    version = (mfusepy.fuse_version_major, mfusepy.fuse_version_minor)
    return {"max_threads": count, "max_idle_threads": count} if version >= (3, 12) else {}


def attributes(found: os.stat_result) -> dict[str, int]:
    """Return what mfusepy's getattr wants, times in nanoseconds (``use_ns``)."""
    return {
        **{name: getattr(found, name) for name in _STAT_FIELDS},
        "st_atime": found.st_atime_ns,
        "st_mtime": found.st_mtime_ns,
        "st_ctime": found.st_ctime_ns,
    }


class ReadOnly(mfusepy.Operations):
    """The entries below ``root``, to look at and to read. Paths are as mfusepy hands them over."""

    use_ns = True

    def __init__(self, root: str) -> None:
        self._root = os.fsencode(root)

    def real(self, path: str) -> bytes:
        """Return the path below the root, in the bytes that the kernel has."""
        return self._root + path.encode("utf-8", "surrogateescape")

    def init_with_config(self, conn_info: Any, config_3: Any) -> None:
        """Let many requests wait at once: the kernel's own limit is 12 in the background."""
        if conn_info is not None:
            conn_info.max_background = 1024
            conn_info.congestion_threshold = 1024

    def getattr(self, path: str, fh: Any = None) -> dict[str, int]:
        return attributes(os.lstat(self.real(path)) if fh is None else os.fstat(fh.fh))

    def readlink(self, path: str) -> str:
        return os.readlink(self.real(path)).decode("utf-8", "surrogateescape")

    def readdir(self, path: str, fh: int) -> Iterable[Any]:
        yield from (".", "..")
        with os.scandir(self.real(path)) as entries:
            for entry in entries:
                name = entry.name.decode("utf-8", "surrogateescape")
                found = entry.stat(follow_symlinks=False)
                yield name, {"st_mode": found.st_mode, "st_ino": found.st_ino}, 0

    def statfs(self, path: str) -> dict[str, int]:
        found = os.statvfs(self.real(path))
        return {name: getattr(found, name) for name in dir(found) if name.startswith("f_")}

    def getxattr(self, path: str, name: str, position: int = 0) -> bytes:
        return os.getxattr(self.real(path), _raw(name), follow_symlinks=False)

    def listxattr(self, path: str) -> list[str]:
        return os.listxattr(self.real(path), follow_symlinks=False)

    def open(self, path: str, fi: Any) -> int:
        flags = fi.flags & ~(_KERNELS_OWN | os.O_CREAT | os.O_EXCL)
        fi.fh = os.open(self.real(path), flags | os.O_CLOEXEC | os.O_NOFOLLOW)
        return 0

    def read(self, path: str, size: int, offset: int, fi: Any) -> bytes:
        return os.pread(fi.fh, size, offset)

    def release(self, path: str, fi: Any) -> int:
        os.close(fi.fh)
        return 0


class ReadWrite(ReadOnly):
    """The same, to write as well."""

    def create(self, path: str, mode: int, fi: Any) -> int:
        flags = fi.flags & ~_KERNELS_OWN
        fi.fh = os.open(self.real(path), flags | os.O_CREAT | os.O_CLOEXEC, mode)
        self._owned(path)
        return 0

    def write(self, path: str, data: bytes, offset: int, fi: Any) -> int:
        return os.pwrite(fi.fh, data, offset)

    def truncate(self, path: str, length: int, fh: Any = None) -> int:
        os.truncate(self.real(path) if fh is None else fh.fh, length)
        return 0

    def fsync(self, path: str, datasync: int, fi: Any) -> int:
        os.fsync(fi.fh)
        return 0

    def fsyncdir(self, path: str, datasync: int, fi: Any) -> int:
        folder = os.open(self.real(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        os.mkdir(self.real(path), mode)
        self._owned(path)
        return 0

    def mknod(self, path: str, mode: int, dev: int) -> int:
        os.mknod(self.real(path), mode, dev)
        self._owned(path)
        return 0

    def symlink(self, target: str, source: str) -> int:
        os.symlink(_raw(source), self.real(target))
        self._owned(target)
        return 0

    def link(self, target: str, source: str) -> int:
        os.link(self.real(source), self.real(target), follow_symlinks=False)
        return 0

    def rename(self, old: str, new: str) -> int:
        os.rename(self.real(old), self.real(new))
        return 0

    def unlink(self, path: str) -> int:
        os.unlink(self.real(path))
        return 0

    def rmdir(self, path: str) -> int:
        os.rmdir(self.real(path))
        return 0

    def chmod(self, path: str, mode: int) -> int:
        os.chmod(self.real(path), mode)
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        os.chown(self.real(path), uid, gid, follow_symlinks=False)
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        found = os.lstat(self.real(path))
        before, now = (found.st_atime_ns, found.st_mtime_ns), time.time_ns()
        atime, mtime = (
            {_UTIME_OMIT: old, _UTIME_NOW: now}.get(new, new)
            for old, new in zip(before, times or (now, now), strict=True)
        )
        os.utime(self.real(path), ns=(atime, mtime), follow_symlinks=False)
        return 0

    def setxattr(self, path: str, name: str, value: bytes, options: int, position: int = 0) -> int:
        os.setxattr(self.real(path), _raw(name), value, options, follow_symlinks=False)
        return 0

    def removexattr(self, path: str, name: str) -> int:
        os.removexattr(self.real(path), _raw(name), follow_symlinks=False)
        return 0

    def _owned(self, path: str) -> None:
        """Give a new entry to whoever asked for it: this process is root."""
        uid, gid, _ = mfusepy.fuse_get_context()
        if (uid, gid) != (0, 0):
            os.chown(self.real(path), uid, gid, follow_symlinks=False)


def _raw(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
