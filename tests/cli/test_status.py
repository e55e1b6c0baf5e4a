"""``hostprep status``: what it says of what is not there any more."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from hostprep.cli.plans import volume_line
from hostprep.cli.status import _show_volume
from hostprep.cli.status import status as show_status
from hostprep.converging.boot_record import BootRecord, save_boot_record
from hostprep.errors import HostprepError
from hostprep.system.state import state_dir
from hostprep.volumes import status as volume_status
from hostprep.volumes.status import VolumeStatus
from tests.kit.stagecraft import hostprep, make_source, run_hostprep
from tests.unit.volumes.made import live_volume


def test_of_what_is_missing_it_says_how_to_get_it_back(tmp_path: Path) -> None:
    source = make_source(tmp_path / "city", directories=1, files=2)
    hostprep("stage", source, "--to", tmp_path / "fast")
    assert hostprep("status")["datasets"][0]["hint"] is None
    (source / "new").write_text("new")
    (found,) = hostprep("status")["datasets"]
    assert found["freshness"] == "stale"
    assert found["hint"] == "the same `hostprep stage` brings it up to date"
    shutil.rmtree(tmp_path / "fast/city")
    (found,) = hostprep("status")["datasets"]
    assert (found["state"], found["reason"]) == ("missing", "it is not on the target")
    assert found["hint"] == (
        "the same `hostprep stage` stages it again;"
        f" `hostprep unstage {tmp_path}/fast/city` forgets it"
    )
    assert f"    -> {found['hint']}\n" in run_hostprep("status").stdout


def test_what_comes_back_at_boot_is_not_missing_where_its_record_cannot_be_read(
    tmp_path: Path,
) -> None:
    source = make_source(tmp_path / "city", directories=1, files=2)
    hostprep("stage", source, "--to", tmp_path / "fast")
    save_boot_record(
        BootRecord("city", str(source), str(tmp_path / "fast"), None, None, "/", None, remote=False)
    )
    (record,) = state_dir().glob("datasets/city-*/dataset.json")
    record.write_text("{")
    (found,) = hostprep("status")["datasets"]
    assert (found["state"], found["boot"]) == ("unreachable", None)
    assert found["reason"].startswith(f"the record {record} cannot be read: ")
    shown = run_hostprep("status").stdout
    assert "data set city: unreachable: its record cannot be read\n" in shown
    assert "at boot:" not in shown
    record.unlink()
    (found,) = hostprep("status")["datasets"]
    assert found["state"] == "missing" and found["boot"] is not None
    assert "data set city: missing\n" in run_hostprep("status").stdout


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        ("/mnt/ram did not answer within 4 s", "it did not answer within 4 s"),
        ("another file system hides the volume /mnt/ram", "another file system hides it"),
        ("what is mounted there (ext4, /dev/sda) is not hostprep's",) * 2,
    ],
)
def test_what_is_wrong_with_a_volume_names_it_once(
    problem: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = VolumeStatus("/mnt/ram", None, in_fstab=False, drift=(), fstab_drift=())
    _show_volume(dataclasses.replace(found, problem=problem))
    assert capsys.readouterr().out.splitlines()[0] == f"volume /mnt/ram: {told}"


def test_an_fstab_that_cannot_be_read_is_told_of(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fails must not look like a volume that is gone after a reboot."""

    def read(path: Path) -> bytes:
        raise HostprepError(f"{path} cannot be read: Input/output error.")

    monkeypatch.setattr(volume_status, "read_for_boot", read)
    show_status(no_source=True)
    assert capsys.readouterr().out.endswith("/fstab cannot be read: Input/output error.\n")
    _show_volume(VolumeStatus("/mnt/ram", None, in_fstab=None, drift=(), fstab_drift=()))
    told = "  fstab: it cannot be read, so whether it has a line is not known"
    assert capsys.readouterr().out.splitlines()[1] == told


def test_a_volume_without_a_limit_is_not_called_one_of_no_bytes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    live = live_volume(path="/mnt/ram", size_bytes=0)
    _show_volume(VolumeStatus("/mnt/ram", live, in_fstab=False, drift=(), fstab_drift=()))
    shown = capsys.readouterr().out.splitlines()[0]
    assert shown.startswith("volume /mnt/ram: no size limit, 1 of 9,999 inodes, huge=never, ")
    assert volume_line(live).startswith("/mnt/ram: no size limit, 9,999 inodes, mode 0755, ")
