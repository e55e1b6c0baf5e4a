"""The figures behind the plots, from documents as probe, recommend and verify really keep them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hostprep.cuda.judge import judge
from hostprep.cuda.results import verdict
from hostprep.cuda.session import Report, report_fields
from hostprep.loading import report as loading
from hostprep.loading.recommend import from_host
from hostprep.loading.report import Wish
from hostprep.loading.search import Point
from hostprep.probing import results
from hostprep.readiness.context import Context
from hostprep.readiness.formats.plots import plots
from hostprep.readiness.measurements import measurements
from hostprep.system.last_results import keep_last, read_last
from tests.unit.cuda.made import trace
from tests.unit.loading.making import share
from tests.unit.probing.test_results import made


def test_nothing_kept_is_nothing_measured() -> None:
    found = measurements(Context())
    assert found == {"storage": None, "epoch": None, "loader": None, "overlap": None}
    assert all(plot.svg is None and plot.missing for plot in plots(found))


def test_where_nobody_may_look_nothing_is_shown_as_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(loop))
    found = measurements(Context())
    assert found == {"storage": None, "epoch": None, "loader": None, "overlap": None}


def test_probes_are_shown_newest_first_and_one_for_each_path() -> None:
    results.keep(made())
    newer = made() | {"path": "/other"}
    results.keep(newer)
    found = measurements(Context())
    assert {row["path"] for row in found["storage"]} == {"/data", "/other"}
    row = next(row for row in found["storage"] if row["path"] == "/data")
    assert row["sequential_bytes_per_s"] == pytest.approx(150 * 2**20)
    assert row["small_files_per_s"] == 100 and row["class"] == "arm" and row["valid"] is True
    assert 0 <= row["age_seconds"] < 60
    assert found["epoch"]["cold_seconds"] == pytest.approx(100)
    storage, epoch = plots(found)[:2]
    assert storage.svg and "157 MB/s" in storage.svg and "10.0 MB/s" in storage.svg
    assert epoch.svg and "1 min 40 s" in epoch.svg


def test_a_probe_without_small_files_says_so() -> None:
    results.keep(made(None, small=None))
    found = measurements(Context())
    (row,) = found["storage"]
    assert row["small_files_bytes_per_s"] is None and found["epoch"] is None
    svg = plots(found)[0].svg
    assert svg and "not measured" in svg and "not valid" in svg


def verify_document() -> dict[str, Any]:
    one = trace()
    checks = judge(one)
    fields = report_fields(Report(verdict(checks), checks, None, (one,), 100.0))
    document: dict[str, Any] = json.loads(json.dumps(fields))
    return document


def test_overlap_is_of_what_overlaps_and_not_of_the_controls() -> None:
    keep_last("verify", verify_document())
    found = measurements(Context())["overlap"]
    assert [row["kind"] for row in found["rows"]] == ["spin", "matmul", "prefetcher"]
    assert [row["phi"] for row in found["rows"]] == pytest.approx([0.97, 0.85, 0.88], abs=0.001)
    for row in found["rows"]:
        shorter = min(row["copy_seconds"], row["compute_seconds"])
        in_turn = row["copy_seconds"] + row["compute_seconds"]
        assert (in_turn - row["both_seconds"]) / shorter == pytest.approx(row["phi"], abs=0.001)
    svg = plots({"overlap": found})[3].svg
    assert svg and "97% hidden" in svg


def recommend_document(*points: Point) -> dict[str, Any]:
    said = from_host(share(), Wish(None, None, 5.0, 64, measure=True, compare=False), gpus=1)
    fields = loading.report_fields(replace(said, points=points, gpu_rate=900.0))
    document: dict[str, Any] = json.loads(json.dumps(fields))
    return document


def test_the_loader_is_shown_by_workers_and_not_in_the_order_of_measuring() -> None:
    kept = recommend_document(Point(8, 800.0, 0.1, 2), Point(2, 300.0, 0.2, 1))
    keep_last("recommend", kept)
    found = measurements(Context())["loader"]
    assert 0 <= found.pop("age_seconds") < 60
    assert found == {
        "num_workers": kept["num_workers"],
        "binding": None,
        "gpu_rate_samples_per_s": 900.0,
        "points": [
            {"workers": 2, "samples_per_s": 300.0, "relative_error": 0.2},
            {"workers": 8, "samples_per_s": 800.0, "relative_error": 0.1},
        ],
    }
    drawn = plots({"loader": found | {"age_seconds": 1.0}})[2]
    assert drawn.svg and "bottleneck" not in drawn.note and "None" not in drawn.note
    limited = plots({"loader": found | {"age_seconds": 1.0, "binding": "shared_memory"}})[2]
    assert "; the bottleneck is shared memory; measured " in limited.note
    keep_last("recommend", recommend_document())
    assert measurements(Context())["loader"] is None


def test_an_epoch_is_that_of_the_newest_probe_that_is_valid() -> None:
    probes = [made() | {"path": path, "time": "20231114T221320Z"} for path in ("/new", "/old")]
    assert measurements(Context(given={"probes": probes}))["epoch"]["path"] == "/new"
    probes[0]["valid"] = False
    assert measurements(Context(given={"probes": probes}))["epoch"]["path"] == "/old"


def test_what_is_kept_in_a_form_not_understood_hides_nothing_else() -> None:
    keep_last("recommend", {"evidence": {}})
    keep_last("verify", verify_document())
    found = measurements(Context())
    assert found["loader"] is None and found["overlap"] is not None
    odd = verify_document()
    odd["checks"][0]["name"] = 5
    keep_last("verify", odd)
    assert measurements(Context())["overlap"] is None


def test_last_results_replace_each_other_and_broken_ones_are_none() -> None:
    assert read_last("verify") is None
    keep_last("verify", {"verdict": "FAIL"})
    keep_last("verify", {"verdict": "PASS"})
    kept = read_last("verify")
    assert kept is not None and kept["verdict"] == "PASS"
    assert read_last("recommend") is None
    age = Context().age_of(kept)
    assert age is not None and 0 <= age < 60
    from hostprep.system.state import state_dir

    (state_dir() / "last/verify.json").write_text(json.dumps(kept | {"host": "another"}))
    assert read_last("verify") is None  # its GPU is not this one's: they share a home
    (state_dir() / "last/verify.json").write_text("{")
    assert read_last("verify") is None
    (state_dir() / "last/verify.json").write_text("[" * 100_000)
    assert read_last("verify") is None


@pytest.mark.parametrize("rates", [[0.4], [0.0], [12.0, 999_999.0], [210, 2790]])
def test_an_axis_is_round_and_holds_every_point(rates: list[float]) -> None:
    points = [
        {"workers": number, "samples_per_s": rate, "relative_error": 0.1}
        for number, rate in enumerate(rates)
    ]
    loader = {
        "age_seconds": 1.0,
        "num_workers": 0,
        "binding": "gpu",
        "gpu_rate_samples_per_s": None,
        "points": points,
    }
    svg = plots({"loader": loader})[2].svg
    assert svg is not None and "nan" not in svg and "inf" not in svg
    heights = [float(part.split('"')[0]) for part in svg.split('cy="')[1:]]
    assert len(heights) == len(rates) and all(18 <= height <= 148.1 for height in heights)
