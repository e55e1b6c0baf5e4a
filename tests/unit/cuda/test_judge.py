"""The verdict's mathematics, fed with made traces: every threshold from both sides."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostprep.cuda.judge import judge
from hostprep.cuda.judge_overlap import phi, phi_of
from hostprep.cuda.results import EXIT_CODES, RUN_AGAIN, Check, Status, verdict
from hostprep.cuda.traces import (
    ControlTrace,
    CopyPoint,
    DeliveryTrace,
    EpochTrace,
    OverlapTrace,
    Trace,
)
from hostprep.system.typed_json import from_json
from hostprep.units import MIB
from tests.unit.cuda import made

TRANSCRIPTS = Path(__file__).parents[3] / "docs" / "verify-transcripts"


def checks(trace: Trace) -> dict[str, Check]:
    return {check.name: check for check in judge(trace)}


def with_overlap(trace: OverlapTrace) -> Trace:
    return made.trace(overlaps=tuple((made.OVERLAPS | {trace.kind: trace}).values()))


def test_a_good_run_passes_with_every_check_passed() -> None:
    found = judge(made.trace())
    assert {check.status for check in found} == {Status.PASS}
    assert verdict(found) is Status.PASS
    assert len({check.name for check in found}) == len(found) >= 15
    for check in found:
        assert check.measured is not None, check.name
        assert check.threshold is not None and check.threshold.source, check.name
        assert check.remedy is None


def test_phi_by_hand() -> None:
    assert phi(8.0, 8.0, 8.0) == 1.0
    assert phi(8.0, 8.0, 16.0) == 0.0
    assert phi(10.0, 5.0, 12.5) == 0.5
    scattered = OverlapTrace("spin", (1, 1, 9), (1, 1, 1), (1.2, 1.2, 50), (0, 0, 0))
    assert phi_of(scattered) == pytest.approx(0.8)  # of medians: one outlier decides nothing


@given(st.floats(1e-4, 10), st.floats(1e-4, 10), st.floats(0, 1))
def test_phi_says_how_much_of_the_shorter_one_was_hidden(
    copy: float, compute: float, hidden: float
) -> None:
    both = copy + compute - hidden * min(copy, compute)
    assert phi(copy, compute, both) == pytest.approx(hidden, abs=1e-6)


@pytest.mark.parametrize("kind", ["spin", "matmul", "prefetcher"])
@pytest.mark.parametrize(
    ("value", "status"),
    [
        (1.15, Status.INCONCLUSIVE),
        (1.05, Status.PASS),
        (0.61, Status.PASS),
        (0.59, Status.INCONCLUSIVE),
        (0.21, Status.INCONCLUSIVE),
        (0.19, Status.FAIL),
        (-0.3, Status.FAIL),
    ],
)
def test_overlap(kind: str, value: float, status: Status) -> None:
    trace = with_overlap(made.overlap(kind, value))
    check = checks(trace)[f"overlap.{kind}"]
    assert check.status is status
    assert check.measured == pytest.approx(value, abs=1e-3)
    assert (check.remedy is None) == (status is Status.PASS)
    assert verdict(judge(trace)) is status


@pytest.mark.parametrize("ratio", [0.6, 1.6])
def test_compute_that_does_not_fit_the_copy_is_no_proof(ratio: float) -> None:
    trace = with_overlap(made.overlap("spin", 0.95, compute=0.0075 * ratio))
    assert checks(trace)["overlap.spin"].status is Status.INCONCLUSIVE


def test_too_few_repeats_are_no_proof() -> None:
    trace = with_overlap(made.overlap("spin", 0.95, repeats=6))
    assert checks(trace)["overlap.spin"].status is Status.INCONCLUSIVE


@pytest.mark.parametrize(
    "overlaps",
    # Below: it would call a device that overlaps in part one that does not.
    [made.overlap("same_stream", 0.2), made.overlap("same_stream", -0.2), None],
)
def test_a_broken_instrument_is_an_error_and_its_readings_are_worth_nothing(
    overlaps: OverlapTrace | None,
) -> None:
    kept = {kind: trace for kind, trace in made.OVERLAPS.items() if kind != "same_stream"}
    if overlaps is not None:
        kept["same_stream"] = overlaps
    found = checks(made.trace(overlaps=tuple(kept.values())))
    for name in ("control", "spin", "matmul", "prefetcher"):
        assert found[f"overlap.{name}"].status is Status.ERROR
    assert verdict(found.values()) is Status.ERROR


@pytest.mark.parametrize("value", [0.14, -0.14])
def test_a_control_may_scatter(value: float) -> None:
    assert verdict(judge(with_overlap(made.overlap("same_stream", value)))) is Status.PASS


@pytest.mark.parametrize("kind", ["spin", "matmul", "prefetcher", "pageable"])
def test_an_arrangement_that_is_missing_is_not_passed_over(kind: str) -> None:
    kept = tuple(trace for trace in made.OVERLAPS.values() if trace.kind != kind)
    found = checks(made.trace(overlaps=kept))
    assert found[f"overlap.{kind}"].status is Status.SKIP
    assert verdict(found.values()) is Status.INCONCLUSIVE
    # Where its stage says why, that is said once.
    told = checks(made.trace(overlaps=kept, missing=(("overlap", "out of memory"),)))
    assert f"overlap.{kind}" not in told and told["stage.overlap"].status is Status.SKIP


def test_pageable_memory_that_overlaps_is_worth_a_word_unless_the_host_was_held() -> None:
    strange = with_overlap(made.overlap("pageable", 0.5, call=0.001))
    assert checks(strange)["overlap.pageable"].status is Status.WARN
    assert verdict(judge(strange)) is Status.PASS
    impossible = with_overlap(made.overlap("pageable", 1.5, call=0.001))
    assert checks(impossible)["overlap.pageable"].remedy == RUN_AGAIN
    for does_not in (made.overlap("pageable", 0.5, call=0.004), made.overlap("pageable", 0.25)):
        assert checks(with_overlap(does_not))["overlap.pageable"].status is Status.PASS


@pytest.mark.parametrize(
    ("share", "status"),
    [(0.09, Status.PASS), (0.11, Status.INCONCLUSIVE), (0.51, Status.FAIL)],
)
def test_when_the_call_returns(share: float, status: Status) -> None:
    trace = made.trace(
        copies=(CopyPoint(4096, 1e-6, 1e-6), CopyPoint(64 * MIB, 3e-3, share * 3e-3))
    )
    assert checks(trace)["copy.call"].status is status


@pytest.mark.parametrize(("bytes_per_s", "status"), [(15.8e9, Status.PASS), (15.7e9, Status.FAIL)])
def test_bandwidth_against_the_link(bytes_per_s: float, status: Status) -> None:
    # PCIe 4.0 x16: 16 lanes of 1.969 GB/s, half of it is 15.752 GB/s.
    trace = made.trace(copies=(CopyPoint(64 * MIB, 64 * MIB / bytes_per_s, 1e-6),))
    assert checks(trace)["copy.bandwidth"].status is status


def test_a_sweep_that_ended_early_says_so_and_small_copies_show_no_slow_link() -> None:
    small = (CopyPoint(4096, 5e-6, 4e-6), CopyPoint(MIB, 1e-3, 6e-4))
    found = checks(made.trace(copies=small, sweep_ended="CUDA out of memory"))
    for name in ("copy.bandwidth", "copy.call"):
        assert found[name].status is Status.INCONCLUSIVE
    assert "larger copies were left out: CUDA out of memory" in found["copy.bandwidth"].message
    good = checks(made.trace(copies=made.trace().copies[:2], sweep_ended="CUDA out of memory"))
    assert good["copy.bandwidth"].status is Status.PASS
    assert "left out" in good["copy.bandwidth"].message


@pytest.mark.parametrize("generation", [None, 9])
def test_bandwidth_over_a_link_that_nobody_names(generation: int | None) -> None:
    found = checks(made.trace(device=made.device(link_generation=generation)))
    # A slice of a GPU, or a virtual one, can be good as well: said, and held against nothing.
    assert found["copy.bandwidth"].status is Status.WARN
    assert verdict(found.values()) is Status.PASS


def test_a_link_below_what_it_could_be_is_named() -> None:
    copies = (CopyPoint(64 * MIB, 64 * MIB / 12e9, 1e-6),)
    check = checks(made.trace(device=made.device(link_width=8), copies=copies))["device.link"]
    assert check.status is Status.WARN
    assert check.message == "PCIe 4.0 x8 under load; it could do 4.0 x16"
    assert "reseat" in (check.remedy or "")


def test_a_link_that_cannot_be_what_nvml_says_is_not_held_against_anything() -> None:
    """As of a GPU beside the processor's own memory, or one that a virtual machine is told of."""
    found = checks(made.trace(device=made.device(link_generation=1)))
    link, bandwidth = found["device.link"], found["copy.bandwidth"]
    assert link.status is bandwidth.status is Status.WARN
    assert "NVML says so, but copies at 25.2 GB/s need more" in link.message
    assert "reseat" not in (link.remedy or "")
    assert "more than the PCIe 1.0 x16 that NVML names can carry" in bandwidth.message
    assert "%" not in bandwidth.message
    assert verdict(found.values()) is Status.PASS


