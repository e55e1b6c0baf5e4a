"""What ended a removal, or a step after it, as a sentence and what to do."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hostprep.errors import HostprepError
from hostprep.staging.unstage import _stopped, hint_after
from hostprep.system.systemd import NotReloaded

_LATER = "hostprep unmount /mnt/v --fstab"


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.ENOTEMPTY])
def test_of_a_disk_that_fails_the_kernel_tells_more(number: int) -> None:
    record: Any = SimpleNamespace(target="/fast/data")
    error = _stopped(OSError(number, os.strerror(number)), record)
    assert ("`dmesg`" in (error.hint or "")) is (number != errno.ENOTEMPTY)


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.EIO])
def test_a_quota_that_is_used_up_is_to_be_raised_before_removing(number: int) -> None:
    """Btrfs takes room of it for removing, and refuses that, too."""
    record: Any = SimpleNamespace(target="/fast/data")
    error = _stopped(OSError(number, os.strerror(number)), record)
    assert "/fast/data could not be removed" in error.message
    assert ("quota raised" in (error.hint or "")) is (number == errno.EDQUOT)
    assert "run the same command again" in (error.hint or "")


@pytest.mark.parametrize(
    ("named", "where"), [(7, ""), (b"a/b", " (a/b)"), ("/state/manifest.jsonl",) * 2]
)
def test_a_path_is_named_and_a_descriptors_number_is_not(named: object, where: str) -> None:
    """Python reports the number of what it listed or changed by descriptor as a file name."""
    record: Any = SimpleNamespace(target="/fast/data")
    error = OSError(errno.EIO, "says the kernel")
    error.filename = named
    where = f" ({where})" if where.startswith("/") else where
    assert f"could not be removed: says the kernel{where}; what" in _stopped(error, record).message


@pytest.mark.parametrize("left", [".hostprep-data", "data"])
def test_a_directory_that_a_share_keeps_for_a_reader_is_told_of_as_that(
    left: str, tmp_path: Path
) -> None:
    """NFS keeps a removed file that is open as .nfs and a number, in the same directory."""
    (tmp_path / left).mkdir()
    record: Any = SimpleNamespace(target=str(tmp_path / "data"))
    error = _stopped(OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), "many"), record)
    assert "could not be removed: Directory not empty (many)" in error.message
    assert f"`lsof +D {tmp_path / left}` names the program" in (error.hint or "")


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (HostprepError("it broke"), f"once that is over: {_LATER}"),
        (HostprepError("it broke", "make room"), f"make room; then: {_LATER}"),
        (NotReloaded("it broke", "run `systemctl daemon-reload`"), f"once that is over: {_LATER}"),
        (
            HostprepError("it broke", "run the same command again when the other program is done"),
            f"run `{_LATER}` when the other program is done",
        ),
        (
            HostprepError("it broke", "fix that, and run the same command again"),
            f"fix that, and run `{_LATER}`",
        ),
    ],
)
def test_the_same_command_which_knows_the_data_set_no_more_is_no_hint(
    error: HostprepError, hint: str
) -> None:
    assert hint_after(error, _LATER) == hint
