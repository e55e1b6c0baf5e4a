"""What is said to have bound a run, by what it copied and what the source is known to give."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hostprep.host.block import StorageClass
from hostprep.staging import ceiling
from hostprep.staging.bound import bound_of
from hostprep.staging.model import StageResult, Totals
from hostprep.staging.planning import StagePlan
from hostprep.staging.processor_time import ProcessorTime
from hostprep.staging.source.sampling import Sample

MB = 10**6
COLD, WARM = Sample(24, 0.0, 0.002), Sample(24, 1.0, 0.00005)


def run_of(
    *,
    bytes_per_s: float,
    cpu: float = 0.5,
    waiting: float | None = 0.0,
    throttled: float | None = None,
    machine: float | None = 0.3,
    sample: Sample = COLD,
    in_ram: bool = True,
    readers: int | None = None,
    in_the_end: int | None = None,
    gentle: bool = False,
    storage_class: StorageClass = StorageClass.NETWORK,
) -> tuple[StageResult, StagePlan]:
    """Return a run of 10 s over files of 32 KB, on 4 cores; ``readers`` are those asked for."""
    copied = int(10 * bytes_per_s)
    result = SimpleNamespace(
        phases={"copy": 10.0},
        copied_data_bytes=copied,
        copied_files=copied // 32_000,
        processors=ProcessorTime(
            10 * cpu, None if waiting is None else 10 * waiting, throttled, machine
        ),
        readers=in_the_end,
    )
    plan = SimpleNamespace(
        request=SimpleNamespace(readers=readers, gentle=gentle),
        reading=SimpleNamespace(readers=1 if gentle else readers or 8),
        files=SimpleNamespace(copied=Totals(copied // 32_000, copied)),
        sample=sample,
        in_ram=in_ram,
        storage=SimpleNamespace(storage_class=storage_class),
    )
    return cast(StageResult, result), cast(StagePlan, plan)


@pytest.fixture
def probed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep a probe in which the source gave 60 MB/s of small files."""
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(ceiling, "file_system_id", lambda _: "uuid 1234")
    (tmp_path / "probes").mkdir()
    document: dict[str, Any] = {
        "settings": {"mounted": "/dev/nvme0n1", "fstype": "ext4", "file_system": "uuid 1234"},
        "valid": True,
        "time": "20261123T135515Z",
        "id": "the-probe",
        "small_files": {"bytes_per_s": 60 * MB},
    }
    (tmp_path / "probes/one.json").write_text(json.dumps(document))
    return tmp_path


@pytest.fixture
def unprobed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(ceiling, "file_system_id", lambda _: "uuid 1234")


def judged(cores: float = 4, **run: Any) -> str | None:
    result, plan = run_of(**run)
    found = bound_of(result, plan, cores)
    return None if found is None else found.by


def test_busy_processors_bind_whatever_the_target(probed: Path) -> None:
    assert judged(bytes_per_s=50 * MB, cpu=3.5) == "processors"
    assert judged(bytes_per_s=5 * MB, cpu=3.5, in_ram=False) == "processors"


def test_into_ram_it_is_the_source_or_other_programs(probed: Path) -> None:
    assert judged(bytes_per_s=10 * MB) == "source"
    assert judged(bytes_per_s=10 * MB, sample=WARM) is None


def test_a_source_that_more_readers_got_more_of_was_not_in_memory(probed: Path) -> None:
    assert judged(bytes_per_s=10 * MB, sample=WARM, in_the_end=16) == "source"


def test_a_disk_or_network_target_may_be_the_slower_side(probed: Path) -> None:
    assert judged(bytes_per_s=55 * MB, in_ram=False) == "source"  # as the probe had it
    assert judged(bytes_per_s=40 * MB, in_ram=False) == "storage"
    assert judged(bytes_per_s=20 * MB, in_ram=False) == "target"  # a third of the probe's
    assert judged(bytes_per_s=400 * MB, sample=WARM, in_ram=False) == "target"


def test_without_a_probe_the_look_at_the_source_tells(unprobed: None) -> None:
    # 2 ms a file: one stream of the source would give 16 MB/s.
    assert judged(bytes_per_s=15 * MB, in_ram=False) == "target"
    assert judged(bytes_per_s=17 * MB, in_ram=False) == "storage"


