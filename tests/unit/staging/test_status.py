"""What a data set is said to be where its volume cannot be looked at."""

from __future__ import annotations

import pytest

from hostprep.errors import HostprepError, Refused
from hostprep.staging import status
from hostprep.staging.record.records import Record, save_record


@pytest.mark.parametrize(
    ("problem", "state"),
    [
        (HostprepError("/mnt/v cannot be opened: Too many open files."), "unreachable"),
        (HostprepError("/mnt/v did not answer within 4 s."), "unreachable"),
        (Refused("scratch (tmpfs), mounted on /mnt/v after it, hides the volume."), "missing"),
    ],
)
def test_what_could_not_be_looked_at_is_not_said_to_be_missing(
    problem: HostprepError, state: str, own_state: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: str) -> None:
        raise problem

    record = Record(
        *("data", "/data", "/mnt/v/data", "/mnt/v", 1, 1, 2, None, "none", None),
        staged_at=0.0,
        boot_id="b",
    )
    save_record(record, durable=False)
    monkeypatch.setattr(status, "read_live", failing)
    found = status.dataset_status(record)
    assert (found.state, found.reason) == (state, problem.message.removesuffix("."))
