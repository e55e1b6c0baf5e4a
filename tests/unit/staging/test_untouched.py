"""When a run that failed with all that it was to copy has changed nothing, and says so."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from hostprep.staging.model import Totals
from hostprep.staging.plans.copy_plan import CopyPlan
from hostprep.staging.reasons import Skipped
from hostprep.staging.record.records import Record
from hostprep.staging.tasks import Copied
from hostprep.staging.untouched import came_to_nothing

BEFORE = Record(
    name="data",
    source="/data",
    target="/fast/data",
    volume=None,
    files=3,
    bytes=5,
    entries=4,
    digest="d",
    verify="readback",
    verified_at=1.0,
    staged_at=1.0,
    boot_id="a",
    partial=True,
    skipped=(Skipped("x", "Input/output error", failed=True), Skipped("y", "a fifo")),
)


@pytest.mark.parametrize(
    ("nothing", "other"),
    [
        (True, {}),
        (True, {"record": {"skipped": BEFORE.skipped[::-1], "staged_at": 2.0, "boot_id": "b"}}),
        (True, {"record": {"target_identity": "1 2"}}),  # that an earlier version did not keep
        (True, {"record": {"skipped": (Skipped("x", "another reason", True), BEFORE.skipped[1])}}),
        (False, {"record": {"skipped": (Skipped("x", "a fifo"), BEFORE.skipped[1])}}),
        (False, {"record": {"skipped": BEFORE.skipped[:1]}}),
        (False, {"record": {"digest": "other"}}),
        (False, {"before": {"phase": "updating"}}),
        (False, {"copied": {"files": 1}}),
        (False, {"files": {"resumed": Totals(files=1)}}),
        (False, {"files": {"make_directories": ["closed"]}}),
        (False, {"files": {"delete": ["gone"]}}),
        (False, {"files": {"delete_directories": ["gone"]}}),
        (False, {"plan": {"published": False}}),
        (False, {"plan": {"volume": SimpleNamespace(changes=("grow",))}}),
    ],
)
def test_it_is_the_same_in_all_but_the_time(
    nothing: bool, other: dict[str, dict[str, Any]]
) -> None:
    plan: Any = SimpleNamespace(
        **{
            "files": CopyPlan(**other.get("files", {})),
            "published": True,
            "volume": None,
            **other.get("plan", {}),
        }
    )
    record = replace(BEFORE, **other.get("record", {}))
    before = replace(BEFORE, **other.get("before", {}))
    copied = Copied(**other.get("copied", {}))
    assert came_to_nothing(plan, copied, record, before) is nothing
