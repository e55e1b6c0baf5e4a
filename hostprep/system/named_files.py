"""Files that the user named on the command line, of any type: reading and writing them."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hostprep.system.descriptors import closing_fd
from hostprep.system.links import MOST_LINKS, open_folder, real_path
from hostprep.system.own_files import write_atomically
from hostprep.system.trees import NAMED_FILE_FLAGS

_QUIET_WRITE = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


def read_named(path: Path, most_bytes: int) -> bytes:
    """Return the first bytes of a file that the user named. Raises ``OSError``.

    A pipe is read until its writer ends, for instance of ``<(command)``; a named pipe without a
    writer counts as empty, while a plain open would wait for ever.
    """
    descriptor = os.open(path, NAMED_FILE_FLAGS)
    os.set_blocking(descriptor, True)
    with open(descriptor, "rb") as file:
        return file.read(most_bytes)


def write_named(path: Path, content: bytes, *, durable: bool) -> None:
    """Write a file that the user named. Raises ``OSError``, and ``Refused`` as ``real_path`` does.

    A regular or new file is replaced as a whole, as by ``write_atomically``. Anything else is
    written to and not replaced: ``/dev/null`` stays a device, and ``/dev/stdout`` and the user's
    own symlinks are followed. Other users' symlinks are not: in a directory of theirs they could
    make root overwrite any file. Nor are they followed on the way to it, except to places where
    those users may write themselves. A named pipe must already have its reader.
    """
    path, is_magic = _led_to(path)
    with _held(path, is_magic=is_magic) as held:
        try:
            _write(held, content, is_magic=is_magic, durable=durable)
        except OSError as error:
            error.filename = str(path)
            raise


@contextmanager
def _held(path: Path, *, is_magic: bool) -> Iterator[Path]:
    """Yield a path without symlinks, through its open directory, whatever is exchanged later."""
    if is_magic or os.geteuid() != 0:
        yield path
        return
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    with closing_fd(os.open(path.parent, flags)) as folder:
        by_descriptor = f"/proc/self/fd/{folder}"
        if os.readlink(by_descriptor) != str(path.parent):
            raise PermissionError(errno.EACCES, "its folder was exchanged meanwhile", str(path))
        yield Path(by_descriptor, path.name)


def _write(path: Path, content: bytes, *, is_magic: bool, durable: bool) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    if stat.S_ISBLK(mode):
        raise OSError(errno.EINVAL, "it is a disk, or a part of one", str(path))
    if not is_magic and stat.S_ISREG(mode):
        write_atomically(path, [content], durable=durable)
        return
    try:
        # Through a link of /proc, such as one's own descriptors, a file is truncated, as by cp(1).
        descriptor = os.open(path, _QUIET_WRITE | (os.O_TRUNC if is_magic else os.O_NOFOLLOW))
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(error.errno, "no program reads from it", str(path)) from None
        raise
    os.set_blocking(descriptor, True)
    with open(descriptor, "wb") as file:
        if not is_magic and stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise PermissionError(errno.EACCES, "it was exchanged meanwhile", str(path))
        file.write(content)


def _led_to(path: Path) -> tuple[Path, bool]:
    """Follow symlinks of root's or of this user's to their end; raise ``OSError`` at any other.

    Owner and target of each are read while it is held open, so that nobody can exchange it in
    between. Returns the path, and whether that is a link of /proc, whose target has no path.
    """
    led_by: dict[int, str] = {}
    for _ in range(MOST_LINKS):
        name = path.name
        folder = real_path(str(path.parent), writes=True, replaces=name, led_by=led_by)
        path = Path(folder, name)
        try:
            with closing_fd(open_folder(folder)) as around:
                held = os.open(name or ".", os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=around)
        except FileNotFoundError:
            return path, False
        with closing_fd(held):
            status = os.fstat(held)
            if not stat.S_ISLNK(status.st_mode):
                return path, False
            if status.st_uid not in (0, os.geteuid()):
                raise PermissionError(errno.EACCES, f"it is a symlink of uid {status.st_uid}")
            if status.st_dev == os.stat("/proc/self").st_dev:
                return Path(os.readlink(f"/proc/self/fd/{held}")), True
            path = path.parent / os.readlink("", dir_fd=held)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
