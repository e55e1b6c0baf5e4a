"""Locks that cannot be had."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hostprep.errors import HostprepError
from hostprep.system.locks import is_locked, lock


def test_a_run_directory_that_cannot_be_made_is_no_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOSTPREP_RUN_DIR", str(tmp_path / "file" / "run"))
    with pytest.raises(HostprepError) as caught, lock("stage", purpose="test"):
        pass
    assert "Not a directory; nothing was changed" in caught.value.message
    assert "HOSTPREP_RUN_DIR" in (caught.value.hint or "")


def made_by_somebody_else(path: Path) -> None:
    path.touch(mode=0o666)
    os.chown(path, 65534, 65534)


@pytest.mark.parametrize(
    ("make", "words"),
    [(os.mkfifo, "is not a regular file"), (made_by_somebody_else, "belongs to uid 65534")],
)
def test_a_file_that_others_could_hold_is_refused_and_not_waited_for(
    make: Callable[[Path], None], words: str, own_state: Path
) -> None:
    if make is made_by_somebody_else and os.geteuid() != 0:
        pytest.skip("needs root, to give a file away")
    path = own_state / "run/hostprep-volumes.lock"
    path.parent.mkdir()
    make(path)
    held = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert is_locked("volumes") is False
        refused = pytest.raises(HostprepError, match=words)
        with refused as caught, lock("volumes", purpose="test"):
            pass
    finally:
        os.close(held)
    assert "nothing was changed" in caught.value.message
    assert caught.value.hint == f"remove it: rm {path}"
    path.unlink()
    with lock("volumes", purpose="test"):
        assert is_locked("volumes") is True
