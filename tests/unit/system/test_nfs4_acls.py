"""What an NFS 4 server's ACL keeps from whom the mode lets in."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest

from hostprep.system.acls import without_acl
from hostprep.system.nfs4_acls import acl_over_nfs
from tests.kit.acls import nfs4_acl

_R, _X, _GROUP = 0x1, 0x20, 0x40
_ALLOW, _DENY = 0, 1

Left = Callable[[int, bytes], int]


@pytest.fixture
def left_of(monkeypatch: pytest.MonkeyPatch) -> Left:
    """Return what tells what is left of a mode where the server has an ACL."""

    def left(mode: int, data: bytes) -> int:
        monkeypatch.setattr("os.getxattr", lambda descriptor, name: data)
        acl = acl_over_nfs(0)
        assert acl is not None
        return without_acl(mode, acl)

    return left


# As Debian's server gives them for what setfacl(1) made there (uid 1001 is named).
@pytest.mark.parametrize(
    ("mode", "left", "acl"),
    [
        pytest.param(
            0o640,
            0o600,
            "00000004000000000000000000160187000000064f574e45524000000000000000000000001200810000"
            "0004313030310000000000000000001200800000000647524f5550400000000000000000000000120080"
            "0000000945564552594f4e4540000000",
            id="0640, u:1001:r, g::-",
        ),
        pytest.param(
            0o644,
            0o600,
            "00000005000000000000000000160187000000064f574e45524000000000000100000000000000010000"
            "000431303031000000000000000000120080000000043130303100000000000000000012008100000006"
            "47524f55504000000000000000000000001200810000000945564552594f4e4540000000",
            id="0644, u:1001:-",
        ),
        pytest.param(
            0o640,
            0o640,
            "00000003000000000000000000160187000000064f574e45524000000000000000000000001200810000"
            "000647524f55504000000000000000000000001200800000000945564552594f4e4540000000",
            id="0640",
        ),
        pytest.param(
            0o750,
            0o700,
            "000000040000000000000000001601e7000000064f574e455240000000000000000000000000001200a1"
            "00000004313030310000000000000000001200800000000647524f555040000000000000000000000000"
            "001200800000000945564552594f4e4540000000",
            id="0750, u:1001:rx, g::-",
        ),
    ],
)
def test_the_group_bits_are_a_mask_as_well(mode: int, left: int, acl: str, left_of: Left) -> None:
    data = bytes.fromhex(acl)
    assert oct(left_of(mode, data)) == oct(left)
    assert left_of(mode, data[:-8]) & 0o070 == 0  # cut short


@pytest.mark.parametrize(
    ("acl", "mode", "left"),
    [
        # A user and a group of one number are not one: who is in both groups is kept out.
        (
            nfs4_acl(
                (_ALLOW, 0, _R | _X, b"1005"),
                (_ALLOW, _GROUP, _R | _X, b"GROUP@"),
                (_DENY, _GROUP, _R | _X, b"1005"),
                (_ALLOW, 0, _R | _X, b"EVERYONE@"),
            ),
            0o755,
            0o750,
        ),
        (
            nfs4_acl(
                (_DENY, _GROUP, _R | _X, b"1005"),
                (_ALLOW, _GROUP, _R | _X, b"GROUP@"),
                (_ALLOW, 0, 0, b"EVERYONE@"),
            ),
            0o750,
            0o700,
        ),
        # What one more group is given takes nothing from the owning one.
        (
            nfs4_acl(
                (_ALLOW, _GROUP, _R | _X, b"GROUP@"),
                (_ALLOW, _GROUP, _X, b"web"),
                (_ALLOW, 0, 0, b"EVERYONE@"),
            ),
            0o750,
            0o750,
        ),
    ],
)
def test_the_first_entry_for_somebody_decides(
    acl: bytes, mode: int, left: int, left_of: Left
) -> None:
    assert oct(left_of(mode, acl)) == oct(left)


def test_one_that_may_not_be_read_lets_no_group_in(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(descriptor: int, name: str) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("os.getxattr", refused)
    acl = acl_over_nfs(0)
    assert acl is not None and without_acl(0o750, acl) == 0o700
