"""What --full measures for real, in little time: kept, judged by others, and nothing left over."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from hostprep.host.gpu import Gpu, Nvml
from hostprep.host.gpu_driver import read_driver
from hostprep.readiness.checks import loader_rate, probe_datasets
from hostprep.readiness.context import Context
from hostprep.readiness.measurements import measurements
from hostprep.readiness.model import Level, Status
from hostprep.readiness.registry import all_checks, find
from hostprep.readiness.runner import run_check, run_checks
from hostprep.spec.loading import parse_spec
from hostprep.spec.model import Spec
from tests.kit.stagecraft import make_source, snapshot

_UNTOLD = [field.name for field in dataclasses.fields(Gpu)][4:]


class Listener:
    def looking(self, title: str) -> None:
        pass


@pytest.fixture
def spec(safe_dir: Path) -> Spec:
    """A data set in its place, of which one sample a second is required."""
    source = make_source(safe_dir / "source", directories=4, files=60)
    target = safe_dir / "fast" / "data"
    target.parent.mkdir()
    os.rename(make_source(safe_dir / "made", directories=4, files=60), target)
    text = (
        f"datasets:\n  - {{name: data, source: {source}, to: {target.parent}}}\n"
        "requirements:\n  - {dataset: data, samples_per_second: 1}\n"
    )
    return parse_spec(text.encode(), shown_path="hostprep.yml", path=str(safe_dir / "hostprep.yml"))


def statuses(spec: Spec, *codes: str) -> tuple[Context, dict[str, set[Status]]]:
    context = Context(spec=spec, level=Level.FULL)
    checks = [find(all_checks(), code) for code in codes]
    found: dict[str, set[Status]] = {}
    for result in run_checks(checks, context, Listener()):
        found.setdefault(result.code, set()).add(result.status)
    return context, found


def test_both_ends_are_probed_and_the_requirement_is_judged_by_that(
    spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_datasets, "_MOST_SECONDS", 6.0)
    (dataset,) = spec.datasets
    ends = [Path(dataset.source), Path(dataset.target)]
    before = [snapshot(end) for end in ends]
    context, found = statuses(spec, "HP062", "HP063")
    assert [snapshot(end) for end in ends] == before
    probes = {probe["path"]: probe for probe in context.probes}
    assert set(probes) == {str(end) for end in ends}
    # A very busy machine measures nothing, or a rate that is enough though it was held back.
    valid = probes[dataset.target]["valid"]
    assert found["HP062"] == {Status.PASS} or (not valid and found["HP062"] == {Status.UNKNOWN})
    assert found["HP063"] <= {Status.PASS, Status.UNKNOWN}
    rows = measurements(context)["storage"]
    assert {row["path"] for row in rows} == set(probes)


def test_the_loader_is_timed_and_shm_is_judged_by_what_it_takes(
    spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    numpy = pytest.importorskip("numpy")
    monkeypatch.setattr(loader_rate, "_SECONDS", 8.0)
    for file in Path(spec.datasets[0].target).glob("*/images/*.bin"):
        numpy.save(file.with_suffix(".npy"), numpy.frombuffer(file.read_bytes()[:3072], "u1"))
        file.unlink()
    context, found = statuses(spec, "HP020", "HP064")
    assert found["HP064"] == {Status.PASS}
    kept: Any = context.last("recommend")
    assert kept["evidence"]["points"] and measurements(context)["loader"]
    (shm,) = run_check(find(all_checks(), "HP020"), context)
    assert "recommended loader" in shm.message


def test_of_files_that_can_only_be_read_no_rate_is_judged(
    spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(loader_rate, "_SECONDS", 8.0)
    context, found = statuses(spec, "HP064")
    assert found["HP064"] == {Status.UNKNOWN} and context.last("recommend") is None


@pytest.mark.skipif(
    read_driver().module_version is not None, reason="this machine has a driver: see tests/gpu"
)
def test_a_smoke_test_that_tested_nothing_is_no_pass(own_state: Path) -> None:
    """NVML is said to have a GPU; what is then run for real finds that CUDA cannot start."""
    gpu = Gpu(0, "Made GPU", None, "0000:01:00.0", **dict.fromkeys(_UNTOLD))
    pretended = Nvml(None, None, "560.35.03", "560.35.03", (12, 6), (gpu,))
    context = Context(level=Level.FULL, given={"nvml": pretended})
    findings = run_check(find(all_checks(), "HP065"), context)
    assert {finding.status for finding in findings} == {Status.SKIP}
    # Why it cannot is another sentence for each build of torch.
    assert [finding.subject for finding in findings] == ["driver cuda.start"]
    assert context.last("verify") is None
