"""The page on the regret of `recommend` is what the kept results say, a machine at a time."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mode
from typing import Any

import pytest

from benchmarks.recommend.plan import FULL, rules
from benchmarks.recommend.point import share_of_others
from benchmarks.recommend.report import render

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "recommend"
KEPT: list[dict[str, Any]] = json.loads((BENCHMARK / "results.json").read_text())
# Of the machine with the most workloads, in whole runs.
RESULTS = [result for result in KEPT if result["machine"] == mode(each["machine"] for each in KEPT)]


def short(**changes: Any) -> dict[str, Any]:
    """Return a result of another machine: 16 processors, and a sweep of three points."""
    rates = {"0": 400.0, "8": 3000.0, "16": 6000.0}
    result = {
        **RESULTS[0],
        "machine": "16 cores (Some Processor)",
        "processors": 16,
        "affinity": 16,
        "recommended": 16,
        "plan": {**RESULTS[0]["plan"], "workers": [0, 8, 16], "passes": 1, "window_seconds": 2.0},
        "sweep": {
            number: [{"samples_per_s": rate, "seconds": 2.0, "others": 0.0}]
            for number, rate in rates.items()
        },
    }
    return result | changes


def section(result: dict[str, Any]) -> str:
    return render([*RESULTS, result]).partition("## 16 cores (Some Processor)\n")[2]


def test_the_page_is_that_of_the_results() -> None:
    assert render(KEPT) == (BENCHMARK / "README.md").read_text()


def test_another_machine_has_a_section_of_its_own_after_the_one_with_more_workloads() -> None:
    page = render([short(), *RESULTS])
    assert page.startswith(render(RESULTS))
    assert page.count("\n## ") == 2


def test_what_was_shortened_is_said_where_it_was() -> None:
    told = section(short())
    assert "3 points in the sweep (0, 8, 16)" in told
    assert "passes 1 (2)" in told and "seconds of a measurement 2 (4)" in told
    whole = short(plan={**RESULTS[0]["plan"], "workers": [*FULL.workers, 15]})
    assert "Shortened" not in section(whole)


def test_a_rule_without_a_point_in_the_sweep_has_an_empty_cell() -> None:
    told = section(short())
    assert rules(16, 16)["Lightning"] == 15 and "\n| Lightning (15) |  |\n" in told
    assert "\n| PyTorch's warning (16) | 0.0% |\n" in told
    assert "\n| a constant 8 (8) | 50.0% |\n" in told


def test_points_that_failed_and_others_that_nobody_counted_are_said() -> None:
    told = section(short(failed={"32": "no room"}))
    assert "- jpeg: nothing was measured with 32 workers: no room" in told
    sweep = {"16": [{"samples_per_s": 6000.0, "seconds": 2.0, "others": None}]}
    assert "the kernel does not say what other programs took" in section(short(sweep=sweep))


@pytest.mark.parametrize(
    ("busy", "idle", "mine", "share"), [(0, 0, 5, None), (50, 50, 30, 0.2), (50, 50, 60, 0.0)]
)
def test_the_share_of_others_is_unknown_where_the_kernel_counts_nothing(
    busy: int, idle: int, mine: int, share: float | None
) -> None:
    assert share_of_others(busy, idle, mine) == share
