"""What is read from the hosts' documents: changes, what was staged, the rate of all together."""

from __future__ import annotations

from typing import Any

from hostprep.fleet.model import FleetRun, HostOutcome
from hostprep.fleet.results import HostChange, TotalRate, changes_of, staged_by, total_rate

STEP = {"kind": "volume", "subject": "/mnt/a", "action": "mount it", "reason": "it is not mounted"}


def staging(host: str, copied: int, start: float, end: float, **more: Any) -> HostOutcome:
    staged = {"dataset": "city", "copied_bytes": copied, "seconds": end - start, **more}
    document = {"schema": "hostprep.apply/1", "done": [], "staged": [staged]}
    return HostOutcome(host, documents=(document,), started_at=start, ended_at=end)


def test_the_steps_of_a_host_stand_in_place_of_the_task_that_took_them() -> None:
    tasks = ("Write the spec", "Converge")
    done = {"schema": "hostprep.apply/1", "changes": [STEP, STEP], "done": [STEP]}
    planned = {"schema": "hostprep.plan/1", "changes": [STEP]}
    expected = (
        HostChange("Write the spec"),
        HostChange("volume /mnt/a", "mount it", "it is not mounted"),
    )
    assert changes_of(HostOutcome("a", tasks, documents=(done,))) == expected
    assert changes_of(HostOutcome("a", tasks, documents=(planned,))) == expected


def test_of_a_plan_that_is_refused_nothing_would_be_done() -> None:
    refusal = {"kind": "volume", "subject": "/mnt/b", "message": "no RAM."}
    planned = {"schema": "hostprep.plan/1", "changes": [STEP], "refusals": [refusal]}
    assert changes_of(HostOutcome("a", ("Install",), documents=(planned,))) == (
        HostChange("Install"),
    )


def test_a_task_whose_steps_are_not_known_is_a_change_by_itself() -> None:
    assert changes_of(HostOutcome("a", ("Converge",))) == (HostChange("Converge"),)


def test_documents_of_other_commands_are_no_changes() -> None:
    check = {"schema": "hostprep.check/1", "verdict": "PASS", "changes": [STEP]}
    assert changes_of(HostOutcome("a", documents=(check,))) == ()


def test_what_bound_a_data_set_is_known_or_not() -> None:
    (known,) = staged_by(staging("a", 10, 0.0, 2.0, bound={"by": "source", "cores": 2}))
    (unknown,) = staged_by(staging("a", 10, 0.0, 2.0, bound=None))
    assert (known.dataset, known.copied_bytes, known.seconds) == ("city", 10, 2.0)
    assert (known.bound_by, unknown.bound_by) == ("source", None)


def test_the_total_rate_runs_from_the_first_beginning_to_the_last_end() -> None:
    hosts = (
        staging("a", 600, 100.0, 104.0),
        staging("b", 400, 103.0, 110.0),
        staging("kept", 0, 50.0, 200.0),
        HostOutcome("down", failed=True, unreachable=True),
    )
    rate = total_rate(FleetRun(hosts, 160.0))
    assert rate == TotalRate(1000, 10.0)
    assert rate is not None and rate.bytes_per_s == 100.0


def test_without_copies_there_is_no_rate() -> None:
    assert total_rate(FleetRun((staging("a", 0, 1.0, 2.0), HostOutcome("b")), 3.0)) is None


def test_a_run_names_the_hosts_that_failed() -> None:
    run = FleetRun((HostOutcome("a"), HostOutcome("b", failed=True)), 1.0)
    assert run.failed == ("b",)
