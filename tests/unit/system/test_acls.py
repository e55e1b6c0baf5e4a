"""What an ACL and a mode give together, and what is taken away of it before an update."""

from __future__ import annotations

import errno
import os
import struct

import pytest

from hostprep.system.acls import narrowed, without_acl
from hostprep.system.nfs4_acls import acl_over_nfs
from tests.kit.acls import access_acl

_READS = access_acl(0o750, user=7)  # and then the mode shows 0o770


@pytest.mark.parametrize(
    ("mode", "acl", "wanted_mode", "wanted_acl", "left"),
    [
        (0o755, None, 0o700, None, 0o700),
        (0o700, None, 0o755, None, 0o700),
        (0o555, None, 0o755, None, 0o555),
        (0o770, _READS, 0o770, _READS, 0o770),
        # One that is there no more, or names others, gives nobody anything until it is set.
        (0o770, _READS, 0o700, None, 0o700),
        (0o770, _READS, 0o770, access_acl(0o750, user=8), 0o700),
        # What comes in addition closes nothing.
        (0o700, None, 0o770, _READS, 0o700),
        (0o750, None, 0o770, access_acl(0o750, user=7), 0o750),
        (0o770, _READS, 0o755, None, 0o770),
        # The mode shows the mask, not what the owning group has; and whom an ACL keeps out is
        # one of the others without it.
        (0o755, None, 0o770, _READS, 0o750),
        (0o755, None, 0o770, access_acl(0o700, user=7), 0o700),
        (0o755, None, 0o775, access_acl(0o755, user=7, permissions=0), 0o700),
    ],
)
def test_nobody_keeps_what_is_not_wanted(
    mode: int, acl: bytes | None, wanted_mode: int, wanted_acl: bytes | None, left: int
) -> None:
    assert oct(narrowed(mode, acl, wanted_mode, wanted_acl)) == oct(left)


def test_what_is_no_acl_gives_nobody_anything() -> None:
    """Before Linux 6.2 it comes from a program behind FUSE as that gives it."""
    for acl in (b"", b"\2", b"\2\0\0\0junk", access_acl(0o750, user=7)[:-3]):
        assert narrowed(0o755, None, 0o700, acl) & 0o077 == 0


# As Debian's server gives them for what setfacl(1) made there (uid 1001 is named).
_OVER_NFS = {
    "0640, u:1001:r, g::-": "00000004000000000000000000160187000000064f574e4552400000000000000000"
    "00000012008100000004313030310000000000000000001200800000000647524f555040000000000000000000000"
    "01200800000000945564552594f4e4540000000",
    "0644, u:1001:-": "00000005000000000000000000160187000000064f574e4552400000000000010000000000"
    "00000100000004313030310000000000000000001200800000000431303031000000000000000000120081000000"
    "0647524f55504000000000000000000000001200810000000945564552594f4e4540000000",
    "0640": "00000003000000000000000000160187000000064f574e45524000000000000000000000001200810000"
    "000647524f55504000000000000000000000001200800000000945564552594f4e4540000000",
    "0750, u:1001:rx, g::-": "000000040000000000000000001601e7000000064f574e4552400000000000000000"
    "00000000001200a100000004313030310000000000000000001200800000000647524f55504000000000000000000"
    "0000000001200800000000945564552594f4e4540000000",
}


@pytest.mark.parametrize(
    ("acl", "mode", "left"),
    [
        ("0640, u:1001:r, g::-", 0o640, 0o600),
        ("0644, u:1001:-", 0o644, 0o600),
        ("0640", 0o640, 0o640),
        ("0750, u:1001:rx, g::-", 0o750, 0o700),
    ],
)
def test_over_nfs_4_the_group_bits_are_a_mask_as_well(
    acl: str, mode: int, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytes.fromhex(_OVER_NFS[acl])
    monkeypatch.setattr("os.getxattr", lambda descriptor, name: data)
    found = acl_over_nfs(0)
    assert found is not None and oct(without_acl(mode, found)) == oct(left)
    data = data[:-8]
    found = acl_over_nfs(0)
    assert found is not None and without_acl(mode, found) & 0o070 == 0


def _nfs4(*entries: tuple[int, int, int, bytes]) -> bytes:
    """An ACL of NFS 4 as it travels: type, flags, permissions and who of each entry."""
    data = len(entries).to_bytes(4)
    for kind, flags, permissions, who in entries:
        data += struct.pack(">IIII", kind, flags, permissions, len(who))
        data += who + bytes(-len(who) % 4)
    return data


_R, _X, _GROUP = 0x1, 0x20, 0x40
_ALLOW, _DENY = 0, 1


@pytest.mark.parametrize(
    ("acl", "mode", "left"),
    [
        # A user and a group of one number are not one: who is in both groups is kept out.
        (
            _nfs4(
                (_ALLOW, 0, _R | _X, b"1005"),
                (_ALLOW, _GROUP, _R | _X, b"GROUP@"),
                (_DENY, _GROUP, _R | _X, b"1005"),
                (_ALLOW, 0, _R | _X, b"EVERYONE@"),
            ),
            0o755,
            0o750,
        ),
        (
            _nfs4(
                (_DENY, _GROUP, _R | _X, b"1005"),
                (_ALLOW, _GROUP, _R | _X, b"GROUP@"),
                (_ALLOW, 0, 0, b"EVERYONE@"),
            ),
            0o750,
            0o700,
        ),
        # What one more group is given takes nothing from the owning one.
        (
            _nfs4(
                (_ALLOW, _GROUP, _R | _X, b"GROUP@"),
                (_ALLOW, _GROUP, _X, b"web"),
                (_ALLOW, 0, 0, b"EVERYONE@"),
            ),
            0o750,
            0o750,
        ),
    ],
)
def test_of_an_acl_of_nfs_4_the_first_entry_for_somebody_decides(
    acl: bytes, mode: int, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getxattr", lambda descriptor, name: acl)
    found = acl_over_nfs(0)
    assert found is not None and oct(without_acl(mode, found)) == oct(left)


def test_an_acl_of_nfs_4_that_may_not_be_read_lets_no_group_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(descriptor: int, name: str) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("os.getxattr", refused)
    found = acl_over_nfs(0)
    assert found is not None and without_acl(0o750, found) == 0o700


def test_who_is_named_may_be_in_the_group_and_has_no_more_than_the_mask() -> None:
    assert without_acl(0o755, access_acl(0o755, user=7, permissions=0)) == 0o700
    assert without_acl(0o705, access_acl(0o755, user=7, permissions=5)) == 0o700
