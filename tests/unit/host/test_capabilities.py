"""What a user namespace knows of other users."""

from __future__ import annotations

from pathlib import Path

import pytest

from hostprep.host.capabilities import Capability, has_capability, lacks_capability, unknown_uid


@pytest.mark.parametrize(
    ("uid_map", "unknown"),
    [
        (None, None),  # a kernel without user namespaces
        ("0 0 4294967295\n", None),
        ("0 1000 1\n", 65533),
        ("0 1000 1\n1 100000 65536\n", 65533),
    ],
)
def test_as_which_uid_unknown_users_show(
    tmp_path: Path, uid_map: str | None, unknown: int | None
) -> None:
    for folder in ("proc/self", "proc/sys/kernel"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/overflowuid").write_text("65533\n")
    if uid_map is not None:
        (tmp_path / "proc/self/uid_map").write_text(uid_map)
    assert unknown_uid(tmp_path) == unknown


@pytest.mark.parametrize(
    ("status", "has", "lacks"),
    [
        ("CapEff:\t000001ffffffffff\n", True, False),
        ("CapEff:\t0000000000200000\n", True, False),  # bit 21 alone
        ("CapEff:\t00000000a80425fb\n", False, True),  # as docker gives them
        # Not known, as without a free descriptor: then it is no container that is the cause.
        ("Name:\tpython\n", False, False),
        ("CapEff:\t", False, False),
        (None, False, False),
    ],
)
def test_whether_root_may_mount(tmp_path: Path, status: str | None, has: bool, lacks: bool) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    if status is not None:
        (tmp_path / "proc/self/status").write_text(status)
    assert has_capability(Capability.SYS_ADMIN, tmp_path) is has
    assert lacks_capability(Capability.SYS_ADMIN, tmp_path) is lacks
