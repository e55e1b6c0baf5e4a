"""Which hosts are to be tried again, by inventory."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("content", ["{", "5", '{"/lab": 5}', '{"/lab": [5]}', "[" * 100_000])
def test_a_damaged_note_is_none(own_state: Path, content: str) -> None:
    remember("/lab", run(a=True))
    (own_state / "state/fleet/failed.json").write_text(content)
    assert failed_hosts("/lab") == ()
    remember("/lab", run(b=True))
    assert failed_hosts("/lab") == ("b",)


def test_runs_beside_each_other_keep_the_failed_hosts_of_all() -> None:
    context = multiprocessing.get_context("fork")
    hosts = [f"n{number}" for number in range(24)]
    runs = [context.Process(target=remember, args=("/lab", run(**{host: True}))) for host in hosts]
    for each in runs:
        each.start()
    for each in runs:
        each.join()
    assert sorted(failed_hosts("/lab")) == sorted(hosts)
