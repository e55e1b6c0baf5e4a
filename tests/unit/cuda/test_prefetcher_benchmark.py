"""The comparison of prefetchers, without a GPU: its logic, on a device that does its work late.

Nothing of what it finds here is a result: the device is ``deferred_cuda``'s, its clock is made.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch

from benchmarks.kept import README, RESULTS
from benchmarks.prefetchers import __main__ as prefetchers
from benchmarks.prefetchers import rate as costs
from benchmarks.prefetchers import trials
from benchmarks.prefetchers.peers import CONTENDERS, CONTROLS, Contender
from benchmarks.prefetchers.report import render
from hostprep.cuda.bench import Bench
from tests.unit.cuda.deferred_cuda import DeferredCuda
from tests.unit.cuda.posing_cuda import Mode
from tests.unit.cuda.virtual_cuda import ILLEGAL_ACCESS, AcceleratorError, raising

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")

NAMES = [contender.name for contender in CONTENDERS]
NEVER = float("inf")
# By their documentation, and here.
OVERWRITTEN = {"data_prefetcher", "timm before #2784"}
ONE_PASS = {"data_prefetcher", "apex main_amp", "BackgroundGenerator"}
LOSE_A_BATCH = {"data_prefetcher", "apex main_amp", "timm before #2784", "timm since #2784"}


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[DeferredCuda]:
    """Small batches, and a host whose clock is the device's."""
    monkeypatch.setattr(trials, "ROW_VALUES", 512)
    monkeypatch.setattr(trials, "BATCHES", 12)
    monkeypatch.setattr(costs, "IMAGES", 4)
    monkeypatch.setattr(costs, "IMAGE", (3, 64, 64))
    monkeypatch.setattr(costs, "MOST_BATCHES", 20)
    monkeypatch.setattr(costs, "MIXED_IMAGES", (4, 3, 1))
    # Instead of products of matrices that a CPU takes its time to make.
    monkeypatch.setattr(Bench, "products", lambda bench, seconds: lambda: bench.spin(seconds))
    made = DeferredCuda(monkeypatch)
    made.bytes_per_s = 1e8
    with Mode():  # type: ignore[no-untyped-call]
        yield made


@pytest.fixture
def bench(cuda: DeferredCuda) -> Bench:
    return Bench(0)


def wrong(found: dict[str, Any]) -> set[str]:
    return {name for name, each in found.items() if each.get("wrong")}


def test_wrong_values_show_where_an_order_is_missing_and_nowhere_else(bench: Bench) -> None:
    found = trials.values(bench, NEVER)
    assert not [
        each for by_name in found.values() for each in by_name.values() if "problem" in each
    ]
    assert wrong(found["late copies"]) == {"no wait before use"}
    assert wrong(found["slow consumer"]) == OVERWRITTEN | {"no wait back"}
    assert wrong(found["slow consumer, plain for"]) >= OVERWRITTEN
    assert wrong(found["slow consumer, plain for"]) <= OVERWRITTEN | {"no wait back"}
    assert wrong(found["early end"]) == {"no lifetime", "no wait before use"}
    assert {found["late copies"][name]["batches"] for name in NAMES} == {12}
    assert {found["early end"][name]["batches"] for name in NAMES} == {3}


def test_batches_that_do_not_come_are_told(bench: Bench) -> None:
    def short(loader: Any, *args: Any, **kwargs: Any) -> Any:
        made = CONTENDERS[0].make(loader, *args, **kwargs)
        return iter(list(made)[:-1])

    found = trials.wrong_values(bench, Contender("short", "", short), trials.ARRANGEMENTS[1])
    assert found["problem"] == "11 batches came of 12"


def test_overlap_shows_in_the_rate(
    cuda: DeferredCuda, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "perf_counter", lambda: cuda.host)
    found = costs.rate(bench, time.monotonic() + 60)
    assert found["problems"] == {} and found["batches"] == 20
    assert found["copy_seconds"] == pytest.approx(4 * 3 * 64 * 64 / 1e8, rel=0.1)
    rates = {name: median(each) for name, each in found["rates"].items()}
    assert list(rates) == [costs.COMPUTE, costs.COPY, *NAMES]
    assert {len(each) for each in found["rates"].values()} == {costs.ROUNDS}
    ideal = min(rates[costs.COMPUTE], rates[costs.COPY])
    for name in set(NAMES) - {"to", "to non_blocking, pinned", "BackgroundGenerator"}:
        assert rates[name] > 0.85 * ideal, name
    for name in ("to", "to non_blocking, pinned", "BackgroundGenerator"):
        assert rates[name] < 0.6 * ideal, name


