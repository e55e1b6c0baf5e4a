"""File systems on loop devices, for as long as a ``with`` block lasts, in this mount namespace.

The loop devices clear themselves at their last close (``LO_FLAGS_AUTOCLEAR``), so a process that is
killed leaves at most a mount, and not even that in a private namespace.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import os
import shutil
import struct
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

Kind = Literal["ext4", "xfs", "btrfs"]

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS = 0x00020000
_MS_REC, _MS_PRIVATE = 0x4000, 1 << 18
_MNT_DETACH = 2

# FS_IOC_SHUTDOWN, FS_SHUTDOWN_FLAGS_NOLOGFLUSH
_GOING_DOWN, _NOTHING_FLUSHED = 0x8004587D, struct.pack("=I", 2)
# linux/loop.h
_LOOP_CONFIGURE = 0x4C0A
_LOOP_CTL_GET_FREE = 0x4C82
_LO_FLAGS_AUTOCLEAR, _LO_FLAGS_DIRECT_IO = 4, 16
_LOOP_INFO64 = struct.Struct("=QQQQQIIII64s64s32sQQ")

_MKFS: dict[Kind, tuple[str, ...]] = {
    # Nothing is left to a kernel thread that would write behind the test's back.
    "ext4": ("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
    "btrfs": ("mkfs.btrfs", "-q", "-f"),
}
SMALLEST_BYTES: dict[Kind, int] = {"ext4": 8 << 20, "xfs": 300 << 20, "btrfs": 128 << 20}


class Unavailable(Exception):
    """What is served or mounted for tests cannot be had here; those that ask for it are skipped."""


@functools.cache
def unavailable(kind: Kind = "ext4") -> str | None:
    """Return why a loop file system cannot be made here, or None where it can."""
    if os.geteuid() != 0:
        return "needs root, to mount a loop device"
    if not os.path.exists("/dev/loop-control"):
        return "there is no /dev/loop-control"
    if _tool(_MKFS[kind][0]) is None:
        return f"{_MKFS[kind][0]} is not installed"
    with open("/proc/filesystems", encoding="ascii") as known:
        if not any(line.split()[-1] == kind for line in known):
            modprobe = _tool("modprobe")
            command = [modprobe or "false", kind]
            if subprocess.run(command, check=False, capture_output=True).returncode != 0:
                return f"this kernel has no {kind}"
    return None


def private_mounts() -> None:
    """Move this process, for good, into a mount namespace of its own; its children inherit it."""
    _check(_libc.unshare(_CLONE_NEWNS), "unshare")
    _check(_libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "mount --make-rprivate")


def unmount(path: Path, patience_seconds: float = 1.0) -> bool:
    """Unmount ``path`` and return True; not mounted is fine.

    A mount that stays busy is detached lazily, and False returned: its users keep it alive.
    """
    deadline = time.monotonic() + patience_seconds
    flags = 0
    while _libc.umount2(os.fsencode(path), flags) != 0:
        number = ctypes.get_errno()
        if number in (errno.EINVAL, errno.ENOENT):  # not a mount point (any more)
            return True
        if number == errno.EBUSY and time.monotonic() < deadline:
            time.sleep(0.02)
        elif flags == 0:
            flags = _MNT_DETACH
        else:
            raise OSError(number, os.strerror(number), str(path))
    return flags == 0


@contextmanager
def loop_device(image: Path, *, direct_io: bool = False) -> Iterator[Path]:
    """Attach ``image`` to a free loop device; it is cleared when its last user lets go.

    The device lives on after the block for as long as something, a mount for instance, has it open.
    ``direct_io`` keeps the image out of the page cache; OSError where its file system cannot.
    """
    flags = _LO_FLAGS_AUTOCLEAR | (_LO_FLAGS_DIRECT_IO if direct_io else 0)
    backing = os.open(image, os.O_RDWR | os.O_CLOEXEC)
    try:
        name, device = _configure(backing, os.fsencode(image), flags)
    finally:
        os.close(backing)
    try:
        if direct_io:
            _insist_on_direct_io(Path(name).name)
        yield Path(name)
    finally:
        os.close(device)


@contextmanager
def loop_mount(
    image: Path, point: Path, kind: Kind, options: Sequence[str] = (), *, direct_io: bool = False
) -> Iterator[Path]:
    """Mount the file system in ``image`` at ``point``; yield its loop device."""
    with loop_device(image, direct_io=direct_io) as device:
        _run("mount", "-t", kind, *(("-o", ",".join(options)) if options else ()), device, point)
    try:
        yield device
    finally:
        if unmount(point):
            wait_until_clear(device)


@contextmanager
def loop_filesystem(
    kind: Kind, size_bytes: int, where: Path, mount_options: Sequence[str] = ()
) -> Iterator[Path]:
    """Make a file system of ``kind`` in a sparse file below ``where``; yield its mount point.

    Raises ``Unavailable``, and ValueError where ``size_bytes`` is less than
    ``SMALLEST_BYTES[kind]``, which mkfs would refuse.
    """
    name = f"{kind}-{uuid.uuid4().hex[:8]}"
    image, point = where / f"{name}.img", where / name
    try:
        make_filesystem(image, kind, size_bytes)
        point.mkdir(mode=0o755)
        with loop_mount(image, point, kind, mount_options):
            yield point
    finally:
        if point.exists():
            point.rmdir()
        image.unlink(missing_ok=True)


def make_filesystem(image: Path, kind: Kind, size_bytes: int, options: Sequence[str] = ()) -> None:
    """Make the sparse file ``image`` with an empty file system of ``kind`` in it.

    ``options`` are added to mkfs's, and win over them. Raises ``Unavailable``.
    """
    if reason := unavailable(kind):
        raise Unavailable(reason)
    if size_bytes < SMALLEST_BYTES[kind]:
        raise ValueError(f"{kind} needs at least {SMALLEST_BYTES[kind]} bytes, not {size_bytes}")
    with open(image, "xb") as file:
        file.truncate(size_bytes)
    _run(*_MKFS[kind], *options, image)


def cut_off(point: Path) -> None:
    """Have the ext4 or XFS at ``point`` lose its disk: what was not written out by now is lost.

    Each step there fails from now on (EIO), until it is mounted anew.
    """
    descriptor = os.open(point, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(descriptor, _GOING_DOWN, _NOTHING_FLUSHED)
    finally:
        os.close(descriptor)


def wait_until_clear(device: Path, seconds: float = 5.0) -> bool:
    """Wait for ``device`` to have let go of its file; return whether it has."""
    backing = Path("/sys/block", device.name, "loop")
    deadline = time.monotonic() + seconds
    while backing.exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def _configure(backing: int, image: bytes, flags: int) -> tuple[str, int]:
    """Take a free loop device for ``backing``; return its path and an open descriptor of it."""
    info = _LOOP_INFO64.pack(0, 0, 0, 0, 0, 0, 0, 0, flags, image[:63], b"", b"", 0, 0)
    config = struct.pack("=II", backing, 0) + info + bytes(64)
    while True:
        control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
        try:
            number = fcntl.ioctl(control, _LOOP_CTL_GET_FREE)
        finally:
            os.close(control)
        name = f"/dev/loop{number}"
        if not os.path.exists(name):  # a container's /dev, which nobody fills
            os.mknod(name, 0o60600, os.makedev(7, number))
        device = os.open(name, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.ioctl(device, _LOOP_CONFIGURE, config)
        except OSError as problem:
            os.close(device)
            if problem.errno != errno.EBUSY:  # else somebody took it between the two calls
                raise
        else:
            return name, device


def _insist_on_direct_io(name: str) -> None:
    if Path("/sys/block", name, "loop/dio").read_text().strip() != "1":
        raise OSError(errno.EINVAL, f"/dev/{name} does not read its file directly")


def _tool(name: str) -> str | None:
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def _run(command: str, *arguments: str | Path) -> None:
    line = [_tool(command) or command, *map(str, arguments)]
    done = subprocess.run(line, check=False, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(line)}: {done.stderr.strip() or done.stdout.strip()}")


def _check(status: int, what: str) -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
