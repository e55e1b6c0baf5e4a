"""A result that cannot be kept is told of in words, with what helps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hostprep.cli.keeping import kept
from hostprep.probing import results
from hostprep.system.last_results import keep_last

WAYS = {
    "last": lambda: keep_last("recommend", {"num_workers": 2}),
    "probes": lambda: results.keep({"path": "/srv"}),
}


@pytest.mark.parametrize(("folder", "store"), WAYS.items())
def test_a_result_that_cannot_be_kept_says_why_and_what_helps(
    folder: str,
    store: Callable[[], object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / folder).touch()  # where a folder must be made
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(state))
    assert not kept(store)
    said = capsys.readouterr().err
    assert "could not be kept for `hostprep check`" in said
    assert "Errno" not in said and f"({state / folder})" in said
    assert "-> HOSTPREP_STATE_DIR names another place for it" in said


@pytest.mark.parametrize("store", WAYS.values(), ids=WAYS)
def test_what_was_measured_is_not_lost_where_records_are_refused(
    store: Callable[[], object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(tmp_path))
    assert not kept(store)
    said = capsys.readouterr().err
    assert "writable by everybody" in said and "nothing was changed" not in said
