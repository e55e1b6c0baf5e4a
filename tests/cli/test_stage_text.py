"""The words at the end of a run of ``stage``."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from hostprep.cli.full_check import MOST_LISTED
from hostprep.cli.stage_text import _memory_left, _plan_lines, conclude
from hostprep.errors import HostprepError
from hostprep.staging.model import StageResult, Totals, Verify
from hostprep.staging.plans.copy_plan import CopyPlan
from hostprep.staging.reasons import Skipped
from hostprep.volumes.model import RamBudget, VolumeRequest
from hostprep.volumes.plan import VolumePlan


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


@pytest.mark.parametrize("deletes", [True, False])
def test_a_run_that_copies_nothing_is_not_said_to_copy_no_files(deletes: bool) -> None:
    request = SimpleNamespace(source="/source", target="/set", parent="/", verify=Verify.READBACK)
    files = CopyPlan(kept=Totals(2, 10), delete=["a"]) if deletes else CopyPlan()
    plan: Any = SimpleNamespace(request=request, volume=None, previous=None, files=files)
    lines = _plan_lines(plan)
    assert not any("verify" in line for line in lines)
    assert ("  1 file deleted from the target: gone from the source" in lines) is deletes
    # Of a source without any files nothing else can be said.
    assert ("  copy: 0 files, 0 B" in lines) is not deletes


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


def test_memory_is_left_by_a_new_volume_that_is_full_or_by_the_copies() -> None:
    budget = RamBudget(2 << 30, 10 << 30, 4 << 30, "MemAvailable")
    request = VolumeRequest("/mnt/ram", 2 << 30)
    full, copies = "8.00 GiB left with the volume full;", "8.00 GiB left with the copies;"
    assert full in _memory_left(budget, VolumePlan(request, budget=budget))
    # As it is: the budget is that of what is written to it, under a limit.
    assert copies in _memory_left(budget, VolumePlan(request))
    assert copies in _memory_left(budget, None)
    less = "7.00 GiB left with the copies and 1.00 GiB promised to other volumes and runs;"
    assert less in _memory_left(replace(budget, promised_bytes=1 << 30), None)


@pytest.mark.parametrize("readers", [64, None])
def test_the_number_that_was_planned_is_not(
    readers: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    conclude(ended(readers, readers), None, None, as_json=False)
    assert "planned" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "not verified"),
        ({"digest": "d"}, "verified (read back and compared), digest d"),
        (
            {"digest": "d", "kept_files": 1},
            "verified (read back and compared; kept files: when they were copied), digest d",
        ),
        (
            {"digest": "d", "kept_files": 1, "full_check": True},
            "verified (read back and compared; kept files: read again here and in the source),"
            " digest d",
        ),
        (
            {"digest": "d", "kept_files": 1, "verify": Verify.INFLIGHT},
            "read back and compared; kept files: only hashed in flight when they were copied;"
            " digest d",
        ),
        (
            {"digest": "d", "verify": Verify.INFLIGHT, "copied_verify": Verify.INFLIGHT},
            "hashed in flight, not read back; digest d",
        ),
        ({"digest": "d", "copied_files": 0}, "verified (when it was copied), digest d"),
        (
            {"digest": "d", "copied_files": 0, "full_check": True},
            "verified (when it was copied and again now), digest d",
        ),
        (
            {"digest": "d", "copied_files": 0, "verify": Verify.INFLIGHT},
            "hashed in flight (when it was copied), not read back; digest d",
        ),
    ],
)
def test_no_more_is_called_verified_than_was(
    changes: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    read_back = {"verify": Verify.READBACK, "copied_verify": Verify.READBACK}
    conclude(replace(ended(1, 1), **(read_back | changes)), None, None, as_json=False)
    assert capsys.readouterr().out.splitlines()[-1] == f"  {words}"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "not verified"),
        ({"digest": "d", "verify": Verify.READBACK}, "digest d"),
        (
            {"digest": "d", "verify": Verify.INFLIGHT},
            "hashed in flight, not read back (--full-check does that); digest d",
        ),
    ],
)
def test_where_nothing_was_to_do_one_line_says_so(
    changes: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    conclude(replace(ended(1, 1), changed=False, **changes), None, None, as_json=False)
    assert capsys.readouterr().out == f"nothing to do: /target/set is whole and fresh; {words}\n"


def test_what_is_not_there_is_named_on_stderr_and_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failed = tuple(Skipped(f"closed-{number}", "why", failed=True) for number in range(MOST_LISTED))
    result = replace(
        ended(1, 1),
        kept_files=3,
        resumed_files=2,
        deleted_files=1,
        skipped=(
            *failed,
            Skipped("one more", "why", failed=True),
            Skipped("pipe", "a fifo", False),
        ),
        left=("mine",),
        lost_attributes=2,
        outward_links=4,
        outward_named=("a", "b", "c", "d"),
    )
    conclude(result, None, HostprepError("not all.", "fix it"), as_json=False)
    out, err = capsys.readouterr()
    assert "  2 taken up from an interrupted run, 3 kept, 1 deleted\n" in out
    assert "  left out: 1 entry (a fifo)\n" in out
    assert "cannot hold ACLs or user attributes; without theirs: 2 entries\n" in err
    assert "leading out of the data set: 4 symlinks (a, b, c, ...);" in err
    assert "left alone, not staged by hostprep: mine\n" in err
    assert "not staged: closed-0: why\n" in err and "one more" not in err
    assert "hostprep: ... and 1 more (--json has all)\n" in err
    assert err.endswith("hostprep: not all.\n  -> fix it\n")


def test_nothing_is_told_of_what_was_not_published(capsys: pytest.CaptureFixture[str]) -> None:
    conclude(replace(ended(1, 1), published=False), None, None, as_json=False)
    assert capsys.readouterr() == ("", "")
