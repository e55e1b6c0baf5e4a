"""Whether a directory is encrypted, by ext4, F2FS or UBIFS, and its key is missing.

Such a directory lists names that are not those of its files, finds none by the right names, and
opens no file (Documentation/filesystems/fscrypt.rst; the structures are from linux/fscrypt.h).
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

# The beginning of the hint for a locked directory.
UNLOCK = "unlock it"

_GET_POLICY_EX = 0xC0096616
_GET_KEY_STATUS = 0xC080661A
_POLICY = struct.Struct("=QB7x16s")  # size of the rest; policy version, key identifier
_KEY_STATUS = struct.Struct("=I4x16s16x24xI60x")  # identifier's type, identifier; status
_VERSION = 2  # older ones may have their key in a keyring of the reading process
_IDENTIFIER = 2
_PRESENT, _REMOVED_IN_PART = 2, 3
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# linux/stat.h and linux/fcntl.h
_STATX_BYTES = 256
_ENCRYPTED = 0x800
_HERE = -100


def locked_out(path: str) -> tuple[str, str] | None:
    """Return what to say about a path that is locked, or lies below a locked one, and the remedy.

    None if it is not locked, or exists and may not be opened. Below a locked directory nothing is
    found by its name, so the nearest existing directory above is examined; for a symlink, above its
    destination. If this user may enter that directory but not read it, it may be locked: for a
    missing path the text says so. Call this only for what was looked at and exists, or is missing:
    what fails or hangs would do so again.
    """
    missing = False
    try:
        # not normalized: .. leads up from a symlink's target
        path = os.path.join(os.getcwd(), path)
        mount = mount_containing(os.path.normpath(path), read_mounts())
        if mount is not None and mount.fstype == "autofs":  # looking tries to mount it once more
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
    """Return the remedy for a locked directory."""
    return f"{UNLOCK} (fscrypt unlock {shlex.quote(folder)})"


def is_locked(descriptor: int) -> bool:
    """Whether the contents of an open directory cannot be read until its key is added."""
    return how_locked(descriptor) is not None


def how_locked(descriptor: int) -> str | None:
    """Return in words what a locked directory is, None for one that can be read."""
    try:
        version, key = _policy(descriptor)
        if version != _VERSION:
            return None
        asked = _KEY_STATUS.pack(_IDENTIFIER, key, 0)
        _, _, status = _KEY_STATUS.unpack(_ask(descriptor, _GET_KEY_STATUS, asked))
    except OSError:  # not encrypted, or on a file system without encryption
        return None
    if status == _PRESENT:
        return None
    if status == _REMOVED_IN_PART:  # until that is closed: then some names still show, too
        return (
            "encrypted and half locked: its key was removed while something in it was open, and"
            " nothing else in it can be read"
        )
    return "encrypted, and its key is not there: neither names nor contents can be read"


def _maybe_locked(folder: str) -> str | None:
    """Return in words what a directory is that may not be opened and may be locked; else None."""
    if os.access(folder, os.W_OK):  # a missing file may just be a new one
        return None
    if not _attributes(folder) & _ENCRYPTED:
        return None
    return "encrypted, and may be locked: this user may not read it, and so cannot tell"


def _attributes(path: str) -> int:
    """Return the attributes that statx(2) gives for a path, 0 if the C library lacks it."""
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
    """Return the version of an open directory's policy, and its key's identifier."""
    room = _POLICY.pack(_POLICY.size - 8, 0, b"")
    _, version, key = _POLICY.unpack(_ask(descriptor, _GET_POLICY_EX, room))
    return version, key


def _ask(descriptor: int, request: int, words: bytes) -> bytes:
    # A bytes argument is not changed, and the answer is returned.
    return fcntl.ioctl(descriptor, request, words)