@pytest.mark.parametrize(
    ("bytes_per_s", "status"), [(1.01e9, Status.WARN), (0.99e9, Status.INCONCLUSIVE)]
)
def test_what_no_link_can_be_is_no_pass_where_nobody_names_it(
    bytes_per_s: float, status: Status
) -> None:
    copies = (CopyPoint(64 * MIB, 64 * MIB / bytes_per_s, 1e-6),)
    found = checks(made.trace(device=made.device(link_generation=None), copies=copies))
    assert found["copy.bandwidth"].status is status
    # A riser's one lane is a link, and said to be what it is.
    device = made.device(link_generation=1, link_width=1)
    copies = (CopyPoint(64 * MIB, 64 * MIB / 0.2e9, 1e-6),)
    found = checks(made.trace(device=device, copies=copies))
    assert found["copy.bandwidth"].status is Status.PASS
    assert found["device.link"].status is Status.WARN
    assert found["device.link"].message.endswith("it could do 4.0 x16, and has 1% of that")


def test_a_link_of_no_width_is_one_that_is_not_known() -> None:
    device = made.device(link_generation=0, link_width=0)
    found = checks(made.trace(device=device))
    assert found["device.link"].status is found["copy.bandwidth"].status is Status.WARN
    assert "does not say" in found["device.link"].message


