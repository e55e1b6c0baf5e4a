"""Which hosts are to be tried again, by inventory."""

from __future__ import annotations

from pathlib import Path

from hostprep.fleet.last_run import failed_hosts, remember
from hostprep.fleet.model import FleetRun, HostOutcome


def run(**failed: bool) -> FleetRun:
    return FleetRun(tuple(HostOutcome(host, failed=each) for host, each in failed.items()), 1.0)


def test_a_host_is_noted_until_it_succeeds() -> None:
    assert failed_hosts("/lab") == ()
    remember("/lab", run(a=False, b=True, c=True))
    assert failed_hosts("/lab") == ("b", "c")
    remember("/lab", run(b=False))
    assert failed_hosts("/lab") == ("c",)
    remember("/lab", run(a=True, c=False))
    assert failed_hosts("/lab") == ("a",)


def test_a_host_that_has_left_the_inventory_is_forgotten() -> None:
    remember("/lab", run(a=False, gone=True))
    remember("/lab", run(a=False))
    assert failed_hosts("/lab") == ("gone",)
    remember("/lab", run(a=False), whole=True)
    assert failed_hosts("/lab") == ()


def test_inventories_do_not_mix() -> None:
    remember("/lab", run(a=True))
    remember("/other", run(a=False))
    assert failed_hosts("/lab") == ("a",)
    assert failed_hosts("/other") == ()


def test_a_damaged_note_is_none(own_state: Path) -> None:
    remember("/lab", run(a=True))
    (own_state / "state/fleet/failed.json").write_text("{")
    assert failed_hosts("/lab") == ()
