"""What is said of a volume and of its line in fstab, by a made-up mount: no machine is touched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from hostprep.errors import HostprepError, UsageError
from hostprep.host.boot import boot_id
from hostprep.host.mounts import Mount
from hostprep.units import GIB, MIB
from hostprep.volumes import status
from hostprep.volumes.fstab import volume_id_for
from hostprep.volumes.fstab_line import set_volume
from hostprep.volumes.records import VolumeRecord
from hostprep.volumes.status import VolumeStatus, unread_fstab, volume_statuses
from tests.unit.volumes.made import live_volume

PATH = "/mnt/data"
MOUNT = Mount(50, 27, "0:40", "/", PATH, "tmpfs", "hostprep", ("rw",), ("rw",))
OPTIONS = ("nosuid", "nodev", "noexec", "mode=0755", "noswap")


def of_line(
    monkeypatch: pytest.MonkeyPatch, home: Path, *size: str, has_bytes: int = GIB
) -> VolumeStatus:
    """Return the status of a volume of 1 GiB, on a machine with 100 GiB, beside such a line."""
    line = set_volume(b"", path=PATH, options=(*OPTIONS, *size))
    (home / "fstab").write_bytes(line)
    live = live_volume(path=PATH, size_bytes=has_bytes, options=("rw",))
    monkeypatch.setattr(status, "read_mounts", lambda: (MOUNT,))
    monkeypatch.setattr(status, "read_live", lambda path, mounts: live)
    monkeypatch.setattr(status, "read_memory", lambda: SimpleNamespace(total_bytes=100 * GIB))
    (found,) = volume_statuses()
    assert found.in_fstab and found.problem is None and found.drift == ()
    return found


@pytest.mark.parametrize(
    ("size", "has_bytes", "drift"),
    [
        (("size=1g",), GIB, ""),
        (("size=2g",), GIB, "size 1.00 GiB (1073741824 bytes) instead of 2.00 GiB"),
        ((), GIB, "size 1.00 GiB instead of half the RAM: the line gives no size"),
        ((), 0, "no size limit instead of half the RAM: the line gives no size"),
        (("size=banana",), GIB, "instead of size=banana, which is not a size"),
        # A share of the RAM, which the kernel counts a little otherwise: to a hundredth of that.
        (("size=30%",), 31 * GIB, ""),
        (("size=30%",), 31 * GIB + MIB, "instead of 30.0 GiB"),
    ],
)
def test_the_size_that_a_line_gives(
    size: tuple[str, ...],
    has_bytes: int,
    drift: str,
    own_state: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = of_line(monkeypatch, own_state, *size, has_bytes=has_bytes).fstab_drift
    assert len(found) == bool(drift) and drift in "".join(found)


@pytest.mark.parametrize(("others", "stops"), [("", True), (",noauto", False)])
def test_without_nofail_a_line_stops_the_boot_unless_no_boot_mounts_it(
    others: str, stops: bool, own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert of_line(monkeypatch, own_state, "size=1g").fstab_drift == ()
    line = (own_state / "fstab").read_text().replace(",nofail", others)
    (own_state / "fstab").write_text(line)
    (found,) = volume_statuses()
    assert any("lacks nofail" in each for each in found.fstab_drift) is stops


def test_lines_of_others_are_no_volumes(own_state: Path) -> None:
    """A copy of ours for another path neither: its id is that of the volume it was made for."""
    line = set_volume(b"", path=PATH, options=("size=1g",))
    copy = line.replace(b" /mnt/data ", b" /mnt/copy ")
    (own_state / "fstab").write_bytes(b"tmpfs /mnt/theirs tmpfs size=1g 0 0\n" + copy)
    assert volume_statuses() == ()
    (own_state / "fstab").write_bytes(b"tmpfs /mnt/theirs tmpfs size=1g 0 0\n" + line)
    assert [each.path for each in volume_statuses()] == [PATH]


def test_a_line_that_cannot_be_read_is_not_said_to_be_missing(
    own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: Path) -> bytes:
        raise HostprepError(f"{path} cannot be read: Input/output error.")

    made = VolumeRecord(
        PATH, volume_id_for(PATH), boot_id(), "0:40", "hostprep", GIB, 9999, (), "root", 1.0
    )
    live = live_volume(path=PATH, size_bytes=GIB, options=("rw",))
    monkeypatch.setattr(status, "read_mounts", lambda: (MOUNT,))
    monkeypatch.setattr(status, "read_live", lambda path, mounts: live)
    monkeypatch.setattr(status, "all_records", lambda: (made,))
    assert unread_fstab() is None
    assert [each.in_fstab for each in volume_statuses()] == [False]
    monkeypatch.setattr(status, "read_for_boot", read)
    (found,) = volume_statuses()
    assert (found.in_fstab, found.problem, found.live) == (None, None, live)
    unread = unread_fstab()
    assert unread is not None and unread.message.endswith("Input/output error.")
    # A boot has mounted it, by its line: that it is a stranger's would be as wrong.
    monkeypatch.setattr(status, "all_records", lambda: (replace(made, boot_id="another"),))
    (found,) = volume_statuses()
    assert str(found.problem).startswith("whether it is hostprep's cannot be told: ")


def test_a_relative_fstab_is_a_mistake_and_no_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTPREP_FSTAB", "fstab")
    with pytest.raises(UsageError, match="HOSTPREP_FSTAB is 'fstab'"):
        volume_statuses()
