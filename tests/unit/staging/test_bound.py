"""What is said to have bound a run, by what it copied and what the source is known to give."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hostprep.staging.bound import bound_of
from hostprep.staging.model import StageResult
from hostprep.staging.planning import StagePlan
from hostprep.staging.source.sampling import Sample

MB = 10**6
COLD, WARM = Sample(24, 0.0, 0.002), Sample(24, 1.0, 0.00005)


def run_of(
    *, bytes_per_s: float, cpu: float = 0.5, sample: Sample = COLD, in_ram: bool = True
) -> tuple[StageResult, StagePlan]:
    """Return a run of 10 s over files of 32 KB, on 4 cores."""
    copied = int(10 * bytes_per_s)
    result = SimpleNamespace(
        phases={"copy": 10.0},
        copied_bytes=copied,
        copied_files=copied // 32_000,
        cpu_seconds=10 * cpu,
    )
    plan = SimpleNamespace(
        reading=SimpleNamespace(readers=8),
        sample=sample,
        in_ram=in_ram,
        storage=SimpleNamespace(mount=SimpleNamespace(source="/dev/nvme0n1"), fstype="ext4"),
    )
    return cast(StageResult, result), cast(StagePlan, plan)


@pytest.fixture
def probed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep a probe in which the source gave 60 MB/s of small files."""
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(tmp_path))
    (tmp_path / "probes").mkdir()
    document: dict[str, Any] = {
        "settings": {"mounted": "/dev/nvme0n1", "fstype": "ext4"},
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


def judged(**run: Any) -> str | None:
    result, plan = run_of(**run)
    found = bound_of(result, plan, 4)
    return None if found is None else found.by


def test_busy_processors_bind_whatever_the_target(probed: Path) -> None:
    assert judged(bytes_per_s=50 * MB, cpu=3.5) == "processors"
    assert judged(bytes_per_s=5 * MB, cpu=3.5, in_ram=False) == "processors"


def test_into_ram_it_is_the_source_or_other_programs(probed: Path) -> None:
    assert judged(bytes_per_s=10 * MB) == "source"
    assert judged(bytes_per_s=10 * MB, sample=WARM) is None


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
    assert words["target"].startswith("bound by the target: it took 20.0 MB/s")
    assert words["storage"].startswith("bound by the source or the target: 40.0 MB/s")
