"""Where hostprep remembers: what may not be looked into is not taken for nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hostprep.errors import HostprepError
from hostprep.system.state import SYSTEM_STATE_DIR, readable_state_dirs


@pytest.mark.parametrize("variable", ["HOSTPREP_STATE_DIR", "XDG_STATE_HOME"])
def test_records_of_somebody_else_are_an_error_and_not_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0)
    monkeypatch.delenv("HOSTPREP_STATE_DIR", raising=False)
    monkeypatch.setenv(variable, str(home / "state"))
    before = os.geteuid()
    os.seteuid(before or 65534)  # as `sudo -E` leaves it: another user, with the HOME of this one
    try:
        with pytest.raises(HostprepError) as caught:
            readable_state_dirs()
    finally:
        os.seteuid(before)
    assert "Permission denied; nothing was changed" in caught.value.message
    assert "HOSTPREP_STATE_DIR=DIR" in (caught.value.hint or "")


@pytest.mark.parametrize("home", ["/dev/null", "/nonexistent"])
def test_a_user_without_a_home_has_no_records(monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    monkeypatch.delenv("HOSTPREP_STATE_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", home)
    before = os.geteuid()
    os.seteuid(before or 65534)
    try:
        assert readable_state_dirs() == (Path(home) / "hostprep", SYSTEM_STATE_DIR)
    finally:
        os.seteuid(before)
