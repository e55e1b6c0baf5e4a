"""A result that cannot be kept is told of in words, with what helps."""

from __future__ import annotations

from pathlib import Path

import pytest

from hostprep.cli.keeping import keep


def test_a_result_that_cannot_be_kept_says_why_and_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "last").touch()  # where a folder must be made
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(state))
    keep("recommend", {"num_workers": 2})
    said = capsys.readouterr().err
    assert "could not be kept for `hostprep check`" in said
    assert "Errno" not in said and f"({state / 'last'})" in said
    assert "-> HOSTPREP_STATE_DIR names another place for it" in said
