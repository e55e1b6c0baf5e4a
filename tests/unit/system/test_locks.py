"""Locks that cannot be had."""

from __future__ import annotations

from pathlib import Path

import pytest

from hostprep.errors import HostprepError
from hostprep.system.locks import lock


def test_a_run_directory_that_cannot_be_made_is_no_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOSTPREP_RUN_DIR", str(tmp_path / "file" / "run"))
    with pytest.raises(HostprepError) as caught, lock("stage", purpose="test"):
        pass
    assert "Not a directory; nothing was changed" in caught.value.message
    assert "HOSTPREP_RUN_DIR" in (caught.value.hint or "")
