"""The verdict: what binds, what helps, what to paste, and when nothing needs to change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hostprep.loading.bounds import bounds, distinct_workers
from hostprep.loading.curve import curve_of, storage_ceiling
from hostprep.loading.files.model import SideBySide, Stage, Stages
from hostprep.loading.measuring.variants import Variant
from hostprep.loading.model import (
    Binding,
    HostShare,
    Probe,
    SampleCost,
    Subject,
    Transport,
)
from hostprep.loading.recommendation import Recommendation
from hostprep.loading.search import Point, choose, points_of
from hostprep.loading.verdict.binding import remedy_compared
from hostprep.loading.verdict.caveats import caveats_of
from hostprep.loading.verdict.known import Known
from hostprep.loading.verdict.reasons import time_taken
from hostprep.loading.verdict.settings import code, recommend
from hostprep.units import GIB, MIB
from tests.unit.loading.making import cost, probe, share


def subject(current: int | None, **changed: Any) -> Subject:
    return Subject(
        kind="dataloader",
        description="mine:loader",
        length=100_000,
        batch_size=32,
        shuffled=True,
        current_workers=current,
        current_prefetch=2,
        start_method="fork",
        pickle_errors={},
        pickle_bytes=100,
        opencv_threads=None,
        torch_version="2.13.0",
        cuda=False,
        cuda_error=None,
        **changed,
    )


def stages(**seconds: float) -> Stages:
    names = ("read_as_is", "read_cold", "read_warm", "decode", "resize", "collate")
    made = [Stage(name, seconds.get(name, 1e-5), seconds.get(name, 1e-5)) for name in names]
    return Stages("image", "pillow", 100, 0, "", 1e5, 600_000, tuple(made), "arm", "sda rotates")


def judged(
    probes: list[Probe],
    *,
    gpu: float | None = None,
    current: int | None = None,
    host: HostShare | None = None,
    sample: SampleCost | None = None,
    staged: Stages | None = None,
    cuda: bool = False,
    data_bytes: float | None = None,
    chosen: int | Point | None = None,
    untried: int | None = None,
    length: int | None = 100_000,
    transport: float = 50_000,
    **now: bool,
) -> Recommendation:
    host, sample = host or share(), sample or cost()
    points = points_of(probes)
    known = Known(
        host=host,
        subject=subject(current, **now),
        length=length,
        cost=sample,
        curve=curve_of(sample, Transport(8, transport, 1e-5), host.capacity_per_rank),
        points=points,
        probes=tuple(probes),
        bounds=bounds(
            host,
            batch_bytes=sample.sample_bytes * sample.batch_size,
            tensors_per_batch=1,
            prefetch_factor=2,
            batches=3000,
            worker_memory_bytes=100 * MIB,
            main_descriptors=30,
            distinct_workers=distinct_workers(probes),
        ),
        stages=staged,
        gpu_rate=gpu,
        cuda=cuda,
        data_bytes=data_bytes,
        untried=untried,
    )
    point = chosen if isinstance(chosen, Point) else choose(points, gpu)
    if isinstance(chosen, int):
        point = next(p for p in points if p.workers == chosen)
    return recommend(known, point)


BUSY: dict[str, Any] = {"own_cpus": 7.8, "main_cpus": 0.3}
IDLE: dict[str, Any] = {"own_cpus": 0.9, "main_cpus": 0.1}
WAITING = cost(seconds=0.01, worker_seconds=0.01, cpu_seconds=2e-4, waiting_seconds=0.0098)


def test_busy_processors_bind_and_the_heaviest_stage_is_named() -> None:
    probes = [probe(0, 500, own_cpus=1.0), probe(4, 2000, own_cpus=4), probe(8, 3800, **BUSY)]
    assert judged(probes).binding is Binding.CPU
    by_stage = judged(probes, staged=stages(decode=0.002, resize=0.001))
    assert by_stage.binding is Binding.DECODE
    assert "--compare" in (by_stage.remedy or "")
    arrays = judged(probes, staged=replace(stages(decode=0.002), kind="npy"))
    assert arrays.binding is Binding.DECODE
    assert "mmap_mode" in (arrays.remedy or "") and "JPEG" not in (arrays.remedy or "")
    assert judged(probes, staged=stages(decode=0.001, resize=0.003)).binding is Binding.RESIZE
    collated = judged(probes, staged=stages(collate=0.002))
    assert collated.binding is Binding.COLLATE
    assert (collated.remedy or "").startswith("make batches of uint8")
    own = judged(probes, sample=cost(collate_cpu_seconds=0.0015))  # which may be of tokens
    assert own.binding is Binding.COLLATE
    assert "tokenise" in (own.remedy or "") and "for images, make" in (own.remedy or "")


def test_arrays_are_to_be_stored_smaller_only_where_reading_them_in_binds() -> None:
    probes = [probe(0, 500, own_cpus=1.0), probe(8, 3800, **BUSY)]
    collated = judged(probes, staged=replace(stages(collate=0.002), kind="npy"))
    assert collated.binding is Binding.COLLATE
    assert (collated.remedy or "").startswith("make batches of uint8")


@pytest.mark.parametrize(
    ("seen", "binding"),
    [
        ({"own_cpus": 2.0, "main_cpus": 0.3, "runnable_cpus": 2.0, "others_cpus": 1.0}, "waiting"),
        ({"own_cpus": 7.8, "main_cpus": 0.9, "runnable_cpus": 7.8}, "cpu"),
        ({"own_cpus": 0.9, "main_cpus": 0.5, "runnable_cpus": 0.9}, "waiting"),
    ],
)
def test_processes_with_as_many_workers_are_judged_by_their_mean(
    seen: dict[str, float], binding: str
) -> None:
    """And a main process binds if it is both at its limit and has most of the work."""
    some = [probe(8, 2000, **seen) for _ in range(3)]
    assert judged([probe(0, 500), *some]).binding == binding


@pytest.mark.parametrize(
    ("workers", "main_seconds", "binds"),
    [(8, 0.00050, True), (8, 0.00035, False), (0, 0.00030, True), (0, 0.00020, False)],
)
def test_what_a_class_does_in_the_main_process_binds(
    workers: int, main_seconds: float, binds: bool
) -> None:
    """Beside workers it takes nearly all of the time then, and without any half of it."""
    sample = cost(main_seconds=main_seconds, main_cpu_seconds=main_seconds)
    made = judged([probe(0, 2000), probe(8, 2000, **BUSY)], chosen=workers, sample=sample)
    assert (made.binding is Binding.MAIN_PROCESS) is binds


@pytest.mark.parametrize(
    ("runnable", "binding"),
    [(1.95, Binding.CPU), (1.6, Binding.WAITING), (1.0, Binding.WAITING)],
)
def test_busy_workers_wait_for_nothing_where_there_was_no_time_for_more(
    runnable: float, binding: Binding
) -> None:
    """Beside other programs a worker that always has work waits for a processor, too."""
    few = [probe(0, 500), probe(2, 900, own_cpus=0.9, runnable_cpus=runnable)]
    assert judged(few, untried=4).binding is binding


@pytest.mark.parametrize(
    ("decoder", "rates", "words"),
    [
        (
            "pillow",
            {"pillow": 500.0, "simplejpeg": 700.0, "opencv": 600.0},
            "simplejpeg: 1.40 times",
        ),
        (
            "pillow",
            {"pillow": 500.0, "opencv": 505.0},
            "none of the decoders here is clearly faster",
        ),
        (
            "opencv",
            {"pillow": 400.0, "opencv": 505.0},
            "none of the decoders here is clearly faster",
        ),
        ("pillow", {"pillow": 500.0, "opencv": 530.0}, "decode with opencv: 1.06 times"),
        ("pillow", {"pillow": None, "opencv": 505.0}, "decode with a faster library"),
        ("pillow", {"opencv": 505.0, "simplejpeg": 700.0}, "decode with a faster library"),
        ("pillow", {}, "decode with a faster library"),
    ],
)
def test_once_decoders_were_compared_the_remedy_says_what_came_of_it(
    decoder: str, rates: dict[str, float | None], words: str
) -> None:
    variants = [
        Variant("decoder", name, None, rate, relative_error=0.01) for name, rate in rates.items()
    ]
    said = remedy_compared(
        decoder, [*variants, Variant("form", "npy", None, 9000.0, relative_error=0.01)]
    )
    assert said.startswith("store images at the size you train on")
    assert words in said
    assert "--compare" not in said


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (0.2, "none of the decoders here is clearly faster"),
        (None, "decode with a faster library"),  # it failed in its second round
    ],
)
def test_a_decoder_that_cannot_be_told_from_the_one_in_use_is_no_remedy(
    error: float | None, words: str
) -> None:
    found = [
        Variant("decoder", "pillow", None, 500.0, relative_error=0.01),
        Variant("decoder", "opencv", None, 600.0, relative_error=error),
    ]
    assert words in remedy_compared("pillow", found)


def test_a_rank_is_judged_by_the_processors_that_it_was_measured_on() -> None:
    ranks = share(ranks=4, affinity_cpus=16, quota_cpus=6.0, capacity_cpus=6.0)
    probes = [probe(0, 500, own_cpus=0.9), probe(2, 510, own_cpus=0.98)]  # of the one it had
    made = judged(probes, host=ranks)
    assert made.binding is Binding.CPU
    (told,) = (reason for reason in made.reasons if reason.startswith("processors per rank: 1.5 "))
    assert told.endswith(", shared by 4 ranks)"), "else it would be all that there are"
    idle = [probe(0, 40, **IDLE), probe(16, 640, own_cpus=0.5, main_cpus=0.1)]
    assert judged(idle, host=ranks).binding is Binding.WAITING


def test_idle_processors_mean_waiting_and_staging_is_the_remedy() -> None:
    probes = [probe(0, 40, **IDLE), probe(16, 640, **IDLE), probe(32, 650, **IDLE)]
    made = judged(probes, data_bytes=64 * GIB)
    assert made.binding is Binding.WAITING
    assert made.num_workers == 16
    # What the user's own code waits for nobody has seen.
    assert (made.remedy or "").startswith("if it waits for storage, ")
    assert "hostprep stage" in (made.remedy or "")
    assert "25% of about 64.0 GiB fits into memory" in (made.remedy or "")
    seen = judged(probes, staged=stages(read_as_is=0.02))
    assert seen.binding is Binding.READ
    assert (seen.remedy or "").startswith("move the data closer: hostprep stage")
    there = judged(probes, staged=replace(stages(read_as_is=0.02), storage="ram"))
    assert (there.remedy or "").startswith("the files are in memory already")


@pytest.mark.parametrize(
    ("committed_gib", "data_gib", "words"),
    [
        (16, 64, ("; 25% of about 64.0 GiB fits", "serves 3% to 25% of the reads", "tmpfs 25%")),
        (4, 64, ("; 25% of about 64.0 GiB fits", "serves 3% to 25% of the reads", "tmpfs 6%")),
        (4, 8, ("; 100% of about 8.00 GiB fits", "serves 100% of the reads", "tmpfs 50%")),
        (4, 4, (": all of it, about 4.00 GiB, fits into memory",)),
    ],
)
def test_a_commit_limit_is_none_of_the_page_cache(
    committed_gib: int, data_gib: int, words: tuple[str, ...]
) -> None:
    host = share(memory_available_bytes=committed_gib * GIB)
    probes = [probe(0, 40, **IDLE), probe(16, 640, **IDLE)]
    told = judged(probes, host=host, data_bytes=data_gib * GIB).remedy or ""
    assert all(each in told for each in words), told


@pytest.mark.parametrize(
    ("before", "runnable", "binding"),
    [
        (7.0, 0.95, Binding.WAITING),  # a training beside it, on processors that it does not want
        (7.0, 8.0, Binding.CPU),  # which it does want
        (0.0, 0.95, Binding.CPU),  # a file server, which works for it
    ],
)
def test_busy_others_bind_where_the_loader_wants_their_processors(
    before: float, runnable: float, binding: Binding
) -> None:
    beside = {"others_cpus": 7.0, "others_before_cpus": before, "runnable_cpus": runnable}
    made = judged([probe(0, 500), probe(8, 2000, **IDLE, **beside)])
    assert made.binding is binding


def test_a_stream_that_is_not_shared_out_binds_where_more_workers_would_help() -> None:
    waiting = [probe(0, 40, **IDLE), probe(1, 39, **IDLE)]
    copied = probe(8, 300, duplicate_workers=7, **IDLE)
    made = judged([*waiting, copied], chosen=0)
    assert made.binding is Binding.SHARDING
    assert "get_worker_info" in (made.remedy or "")
    assert not any("need almost no work" in reason for reason in made.reasons)
    no_faster = probe(8, 41, duplicate_workers=7, **IDLE)
    assert judged([*waiting, no_faster], chosen=0).binding is not Binding.SHARDING


def test_a_stream_of_one_shard_binds_where_more_workers_had_nothing_to_do() -> None:
    probes = [probe(0, 40, **IDLE), probe(1, 39, **IDLE), probe(4, 39, idle_workers=3, **IDLE)]
    assert judged(probes, chosen=1).binding is Binding.SHARDING


def test_a_main_process_at_its_limit_is_transport() -> None:
    probes = [
        probe(0, 900, own_cpus=1.0),
        probe(2, 5000, own_cpus=1.5, main_cpus=0.97),
        probe(4, 5100, own_cpus=1.6, main_cpus=0.99),
    ]
    assert judged(probes).binding is Binding.TRANSPORT


def test_ready_samples_take_no_workers_and_no_prefetch() -> None:
    made = judged([probe(0, 18_000, own_cpus=1.0), probe(2, 9_000), probe(1, 6_000)])
    assert (made.num_workers, made.prefetch_factor, made.persistent_workers) == (0, None, False)
    assert made.binding is Binding.TRANSPORT
    assert made.shm_bytes == 0
    assert made.code == "DataLoader(dataset, batch_size=32, num_workers=0, pin_memory=False)"


@pytest.mark.parametrize(
    ("sample", "staged", "binding"),
    [
        (WAITING, None, Binding.WAITING),
        (WAITING, stages(), Binding.READ),
        (cost(collate_seconds=0.0012), None, Binding.COLLATE),
    ],
)
def test_what_takes_most_of_the_time_binds_where_no_workers_are_better(
    sample: SampleCost, staged: Stages | None, binding: Binding
) -> None:
    alone = [probe(0, 18_000, own_cpus=1.0), probe(2, 9_000)]
    assert judged(alone, chosen=0, sample=sample, staged=staged).binding is binding


def test_what_no_workers_were_tried_for_is_not_said_to_be_their_way_to_the_main_process() -> None:
    assert judged([probe(0, 18_000)], chosen=0).binding is Binding.CPU
    assert judged([probe(0, 18_000), probe(2, 9_000)], chosen=0).binding is Binding.TRANSPORT


def test_without_workers_there_is_nothing_to_be_sent_for_less() -> None:
    probes = [probe(0, 18_000, own_cpus=1.0), probe(2, 9_000)]
    own = judged(probes)
    assert (own.num_workers, own.binding) == (0, Binding.TRANSPORT)
    assert "send" not in (own.remedy or "").split() and "__getitems__" in (own.remedy or "")
    sent = judged([probe(0, 900), probe(2, 5000, own_cpus=1.5, main_cpus=0.97)])
    assert (sent.num_workers, sent.binding) == (2, Binding.TRANSPORT)
    assert (sent.remedy or "").startswith("send less")


def test_it_is_told_what_was_measured_beside_other_programs() -> None:
    busy = probe(2, 400, undisturbed_samples_per_s=600, others_cpus=1.3)
    said = caveats_of(
        share(),
        None,
        None,
        cost(),
        [probe(0, 500), busy],
        batch_size_given=False,
        seen_before=False,
    )
    assert "beside them it gave 400 samples/s with 2 workers" in said[0]
    assert "alone it would give an estimated 600" in said[0]


@pytest.mark.parametrize(
    ("kind", "why"),
    [("dataloader", "the data set is small: "), ("stream", "the data set is a stream")],
)
def test_why_samples_were_read_more_than_once_is_told(kind: str, why: str) -> None:
    told = replace(subject(None), kind=kind)
    said = caveats_of(
        share(), told, None, cost(), [probe(0, 500)], batch_size_given=False, seen_before=True
    )
    assert said[0].startswith(why)


@pytest.mark.parametrize(("rows", "told"), [(None, False), (1.0, False), (0.5, True), (10, True)])
def test_other_rows_than_samples_are_told_of(rows: float | None, told: bool) -> None:
    said = caveats_of(
        share(),
        None,
        None,
        cost(rows=rows),
        [probe(0, 500)],
        batch_size_given=False,
        seen_before=False,
    )
    assert any("count the samples drawn" in note for note in said) == told


@pytest.mark.parametrize(
    ("current", "rows", "told"), [(None, 16, True), (None, None, False), (2, 16, False)]
)
def test_a_data_set_of_what_look_like_batches_is_told_of(
    current: int | None, rows: int | None, told: bool
) -> None:
    said = caveats_of(
        share(),
        replace(subject(current), kind="stream"),
        None,
        cost(rows_within=rows),
        [probe(0, 500)],
        batch_size_given=False,
        seen_before=False,
    )
    assert any("batch_size=None" in note for note in said) == told


@pytest.mark.parametrize(("untold", "told"), [(0, False), (1, False), (2, True)])
def test_workers_of_a_stream_that_may_all_give_the_same_are_told_of(
    untold: int, told: bool
) -> None:
    probes = [probe(0, 500), probe(2, 1000, untold_workers=untold)]
    said = caveats_of(
        share(), None, None, cost(), probes, batch_size_given=False, seen_before=False
    )
    assert any("more workers only seem faster" in note for note in said) == told


def test_enough_for_the_gpu_is_an_answer() -> None:
    made = judged([probe(0, 500), probe(4, 2000), probe(8, 3800, **BUSY)], gpu=1500)
    assert made.num_workers == 4
    assert made.binding is Binding.GPU
    assert made.remedy is None
    assert made.expected_samples_per_s == 1500
    assert "enough for the GPU" in made.verdict


def test_unconfirmed_workers_that_wait_are_not_said_to_be_short_of_processors() -> None:
    far = cost(seconds=3.0, worker_seconds=3.0, cpu_seconds=0.001, waiting_seconds=2.999)
    few = Point(16, 5.3, 0.08, 0)
    made = judged([probe(0, 0.33)], sample=far, chosen=few)
    assert made.binding is Binding.WAITING
    assert "stage" in str(made.remedy)
    made = judged([probe(0, 0.33)], sample=far, chosen=few, staged=stages())
    assert made.binding is Binding.READ
    busy = Point(16, 4100, 0.08, 0)
    assert judged([probe(0, 500)], chosen=busy).binding is Binding.CPU
    few = Point(2, 1000, 0.08, 0)  # which wait for nothing, though the host could do more
    assert judged([probe(0, 500)], chosen=few).binding is Binding.CPU
    most = Point(40, 7500, 0.08, 0)  # which wait, but have reached what processors can do
    slow = cost(worker_seconds=5e-3, cpu_seconds=1e-3, waiting_seconds=4e-3, sample_bytes=1000)
    assert judged([probe(0, 200)], sample=slow, chosen=most).binding is Binding.CPU


@pytest.mark.parametrize("gpu", [None, 1500.0, 1e6])
@pytest.mark.parametrize("current", [None, 0])
def test_a_rate_that_nobody_measured_is_said_to_be_the_models(
    gpu: float | None, current: int | None
) -> None:
    untried = judged([probe(0, 500)], chosen=Point(16, 4100, 0.08, 0), gpu=gpu, current=current)
    assert " by the model" in untried.verdict
    tried = judged([probe(0, 500), probe(4, 2000)], gpu=gpu, current=current)
    assert "model" not in tried.verdict


def test_out_of_reach_is_said_with_what_binds() -> None:
    made = judged([probe(0, 500), probe(4, 2000), probe(8, 3800, **BUSY)], gpu=9000)
    assert made.binding is Binding.CPU
    assert (
        "3,800 samples/s with 8 workers, while the GPU takes 9,000; the bottleneck is cpu"
        in made.verdict
    )


@pytest.mark.parametrize(("current", "needed", "workers"), [(8, False, 8), (2, True, 4)])
def test_no_change_where_what_is_set_does_as_well(current: int, needed: bool, workers: int) -> None:
    probes = [probe(0, 500), probe(2, 1000), probe(4, 2000), probe(8, 1990)]
    made = judged(probes, current=current)
    assert (made.change_needed, made.num_workers) == (needed, workers)
    assert ("no change needed" in made.verdict) is not needed
    assert ("; 4 would do as well" in made.verdict) is not needed


@pytest.mark.parametrize(
    ("measured", "untried", "needed"),
    [(None, None, True), (None, 8, None), (8, None, True), (8, 16, True)],
)
def test_what_is_set_and_was_not_tried_is_held_against_workers_alone(
    measured: int | None, untried: int | None, needed: bool | None
) -> None:
    """A rate without workers says nothing about it, unless more of them would be of no use."""
    some = [probe(0, 500), *([probe(measured, 2000)] if measured else [])]
    made = judged(some, current=4, untried=untried)
    assert (made.num_workers, made.change_needed) == (measured or 0, needed)


@pytest.mark.parametrize("current", [4, 8])
def test_no_change_is_not_said_where_there_was_no_time_for_what_may_be_better(current: int) -> None:
    probes = [probe(0, 500), probe(4, 2000), probe(8, 1990)]
    made = judged(probes, current=current, untried=32)
    assert (made.change_needed, made.num_workers) == (None, current)
    assert "the best that there was time to try" in made.verdict
    assert f"(num_workers={current} now" in made.verdict and "no change" not in made.verdict


def test_of_an_ordinary_loader_nothing_is_said_of_a_way_of_its_own() -> None:
    made = judged([probe(0, 500), probe(4, 2000)], current=2)
    assert not any("in its own way" in reason for reason in made.reasons)


def test_what_was_not_tried_is_not_the_best_of_what_was() -> None:
    by_model = Point(1, 188, 0.1, 0)
    made = judged([probe(0, 178)], chosen=by_model, untried=1)
    assert made.verdict.startswith("1 worker is most useful: 188 samples/s by the model")


def test_none_now_is_a_change_where_a_worker_does_as_well() -> None:
    probes = [probe(0, 101, **IDLE), probe(2, 100, **IDLE)]
    made = judged(probes, current=0, sample=WAITING)
    assert (made.num_workers, made.change_needed) == (2, True)
    assert "num_workers=0 now, so the GPU waits" in made.verdict


def test_a_loader_whose_threads_take_all_processors_is_bound_by_them() -> None:
    probes = [probe(0, 4000, own_cpus=7.5), probe(4, 1600, own_cpus=8.0)]
    made = judged(probes, chosen=0, sample=cost(cpu_seconds=0.002))
    assert made.binding is Binding.CPU
    assert not any("need almost no work" in reason for reason in made.reasons)
    spinning = judged(probes, chosen=0, sample=cost(cpu_seconds=0.0002))  # on one torch thread
    assert spinning.binding is Binding.TRANSPORT


@pytest.mark.parametrize(("rate", "ready"), [(4000, True), (400, False)])
def test_samples_that_take_longer_than_sending_them_are_not_as_good_as_ready(
    rate: float, ready: bool
) -> None:
    probes = [probe(0, rate), probe(2, 0.9 * rate)]
    made = judged(probes, chosen=0, sample=cost(cpu_seconds=1 / rate))
    assert made.binding is (Binding.TRANSPORT if ready else Binding.CPU)
    assert any("need almost no work" in reason for reason in made.reasons) is ready


def test_what_sending_was_measured_to_take_is_what_samples_are_held_against() -> None:
    """Batches of many small tensors take far longer than their bytes tell."""
    probes = [probe(0, 4000), probe(2, 2950)]
    small = cost(cpu_seconds=1 / 4000, sample_bytes=1000)
    assert judged(probes, chosen=0, sample=small, transport=3000).binding is Binding.TRANSPORT
    assert judged(probes, chosen=0, sample=small, transport=1e6).binding is Binding.CPU


def test_none_now_is_held_against_the_model_where_no_workers_were_measured() -> None:
    made = judged([probe(0, 0.3)], current=0, chosen=Point(16, 4.8, 0.08, 0))
    assert (made.num_workers, made.change_needed, made.confirmed) == (16, True, False)
    made = judged([probe(0, 0.3)], current=0, chosen=Point(1, 0.3, 0.08, 0))
    assert (made.num_workers, made.change_needed) == (0, False)


@pytest.mark.parametrize(
    ("rate", "words"),
    [
        (1450, "45% faster this way"),
        (1990, "99% faster this way"),
        (30_060, "30 times as fast this way"),
    ],
)
def test_a_gain_of_more_than_twice_is_a_factor_and_no_percentage(rate: float, words: str) -> None:
    made = judged([probe(0, 1000), probe(4, rate)], current=0)
    assert f"(num_workers=0 now, {words})" in made.verdict


def test_of_workers_that_are_hardly_slower_nobody_says_that_the_gpu_waits_for_each_batch() -> None:
    made = judged([probe(0, 300), probe(2, 1000), probe(4, 1030), probe(8, 1060)], current=2)
    assert (made.num_workers, made.change_needed) == (4, True)
    assert "(num_workers=2 now, 3% faster this way)" in made.verdict
    as_good = judged([probe(0, 300), probe(2, 1000), probe(4, 1040)], current=2)
    assert (as_good.num_workers, as_good.change_needed) == (2, False)
    assert "as well" not in as_good.verdict, "of more workers"


def test_what_the_host_does_not_bear_is_no_reason_for_a_change() -> None:
    tight = share(shm_free_bytes=480 * MIB)  # bears 9 workers of 2 x 18 MiB, and 2 batches more
    probes = [probe(0, 100), probe(6, 780), probe(8, 800), probe(16, 1500)]
    for current in (6, 8):
        made = judged(probes, current=current, host=tight, chosen=8)
        assert (made.num_workers, made.change_needed) == (current, False)
    assert judged(probes, current=16, host=tight, chosen=8).change_needed
    made = judged([*probes[:2], probe(9, 800)], current=9, host=tight)  # as many as it bears
    assert (made.num_workers, made.change_needed) == (9, False)


def test_no_change_is_never_said_of_what_does_not_fit() -> None:
    tight = share(shm_free_bytes=240 * MIB)  # bears 4 workers of 2 x 18 MiB, and 2 more
    made = judged([probe(0, 500), probe(4, 1990), probe(8, 2000)], current=8, host=tight)
    assert made.change_needed
    assert made.num_workers == 4
    assert made.binding is Binding.SHARED_MEMORY
    none = share(shm_free_bytes=20 * MIB)  # not even the batches that are taken
    made = judged([probe(0, 500), probe(1, 510)], current=1, host=none, chosen=0)
    assert (made.num_workers, made.change_needed) == (0, True)


def test_none_now_stays_where_the_known_gpu_gets_as_much_without() -> None:
    made = judged([probe(0, 23_000), probe(2, 1200)], gpu=1000, current=0)
    assert (made.num_workers, made.change_needed) == (0, False)


def test_unmeasured_gpu_is_called_most_useful_not_optimal() -> None:
    assert "most useful" in judged([probe(0, 500), probe(4, 2000)]).verdict
    unseen = judged([], chosen=Point(64, 2000, 0.1, 0), untried=64).verdict
    assert "are most useful: 2,000 samples/s by the model" in unseen


def test_the_most_that_are_tried_are_not_called_most_useful() -> None:
    probes = [probe(0, 98, **IDLE), probe(32, 3200, **IDLE), probe(64, 6400, **IDLE)]
    verdict = judged(probes, sample=WAITING).verdict
    assert verdict.startswith("64 workers are the most that hostprep tries: 6,400 samples/s")


def test_another_prefetch_factor_than_the_one_set_is_named() -> None:
    probes = [probe(0, 500), probe(4, 2000)]
    even = judged(probes, current=4)
    assert even.change_needed is False and even.prefetch_factor == 2
    assert not [reason for reason in even.reasons if reason.startswith("prefetch_factor")]
    uneven = judged(probes, current=4, sample=cost(batch_p99_over_mean=2.5))
    assert (uneven.change_needed, uneven.prefetch_factor) == (False, 4)
    assert "prefetch_factor: 2 now, 4 given how much the time of batches varies" in uneven.reasons


@pytest.mark.parametrize(
    ("now", "changed"),
    [
        ({}, None),
        ({"current_pin": False, "current_persistent": True}, None),
        ({"current_pin": True}, "pin_memory"),
        ({"current_persistent": False}, "persistent_workers"),
        ({"current_pin": True, "current_persistent": False}, "pin_memory, persistent_workers"),
    ],
)
def test_no_change_is_not_said_above_a_line_that_changes_more_than_workers(
    now: dict[str, Any], changed: str | None
) -> None:
    probes = [probe(0, 500), probe(4, 2000, first_batch_seconds=20.0)]
    verdict = judged(probes, current=4, **now).verdict
    told = f"num_workers=4 now, 2,000 samples/s; what changes: {changed}"
    if changed is None:
        assert verdict == "no change needed: num_workers=4 now, 2,000 samples/s"
    else:
        assert verdict == f"num_workers can stay: {told}"
    uneven = judged(probes, current=4, sample=cost(batch_p99_over_mean=2.5), **now).verdict
    assert "what changes: prefetch_factor" in uneven


def test_without_workers_what_only_they_have_does_not_change() -> None:
    probes = [probe(0, 500), probe(4, 100)]
    verdict = judged(probes, current=0, gpu=400, current_pin=True).verdict
    assert verdict.endswith("; what changes: pin_memory")


def about(made: Recommendation, setting: str) -> list[str]:
    return [reason for reason in made.reasons if reason.startswith(setting)]


def test_other_settings_than_those_there_are_named_with_why() -> None:
    probes = [probe(0, 500), probe(4, 2000, first_batch_seconds=20.0)]
    made = judged(probes, current=4, cuda=True, current_persistent=False, current_pin=False)
    assert (made.change_needed, made.persistent_workers, made.pin_memory) == (False, True, True)
    why = "starting workers takes more than 1% of an epoch"
    assert about(made, "persistent_workers") == [
        f"persistent_workers: False now, True because {why}"
    ]
    assert about(made, "pin_memory") == [
        "pin_memory: False now, True because there is a GPU, and enough memory to pin batches"
    ]
    made = judged(probes, current=4, current_persistent=True, current_pin=True)
    unseen = "False because no GPU is visible here; set True where you train on one"
    assert about(made, "pin_memory") == [f"pin_memory: True now, {unseen}"]
    assert about(judged(probes), "pin_memory") == [f"pin_memory: {unseen}"]
    assert about(judged(probes, current=4, current_pin=False), "pin_memory") == []
    assert about(made, "persistent_workers") == [
        "persistent_workers: starting workers takes more than 1% of an epoch"
    ]


def test_workers_that_live_on_may_go_on_doing_so_where_starting_them_is_nothing() -> None:
    probes = [probe(0, 500), probe(4, 2000, first_batch_seconds=0.01)]
    living_on = judged(probes, current=4, current_persistent=True)
    assert living_on.persistent_workers
    assert not any("persistent_workers" in reason for reason in living_on.reasons)
    assert not judged(probes, current=4, current_persistent=False).persistent_workers


def test_no_share_is_told_of_an_epoch_without_a_known_length() -> None:
    made = judged([probe(0, 500), probe(4, 2000)], length=None)
    assert made.persistent_workers
    assert about(made, "persistent_workers") == [
        "persistent_workers: it is not known how much of an epoch starting workers takes"
    ]


def test_memory_is_counted_for_all_ranks() -> None:
    two = share(ranks=2)
    other = probe(4, 2000, worker_memory_bytes=60 * MIB)
    fewer = probe(2, 1000, worker_memory_bytes=300 * MIB)  # of as many workers more is known
    made = judged([probe(0, 500), fewer, other, probe(4, 2000)], host=two)
    batch_bytes = 32 * 600_000
    assert made.prefetch_factor is not None
    assert made.shm_bytes == 2 * (4 * made.prefetch_factor + 2) * batch_bytes
    assert made.memory_bytes == 2 * 4 * 100 * MIB + made.shm_bytes


def test_memory_of_workers_that_nobody_has_seen_is_unknown_and_not_nothing() -> None:
    made = judged([probe(0, 500)], chosen=Point(4, 2000, 0.08, 0))
    assert (made.num_workers, made.memory_bytes) == (4, None)
    assert made.shm_bytes
    made = judged([probe(0, 500), probe(2, 900)], chosen=Point(4, 2000, 0.08, 0))
    assert made.memory_bytes == 4 * 100 * MIB + made.shm_bytes, "as others were seen to hold"


def test_batches_of_numpy_arrays_take_memory_and_none_of_it_in_shm() -> None:
    probes = [probe(0, 500), probe(4, 2000)]
    tensors, arrays = (judged(probes, sample=cost(shared_bytes=n)) for n in (None, 0))
    assert (tensors.memory_bytes, arrays.shm_bytes) == (arrays.memory_bytes, 0)
    assert tensors.shm_bytes


def test_pinning_only_with_a_gpu() -> None:
    probes = [probe(0, 500), probe(4, 2000)]
    assert judged(probes, cuda=True).pin_memory
    assert not judged(probes).pin_memory
    # 4 workers with 2 batches of 18 MiB each and 2 more: 183 MiB, of which a tenth of this is less.
    tight = judged(probes, cuda=True, host=share(memory_available_bytes=1500 * MIB))
    assert not tight.pin_memory
    assert any("a tenth of the available memory" in reason for reason in tight.reasons)
    assert judged(probes, cuda=True, host=share(memory_available_bytes=2000 * MIB)).pin_memory


def test_workers_persist_where_starting_them_costs() -> None:
    slow = [probe(0, 500), probe(4, 2000, first_batch_seconds=3.0)]
    quick = [probe(0, 500), probe(4, 2000, first_batch_seconds=0.1)]
    assert judged(slow).persistent_workers
    assert not judged(quick).persistent_workers


def test_it_is_told_how_slow_a_gpu_must_be_for_workers_to_be_better_than_none() -> None:
    probes = [probe(0, 700, own_cpus=1.0), probe(4, 350, own_cpus=1.0)]
    told = "if the GPU takes less than 700 samples/s, 4 workers are better than none"
    assert any(reason.startswith(told) for reason in judged(probes).reasons)
    assert [judged(probes, gpu=gpu).num_workers for gpu in (500, 1000)] == [4, 0]
    assert not any("better than none" in reason for reason in judged(probes, gpu=300).reasons)


def test_it_is_told_how_quick_a_gpu_must_be_for_none_to_be_better_than_workers() -> None:
    """Seen on one processor: none gave 372, four gave 350."""
    probes = [probe(0, 372, own_cpus=1.0), probe(4, 350, own_cpus=1.0)]
    made = judged(probes, current=0)
    assert (made.num_workers, made.change_needed) == (4, True)
    assert "num_workers=0 now, so the GPU waits" in made.verdict
    told = "num_workers=0 is better only if the GPU takes more than 5,918 samples/s"
    assert any(told in reason for reason in made.reasons)
    assert [judged(probes, gpu=gpu).num_workers for gpu in (1000, 20_000)] == [4, 0]
    assert not any("better only" in reason for reason in judged(probes, gpu=1000).reasons)


def test_of_none_nobody_says_that_they_would_do_as_well() -> None:
    probes = [probe(0, 1650), probe(2, 1000)]
    made = judged(probes, current=2)
    assert (made.num_workers, made.change_needed) == (2, False)
    assert "as well" not in made.verdict


@pytest.mark.parametrize(
    ("waiting", "told"),
    [
        (0.0, "and almost no waiting"),
        (9e-8, "and almost no waiting"),
        (0.0004, "and 0.40 ms of waiting"),
    ],
)
def test_of_a_wait_that_nobody_sees_no_figure_is_told(waiting: float, told: str) -> None:
    words = time_taken(cost(cpu_seconds=0.0021, waiting_seconds=waiting))
    assert words == f"2.1 ms of processor time {told}"


def test_workers_that_grow_end_with_the_epoch() -> None:
    """Of 100,000 samples in 50 s: 4 workers that grow by 40 MiB a second take 7.8 GiB of 16."""

    def leaking(mib_per_s: float, **changed: Any) -> list[Probe]:
        changed |= {"worker_growth_bytes_per_s": mib_per_s * MIB, "first_batch_seconds": 3.0}
        return [probe(0, 500), probe(4, 2000, **changed)]

    assert not judged(leaking(40)).persistent_workers
    assert judged(leaking(1)).persistent_workers
    assert judged([*leaking(40), *leaking(0)]).persistent_workers
    # Beside busy programs they take longer for their samples, and keep as much of each.
    assert not judged(leaking(10, samples_per_s=500.0)).persistent_workers


def test_ranks_share_an_epoch_so_workers_persist_sooner() -> None:
    probes = [probe(0, 500), probe(4, 2000, first_batch_seconds=0.1)]
    assert not judged(probes, host=share(ranks=1)).persistent_workers
    assert judged(probes, host=share(ranks=8)).persistent_workers


def test_uneven_batches_are_prefetched_deeper_unless_shm_is_short() -> None:
    uneven = cost(batch_p99_over_mean=2.6)
    probes = [probe(0, 500), probe(4, 2000)]
    assert judged(probes, sample=uneven).prefetch_factor == 4
    tight = share(shm_free_bytes=240 * MIB)
    assert judged(probes, sample=uneven, host=tight).prefetch_factor == 2


def test_more_workers_than_processors_are_explained() -> None:
    """Every rule of thumb forbids them, and torch warns."""

    def explained(probes: list[Probe], **given: Any) -> list[str]:
        reasons = judged(probes, **given).reasons
        return [reason for reason in reasons if reason.startswith("more workers than processors")]

    few = [probe(0, 356, own_cpus=1.0), probe(4, 1030, own_cpus=4), probe(8, 3725, **BUSY)]
    many = [*few, probe(10, 3926, **BUSY)]
    (told,) = explained(many)
    assert "processors (8), which torch warns about: " in told
    assert told.endswith("; 8 workers gave 3,725 samples/s")
    assert not explained(few)
    assert not explained(many, current=10)  # set already
    (told,) = explained([probe(0, 50), probe(3, 160)], host=share(quota_cpus=0.5))
    assert "(0.5): " in told  # of a quota torch knows nothing


def test_code_can_be_pasted() -> None:
    from torch.utils.data import DataLoader

    text = code(16, 3, 4, pin=False, persistent=True)
    loader = eval(text, {"DataLoader": DataLoader, "dataset": list(range(64))})
    assert (loader.num_workers, loader.prefetch_factor, loader.batch_size) == (3, 4, 16)
    assert loader.persistent_workers


UNEVEN = cost(batch_p99_over_mean=3.0)


def test_more_is_made_ahead_where_batches_are_uneven() -> None:
    assert judged([probe(0, 500), probe(4, 2000)], sample=UNEVEN).prefetch_factor == 4


@pytest.mark.parametrize(
    ("host", "sample", "fits"),
    [
        (share(descriptors_limit=400), cost(batch_p99_over_mean=3.0, tensors_per_batch=20), 2),
        (share(memory_available_bytes=1300 * MIB), UNEVEN, 3),
        (share(shm_free_bytes=340 * MIB), UNEVEN, 3),
        (share(), cost(batch_p99_over_mean=3.0, sample_bytes=0), 2),
    ],
)
def test_no_more_is_made_ahead_than_every_bound_allows(
    host: HostShare, sample: SampleCost, fits: int
) -> None:
    made = judged([probe(0, 500), probe(4, 2000)], host=host, sample=sample)
    assert (made.num_workers, made.prefetch_factor) == (4, fits)


@pytest.mark.parametrize(
    ("probes", "sample", "words"),
    [
        ([probe(0, 9000), probe(2, 5000)], cost(cpu_seconds=1e-4), "need almost no work"),
        ([probe(0, 110, **IDLE), probe(2, 90, **IDLE)], WAITING, "num_workers=0 gave 110"),
        (
            [probe(0, 101, **IDLE), probe(2, 100, **IDLE)],
            WAITING,
            "but without workers the GPU waits",
        ),
    ],
)
def test_what_none_gave_is_told_where_that_is_close(
    probes: list[Probe], sample: SampleCost, words: str
) -> None:
    (told,) = [
        reason for reason in judged(probes, sample=sample).reasons if "num_workers=0 gave" in reason
    ]
    assert words in told
    assert "waits" not in " ".join(judged(probes, sample=sample, gpu=1e5).reasons)


def test_what_none_gave_is_no_matter_where_it_is_far_off() -> None:
    assert not any(
        "num_workers=0 gave" in reason for reason in judged([probe(0, 9), probe(2, 90)]).reasons
    )


def test_storage_that_gives_no_more_to_many_binds_where_the_model_stands_alone() -> None:
    arm = replace(stages(read_as_is=0.01), side_by_side=SideBySide(16, 200, 107, 0.02))
    known = Known(
        host=share(),
        subject=None,
        length=100_000,
        cost=WAITING,
        curve=curve_of(WAITING, None, 8.0, storage_samples_per_s=storage_ceiling(arm)),
        points=(),
        probes=(),
        bounds=(),
        stages=arm,
        gpu_rate=None,
        cuda=False,
        data_bytes=None,
    )
    made = recommend(known, Point(2, known.curve.rate(2), 0.08, 0))
    assert made.binding is Binding.READ
    assert any("16 readers at once got 107 files/s" in reason for reason in made.reasons)
