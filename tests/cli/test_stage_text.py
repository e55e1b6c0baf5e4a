"""The words at the end of a run of ``stage``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hostprep.cli.stage_text import conclude
from hostprep.staging.model import StageResult, Verify


def ended(readers: int | None, planned_readers: int | None) -> StageResult:
    """Return the result of a run that was planned with so many readers."""
    return StageResult(
        dataset="set",
        source="/source",
        target="/target/set",
        files=100,
        bytes=1000,
        copied_files=100,
        copied_bytes=1000,
        kept_files=0,
        resumed_files=0,
        deleted_files=0,
        skipped=(),
        left=(),
        digest=None,
        verified=False,
        verify=Verify.NONE,
        copied_verify=Verify.NONE,
        published=True,
        changed=True,
        seconds=1.0,
        phases={"copy": 0.5},
        readers=readers,
        planned_readers=planned_readers,
    )


@pytest.mark.parametrize(
    ("readers", "planned", "words"),
    [
        (1, 64, "64 readers planned, 1 in the end, by what the source gave"),
        (16, 2, "2 readers planned, 16 in the end, by what the source gave"),
    ],
)
def test_another_number_of_readers_than_planned_is_told(
    readers: int, planned: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    conclude(ended(readers, planned), None, None, as_json=False)
    assert words in capsys.readouterr().out


def test_holes_are_no_part_of_the_rate(capsys: pytest.CaptureFixture[str]) -> None:
    conclude(replace(ended(1, 1), copied_hole_bytes=900), None, None, as_json=False)
    said = "copied 100 files (1000 B, 100 B without holes) in 500 ms, 200 B/s"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("readers", [64, None])
def test_the_number_that_was_planned_is_not(
    readers: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    conclude(ended(readers, readers), None, None, as_json=False)
    assert "planned" not in capsys.readouterr().out