def test_the_words_name_a_ceiling_only_of_the_source(probed: Path) -> None:
    words = {}
    for rate in (20, 40, 55):
        found = bound_of(*run_of(bytes_per_s=rate * MB, in_ram=False), 4)
        assert found is not None
        words[found.by] = found.words()
    assert "60.0 MB/s" in words["source"] and "the-probe" in words["source"]
    assert words["target"].startswith("bound by the target: it accepted 20.0 MB/s")
    assert words["storage"].startswith("bound by the source or the target: 40.0 MB/s")


def test_a_quota_that_holds_a_run_up_binds_it(probed: Path) -> None:
    assert judged(bytes_per_s=10 * MB, cpu=0.5, throttled=0.9, cores=0.5) == "quota"
    # A third of a quota is what others in the control group leave of it; a twentieth is not asked.
    assert judged(bytes_per_s=10 * MB, cpu=0.5, throttled=0.9, cores=1.5) == "quota"
    assert judged(bytes_per_s=10 * MB, cpu=0.05, throttled=0.9, cores=1) == "source"
    assert judged(bytes_per_s=10 * MB, cpu=0.5, throttled=0.1, cores=2.5) == "source"


def test_all_of_a_fractional_quota_is_all_that_there_is(probed: Path) -> None:
    assert judged(bytes_per_s=10 * MB, cpu=1.4, cores=1.5) == "processors"


def test_programs_that_have_the_processors_bind_a_run(probed: Path) -> None:
    def beside(share: float, **run: Any) -> str | None:
        return judged(bytes_per_s=10 * MB, machine=share, **run)

    assert beside(1.0, cpu=1.5, waiting=2.5) == "other programs"
    assert beside(1.0, cpu=1.5, waiting=2.5, sample=WARM) == "other programs"
    assert beside(1.0, cpu=0.1, waiting=0.9, gentle=True) == "other programs"
    assert beside(1.0, cpu=1.5, waiting=0.5) == "source"
    assert beside(1.0, cpu=1.5, waiting=None) == "source"  # it cannot be told
    # Its own readers wake together, wait for each other, and leave the processors again.
    assert beside(0.4, cpu=1.5, waiting=2.5) == "source"


def test_too_few_readers_bind_a_run_where_the_source_has_more_to_give(probed: Path) -> None:
    assert judged(bytes_per_s=10 * MB, cpu=0.1, readers=2) == "readers"
    assert judged(bytes_per_s=10 * MB, cpu=0.1, gentle=True) == "readers"
    assert judged(bytes_per_s=10 * MB, cpu=0.1, readers=200) == "source"
    arm = StorageClass.ARM
    assert judged(bytes_per_s=10 * MB, cpu=0.1, readers=1, storage_class=arm) == "source"
    # A core that one reader fills leaves three that it may not have.
    assert judged(bytes_per_s=900 * MB, cpu=0.9, readers=1, sample=WARM) == "readers"
    assert judged(bytes_per_s=900 * MB, cpu=3.9, readers=4, sample=WARM) == "processors"


@pytest.mark.parametrize("known", ["uuid 5678", None])
def test_a_probe_of_what_was_in_the_same_place_is_no_ceiling(
    known: str | None, probed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another disk may have the device's name and type by now."""
    monkeypatch.setattr(ceiling, "file_system_id", lambda _: known)
    found = bound_of(*run_of(bytes_per_s=40 * MB), 4)
    assert found is not None
    assert (found.by, found.ceiling_bytes_per_s) == ("source", None)


def test_a_probe_that_says_not_of_which_file_system_it_is_is_no_ceiling(probed: Path) -> None:
    file = probed / "probes/one.json"
    document = json.loads(file.read_text())
    document["settings"]["file_system"] = None
    file.write_text(json.dumps(document))
    found = bound_of(*run_of(bytes_per_s=40 * MB), 4)
    assert found is not None and found.ceiling_bytes_per_s is None


def test_the_words_name_what_held_a_run_up(probed: Path) -> None:
    runs: list[tuple[str, dict[str, Any]]] = [
        ("quota of processor time: read 10.0 MB/s with 0.5 of 1.5 cores", {"throttled": 0.9}),
        ("waiting for 2.0 more", {"waiting": 2.0, "machine": 1.0}),
        ("bound by the request for 1 reader: read", {"cpu": 0.1, "gentle": True}),
    ]
    for words, run in runs:
        found = bound_of(*run_of(bytes_per_s=10 * MB, **run), 1.5)
        assert found is not None and words in found.words()