def test_rounds_end_with_the_time_and_one_that_fails_leaves_the_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Contender("broken", "", raising(AcceleratorError(ILLEGAL_ACCESS)))
    monkeypatch.setattr(costs, "CONTENDERS", (CONTENDERS[0], broken))
    found = costs.rate(bench, time.monotonic())
    assert found["batches"] == costs.FEWEST_BATCHES
    assert {len(each) for each in found["rates"].values()} == {1}
    assert list(found["problems"]) == ["broken"]
    assert found["problems"]["broken"].endswith(
        "CUDA error: an illegal memory access was encountered"
    )
    assert "problem" in costs.memory(bench, NEVER)["broken"]


def test_memory_is_told_of_some_epochs(cuda: DeferredCuda, bench: Bench) -> None:
    def growing(loader: Any, *args: Any, **kwargs: Any) -> Any:
        cuda.reserved += 10
        return CONTENDERS[0].make(loader, *args, **kwargs)

    more = Contender("growing", "", growing, one_pass=True)
    assert costs._held(bench, more, [costs._images(4, True)]) == {
        "reserved_bytes": {"1": 10, "2": 20, "5": 50},
        "peak_bytes": {"1": 10, "2": 20, "5": 50},
    }
    flat = {"1": 0, "2": 0, "5": 0}
    found = costs.memory(bench, NEVER)
    assert found == {name: {"reserved_bytes": flat, "peak_bytes": flat} for name in NAMES}


def test_facts(bench: Bench) -> None:
    found = trials.facts(bench, NEVER)
    told = {fact: {name: found[name][fact].get("found") for name in NAMES} for fact in found["to"]}
    assert {name for name, yes in told["again"].items() if not yes} == ONE_PASS
    assert {name for name, yes in told["has_len"].items() if not yes} == ONE_PASS
    assert {name for name, yes in told["empty"].items() if not yes} == {"timm before #2784"}
    assert "UnboundLocalError" in found["timm before #2784"]["empty"]["problem"]
    assert {n for n, came in told["before_error"].items() if came == "2 of 3"} == LOSE_A_BATCH
    assert set(told["before_error"].values()) == {"2 of 3", "3 of 3"}
    assert {n: left for n, left in told["threads_left"].items() if left} == {
        "BackgroundGenerator": 1
    }


def test_without_time_nothing_is_tried(bench: Bench) -> None:
    assert trials.guarded(raising(AssertionError()), time.monotonic() - 1) == {
        "problem": "there was no time left"
    }


def test_a_whole_run_is_written(cuda: DeferredCuda, tmp_path: Path) -> None:
    out = tmp_path / "new"
    assert prefetchers.main(["--seconds", "100", "--out", str(out)]) == 0
    (result,) = json.loads((out / RESULTS).read_text())
    assert result["device"] == "Virtual GPU" and result["torch"] == torch.__version__
    for part in ("rate", "values", "memory", "facts"):
        assert "problem" not in result[part], result[part]
    page = (out / README).read_text()
    assert page == render([result])
    assert "## Virtual GPU, torch" in page and "Not measured" not in page
    for name in (*NAMES, *(control.name for control in CONTROLS)):
        assert page.count(f"| {name} |") >= 1, name


def test_without_cuda_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prefetchers.main(["--out", str(tmp_path / "none")]) == 1
    said = capsys.readouterr().out
    assert said.startswith("This compares prefetchers on a GPU") and said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


# -- the page, from a result that is made: no device gave these figures

