"""The smoke test's process, all stages of it run in virtual time: what it tells, whatever breaks.

Every figure here is made. What a real GPU does is for ``make test-gpu``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hostprep.cuda import child, controls, delivery, others, telling, training
from hostprep.cuda.bench import Bench
from hostprep.cuda.judge import judge
from hostprep.cuda.results import Status, verdict
from hostprep.cuda.traces import Trace
from hostprep.errors import Inconclusive
from hostprep.host.gpu import Nvml
from hostprep.system.typed_json import from_json
from tests.unit.cuda import virtual_cuda
from tests.unit.cuda.virtual_cuda import (
    GPU,
    ILLEGAL_ACCESS,
    OUT_OF_MEMORY,
    AcceleratorError,
    VirtualCuda,
    raising,
)

NVML = Nvml(None, None, "made", "made", (12, 6), (GPU,))
# What torch says of a machine without an accelerator is no news here.
pytestmark = pytest.mark.filterwarnings("ignore:.pin_memory. argument is set")


class Stages:
    """Runs all stages of the smoke test on the virtual device, in this process."""

    def __init__(self, cuda: VirtualCuda, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        self.cuda, self.folder = cuda, folder
        self._capsys = capsys

    def run(self, seconds: float = 100) -> tuple[list[dict[str, Any]], Trace]:
        """Return what it told, and the last trace; ``seconds`` are what it may take."""
        child._Run(0, NVML, True, str(self.folder), time.monotonic() + seconds).all()
        lines = [
            json.loads(line.removeprefix(telling.MARK))
            for line in self._capsys.readouterr().out.splitlines()
            if line
        ]
        last = [line for line in lines if line["what"] == "trace"][-1]
        return lines, from_json(Trace, last["trace"])


@pytest.fixture
def stages(
    cuda: VirtualCuda,
    small: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Stages:
    for module in (child, others):
        monkeypatch.setattr(module, "watch_gpu", lambda index, times: (GPU,) * times)
    return Stages(cuda, capsys, tmp_path)


def test_all_stages_and_what_they_say(stages: Stages) -> None:
    lines, trace = stages.run()
    said = [line["what"] for line in lines]
    assert [each for each in said if each != "trace"] == [
        *["stage", "done"] * 5,
        *["stage", "folder", "done"],
    ]
    # Whatever a stage finds is told before it does anything else, and at its end what it took.
    finds = 5 + len(trace.overlaps) + len(trace.deliveries) + len(controls.MUTANTS)
    assert said.count("trace") == finds + len(trace.took)
    names = ["copies", "device", "overlap", "delivery", "flatness", "training"]
    assert [name for name, _ in trace.took] == names
    assert trace.missing == () and trace.newcomers == 0
    assert trace.origin.startswith("measured on Virtual GPU, driver made, torch ")
    assert trace.device is not None and trace.device.own_stream and trace.device.pinned
    assert trace.training is not None and trace.training.samples == 32
    assert trace.training.samples_per_s > 0 and trace.training.rounds == 3
    assert list(stages.folder.iterdir()) == []  # the sample files are gone
    found = {check.name: check.status for check in judge(trace)}
    assert found["copy.bandwidth"] is Status.PASS  # 1 GB/s over PCIe 1.0 x4
    assert found["delivery.tensors"] is found["epochs.flat"] is Status.PASS
    assert not any(name.startswith("stage.") for name in found)


def test_who_else_is_there_is_looked_at_when_a_later_device_has_its_turn(
    cuda: VirtualCuda, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = replace(GPU, utilisation_percent=80)
    monkeypatch.setattr(child, "watch_gpu", lambda index, times: (GPU,) * times)
    monkeypatch.setattr(others, "look_again", lambda surveyed: busy)
    monkeypatch.setattr(others, "newcomers", lambda before: 2 if before is busy else 0)
    for name in ("_overlap", "_delivery", "_flatness", "_training"):
        monkeypatch.setattr(child._Run, name, raising(Inconclusive("not here")))
    used = []
    for first in (True, False):
        run = child._Run(0, NVML, True, None, time.monotonic() + 100)
        run.all(first=first)
        assert run._trace.device is not None
        used.append((run._trace.device.utilisation_percent, run._trace.newcomers))
    assert used == [(0, 0), (80, 2)]


def test_the_link_is_the_one_under_load_however_slowly_nvml_answers(
    cuda: VirtualCuda, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tuple(replace(GPU, link_generation=number) for number in (1, 5, 5, 1, 1))
    monkeypatch.setattr(child, "watch_gpu", lambda index, times: seen)
    run = child._Run(0, NVML, True, None, time.monotonic() + 100)
    run._bench, run._bytes_per_s = Bench(0), 1e9
    (found,) = run._device()
    assert found["device"].link_generation == 5


def test_nvml_is_open_before_the_copies_that_it_is_asked_beside(
    cuda: VirtualCuda, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []

    @contextmanager
    def hold() -> Iterator[None]:
        held.append(cuda.copies)
        yield

    monkeypatch.setattr(child, "nvml_held", hold)
    monkeypatch.setattr(child, "watch_gpu", lambda index, times: held.append(cuda.copies) or ())
    run = child._Run(0, NVML, True, None, time.monotonic() + 100)
    run._bench, run._bytes_per_s = Bench(0), 1e9
    before = cuda.copies
    list(run._device())
    first, second = held
    assert first == before < second


_ADDRESS = {"pci_domain_id": 1, "pci_bus_id": 0x3B, "pci_device_id": 0}


@pytest.mark.parametrize(
    ("properties", "gpus", "devices", "found"),
    [
        ({"uuid": "b", **_ADDRESS}, "abc", 3, "b"),
        # An instance of MIG: its own UUID, the address of its GPU, which torch tells by and by.
        ({"uuid": "an instance", **_ADDRESS}, "abc", 3, "a"),
        ({"uuid": "an instance"}, "abc", 3, None),
        ({"uuid": "an instance"}, "a", 1, "a"),
        ({}, "a", 1, "a"),
        ({}, "abc", 1, None),
        ({}, "a", 2, None),
        ({"uuid": "elsewhere", **_ADDRESS, "pci_domain_id": 2}, "abc", 1, None),
    ],
)
def test_a_device_is_found_again_among_those_of_nvml(
    cuda: VirtualCuda,
    monkeypatch: pytest.MonkeyPatch,
    properties: dict[str, Any],
    gpus: str,
    devices: int,
    found: str | None,
) -> None:
    shown = tuple(
        replace(GPU, uuid=f"GPU-{name}", pci_bus_id=f"00000001:{0x3B + number:02x}:00.0")
        for number, name in enumerate(gpus)
    )
    told = SimpleNamespace(**properties)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: told)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
    gpu = child._of(replace(NVML, gpus=shown), torch, 0)
    assert (gpu and gpu.uuid) == (found and f"GPU-{found}")


def test_what_fails_or_comes_too_late_is_missing_with_its_reason(
    stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, late = stages.run(-1)
    assert {why for _, why in late.missing} == {"there was no time left"}
    assert len(late.missing) == 6
    assert verdict(judge(late)) is Status.SKIP

    broken = raising(AcceleratorError(ILLEGAL_ACCESS))
    monkeypatch.setattr(delivery, "check", broken)
    _, trace = stages.run()
    assert trace.missing == () and dict(trace.failed).keys() == {"delivery"}
    found = {check.name: check for check in judge(trace)}
    assert found["stage.delivery"].status is Status.ERROR
    assert found["stage.delivery"].message.endswith("an illegal memory access was encountered")
    assert "stage.flatness" not in found

    monkeypatch.setattr(Bench, "sweep", broken)
    _, trace = stages.run()
    assert dict(trace.failed).keys() == {"copies"}
    # What builds on it is left out, and says so; it did not fail by itself.
    assert set(dict(trace.missing).values()) == {
        "the copies could not be timed, which this builds on"
    }
    assert len(trace.missing) == 5


@pytest.mark.parametrize(
    "error",
    [
        torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
        # Of page-locked memory, and of what the libraries take by themselves.
        AcceleratorError("CUDA error: out of memory\nCompile with TORCH_USE_CUDA_DSA"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_device_without_memory_is_no_failure(
    error: Exception,
    stages: Stages,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    full = raising(error)
    words = str(error).partition("\n")[0]
    monkeypatch.setattr(delivery, "epochs", full)
    _, trace = stages.run()
    assert trace.failed == () and words in dict(trace.missing)["flatness"]
    # Nor is it a delivery of wrong bytes.
    monkeypatch.setattr(delivery, "_scribble", full)
    _, trace = stages.run()
    assert trace.failed == () and words in dict(trace.missing)["delivery"]


@pytest.mark.parametrize("error", [OUT_OF_MEMORY, AcceleratorError(ILLEGAL_ACCESS), TypeError("x")])
@pytest.mark.parametrize("place", ["check_failing_loader", "provoke"])
def test_wrong_bytes_are_wrong_whatever_comes_after_them(
    error: Exception,
    place: str,
    stages: Stages,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check = delivery.check

    def spoiling(bench: Bench, case: delivery.Case, *kind: Any) -> Any:
        if case.name == "tuples":
            stages.cuda.spoil = stages.cuda.copies + 20
        return check(bench, case, *kind)

    monkeypatch.setattr(delivery, "check", spoiling)
    monkeypatch.setattr(delivery, place, raising(error))
    _, trace = stages.run()
    assert dict(trace.missing + trace.failed).keys() == {"delivery"}
    assert {each.case: each.mismatches for each in trace.deliveries}["tuples"] == 1
    assert verdict(judge(trace)) is Status.FAIL


@pytest.mark.parametrize(
    ("error", "said", "cure"),
    [
        (
            RuntimeError(
                "Caught RuntimeError in DataLoader worker process 0.\n"
                "Original Traceback (most recent call last):\n"
                '  File "/x/torch/utils/data/_utils/worker.py", line 349, in _worker_loop\n'
                "    data = fetcher.fetch(index)\n"
                "RuntimeError: unable to write to file </torch_71_2946_0>: No space left on device"
                " (28)\n"
            ),
            "RuntimeError: unable to write to file </torch_71_2946_0>: No space left on device",
            "--shm-size",
        ),
        (
            RuntimeError(
                "DataLoader worker (pid 77) is killed by signal: Bus error. It is possible that"
                " dataloader's workers are out of shared memory. Please try to raise your shared"
                " memory limit."
            ),
            "killed by signal: Bus error",
            "remount",
        ),
        (
            RuntimeError(
                "unable to open shared memory object </torch_71_1_0> in read-write mode:"
                " Too many open files (24)"
            ),
            "Too many open files",
            "ulimit -S -n",
        ),
    ],
)
def test_a_host_without_room_for_batches_is_no_broken_instrument(
    error: Exception,
    said: str,
    cure: str,
    stages: Stages,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(training, "train", raising(error))
    _, trace = stages.run()
    assert trace.failed == () and said in dict(trace.missing)["training"]
    (check,) = (check for check in judge(trace) if check.name == "stage.training")
    assert check.status is Status.SKIP and said in check.message
    assert cure in (check.remedy or "")


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(
            "Caught RuntimeError in pin memory thread for device 0.\n"
            "Original Traceback (most recent call last):\n"
            '  File "/x/torch/utils/data/_utils/pin_memory.py", line 41, in do_one_step\n'
            "    data = pin_memory(data, device)\n"
            "           ^^^^^^^^^^^^^^^^^^^^^^^^\n"
            f"torch.AcceleratorError: {ILLEGAL_ACCESS}"
        ),
        RuntimeError(ILLEGAL_ACCESS),
    ],
)
def test_what_breaks_in_a_worker_is_said_and_stays_an_error(
    error: Exception,
    stages: Stages,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(training, "train", raising(error))
    _, trace = stages.run()
    why = dict(trace.failed)["training"]
    assert why.endswith("CUDA error: an illegal memory access was encountered")


@pytest.mark.parametrize("stage", ["overlap", "delivery"])
def test_an_error_after_which_cuda_answers_nothing_is_told_once(
    stage: str, stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = raising(AcceleratorError(ILLEGAL_ACCESS))

    def break_all(*_: Any) -> Any:
        monkeypatch.setattr(torch.cuda, "synchronize", broken)
        return broken()

    place = {"overlap": (Bench, "overlaps"), "delivery": (delivery, "_scribble")}[stage]
    monkeypatch.setattr(*place, break_all)
    _, trace = stages.run()
    assert dict(trace.failed).keys() == {stage}
    assert dict(trace.missing).keys() == {"delivery", "flatness", "training"} - {stage}
    for why in dict(trace.missing).values():
        assert f"nothing more since the stage {stage}: CUDA error: an illegal memory" in why
    assert [each.case for each in trace.deliveries] == ["tensors"] * (stage == "delivery")


@pytest.mark.parametrize("milliseconds", [0.0, -1.0, float("nan"), float("inf")])
def test_times_that_cannot_be_are_an_error_of_the_instrument(
    milliseconds: float, stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(virtual_cuda._Event, "elapsed_time", lambda *_: milliseconds)
    _, trace = stages.run()
    assert dict(trace.failed).keys() == {"copies"} and trace.copies == ()
    assert f"took {milliseconds / 1e3} s, which cannot be" in dict(trace.failed)["copies"]


def test_what_a_library_prints_and_does_not_end_hides_no_line_of_ours(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print("a library that talks ...", end="")
    telling.tell("done")
    assert f'{telling.MARK}{{"what": "done"}}' in capsys.readouterr().out.splitlines()


def test_a_stage_that_breaks_in_any_way_leaves_the_others(
    stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = raising(TypeError("an argument of another torch"))
    monkeypatch.setattr(Bench, "overlaps", broken)
    _, trace = stages.run()
    assert dict(trace.failed) == {"overlap": "TypeError: an argument of another torch"}
    assert trace.deliveries and trace.training is not None