def test_a_link_that_is_more_than_the_most_is_no_less() -> None:
    device = made.device(link_generation=5, max_link_generation=4)
    assert checks(made.trace(device=device))["device.link"].status is Status.PASS


@pytest.mark.parametrize(
    ("reasons", "status"),
    [
        ((), Status.PASS),
        (("idle", "power cap"), Status.PASS),
        (("software thermal slowdown",), Status.WARN),
        (("hardware slowdown", "hardware thermal slowdown"), Status.FAIL),
        (("power brake",), Status.FAIL),
        (None, Status.WARN),
    ],
)
def test_throttling(reasons: tuple[str, ...] | None, status: Status) -> None:
    found = checks(made.trace(device=made.device(clock_reasons=reasons)))
    assert found["device.clocks"].status is status


def test_a_busy_device_decides_nothing_by_its_times_but_wrong_bytes_are_wrong() -> None:
    busy = made.device(utilisation_percent=40, others=1)
    slow = replace(with_overlap(made.overlap("spin", 0.0)), device=busy)
    found = checks(slow)
    assert found["device.idle"].status is Status.INCONCLUSIVE
    assert found["overlap.spin"].status is Status.INCONCLUSIVE
    assert verdict(found.values()) is Status.INCONCLUSIVE
    wrong = replace(slow, deliveries=(DeliveryTrace("tensors", 54, 54, 1000, 1),))
    assert verdict(judge(wrong)) is Status.FAIL


def test_others_of_whom_nobody_says_how_busy_they_are_may_be_at_work() -> None:
    """As on the other instances of a GPU with MIG, which share its link."""
    slow = made.trace(copies=(CopyPoint(64 * MIB, 64 * MIB / 9e9, 1e-6),))
    for others, status in ((2, Status.INCONCLUSIVE), (0, Status.FAIL), (None, Status.FAIL)):
        device = made.device(utilisation_percent=None, others=others)
        found = checks(replace(slow, device=device))
        assert found["copy.bandwidth"].status is status
        assert found["device.idle"].status is Status.WARN
        assert verdict(judge(made.trace(device=device))) is Status.PASS


def test_who_comes_during_the_test_disturbs_it_as_well() -> None:
    slow = with_overlap(made.overlap("spin", 0.0))
    assert verdict(judge(slow)) is Status.FAIL
    found = checks(replace(slow, newcomers=2))
    assert found["device.idle"].status is Status.INCONCLUSIVE
    assert "2 other processes came to it" in found["device.idle"].message
    assert found["overlap.spin"].status is Status.INCONCLUSIVE
    assert verdict(found.values()) is Status.INCONCLUSIVE
    for told in (0, None):
        assert verdict(judge(made.trace(newcomers=told))) is Status.PASS
    # Where the facts of the device are missing as well, the times still decide nothing.
    assert verdict(judge(replace(slow, device=None, newcomers=1))) is Status.INCONCLUSIVE