MADE: dict[str, Any] = {
    "device": "Made GPU",
    "torch": "0.0",
    "cuda": "0.0",
    "driver": None,
    "python": "3.12.0",
    "processors": 16,
    "date": "2000-01-01",
    "limit_seconds": 60.0,
    "seconds": 31.4,
    "about": {"one": "``A``, made.", "other": "B, made."},
    "controls": {"broken": "On purpose."},
    "rate": {
        "batch_bytes": 38_500_000,
        "copy_seconds": 0.0007,
        "batches": 100,
        "rates": {
            "compute alone": [1000.0, 1002.0, 998.0],
            "copy alone": [1400.0, 1400.0, 1400.0],
            "one": [900.0, 950.0, 940.0],
        },
        "problems": {"other": "RuntimeError: a | b"},
    },
    "values": {
        "late": {
            "one": {"batches": 54, "values": 1000, "wrong": 0},
            "other": {"problem": "RuntimeError: x"},
            "broken": {"batches": 54, "values": 1000, "wrong": 7},
        },
        "early": {
            "one": {"batches": 54, "values": 1000, "wrong": 2},
            "other": {"batches": 53, "values": 9, "wrong": 0, "problem": "53 batches came of 54"},
            "broken": {"batches": 54, "values": 1000, "wrong": 0},
        },
    },
    "memory": {
        "one": {
            "reserved_bytes": {"1": 1 << 20, "2": 2 << 20, "5": 5 << 20},
            "peak_bytes": {"1": 1 << 20, "2": 2 << 20, "5": 6 << 20},
        },
        "other": {"problem": "there was no time left"},
    },
    "facts": {
        "one": {
            "again": {"found": True},
            "has_len": {"found": False},
            "empty": {"problem": "UnboundLocalError: y"},
            "before_error": {"found": "2 of 3"},
            "threads_left": {"found": 1},
        }
    },
}


def test_the_page_of_a_made_result() -> None:
    page = render([MADE])
    for line in (
        "## Made GPU, torch 0.0",
        "### Rate: 100 batches of 38.5 MB a pass, of which a copy takes 0.70 ms (55.0 GB/s),"
        " compute alone 1.00 ms",
        "| compute alone | 1,000 (998 to 1,002) |  | 3 |",
        "| one | 940 (900 to 950) | 94% | 3 |",
        "| other | RuntimeError: a / b |  |  |",
        "| one | 0 of 1,000 | **2** of 1,000 |",
        "| other | RuntimeError: x | 53 batches came of 54; 0 of 9 |",
        "| broken | **7** of 1,000 | 0 of 1,000 |",
        "Nothing was provoked, and so nothing shown, by: early.",
        "| reserved, MiB | after epoch 1 | after epoch 2 | after epoch 5 | the most |",
        "| one | 1 | 2 | 5 | 6 |",
        "| other | there was no time left |  |  |  |",
        "| one | yes | no | UnboundLocalError: y | 2 of 3 | 1 |",
        "- one: `A`, made.",
    ):
        assert line in page.splitlines(), line


def test_what_failed_in_a_later_round_keeps_its_rates_and_says_so() -> None:
    rate = {**MADE["rate"], "problems": {"one": "RuntimeError: late"}}
    row = "| one | 940 (900 to 950), then RuntimeError: late | 94% | 3 |"
    assert row in render([{**MADE, "rate": rate}])


def test_what_was_not_reached_is_said() -> None:
    page = render([{**MADE, "rate": {"problem": "RuntimeError: z"}, "facts": {"one": {}}}])
    assert "- rate: RuntimeError: z" in page and "### Rate" not in page
    short = {name: value for name, value in MADE.items() if name != "facts"}
    assert "- facts: not reached" in render([short])


def test_the_same_device_and_torch_is_replaced_and_others_stay(tmp_path: Path) -> None:
    for made in (MADE, {**MADE, "torch": "0.1"}, {**MADE, "date": "2000-01-02"}):
        prefetchers.keep(made, tmp_path)
    kept = json.loads((tmp_path / RESULTS).read_text())
    assert [(each["torch"], each["date"]) for each in kept] == [
        ("0.0", "2000-01-02"),
        ("0.1", "2000-01-01"),
    ]


def test_the_driver_is_read_where_it_says(tmp_path: Path) -> None:
    said = tmp_path / "version"
    assert prefetchers.driver(said) is None
    said.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release\n")
    assert prefetchers.driver(said) == "580.65.06"
    said.write_text("nothing\n")
    assert prefetchers.driver(said) is None
