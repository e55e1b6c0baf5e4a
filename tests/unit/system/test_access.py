"""What the user as whom this runs may do with a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hostprep.system.access import may_access


@pytest.mark.parametrize("other_user", [False, True])
def test_a_filter_that_refuses_the_newer_system_call_forbids_nothing(
    other_user: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older one tells of the real user: of a program with the setuid bit that is another."""
    access = os.access

    def filtered(path: Path, mode: int, *, effective_ids: bool = False) -> Any:
        return not effective_ids and access(path, mode)

    assert may_access(tmp_path, os.W_OK | os.X_OK)
    monkeypatch.setattr(os, "access", filtered)
    if other_user:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert may_access(tmp_path, os.W_OK | os.X_OK) is not other_user
    assert not may_access(tmp_path / "none", os.R_OK)
