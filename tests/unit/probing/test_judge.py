"""Verdicts, contradictions and classes, drawn from made-up measurements."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hostprep.host.block import StorageClass
from hostprep.host.block_device import Transport
from hostprep.host.cgroups import ReadLimit
from hostprep.probing.behaviour import behave
from hostprep.probing.contradictions import contradictions
from hostprep.probing.judge import judge
from hostprep.probing.judgement import Behaviour, Judged, Need, Verdict
from hostprep.probing.model import (
    SEQUENTIAL_READS,
    SMALL_FILES,
    DataSet,
    Fewer,
    Load,
    Measured,
    SmallRun,
)
from hostprep.probing.needs import parse_need, profile_need
from hostprep.probing.rates import Rates, SmallRates, compare
from tests.unit.probing.made import (
    ARM_RUNS,
    disk,
    fio_run,
    four_runs,
    measured,
    small_files,
    small_run,
    storage,
)

BUSY, HELD_UP = Load(0.99, None), Load(0.02, None, 0.9)


def codes(of: Measured) -> set[str]:
    return {reason.code for reason in contradictions(of)}


def test_an_honest_disk_is_valid_and_without_a_need_only_measured() -> None:
    judgement = judge(measured(), None)
    assert judgement.invalid == ()
    assert judgement.verdict is Verdict.MEASURED
    assert (judgement.storage_class, judgement.behaviour) == (StorageClass.ARM, Behaviour.ARM)
    assert judgement.agrees
    assert judgement.ratio == pytest.approx(100 * 100_000 / (150 * 1024 * 1024))
    assert judgement.epoch is not None
    assert judgement.epoch.cold_seconds == pytest.approx(100)


@pytest.mark.parametrize(
    ("need", "verdict"),
    [
        ("100", Verdict.PASS),
        ("111", Verdict.PASS),  # 0.9 of it is enough
        ("112", Verdict.FAIL),
        ("10MB", Verdict.PASS),
        ("12MB", Verdict.FAIL),
    ],
)
def test_pass_at_nine_tenths_of_the_requirement(need: str, verdict: Verdict) -> None:
    judgement = judge(measured(), parse_need(need))
    assert judgement.verdict is verdict
    assert bool(judgement.remedies) is (verdict is Verdict.FAIL)


def test_remedies_come_in_order_of_cost_and_say_whether_they_suffice() -> None:
    judgement = judge(measured(), parse_need("1000"))
    assert [(remedy.action.split(" (")[0], remedy.enough) for remedy in judgement.remedies] == [
        ("pack the files into shards", True),
        ("stage to RAM", True),
        ("stage to an NVMe drive", None),
        ("buy faster storage", None),
    ]
    greedy = judge(measured(memory_bytes=1 << 29), parse_need("5000"))
    enough = {remedy.action.split(" (")[0]: remedy.enough for remedy in greedy.remedies}
    assert enough["pack the files into shards"] is False
    assert enough["stage to RAM"] is False


def test_a_remedy_suffices_at_nine_tenths_of_the_requirement_where_the_data_has_room() -> None:
    def enough(need: str, memory_bytes: int) -> list[bool | None]:
        judgement = judge(measured(memory_bytes=memory_bytes), parse_need(need))
        return [remedy.enough for remedy in judgement.remedies[:2]]  # shards, RAM

    # Of 157 MB/s sequentially, and a data set of 1 GB, which is to leave a fifth of the memory.
    assert enough("1700", 1_260_000_000) == [True, True]
    assert enough("1800", 1_240_000_000) == [False, False]


def test_ram_is_not_promised_for_data_whose_size_nobody_knows() -> None:
    for unknown in (
        {"small": small_files(source="made")},
        {"dataset": DataSet(10_000, False, 1_000_000_000)},
    ):
        judgement = judge(measured(**unknown), parse_need("1000"))
        (to_ram,) = [each for each in judgement.remedies if each.action.startswith("stage to RAM")]
        assert to_ram.enough is None and to_ram.why.endswith(
            "of memory are available; the data's size is not known"
        )


def test_ram_suffices_for_what_the_data_set_has_and_if_its_rate_was_measured() -> None:
    larger = DataSet(10_000, True, 4_000_000_000)  # than files like those of the sample
    for changes, enough in (
        ({"dataset": larger, "memory_bytes": 4_900_000_000}, False),
        ({"dataset": larger, "memory_bytes": 5_100_000_000}, True),
        ({"small": small_files(staged=None)}, None),
    ):
        judgement = judge(measured(**changes), parse_need("1000"))
        (to_ram,) = [each for each in judgement.remedies if each.action.startswith("stage to RAM")]
        assert to_ram.enough is enough


def test_large_files_are_not_to_be_packed_also_where_not_all_were_counted() -> None:
    runs = small_run(1, 2, 64 << 20), small_run(8, 10, 64 << 20)
    shards = measured(
        dataset=DataSet(40, False, None), small=small_files(cold=runs, mean_bytes=64 << 20)
    )
    judgement = judge(shards, parse_need("9000M"))
    assert judgement.verdict is Verdict.FAIL and judgement.remedies
    assert not any("shards" in remedy.action for remedy in judgement.remedies)


@pytest.mark.parametrize(
    ("files_per_s", "cpu_own", "enough"),
    [(500, 0.2, None), (500, 0.8, False), (2000, 0.2, True)],
)
def test_ram_is_not_called_too_slow_where_others_had_the_processors(
    files_per_s: float, cpu_own: float, enough: bool | None
) -> None:
    load = Load(1.0, None, seconds=0.5, cpu_own=cpu_own)
    small = small_files(staged=small_run(8, files_per_s, load=load))
    judgement = judge(measured(small=small), parse_need("1000"))
    assert judgement.verdict is Verdict.FAIL
    (to_ram,) = [each for each in judgement.remedies if each.action.startswith("stage to RAM")]
    assert to_ram.enough is enough
    assert ("while other programs had 80% of the processors" in to_ram.why) is (enough is None)


def test_far_storage_is_told_to_read_with_more_workers_first() -> None:
    far = measured(
        storage=storage(StorageClass.NETWORK, ()), fio=four_runs(90, 100, 3000, p50=0.01)
    )
    judgement = judge(far, parse_need("1000"))
    assert judgement.behaviour is Behaviour.LATENCY
    assert judgement.remedies[0].action == "read with more workers"


def test_large_samples_are_judged_by_sequential_reads() -> None:
    judgement = judge(measured(), profile_need("unet3d-h100"))
    assert judgement.judged is not None
    assert judgement.judged.of == "sequential reads"
    assert judgement.judged.measured == pytest.approx(150 * 1024 * 1024)
    assert judgement.verdict is Verdict.FAIL
    images = judge(measured(), profile_need("resnet50-h100"))
    assert images.judged is not None and images.judged.unit == "samples/s"


def test_invalid_wins_over_fail_and_names_no_remedies() -> None:
    judgement = judge(measured(layout_holes=True), parse_need("1000"))
    assert judgement.verdict is Verdict.INVALID
    assert judgement.remedies == ()
    assert judgement.judged is not None


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"layout_holes": True}, "holes"),
        ({"fio": four_runs(150, 5000, 9000)}, "random_too_fast"),
        ({"fio": ()}, "no_file"),
        ({"small": None}, "no_small_files"),
        ({"small": small_files(cold=(small_run(1, 3),))}, "too_few_files"),
        ({"small": small_files(cached_share=0.5)}, "in_memory"),
        ({"file_cached_share": 0.5}, "in_memory"),
        ({"dataset_note": "Permission denied"}, "unreadable"),
        ({"direct": False}, "buffered"),
        ({"small": small_files(cold=(small_run(8, 90, load=Load(0.99, None)),))}, "cpu_saturated"),
        ({"small": small_files(cold=(small_run(8, 90, load=HELD_UP),))}, "cpu_throttled"),
        ({"read_limits": (ReadLimit("/job", "8:0", None, 100),)}, "read_limited"),
        ({"small": small_files(unreadable=3, fault="Input/output error")}, "failing"),
        ({"fio_note": "fio did not end"}, "fio_unfinished"),
        ({"small": small_files(cold=(small_run(8, 90, load=Load(0.2, 1000)),))}, "not_delivered"),
    ],
)
def test_contradictions_make_it_invalid(changes: dict[str, object], code: str) -> None:
    broken = measured(**changes)
    assert codes(broken) == {code}
    assert judge(broken, None).verdict is Verdict.INVALID


@pytest.mark.parametrize(
    "changes",
    [
        {"file_cached_share": 0.04, "small": small_files(cached_share=0.04)},
        {"small": small_files(cached_share=None)},
        {"fio": ARM_RUNS[:2]},
        {"fio": four_runs(150, 90, 180, 3e-6)[2:]},
        {"small": small_files(cold=(small_run(8, 90, load=Load(None, None, 0.05)),))},
        {"fio": tuple(replace(run, latency=None) for run in ARM_RUNS)},
    ],
)
def test_what_is_little_or_unknown_contradicts_nothing(changes: dict[str, object]) -> None:
    assert codes(measured(**changes)) == set()


def test_contradictions_come_in_order_each_once_and_say_what_is_known() -> None:
    broken = measured(
        storage=storage(StorageClass.OVERLAY, ()),
        fio=(),
        file_note="no room",
        dataset_note="Permission denied",
        small=small_files(cached_share=0.5, cold=(small_run(1, 80, load=BUSY),) * 2),
    )
    reasons = contradictions(broken)
    assert [reason.code for reason in reasons] == [
        "no_file",
        "unreadable",
        "cpu_saturated",
        "in_memory",
    ]
    assert reasons[0].message.endswith("no room")
    assert reasons[3].message.endswith("or a layer is a tmpfs")
    (held,) = contradictions(measured(small=small_files(cached_share=0.5)))
    assert held.message.endswith("a program holds them there")


def test_no_rate_is_enough_of_storage_that_loses_data() -> None:
    failing = measured(small=small_files(unreadable=3, fault="Input/output error"))
    assert judge(failing, parse_need("1")).verdict is Verdict.INVALID
    assert judge(measured(small=small_files(unreadable=3)), parse_need("1")).verdict is Verdict.PASS
    too_slow = judge(failing, parse_need("1000000"))
    assert too_slow.verdict is Verdict.FAIL, "what is known is not hidden by another fault"
    assert [reason.code for reason in too_slow.invalid] == ["failing"]


@pytest.mark.parametrize("load", [BUSY, HELD_UP])
def test_processors_that_could_do_no_more_forbid_a_fail_and_not_a_pass(load: Load) -> None:
    held_back = measured(small=small_files(cold=(small_run(8, 5000, load=load),)))
    enough = judge(held_back, parse_need("1800"))
    assert enough.verdict is Verdict.PASS
    assert enough.invalid  # the figure is the processors', all the same
    too_little = judge(held_back, parse_need("9000"))
    assert (too_little.verdict, too_little.remedies) == (Verdict.INVALID, ())
    cached = replace(held_back, layout_holes=True)
    assert judge(cached, parse_need("1800")).verdict is Verdict.INVALID


def test_a_doubt_about_another_rate_leaves_the_verdict() -> None:
    runs = tuple(replace(run, load=BUSY) if run.pattern == "randread" else run for run in ARM_RUNS)
    busy = judge(measured(fio=runs), parse_need("1000"))
    assert [(reason.code, reason.of) for reason in busy.invalid] == [
        ("cpu_saturated", "random reads")
    ]
    assert busy.verdict is Verdict.FAIL and busy.remedies
    unread = measured(fio=(), file_note="no file is here")
    assert judge(unread, parse_need("100")).verdict is Verdict.PASS
    assert judge(unread, parse_need("1000")).verdict is Verdict.FAIL
    # As of ZFS, whose cache has what was just written: the small files are counted by themselves.
    runs = tuple(replace(run, load=Load(0.1, 0)) for run in ARM_RUNS)
    small = small_run(8, 100)
    small = replace(small, load=Load(0.1, small.read_bytes))
    counted = measured(fio=runs, small=small_files(cold=(small,)))
    assert judge(counted, parse_need("100")).verdict is Verdict.PASS
    # What is in doubt here is what is judged, or everything.
    runs = tuple(replace(run, load=BUSY) if run.pattern == "read" else run for run in ARM_RUNS)
    shards = {"dataset": DataSet(40, True, 40 << 30), "small": small_files(source="made")}
    assert judge(measured(fio=runs, **shards), parse_need("900M")).verdict is Verdict.INVALID
    assert judge(measured(fio_note="no end"), parse_need("100")).verdict is Verdict.INVALID


LEFT_OUT = Fewer(SEQUENTIAL_READS, 32, None, "it takes too long")
EIGHT = (replace(LEFT_OUT, used=8),)


@pytest.mark.parametrize(
    ("changes", "codes_wanted"),
    [
        ({"fio": ARM_RUNS[:1] + ARM_RUNS[2:], "fio_fewer": (LEFT_OUT,)}, {"too_little_time"}),
        ({"fio": (), "fio_fewer": (LEFT_OUT,)}, {"too_little_time"}),
        # As fast as one at a time: more of them would be no faster.
        (
            {
                "fio": (*ARM_RUNS, fio_run("read", 8, 155)),
                "fio_fewer": EIGHT,
            },
            set(),
        ),
        (
            {
                "fio": (*ARM_RUNS, fio_run("read", 8, 600)),
                "fio_fewer": EIGHT,
            },
            {"too_little_time"},
        ),
        (
            {"small": small_files(fewer=Fewer(SMALL_FILES, 8, 4, "it takes too long"))},
            {"too_little_time"},
        ),
        (
            {
                "small": small_files(
                    cold=(small_run(1, 80),),
                    fewer=Fewer(SMALL_FILES, 8, 4, "it takes too long"),
                )
            },
            {"too_little_time"},
        ),
        (
            {
                "small": small_files(
                    cold=(small_run(1, 80), small_run(4, 82)),
                    fewer=Fewer(SMALL_FILES, 8, 4, "it takes too long"),
                )
            },
            set(),
        ),
    ],
)
def test_what_there_was_no_time_for_is_told_where_it_may_matter(
    changes: dict[str, object], codes_wanted: set[str]
) -> None:
    assert codes(measured(**changes)) == codes_wanted


def test_what_there_was_no_time_for_can_only_have_made_a_rate_too_low() -> None:
    fewer = Fewer(SMALL_FILES, 8, None, "it takes too long")
    slow = measured(small=small_files(cold=(small_run(1, 80),), fewer=fewer))
    assert judge(slow, parse_need("50")).verdict is Verdict.PASS
    assert judge(slow, parse_need("500")).verdict is Verdict.INVALID


def test_shards_that_can_only_be_read_need_no_small_files() -> None:
    nothing = {"small": None, "small_note": "nothing can be written here"}
    shards = measured(dataset=DataSet(40, True, 40 << 30), **nothing)
    assert judge(shards, parse_need("100M")).verdict is Verdict.PASS
    assert judge(shards, parse_need("900M")).verdict is Verdict.FAIL
    assert judge(shards, None).verdict is Verdict.INVALID
    assert judge(measured(**nothing), parse_need("100M")).verdict is Verdict.INVALID


def test_compressed_files_are_read_with_fewer_bytes_and_not_with_none() -> None:
    def delivered(share: float, compressed: bool = True, **changes: object) -> set[str]:
        small = small_run(8, 90)
        load = Load(0.1, int(share * small.read_bytes))
        files = small_files(cold=(replace(small, load=load),), **changes)
        return codes(measured(small=files, compressed=compressed))

    assert delivered(0.1) == set()
    assert delivered(0.001) == {"not_delivered"}
    assert delivered(0.1, source="made") == {"not_delivered"}  # of what cannot be compressed
    assert delivered(0.1, compressed=False) == {"not_delivered"}


def test_a_compressed_file_is_believed_once_around() -> None:
    runs = tuple(replace(run, load=Load(0.1, run.read_bytes // 10)) for run in ARM_RUNS)
    most = max(run.read_bytes for run in runs)
    existing = measured(fio=runs, compressed=True, file_source="existing", file_bytes=most)
    assert codes(existing) == set()
    assert codes(replace(existing, file_bytes=most // 2)) == {"not_delivered"}
    assert codes(replace(existing, file_source="made")) == {"not_delivered"}
    assert codes(replace(existing, compressed=False)) == {"not_delivered"}


def test_holes_are_told_and_not_taken_for_a_cache() -> None:
    few = Load(0.1, 4096)
    small = small_files(cold=(small_run(8, 90, load=few),))
    sparse = DataSet(10_000, True, 1_000_000_000, hole_bytes=900_000_000)
    (held,) = contradictions(measured(small=small, dataset=sparse))
    assert (held.code, held.of) == ("holes", SMALL_FILES)
    assert held.message.startswith("90% of the data set's bytes are holes")
    assert codes(measured(small=small)) == {"not_delivered"}
    assert codes(measured(small=replace(small, source="made"), dataset=sparse)) == {"not_delivered"}
    runs = tuple(replace(run, load=few) for run in ARM_RUNS)
    assert codes(measured(fio=runs, layout_holes=True)) == {"holes"}
    judged = judge(measured(small=small, dataset=sparse), None)
    assert judged.epoch is None and "90% of the data set's bytes" in (judged.epoch_note or "")


def test_holes_of_shards_are_not_read() -> None:
    sparse = DataSet(1, True, 1 << 40, hole_bytes=(1 << 40) - (150 << 20))
    epoch = judge(measured(small=small_files(source="made"), dataset=sparse), None).epoch
    assert epoch is not None and epoch.cold_seconds == 1
    assert (epoch.size_bytes, epoch.hole_bytes) == (150 << 20, sparse.hole_bytes)


def test_shards_of_holes_alone_have_no_epoch_of_no_time() -> None:
    empty = DataSet(1, True, 1 << 40, hole_bytes=1 << 40)
    judged = judge(measured(small=small_files(source="made"), dataset=empty), None)
    assert judged.epoch is None
    assert (judged.epoch_note or "").startswith("100% of the data set's bytes are holes")


def test_small_files_that_stayed_in_memory_say_nothing_against_what_the_disk_was_seen_to_do() -> (
    None
):
    held = judge(measured(small=small_files(cached_share=0.5)), None)
    assert [(reason.code, reason.of) for reason in held.invalid] == [("in_memory", SMALL_FILES)]
    assert held.behaviour is Behaviour.ARM


@pytest.mark.parametrize(("delivered", "doubted"), [(0.51, False), (0.49, True)])
def test_what_small_files_read_again_is_delivered_again(delivered: float, doubted: bool) -> None:
    run = small_run(8, 100)
    load = Load(0.2, int(delivered * 2 * run.read_bytes))
    again = replace(run, again_bytes=run.read_bytes, load=load)
    assert ("not_delivered" in codes(measured(small=small_files(cold=(again,))))) is doubted


def test_what_a_cache_answered_says_nothing_of_the_disk() -> None:
    virtual = disk(name="vda", transport=Transport.VIRTIO, virtual=True)
    runs = tuple(
        replace(run, load=Load(0.1, 4096)) for run in four_runs(1000, 20_000, 90_000, 30e-6)
    )
    judgement = judge(measured(storage=storage(StorageClass.VIRTUAL, (virtual,)), fio=runs), None)
    assert (judgement.behaviour, judgement.agrees) == (Behaviour.UNCLEAR, True)
    assert judgement.class_reason == "the kernel's reason"


def test_fio_that_the_disks_know_nothing_of_is_invalid() -> None:
    runs = tuple(replace(run, load=Load(0.1, run.read_bytes // 10)) for run in ARM_RUNS)
    assert codes(measured(fio=runs)) == {"not_delivered"}
    enough = tuple(replace(run, load=Load(0.1, run.read_bytes)) for run in ARM_RUNS)
    assert codes(measured(fio=enough)) == set()
    assert codes(measured(fio=enough, direct=False)) == set()  # the disks gave it: no cache did


def test_flash_may_be_fast_and_memory_speed_may_not() -> None:
    flash = storage(StorageClass.NVME, (disk(transport=Transport.NVME),))
    assert codes(measured(storage=flash, fio=four_runs(3000, 12_000, 500_000, 80e-6))) == set()
    cached = measured(storage=flash, fio=four_runs(1000, 300_000, 400_000, 3e-6))
    assert codes(cached) == {"random_too_fast"}
    queued = four_runs(5000, 300_000, 400_000, 3e-6)[1:]
    assert codes(measured(storage=flash, fio=(fio_run("read", 1, 1000), *queued))) == codes(cached)
    assert codes(replace(cached, fio=cached.fio[1:])) == codes(cached)
    optane = measured(storage=flash, fio=four_runs(3000, 90_000, 400_000, 9e-6))
    assert codes(optane) == set()


def test_what_the_page_cache_answered_fio_says_nothing_of_small_files() -> None:
    """As of squashfs, whose files cannot be read directly."""
    cold = tuple(
        replace(run, load=Load(0.2, run.read_bytes))
        for run in (small_run(1, 900), small_run(8, 2900))
    )
    runs = tuple(replace(run, load=Load(0.2, 0)) for run in four_runs(1500, 800_000, 790_000, 1e-6))
    cached = measured(direct=False, fio=runs, small=small_files(cold=cold))
    assert codes(cached) == {"random_too_fast", "not_delivered"}
    assert judge(cached, parse_need("2000")).verdict is Verdict.PASS
    direct = replace(cached, direct=True)
    assert judge(direct, parse_need("2000")).verdict is Verdict.INVALID


@pytest.mark.parametrize("kind", [StorageClass.FUSE, StorageClass.NETWORK])
def test_what_a_program_or_a_server_has_in_memory_is_a_cache(kind: StorageClass) -> None:
    """Of bindfs over a disk: its requests pass through its process, and each took 6 us."""
    behind = measured(storage=storage(kind, ()), fio=four_runs(1700, 57_000, 57_000, 6e-6))
    judgement = judge(behind, None)
    assert [(each.code, each.of) for each in judgement.invalid] == [
        ("in_memory", "sequential reads"),
        ("in_memory", "random reads"),
    ]
    assert judgement.behaviour is Behaviour.UNCLEAR
    assert judge(behind, parse_need("100")).verdict is Verdict.PASS  # of files that are here
    made = replace(behind, small=small_files(source="made"))
    assert judge(made, parse_need("100")).verdict is Verdict.INVALID
    slower = replace(behind, fio=four_runs(1700, 12_000, 57_000, 80e-6))
    assert codes(slower) == set()
    overlay = replace(behind, storage=storage(StorageClass.OVERLAY, ()))
    assert codes(overlay) == set()  # its layer's disk may be as fast


def test_a_disk_that_may_be_none_may_be_faster_than_an_arm() -> None:
    disks = (disk(), disk(name="vdb", virtual=True))
    fast = measured(storage=storage(StorageClass.ARM, disks), fio=four_runs(150, 5000, 9000))
    assert codes(fast) == set()


def test_a_rate_limit_that_makes_both_equal_is_no_contradiction() -> None:
    flash = storage(StorageClass.NVME, (disk(transport=Transport.NVME),))
    assert codes(measured(storage=flash, fio=four_runs(10, 2560, 2560, p50=390e-6))) == set()


def test_files_that_nobody_may_ask_about_and_that_come_like_cached_ones() -> None:
    """As to who may not write them, of a layer of an overlay that is a tmpfs."""
    one, several, cached = small_run(1, 60_000), small_run(8, 400_000), small_run(8, 420_000)
    small = small_files(cold=(one, several), cached=cached, cached_share=None)
    overlay = measured(storage=storage(StorageClass.OVERLAY, ()), small=small)
    (reason,) = contradictions(overlay)
    assert (reason.code, reason.of) == ("in_memory", "small files")
    assert judge(overlay, parse_need("1000")).verdict is Verdict.INVALID
    for honest in (
        replace(small, cold=(one, small_run(8, 350_000))),
        replace(small, cold=(small_run(1, 20_000), several)),  # others held the cached pass up
        replace(small, cold=(replace(one, load=Load(0.2, 10**11)), several)),  # disks counted it
        replace(small, cold=(one, small_run(4, 400_000))),
        replace(small, cached=None),
    ):
        assert codes(replace(overlay, small=honest)) == set(), honest


def test_memory_may_do_what_a_disk_may_not() -> None:
    busy = Load(1.0, None)
    memory = measured(
        storage=storage(StorageClass.RAM, ()),
        fio=four_runs(10_000, 600_000, 600_000, 1e-6),
        small=small_files(cold=(small_run(8, 90_000, load=busy),), cached_share=None),
    )
    assert codes(memory) == set()
    assert judge(memory, None).behaviour is Behaviour.MEMORY


@pytest.mark.parametrize(
    ("load", "code"),
    [
        (HELD_UP, "cpu_throttled"),
        (Load(1.0, None, seconds=2, cpu_own=0.7), "cpu_saturated"),
        (Load(1.0, None, seconds=2, cpu_own=0.8), None),
        (Load(0.9, None, seconds=2, cpu_own=0.1), None),  # there was a processor to be had
        (Load(1.0, None, seconds=0.2, cpu_own=0.1), None),
        (Load(1.0, None, seconds=2), None),  # whose they were nobody can tell
    ],
)
def test_what_held_readers_of_memory_back_forbids_a_fail(load: Load, code: str | None) -> None:
    memory = measured(
        storage=storage(StorageClass.RAM, ()),
        fio=four_runs(10_000, 600_000, 600_000, 1e-6),
        small=small_files(cold=(small_run(8, 9000, load=load),), cached_share=None),
    )
    assert codes(memory) == ({code} if code else set())
    too_little = judge(memory, parse_need("40000")).verdict
    assert too_little is (Verdict.INVALID if code else Verdict.FAIL)
    assert judge(memory, parse_need("9000")).verdict is Verdict.PASS


def test_a_virtual_disk_that_claims_to_rotate_and_does_not() -> None:
    virtual = disk(name="vda", transport=Transport.VIRTIO, virtual=True)
    fast = measured(
        storage=storage(StorageClass.VIRTUAL, (virtual,)),
        fio=four_runs(1000, 20_000, 90_000, 30e-6),
    )
    judgement = judge(fast, None)
    assert judgement.storage_class is StorageClass.VIRTUAL
    assert judgement.behaviour is Behaviour.FLASH
    assert not judgement.agrees
    assert "the kernel's reason" in judgement.class_reason
    assert "20,000 random reads" in judgement.class_reason
    assert judgement.invalid == ()


def test_a_virtual_disk_that_seeks_is_measured_to_have_an_arm() -> None:
    virtual = disk(transport=Transport.VIRTIO, virtual=True, rotational_says_kernel=False)
    judgement = judge(measured(storage=storage(StorageClass.VIRTUAL, (virtual,))), None)
    assert judgement.storage_class is StorageClass.ARM
    assert not judgement.agrees


@pytest.mark.parametrize("limit", [200, 300])
def test_a_limit_on_fast_storage_is_not_taken_for_an_arm(limit: int) -> None:
    virtual = disk(name="vda", transport=Transport.VIRTIO, virtual=True)
    runs = four_runs(20, limit, limit, p50=46e-6)  # as under blkio.throttle or io.max
    found = judge(measured(storage=storage(StorageClass.VIRTUAL, (virtual,)), fio=runs), None)
    assert (found.storage_class, found.behaviour) == (StorageClass.VIRTUAL, Behaviour.UNCLEAR)
    assert "half of them took no longer than 0.046 ms: a limit" in found.class_reason


def test_where_the_measurement_agrees_the_kernel_s_reason_says_it_all() -> None:
    flash = measured(
        storage=storage(StorageClass.NVME, (disk(rotational_says_kernel=False),)),
        fio=four_runs(3000, 12_000, 500_000, 80e-6),
    )
    for agreeing in (measured(), flash, measured(fio=())):
        judgement = judge(agreeing, None)
        assert judgement.agrees and judgement.class_reason == "the kernel's reason"


def test_one_disk_of_several_that_claims_to_rotate_is_told() -> None:
    disks = (disk(), disk(name="sdb", rotational_says_kernel=False))
    fast = measured(
        storage=storage(StorageClass.ARM, disks), fio=four_runs(3000, 12_000, 500_000, 80e-6)
    )
    assert not judge(fast, None).agrees


def test_what_has_no_disk_is_not_measured_to_have_an_arm() -> None:
    unknown = judge(measured(storage=storage(StorageClass.UNKNOWN, ())), None)
    assert unknown.storage_class is StorageClass.UNKNOWN
    assert "random reads a second" in unknown.class_reason


def test_a_loop_device_that_reads_through_the_page_cache_is_a_doubt_where_no_disk_is_seen() -> None:
    loop = disk(name="loop0", kind="loop", transport=None, cached=True)
    seen = storage(StorageClass.ARM, (disk(),))
    assert codes(measured(storage=replace(seen, devices=(loop,), disks=()))) == {"buffered"}
    through = measured(storage=replace(seen, devices=(loop,)))
    assert codes(through) == set()
    # As much as was read came from the disk, but for others.
    runs = four_runs(1700, 30_000, 57_000, 6e-6)
    loads = [replace(run.load, device_bytes=run.read_bytes) for run in runs]
    beside = tuple(replace(run, load=load) for run, load in zip(runs, loads, strict=True))
    virtual = replace(through.storage, storage_class=StorageClass.VIRTUAL)
    (one, other) = contradictions(replace(through, storage=virtual, fio=beside))
    assert (one.code, one.of) == ("in_memory", "sequential reads")
    assert (other.code, other.of) == ("in_memory", "random reads")


def test_a_class_that_the_kernel_knows_stays() -> None:
    nvme = storage(StorageClass.NVME, (disk(transport=Transport.NVME),))
    judgement = judge(measured(storage=nvme), None)
    assert judgement.storage_class is StorageClass.NVME
    assert not judgement.agrees


@pytest.mark.parametrize(
    ("runs", "behaviour"),
    [
        (ARM_RUNS, Behaviour.ARM),
        (four_runs(90, 100, 3000), Behaviour.LATENCY),
        (four_runs(500, 8000, 90_000), Behaviour.FLASH),
        (four_runs(500, 500, 2500), Behaviour.UNCLEAR),
        (four_runs(150, 400, 800), Behaviour.UNCLEAR),  # too fast for an arm
        (four_runs(150, 90, 540), Behaviour.UNCLEAR),  # gains too much from its queue
        (four_runs(3, 90, 180), Behaviour.UNCLEAR),  # and reads no faster in a row
        (ARM_RUNS[2:], Behaviour.UNCLEAR),
        (ARM_RUNS[:3], Behaviour.UNCLEAR),
        ((*ARM_RUNS[:2], ARM_RUNS[3]), Behaviour.UNCLEAR),
        ((), Behaviour.UNCLEAR),
    ],
)
def test_behaviour(runs: tuple[object, ...], behaviour: Behaviour) -> None:
    assert behave(measured(fio=runs)) is behaviour


@pytest.mark.parametrize(
    ("several", "behaviour"),
    [
        (small_run(8, 380), Behaviour.LATENCY),
        (small_run(8, 230), Behaviour.ARM),  # an arm may gain that from its queue
        (small_run(8, 270), Behaviour.ARM),
        (small_run(4, 190), Behaviour.ARM),  # too few to tell
    ],
)
def test_a_queue_that_is_answered_one_at_a_time_is_no_arm_where_readers_are_not(
    several: SmallRun, behaviour: Behaviour
) -> None:
    """FUSE with libfuse 2: depth 32 is as fast as depth 1, eight readers are eight times so."""
    small = small_files(cold=(small_run(1, 48), several))
    assert behave(measured(fio=four_runs(92, 95, 96), small=small)) is behaviour
    assert behave(measured(fio=four_runs(92, 95, 96), small=None)) is Behaviour.ARM


def test_no_epoch_without_a_data_set_or_with_uncounted_files() -> None:
    made = judge(measured(small=small_files(source="made")), None)
    assert made.epoch is None
    assert made.epoch_note == "too few of the files under the path were read for that"
    nothing = measured(small=small_files(source="made"), dataset=DataSet(0, True, 0))
    assert judge(nothing, None).epoch_note == "there is no data set under the path"
    gone = judge(replace(nothing, small=small_files()), None)  # between the reading and its end
    assert (gone.epoch, gone.epoch_note) == (None, "there is no data set under the path")
    linked = judge(replace(nothing, dataset=DataSet(0, True, 0, links=750)), None).epoch_note
    assert linked is not None and "750 symbolic links to elsewhere" in linked
    partly = measured(dataset=replace(measured().dataset, complete=False, size_bytes=None))
    assert judge(partly, None).epoch is None
    assert "10,000" in (judge(partly, None).epoch_note or "")
    unread = measured(dataset=DataSet(40, True, 40 << 30), small=None, fio=())
    assert judge(unread, None).epoch is None
    (reason,) = (r for r in judge(unread, parse_need("100M")).invalid if r.code == "not_measured")
    assert "shards" not in reason.message  # bytes were asked for, and no file was read


def test_a_need_that_nothing_was_measured_for_is_invalid() -> None:
    nothing = measured(small=None, small_note="no room")
    judgement = judge(nothing, parse_need("100"))
    assert judgement.verdict is Verdict.INVALID
    assert {reason.code for reason in judgement.invalid} == {"no_small_files", "not_measured"}
    assert any("no room" in reason.message for reason in judgement.invalid)
    assert not any("shards" in reason.message for reason in judgement.invalid)


def test_shards_are_judged_and_predicted_by_sequential_reads() -> None:
    shards = measured(
        dataset=DataSet(40, True, 40 << 30), small=small_files(source="made"), memory_bytes=20 << 30
    )
    judgement = judge(shards, parse_need("100M"))
    assert judgement.judged is not None and judgement.judged.of == "sequential reads"
    assert judgement.verdict is Verdict.PASS
    assert judgement.epoch is not None
    assert judgement.epoch.cold_seconds == pytest.approx(40 * 1024 / 150)
    assert (judgement.epoch.cache_share, judgement.epoch.cached_seconds) == (0.5, None)
    assert not judgement.epoch.estimated_size
    assert judge(shards, parse_need("100")).verdict is Verdict.INVALID  # samples of which size?
    assert judge(shards, profile_need("resnet50-h100")).judged is not None


def test_shards_that_were_read_whole_are_judged_by_their_bytes() -> None:
    mean_bytes = 64 << 20
    runs = small_run(1, 2, mean_bytes), small_run(8, 10, mean_bytes)
    shards = measured(
        dataset=DataSet(40, True, 40 * mean_bytes),
        small=small_files(cold=runs, mean_bytes=mean_bytes),
    )
    samples = judge(shards, parse_need("1800"))  # 10 shards a second may hold more than that
    assert (samples.verdict, samples.judged) == (Verdict.INVALID, None)
    (reason,) = samples.invalid
    assert reason.code == "not_measured" and "bytes a second" in reason.message
    for need in (parse_need("9000M"), profile_need("unet3d-h100")):
        judgement = judge(shards, need)
        assert judgement.judged is not None
        assert judgement.judged.unit == "bytes/s"
        assert judgement.judged.measured == pytest.approx(10 * mean_bytes)
        assert judgement.verdict is Verdict.FAIL
        assert not any("shards" in remedy.action for remedy in judgement.remedies)
    images = judge(shards, profile_need("resnet50-h100"))
    assert images.judged is not None and images.judged.unit == "bytes/s"


@pytest.mark.parametrize(
    ("share", "codes_then"),
    [(0.9, {"read_limited"}), (1.3, {"read_limited"}), (2, set()), (0.5, set())],
)
def test_a_limit_of_reads_that_is_far_from_met_is_no_matter(
    share: float, codes_then: set[str]
) -> None:
    """Nor one that held nothing; and what passes though it was held back passes."""
    sequential = measured().sequential
    assert sequential is not None
    limit = ReadLimit("/job", "8:0", int(sequential.bytes_per_s * share), None)
    limited = measured(read_limits=(limit,))
    assert codes(limited) == codes_then
    (small,) = measured(read_limits=(limit,)).small.cold[-1:]  # type: ignore[union-attr]
    little = parse_need(f"{small.files_per_s / 2:.0f}")
    assert judge(limited, little).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("disks", "device", "most"),
    [
        (1, "8:0", (10_000_000, None)),
        (1, "8:0", (None, 300)),
        (2, "8:0", (5_000_000, None)),
        (2, "8:0", (None, 150)),
        (2, "9:0", (10_000_000, None)),  # what is built from both
    ],
)
def test_small_files_are_held_against_a_limit_by_what_their_disks_did_meanwhile(
    disks: int, device: str, most: tuple[int | None, int | None]
) -> None:
    """Of several disks, each does its part."""
    load = Load(0.2, 20_000_000, requests=900, read_requests=600, seconds=2.0)
    below = tuple(disk(name=f"sd{number}", number=f"8:{number}") for number in range(disks))
    small = small_files(cold=(small_run(8, 100, load=load),))

    def held(share: float) -> set[tuple[str, str | None]]:
        limit = ReadLimit("/job", device, *(each and int(share * each) for each in most))
        limited = measured(storage=storage(disks=below), read_limits=(limit,), small=small)
        return {(reason.code, reason.of) for reason in contradictions(limited)}

    assert ("read_limited", SMALL_FILES) in held(1.0)
    for far in (0.5, 2.0):
        assert ("read_limited", SMALL_FILES) not in held(far)


def test_samples_larger_than_any_small_file_are_judged_by_their_bytes() -> None:
    """Also by files as large, where nobody knows whether all are."""
    need = Need("10 of 150 MB", 10.0, 1.5e9, "test")
    as_large = Rates(1e9, SmallRates(12.0, 1.4e9, 1.2e8, "dataset"), False)
    assert compare(as_large, need) == Judged(1.4e9, 1.5e9, "bytes/s", SMALL_FILES)
    smaller = Rates(1e9, SmallRates(500.0, 5e7, 1e5, "dataset"), False)
    assert compare(smaller, need) == Judged(1e9, 1.5e9, "bytes/s", SEQUENTIAL_READS)
    assert compare(Rates(1e9, None, False), need) == Judged(1e9, 1.5e9, "bytes/s", SEQUENTIAL_READS)
