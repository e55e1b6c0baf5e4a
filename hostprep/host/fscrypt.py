"""Whether a directory is encrypted, by ext4, F2FS or UBIFS, and its key is not there.

Such a one shows names that are not those of its files, has none by the right ones, and opens no
file (Documentation/filesystems/fscrypt.rst; the structures are of linux/fscrypt.h).
"""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import struct
import sys

from hostprep.errors import HostprepError
from hostprep.host.mounts import mount_containing, read_mounts
from hostprep.system.descriptors import closing_fd

# What the hint of what is locked begins with.
UNLOCK = "unlock it"

_GET_POLICY_EX = 0xC0096616
_GET_KEY_STATUS = 0xC080661A
_POLICY = struct.Struct("=QB7x16s")  # the room for it; its version, and what names its key
_KEY_STATUS = struct.Struct("=I4x16s16x24xI60x")  # what the name is, and that; the status
_VERSION = 2  # older ones may have their key in a keyring of the process that reads
_IDENTIFIER = 2
_PRESENT, _REMOVED_IN_PART = 2, 3
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# linux/stat.h and linux/fcntl.h
_STATX_BYTES = 256
_ENCRYPTED = 0x800
_HERE = -100


def locked_out(path: str) -> tuple[str, str] | None:
    """Return what to say of a path that is locked, or lies below what is, and what helps.

    None where it is not, or is there and may not be opened. Below a locked directory nothing is
    found by its name, so the nearest one above that is there is asked, of a symlink where it leads.
    Where this user may enter that one, and not read it, it may be locked: what is missing there is
    told to be. Ask of what was looked at and is there, or is missing: what fails or hangs would do
    so once more.
    """
    missing = False
    try:
        path = os.path.join(os.getcwd(), path)  # not normalized: .. leads up from a symlink's end
        mount = mount_containing(os.path.normpath(path), read_mounts())
        if mount is not None and mount.fstype == "autofs":  # a look tries to mount it once more
            return None
        try:
            folder = os.path.realpath(path, strict=True)
        except FileNotFoundError as error:
            missing, folder = True, os.path.dirname(os.fsdecode(error.filename))
        try:
            with closing_fd(os.open(folder, _FOLDER)) as descriptor:
                how = how_locked(descriptor)
        except PermissionError:
            how = _maybe_locked(folder) if missing else None
    except (OSError, HostprepError):  # the latter without /proc
        return None
    if how is None:
        return None
    return f"lies below {folder}, which is {how}" if missing else f"is {how}", unlocking(folder)


def unlocking(folder: str) -> str:
    """Return what to do about a locked directory."""
    return f"{UNLOCK} (fscrypt unlock {shlex.quote(folder)})"


def is_locked(descriptor: int) -> bool:
    """Whether what is in an open directory cannot be read until its key is added."""
    return how_locked(descriptor) is not None


def how_locked(descriptor: int) -> str | None:
    """Say what a locked directory is, None of one that can be read."""
    try:
        version, key = _policy(descriptor)
        if version != _VERSION:
            return None
        asked = _KEY_STATUS.pack(_IDENTIFIER, key, 0)
        _, _, status = _KEY_STATUS.unpack(_ask(descriptor, _GET_KEY_STATUS, asked))
    except OSError:  # it is not encrypted, or on a file system that encrypts nothing
        return None
    if status == _PRESENT:
        return None
    if status == _REMOVED_IN_PART:  # until that is closed: it shows some of its names, too
        return (
            "encrypted and half locked: its key was removed while something in it was open, and"
            " nothing else in it can be read"
        )
    return "encrypted, and its key is not there: neither names nor contents can be read"


def _maybe_locked(folder: str) -> str | None:
    """Say what a directory is that this user may not open, and may be locked; None of others."""
    if os.access(folder, os.W_OK):  # who may put something there, may find that it is new
        return None
    if not _attributes(folder) & _ENCRYPTED:
        return None
    return "encrypted, and may be locked: this user may not read it, and so cannot tell"


def _attributes(path: str) -> int:
    """Return the attributes that statx(2) gives of a path, 0 where the C library has none."""
    import ctypes

    statx = getattr(ctypes.CDLL(None), "statx", None)
    told = ctypes.create_string_buffer(_STATX_BYTES)
    if statx is None or statx(_HERE, os.fsencode(path), 0, 0, told):
        return 0
    return int.from_bytes(told.raw[8:16], sys.byteorder)


def may_hold_locked(descriptor: int) -> bool:
    """Whether the file system of an open directory has encrypted ones at all, as few do."""
    try:
        _policy(descriptor)
    except OSError as error:
        return error.errno == errno.ENODATA
    return True


def _policy(descriptor: int) -> tuple[int, bytes]:
    """Return the version of an open directory's policy, and what names its key."""
    room = _POLICY.pack(_POLICY.size - 8, 0, b"")
    _, version, key = _POLICY.unpack(_ask(descriptor, _GET_POLICY_EX, room))
    return version, key


def _ask(descriptor: int, request: int, words: bytes) -> bytes:
    # Given as bytes, they are left as they are, and the answer is returned.
    return fcntl.ioctl(descriptor, request, words)
