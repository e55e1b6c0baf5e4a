"""What the model may ask for where no probe with workers has confirmed it."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any

import pytest

from hostprep.cli.recommend_text import report_text
from hostprep.loading.curve import curve_of
from hostprep.loading.failures import LoaderFailed
from hostprep.loading.files.listing import Listing
from hostprep.loading.measuring.measure import Measurer
from hostprep.loading.model import Binding, FailedProbe, Probe, SampleCost, Transport
from hostprep.loading.recommend import from_loader
from hostprep.loading.report import Report, Wish
from hostprep.loading.search import Search
from hostprep.loading.session import Run
from hostprep.loading.verdict.judging import report_of
from hostprep.loading.verdict.unconfirmed import modelled
from tests.unit.loading import making
from tests.unit.loading.test_slow_probes import Silent
from tests.unit.loading.test_verdict import stages, subject

WISH = Wish(None, None, 5.0, 224, measure=True, compare=False)


def recommended(kind: str = "dataset", **host: Any) -> int | None:
    return reported(kind, **host).recommendation.num_workers


def reported(
    kind: str = "dataset",
    current_workers: int | None = None,
    cost: SampleCost | None = None,
    past_seconds: float = 0.0,
    opening_seconds: float = 1.5,
    listing: Listing | None = None,
    alone: Probe | None = None,
    ceiling: float = math.inf,
    failed: tuple[int, ...] = (),
    cuda: bool = False,
    **host: Any,
) -> Report:
    """Return the report on a loader, of ``past_seconds`` after it was begun.

    With ``listing`` it is one of files. Unless ``cost`` is given it only waits, 10 ms a sample.
    With ``alone`` it was timed without workers, and gave with them no more than ``ceiling``.
    So many workers as ``failed`` did.
    """
    share = making.share(**host)
    measurer = Measurer({}, "x", 32, share, time.monotonic(), 1.0, lambda words: None, 1)
    measurer.subject = dataclasses.replace(subject(current_workers), kind=kind, cuda=cuda)
    measurer.opening_seconds = opening_seconds
    run = Run(measurer, WISH, time.monotonic() - past_seconds, listing)
    run.cost = cost or making.cost(
        seconds=0.01,
        worker_seconds=0.01,
        cpu_seconds=0.0001,
        waiting_seconds=0.0099,
        sample_bytes=1,
    )
    run.curve = curve_of(run.cost, None, share.capacity_per_rank)
    run.failures += [FailedProbe(each, Binding.MEMORY, "the kernel killed one") for each in failed]
    if alone is not None:
        run.search = Search(run.curve, None, lambda _: None, run._most, lambda: 0, probes=[alone])
        run.ceiling = ceiling
    return report_of(run, "loader")


@pytest.mark.parametrize("cpus", [2, 8])
def test_on_few_processors_the_model_alone_asks_for_16_at_most(cpus: int) -> None:
    assert recommended(capacity_cpus=float(cpus), affinity_cpus=cpus) == 16


def test_on_many_it_asks_for_no_more_than_there_are() -> None:
    found = recommended(capacity_cpus=24.0, affinity_cpus=24)
    assert found is not None
    assert 16 < found <= 24


def test_a_bound_of_the_host_is_kept_below_that() -> None:
    found = recommended(shm_free_bytes=512, shm_size_bytes=512)
    assert found is not None
    assert 1 <= found < 16


@pytest.mark.parametrize(
    ("alone", "ceiling", "workers"),
    [
        (making.probe(0, 100), 100.0, 1),
        (making.probe(0, 10, undisturbed_samples_per_s=100.0), 10.0, 1),
        (making.probe(0, 10, undisturbed_samples_per_s=100.0), 36.0, 4),
    ],
)
def test_workers_too_slow_to_be_timed_are_held_against_none_beside_the_same_programs(
    alone: Probe, ceiling: float, workers: int
) -> None:
    """None gave 10 samples/s beside them, and some 36: without them it is not 36 against 100."""
    cost = making.cost(seconds=0.01, worker_seconds=0.01, cpu_seconds=0.01)
    made = reported(cost=cost, alone=alone, ceiling=ceiling, capacity_cpus=2.0, affinity_cpus=2)
    assert made.recommendation.num_workers == workers


@pytest.mark.parametrize(("main_seconds", "workers"), [(0.005, 0), (0.0, 1)])
def test_what_was_measured_is_not_given_up_for_a_lower_rate_of_the_model(
    main_seconds: float, workers: int
) -> None:
    """100 samples/s were seen without workers; of the 67 with one nobody has seen any."""
    cost = making.cost(
        seconds=0.01,
        worker_seconds=0.01,
        cpu_seconds=0.01,
        main_cpu_seconds=main_seconds,
        sample_bytes=1,
        collate_cpu_seconds=0.0,
    )
    made = reported(cost=cost, alone=making.probe(0, 100), capacity_cpus=1.0, affinity_cpus=1)
    assert made.recommendation.num_workers == workers


@pytest.mark.parametrize(("cpus", "most"), [(0.5, 1), (1.5, 2), (8.0, 8)])
def test_once_workers_have_failed_it_asks_for_no_more_than_a_quota_gives(
    cpus: float, most: int
) -> None:
    cost = making.cost(seconds=0.01, cpu_seconds=0.0001, waiting_seconds=0.0099, sample_bytes=1)
    points = modelled(
        curve_of(cost, None, cpus),
        None,
        capacity_cpus=cpus,
        bounds=(),
        failed=(FailedProbe(32, Binding.MEMORY, "the kernel killed one"),),
        ceiling=math.inf,
        distinct=math.inf,
        handed_over=math.inf,
        error=0.1,
    )
    assert [point.workers for point in points] == [*range(most + 1)]


@pytest.mark.parametrize(("past_seconds", "told"), [(9.0, False), (14.0, True)])
def test_more_time_than_was_given_is_told_of(past_seconds: float, told: bool) -> None:
    notes = reported(past_seconds=past_seconds).notes
    late = "this took 14 s instead of the 5 of --seconds"
    assert any(note.startswith(late) for note in notes) == told
    assert any(note.startswith("this took") for note in notes) == told


def test_what_takes_its_time_where_it_is_opened_is_told_from_what_starts_late() -> None:
    """A script that runs three epochs when it is imported: they take the time, not its batches."""
    (note,) = reported(past_seconds=60.0, opening_seconds=52.0).notes
    assert "opens x anew, which takes 52.0 s here" in note and "__main__" in note
    files = Listing(("a.jpg",), "image", jpeg=True, others=0, whole=True, mean_bytes=1e5)
    (note,) = reported(past_seconds=60.0, opening_seconds=52.0, listing=files).notes
    assert note.endswith("takes 52.0 s here, imports included")
    (note,) = reported(past_seconds=60.0).notes
    assert "waits for its first batches" in note and "__main__" not in note


def test_the_limit_that_distributions_give_is_none_of_few_workers() -> None:
    """1,024 open files: `hostprep check` passes them, and 16 workers of two tensors take 300."""
    for tensors, told in ((2, False), (40, True)):
        report = reported(cost=making.cost(tensors_per_batch=tensors), descriptors_limit=1024)
        assert report.recommendation.num_workers
        assert any(hazard.code == "descriptors_few" for hazard in report.hazards) is told


def test_of_files_it_is_the_gpu_of_the_host_that_counts() -> None:
    """A torch for the CPU measures as well, or none: the training has another one."""
    files = Listing(("a.jpg",), "image", jpeg=True, others=0, whole=True, mean_bytes=1e5)
    for listing, gpus, cuda, pinned in (
        (files, 1, False, True),
        (files, 0, False, False),
        (files, 0, True, True),
        (None, 1, False, False),
        (None, 0, True, True),
    ):
        made = reported(listing=listing, gpus=gpus, cuda=cuda).recommendation
        told = any(reason.startswith("pin_memory: False because") for reason in made.reasons)
        assert told is not pinned
        assert made.pin_memory is pinned and f"pin_memory={pinned}" in (made.code or "")


@pytest.mark.parametrize(("failed", "workers"), [((4,), 3), ((6, 4), 3), ((2, 4), 1), ((1,), 0)])
def test_after_a_failure_fewer_than_failed_are_asked_for(
    failed: tuple[int, ...], workers: int
) -> None:
    assert reported(failed=failed).recommendation.num_workers == workers


@pytest.mark.parametrize("whole", [True, False])
def test_what_fits_into_memory_is_told_of_files_that_were_all_listed(whole: bool) -> None:
    names = ("a.jpg",) * (64 << 10)
    files = Listing(names, "image", jpeg=True, others=0, whole=whole, mean_bytes=1 << 20)
    made = reported(listing=files).recommendation
    assert made.binding is Binding.WAITING
    assert ("25% of about 64.0 GiB fits into memory" in (made.remedy or "")) is whole


def test_of_a_stream_nobody_saw_that_more_than_one_worker_shares_it_out() -> None:
    assert recommended("stream") == 1


def test_of_a_stream_as_many_are_kept_as_are_set_for_want_of_time() -> None:
    found = reported("stream", current_workers=4).recommendation
    assert found.num_workers == 4
    assert "4 now, which there was too little time to try" in found.verdict


def test_what_suffices_for_all_workers_that_are_ever_asked_for_is_not_short() -> None:
    def short(descriptors_limit: int) -> set[str]:
        return {hazard.code for hazard in reported(descriptors_limit=descriptors_limit).hazards}

    assert "descriptors_short" in short(600)
    assert "descriptors_short" not in short(1024)


def test_what_is_set_now_and_was_not_tried_is_not_called_wrong() -> None:
    found = reported(current_workers=4).recommendation
    assert found.num_workers != 4 and not found.confirmed
    assert found.change_needed is None
    assert "4 now, which there was too little time to try" in found.verdict


@pytest.mark.parametrize(
    ("failed", "words"),
    [
        ((4,), "(num_workers=4 now, which failed)"),
        ((4, 2), "(num_workers=4 now, which failed)"),
        ((8, 2), "(num_workers=4 now, and 2 workers failed)"),
        ((2,), "(num_workers=4 now, and 2 workers failed)"),
        ((8,), "(num_workers=4 now, which there was too little time to try)"),
    ],
)
def test_what_is_set_now_and_failed_was_tried(failed: tuple[int, ...], words: str) -> None:
    found = reported(current_workers=4, failed=failed).recommendation
    assert words in found.verdict
    assert found.change_needed is (True if min(failed) <= 4 else None)


def test_what_is_set_now_and_the_model_alone_agrees_with_is_not_called_right() -> None:
    found = reported(current_workers=16).recommendation
    assert found.num_workers == 16 and not found.confirmed
    assert found.change_needed is None
    assert (
        "by the model (num_workers=16 now, which there was too little time to try)" in found.verdict
    )


def test_what_is_set_now_and_cannot_be_is_to_be_changed() -> None:
    found = reported(current_workers=12, shm_free_bytes=512, shm_size_bytes=512).recommendation
    assert found.change_needed is True


def beside(others_cpus: float, transport: Transport | None = None, **changed: Any) -> Report:
    """Return the report on a loader of which only a probe without workers is known."""
    share = making.share()
    measurer = Measurer({}, "x", 32, share, time.monotonic(), 1.0, Silent())
    measurer.subject = making.subject(current_workers=None)
    run = Run(measurer, WISH, time.monotonic())
    run.cost = making.cost(seconds=1 / 160, worker_seconds=1 / 160, cpu_seconds=1 / 160)
    run.transport = transport
    run.curve = curve_of(run.cost, transport, share.capacity_per_rank)
    others = {"others_cpus": others_cpus, "others_before_cpus": others_cpus}
    probes = [making.probe(0, 160, **others, **changed)]
    run.search = Search(run.curve, None, lambda workers: None, run._most, lambda: 0, probes)
    return report_of(run, "loader")


def test_the_model_is_no_surer_than_what_it_rests_on() -> None:
    made = beside(0.1, relative_error=0.27).recommendation
    assert made.num_workers and not made.confirmed
    assert made.relative_error is not None and made.relative_error >= 0.27
    quiet = beside(0.0, relative_error=0.01).recommendation
    assert quiet.relative_error is not None and 0.08 <= quiet.relative_error < 0.09
    unsteady = Transport(8, 50_000.0, 1e-5, relative_error=0.4)
    sent = beside(0.0, unsteady, relative_error=0.01).recommendation
    assert sent.relative_error is not None and sent.relative_error >= 0.4


def test_what_was_reckoned_on_top_of_the_clock_is_in_the_error() -> None:
    widened = beside(1.0, undisturbed_samples_per_s=200.0).recommendation
    assert widened.relative_error is not None and widened.relative_error >= 0.2


def test_beside_busy_programs_the_model_claims_no_percentage() -> None:
    report = beside(2.5)
    assert report.recommendation.expected_samples_per_s
    assert report.recommendation.relative_error is None
    text = report_text(report)
    assert "by the model, not confirmed, with an unknown error" in text
    assert "±0%" not in text
    assert "other programs took up to 2.5 of 8 processors" in text


def test_what_is_reckoned_beside_busy_programs_is_not_called_measured() -> None:
    told = "estimated from a measurement beside other programs"
    for rate, expected in ((160.0, True), (800.0, False)):
        probes = tuple(
            making.probe(workers, rate, undisturbed_samples_per_s=800.0) for workers in (0, 4)
        )
        report = beside(1.0)
        made = dataclasses.replace(report.recommendation, num_workers=4, confirmed=True)
        text = report_text(dataclasses.replace(report, recommendation=made, probes=probes))
        assert (told in text) is expected and (", measured\n" in text) is not expected


@pytest.mark.parametrize(
    ("error", "others_cpus", "claimed"), [(0.2, 0.0, True), (0.2, 3.0, False), (None, 0.0, False)]
)
def test_the_model_of_stages_is_no_surer_than_these(
    error: float | None, others_cpus: float, claimed: bool
) -> None:
    measurer = Measurer({}, "x", 32, making.share(), time.monotonic(), 1.0, Silent())
    run = Run(measurer, WISH, time.monotonic())
    run.stages = dataclasses.replace(
        stages(decode=0.002), relative_error=error, others_cpus=others_cpus
    )
    run.model(32)
    found = report_of(run, "dataset").recommendation.relative_error
    assert (found is not None and found >= 0.2) is claimed
    assert (found is None) is not claimed


@pytest.mark.parametrize(
    ("sample_us", "sample_bytes", "workers"),
    [
        (1.5, 4_000, 0),  # measured: 700,000 a second without workers, 56,000 with any
        (15, 50_000, 0),  # 65,000 and 15,000
        (55, 150_000, 0),  # arrays in RAM: 18,000 and 10,000
        (1_400, 150_000, 4),  # pictures that are decoded
    ],
)
def test_what_is_ready_sooner_than_a_worker_hands_it_over_gets_none(
    sample_us: float, sample_bytes: int, workers: int
) -> None:
    seconds = sample_us / 1e6
    found = reported(
        cost=making.cost(
            seconds=seconds,
            worker_seconds=seconds,
            cpu_seconds=seconds,
            waiting_seconds=0.0,
            collate_seconds=0.0,
            collate_cpu_seconds=0.0,
            sample_bytes=sample_bytes,
        ),
        capacity_cpus=2.0,
        affinity_cpus=2,
    ).recommendation
    assert found.num_workers == workers
    assert not found.confirmed


def test_workers_that_nothing_can_be_sent_to_are_not_asked_for_untried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def opened(run: Run) -> None:
        """Stand for a budget that sufficed for opening, and for a look without workers."""
        run.measurer.subject = found
        run.cost = making.cost()
        run.curve = curve_of(run.cost, None, 8)

    monkeypatch.setattr(Run, "measure", opened)
    errors = {"collate_fn": "AttributeError: Can't pickle local object 'f.<locals>.<lambda>'"}
    found = making.subject(pickle_errors=errors)
    report = from_loader("mine:loader", making.share(), WISH, lambda words: None)
    assert report.recommendation.num_workers and report.hazards
    found = making.subject(pickle_errors=errors, start_method="spawn")
    with pytest.raises(LoaderFailed, match="cannot be sent to its workers") as error:
        from_loader("mine:loader", making.share(), WISH, lambda words: None)
    assert error.value.hint is not None and "define collate_fn at the top" in error.value.hint


@pytest.mark.parametrize(("cpus", "waiting_ms", "workers"), [(1, 0.0, 1), (1, 2.0, 4), (2, 0.0, 4)])
def test_one_worker_is_as_many_as_one_processor_can_run(
    cpus: int, waiting_ms: float, workers: int
) -> None:
    seconds = 0.002 + waiting_ms / 1000
    cost = making.cost(
        seconds=seconds,
        worker_seconds=seconds,
        waiting_seconds=waiting_ms / 1000,
        collate_cpu_seconds=0.0,
    )
    found = reported(cost=cost, affinity_cpus=cpus, capacity_cpus=float(cpus)).recommendation
    assert (found.num_workers, found.confirmed) == (workers, False)
    assert found.expected_samples_per_s is not None
    assert found.expected_samples_per_s > 0.95 * cpus / 0.002