def test_beside_others_a_control_that_does_not_hold_shows_no_broken_instrument() -> None:
    broken = with_overlap(made.overlap("same_stream", 0.4))
    assert verdict(judge(broken)) is Status.ERROR
    busy = made.device(utilisation_percent=40, others=1)
    found = checks(replace(broken, device=busy))
    for name in ("control", "spin", "matmul", "prefetcher"):
        check = found[f"overlap.{name}"]
        assert check.status is Status.INCONCLUSIVE and "at work" in check.message
    assert verdict(found.values()) is Status.INCONCLUSIVE
    # A control that was never made is no matter of times.
    without = tuple(each for each in broken.overlaps if each.kind != "same_stream")
    missing = checks(replace(broken, device=busy, overlaps=without))
    assert missing["overlap.control"].status is Status.ERROR


@pytest.mark.parametrize(
    ("delivery", "words"),
    [
        (DeliveryTrace("x", 54, 54, 1000, 1), "1 of 1,000 values are wrong"),
        (DeliveryTrace("x", 53, 54, 1000, 0), "53 batches came, 54 were sent"),
        (DeliveryTrace("x", 55, 54, 1000, 0), "55 batches came"),
        (DeliveryTrace("x", 3, 54, 10, None, "out of memory"), "out of memory"),
    ],
)
def test_what_did_not_arrive_as_sent_fails(delivery: DeliveryTrace, words: str) -> None:
    found = checks(made.trace(deliveries=(delivery,)))
    assert found["delivery.x"].status is Status.FAIL and words in found["delivery.x"].message
    assert verdict(found.values()) is Status.FAIL


def test_a_fault_that_was_not_provoked_is_not_called_safe() -> None:
    controls = (ControlTrace("NoWaitBack", 0), ControlTrace("NoWaitBeforeUse", 7))
    found = checks(made.trace(controls=controls))
    check = found["delivery.control.NoWaitBack"]
    assert check.status is Status.WARN and "not caught" in check.message
    assert verdict(found.values()) is Status.PASS


def test_a_test_that_sees_no_fault_at_all_proves_nothing() -> None:
    silent = (ControlTrace("NoWaitBack", 0), ControlTrace("NoWaitBeforeUse", 0))
    found = checks(made.trace(controls=silent))
    assert found["delivery.control"].status is Status.INCONCLUSIVE
    assert "none of 2 deliberate faults" in found["delivery.control"].message
    assert (found["delivery.control"].measured, found["delivery.control"].unit) == (
        0,
        "faults seen",
    )
    assert verdict(found.values()) is Status.INCONCLUSIVE
    untried = checks(made.trace(controls=()))
    assert untried["delivery.control"].status is Status.SKIP
    assert untried["delivery.control"].measured is None
    assert "nothing was recorded" in untried["delivery.control"].message
    assert verdict(untried.values()) is Status.INCONCLUSIVE
    lack = (("delivery", "out of memory"),)
    assert "delivery.control" not in checks(made.trace(controls=(), missing=lack))
    assert "delivery.control" in checks(made.trace(controls=silent, missing=lack))


def test_of_nothing_that_was_delivered_nothing_is_judged() -> None:
    found = checks(made.trace(deliveries=()))
    assert not any(name.startswith("delivery.") for name in found)


@pytest.mark.parametrize(
    ("last", "status"),
    [
        (EpochTrace(66 * MIB, 20, 30), Status.PASS),
        (EpochTrace(67 * MIB, 20, 30), Status.FAIL),
        (EpochTrace(64 * MIB, 21, 30), Status.FAIL),
        (EpochTrace(64 * MIB, 20, 31), Status.FAIL),
        (EpochTrace(10 * MIB, 19, 29), Status.PASS),
    ],
)
def test_epochs_are_flat_from_the_second_on(last: EpochTrace, status: Status) -> None:
    first = EpochTrace(0, 5, 5)  # what the first one makes is not a leak
    epochs = (first, *(EpochTrace(64 * MIB, 20, 30) for _ in range(3)), last)
    assert checks(made.trace(epochs=epochs))["epochs.flat"].status is status
    early = (first, epochs[1], last, last, last)  # what grows in the third one alone has grown
    assert checks(made.trace(epochs=early))["epochs.flat"].status is status


