"""``hostprep recommend`` on loaders of which it is known what they give, and how they wait."""

from __future__ import annotations

import os

import pytest

from tests.kit.recommending import CONTRACT, recommend_for

pytestmark = pytest.mark.timed


def test_a_loader_that_waits_gets_more_workers_than_there_are_processors() -> None:
    status, found, _ = recommend_for("Waiting", "--seconds", "12")
    assert status == 0
    assert set(found) >= CONTRACT
    assert found["num_workers"] > (os.cpu_count() or 1)
    assert found["confirmed"]
    evidence = found["evidence"]
    assert evidence["sample"]["waiting_seconds"] > evidence["sample"]["cpu_seconds"]
    probes = evidence["probes"]
    assert probes[0]["workers"] == 0
    assert all(probe["discarded_batches"] >= 2 * probe["workers"] + 4 for probe in probes[1:])
    at_best = [p for p in evidence["points"] if p["workers"] == found["num_workers"]]
    assert at_best[0]["probes"] >= 1
    assert found["expected_samples_per_s"] == pytest.approx(at_best[0]["rate"])


def test_a_stream_that_is_not_shared_out_gets_no_workers_for_their_copies() -> None:
    status, found, _ = recommend_for("Unsharded", "--seconds", "16")
    assert status == 0
    assert found["num_workers"] <= 1
    assert found["binding"] == "sharding"
    (hazard,) = [each for each in found["hazards"] if each["code"] == "unsharded"]
    assert "get_worker_info" in hazard["cure"]
    # A sample takes three milliseconds, and once it came it counts once.
    assert found["expected_samples_per_s"] < 340


def test_a_stream_that_ends_before_the_clock_is_timed() -> None:
    status, found, _ = recommend_for("short_stream")
    assert status == 0
    assert found["num_workers"] is not None
    assert found["evidence"]["probes"][0]["samples"] > 1600
    assert "unsharded" not in {hazard["code"] for hazard in found["hazards"]}


def test_ready_samples_get_none_and_what_is_set_already_may_stay() -> None:
    status, found, _ = recommend_for("good_already")
    assert status == 0
    assert found["num_workers"] == 0
    assert found["prefetch_factor"] is None
    assert found["change_needed"] is False
    # Where there is a GPU, pin_memory is to change.
    assert found["verdict"].startswith(("no change needed", "num_workers can stay"))
    assert found["evidence"]["sample"]["batch_size"] == 16


@pytest.mark.parametrize(
    ("name", "batching", "batches", "batch_size"),
    [
        ("shards", "dataset", "batch_size=None", 16),
        ("bucketed", "batch_sampler", "batch_sampler=batch_sampler", 8),
        ("lost_first", "size", "batch_size=16, sampler=sampler, collate_fn=collate_fn", 16),
    ],
)
def test_loaders_that_are_not_plain_are_counted_as_they_are(
    name: str, batching: str, batches: str, batch_size: int
) -> None:
    status, found, _ = recommend_for(name, "--gpu-rate", "600", "--seconds", "14")
    assert status == 0
    evidence = found["evidence"]
    assert evidence["loader"]["batching"] == batching
    assert f"DataLoader(dataset, {batches}, num_workers=" in found["code"]
    assert evidence["sample"]["batch_size"] == pytest.approx(batch_size, abs=1)
    # Three milliseconds a sample and worker are 333 samples a second, and no more.
    alone = evidence["points"][0]
    assert alone["workers"] == 0
    most = 333 if name != "lost_first" else 333 * 3 / 2
    assert 0.3 * most < alone["rate"] <= 1.05 * most
    assert evidence["transport"]["samples_per_s"] > 0


def test_large_batches_of_slow_samples_take_a_larger_part_of_the_time() -> None:
    status, found, _ = recommend_for("Waiting", "--batch-size", "1500", "--seconds", "16")
    assert status == 0
    assert found["evidence"]["points"][0]["rate"] == pytest.approx(333, rel=0.3)


def test_a_slow_gpu_is_fed_by_few() -> None:
    status, found, _ = recommend_for("Waiting", "--gpu-rate", "400")
    assert status == 0
    assert 1 <= found["num_workers"] <= 4
    assert found["binding"] == "gpu"
    assert found["expected_samples_per_s"] == 400


def test_any_other_iterable_is_timed_as_it_is() -> None:
    status, found, _ = recommend_for("pipeline", "--gpu-rate", "100", "--seconds", "5")
    assert status == 0
    assert found["num_workers"] is None
    assert found["binding"] == "gpu"
    assert found["expected_samples_per_s"] > 100
    assert any("as 16 samples" in reason for reason in found["evidence"]["reasons"])
    counted = recommend_for("pipeline", "--batch-size", "4", "--seconds", "5")[1]
    assert counted["expected_samples_per_s"] <= 400
