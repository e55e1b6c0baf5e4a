"""What an ACL and a mode give together, and what is taken away of it before an update."""

from __future__ import annotations

import pytest

from hostprep.system.acls import narrowed, without_acl
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


def test_who_is_named_may_be_in_the_group_and_has_no_more_than_the_mask() -> None:
    assert without_acl(0o755, access_acl(0o755, user=7, permissions=0)) == 0o700
    assert without_acl(0o705, access_acl(0o755, user=7, permissions=5)) == 0o700
