"""Whether a directory is encrypted, by ext4, F2FS or UBIFS, and its key is not there.

Such a one shows names that are not those of its files, has none by the right ones, and opens no
file (Documentation/filesystems/fscrypt.rst; the structures are of linux/fscrypt.h).
"""

from __future__ import annotations

import errno
import fcntl
import struct

_GET_POLICY_EX = 0xC0096616
_GET_KEY_STATUS = 0xC080661A
_POLICY = struct.Struct("=QB7x16s")  # the room for it; its version, and what names its key
_KEY_STATUS = struct.Struct("=I4x16s16x24xI60x")  # what the name is, and that; the status
_VERSION = 2  # older ones may have their key in a keyring of the process that reads
_IDENTIFIER = 2
_PRESENT = 2


def is_locked(descriptor: int) -> bool:
    """Whether what is in an open directory cannot be read until its key is added."""
    try:
        version, key = _policy(descriptor)
        if version != _VERSION:
            return False
        asked = _KEY_STATUS.pack(_IDENTIFIER, key, 0)
        _, _, status = _KEY_STATUS.unpack(_ask(descriptor, _GET_KEY_STATUS, asked))
    except OSError:  # it is not encrypted, or on a file system that encrypts nothing
        return False
    return bool(status != _PRESENT)


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