def test_too_few_epochs_show_nothing() -> None:
    epochs = (EpochTrace(0, 1, 1),)
    assert checks(made.trace(epochs=epochs))["epochs.flat"].status is Status.INCONCLUSIVE


def test_end_to_end_against_its_slowest_part() -> None:
    slow = checks(made.trace(training=made.training(samples_per_s=3800.0)))
    assert slow["training.rate"].status is Status.INCONCLUSIVE  # 0.88 of the step alone
    assert "the step alone" in slow["training.rate"].message
    fed = made.training(samples_per_s=2000.0, loader_samples_per_s=2100.0, gaps_seconds=0.5)
    starved = checks(made.trace(training=fed))
    assert starved["training.rate"].status is Status.PASS
    assert starved["training.wait"].status is Status.WARN
    assert starved["training.wait"].measured == pytest.approx(0.5 - 0.02 / 0.95, abs=1e-4)
    assert "recommend" in (starved["training.wait"].remedy or "")
    # An epoch of 36 ms of steps, whose first batch takes 4 ms, as four workers need: all is hidden.
    short = made.training(
        samples=1536,
        seconds=0.041,
        first_batch_seconds=0.004,
        gaps_seconds=0.0005,
        samples_per_s=1536 / 0.041,
        loader_samples_per_s=1536 / 0.024,
        step_samples_per_s=1536 / 0.036,
    )
    found = checks(made.trace(training=short))
    assert found["training.rate"].status is found["training.wait"].status is Status.PASS
    # But what is late after that is not.
    late = replace(short, seconds=0.045, gaps_seconds=0.0045, samples_per_s=1536 / 0.045)
    found = checks(made.trace(training=late))
    assert found["training.rate"].status is Status.INCONCLUSIVE
    assert found["training.wait"].status is Status.WARN


STAGES = {
    "device": {"device": None},
    "copies": {"copies": ()},
    "overlap": {"overlaps": ()},
    "delivery": {"deliveries": ()},
    "flatness": {"epochs": ()},
    "training": {"training": None},
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("said", [True, False])
def test_a_stage_that_was_not_carried_out_is_a_skip_and_no_pass(stage: str, said: bool) -> None:
    missing = ((stage, "there was no time left"),) if said else ()
    found = judge(made.trace(**STAGES[stage], missing=missing))
    skip = next(check for check in found if check.name == f"stage.{stage}")
    assert skip.status is Status.SKIP
    assert ("no time left" in skip.message) == said
    assert skip.remedy == "run it again, on a quiet machine"
    assert verdict(found) is Status.INCONCLUSIVE


def test_a_stage_that_broke_off_is_an_error() -> None:
    found = judge(made.trace(training=None, failed=(("training", "CUDA error: 700"),)))
    assert [check.status for check in found if check.name == "stage.training"] == [Status.ERROR]
    assert verdict(found) is Status.ERROR


SPOILT = [
    *(with_overlap(made.overlap("spin", value)) for value in (0.4, 0.1)),
    with_overlap(made.overlap("spin", 0.95, repeats=6)),
    with_overlap(made.overlap("spin", 0.95, compute=0.003)),
    with_overlap(made.overlap("same_stream", 0.3)),
    with_overlap(made.overlap("pageable", 0.5, call=0.001)),
    made.trace(overlaps=tuple(made.OVERLAPS[kind] for kind in ("spin", "matmul"))),
    *(
        made.trace(device=made.device(**{field: value}))
        for field, value in {
            "utilisation_percent": None,
            "others": 2,
            "link_generation": None,
            "link_width": 4,
            "clock_reasons": None,
            "persistence": False,
            "ecc_uncorrected": 3,
            "pinned": False,
        }.items()
    ),
    made.trace(device=made.device(clock_reasons=("power brake",))),
    made.trace(copies=(CopyPoint(64 * MIB, 1.0, 0.3),)),
    made.trace(deliveries=(DeliveryTrace("tensors", 54, 54, 1000, 1),)),
    made.trace(controls=(ControlTrace("NoWaitBack", 0),)),
    made.trace(epochs=made.trace().epochs[:3]),
    made.trace(training=made.training(samples_per_s=1.0, gaps_seconds=0.9)),
    made.trace(training=None, missing=(("training", "there was no time left"),), quick=True),
    made.trace(training=None, failed=(("training", "CUDA error: 700"),)),
    Trace("cuda:0", made.ORIGIN, False),
]


@pytest.mark.parametrize("spoilt", SPOILT)
def test_whatever_is_no_pass_says_by_whose_threshold_and_what_to_do(spoilt: Trace) -> None:
    found = judge(spoilt)
    assert any(check.status is not Status.PASS for check in found)
    for check in found:
        assert check.threshold is not None and check.threshold.source, check.name
        assert (check.remedy is None) == (check.status is Status.PASS), check.name


def test_all_stages_are_among_those_that_can_be_missing() -> None:
    parts = {field.name for field in fields(Trace)}
    optional = parts - {
        "subject",
        "origin",
        "quick",
        "missing",
        "failed",
        "controls",
        "sweep_ended",
        "newcomers",
        "took",
    }
    assert {name for change in STAGES.values() for name in change} == optional


def check(status: Status) -> Check:
    return Check("x", "y", status, "z")


@given(st.lists(st.sampled_from(Status)))
def test_nothing_but_passes_and_warnings_is_a_pass(statuses: list[Status]) -> None:
    found = verdict(check(status) for status in statuses)
    assert (found is Status.PASS) == (
        bool(statuses) and set(statuses) <= {Status.PASS, Status.WARN}
    )
    assert (EXIT_CODES[found] == 0) == (found is Status.PASS)
    if Status.FAIL in statuses:
        assert found is Status.FAIL
    elif Status.ERROR in statuses:
        assert found is Status.ERROR


def test_exit_codes_are_the_contract() -> None:
    codes = {status.value: code for status, code in EXIT_CODES.items()}
    assert codes == {"PASS": 0, "FAIL": 3, "INCONCLUSIVE": 4, "SKIP": 4, "ERROR": 1}
    assert verdict([]) is Status.SKIP


def test_a_trace_goes_through_json_and_back() -> None:
    trace = made.trace(missing=(("training", "no room"),), training=None)
    assert from_json(Trace, json.loads(json.dumps(asdict(trace)))) == trace


def recorded(path: Path | None) -> Any:
    if path is None:
        pytest.skip("no run on a GPU has been recorded yet")
    try:
        return json.loads(path.read_text())
    except ValueError:
        pytest.skip(f"{path.name} is no whole document: its run was ended, and kept all the same")


@pytest.mark.parametrize("path", sorted(TRANSCRIPTS.glob("*.json")) or [None], ids=str)
def test_recorded_runs_are_judged_as_they_were(path: Path | None) -> None:
    document = recorded(path)
    for one in document["traces"]:
        trace = from_json(Trace, one)
        assert not trace.origin.startswith(made.ORIGIN)
        said = {
            entry["name"]: entry["status"]
            for entry in document["checks"]
            if entry["subject"] == trace.subject
        }
        now = {check.name: check.status.value for check in judge(trace)}
        assert now == {name: said[name] for name in now}


@pytest.mark.parametrize("path", sorted(TRANSCRIPTS.glob("*.json")) or [None], ids=str)
@pytest.mark.parametrize("kind", ["spin", "matmul", "prefetcher"])
def test_a_recorded_run_whose_copies_had_taken_turns_fails(path: Path | None, kind: str) -> None:
    """What a GPU without overlap would have given: each time of both is the sum of its parts."""
    for one in recorded(path)["traces"]:
        trace = from_json(Trace, one)
        overlaps = {overlap.kind: overlap for overlap in trace.overlaps}
        parts = zip(overlaps[kind].copy_seconds, overlaps[kind].compute_seconds, strict=True)
        overlaps[kind] = replace(overlaps[kind], both_seconds=tuple(map(sum, parts)))
        found = checks(replace(trace, overlaps=tuple(overlaps.values())))
        assert found[f"overlap.{kind}"].status is Status.FAIL
        assert found["overlap.control"].status is Status.PASS


@pytest.mark.parametrize("text", ["", '{"verdict": "PA'])
def test_a_record_that_was_cut_off_is_left_out_with_a_word(text: str, tmp_path: Path) -> None:
    (tmp_path / "2026-11-25-H100.json").write_text(text)
    with pytest.raises(pytest.skip.Exception, match=r"H100\.json is no whole document"):
        recorded(tmp_path / "2026-11-25-H100.json")
