"""Why CUDA does not start: each reason by its signs, SKIP only where there is nothing to start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hostprep.cuda.results import Status
from hostprep.cuda.starting import Survey, TorchFacts, judge_lost, judge_start
from hostprep.host.gpu import Gpu, GpuProcess, Nvml
from hostprep.host.gpu_driver import DriverFacts

GPU = Gpu(
    0,
    "Made GPU",
    "GPU-1a2b3c",
    "0000:01:00.0",
    *(None,) * 7,
    (),
    None,
    None,
    None,
    (),  # type: ignore[arg-type]
)
GOOD = Survey(
    TorchFacts("2.13.0+cu126", (12, 6), None, 1, None),
    Nvml(None, None, "560.35.03", "560.35.03", (12, 6), (GPU,)),
    DriverFacts(
        "560.35.03",
        ("0000:01:00.0",),
        ("/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl"),
        (),
    ),
    None,
)
NO_LIBRARY = Nvml(12, "NVML does not start: NVML Shared Library Not Found", None, None, None, ())
NO_DRIVER = DriverFacts(None, (), (), ())


def broken(problem: str = "CUDA unknown error", **changes: object) -> Survey:
    """Return a host whose torch does not start CUDA, with some facts changed."""
    torch = replace(GOOD.torch, devices=0, problem=problem)
    return replace(GOOD, torch=torch, **changes)  # type: ignore[arg-type]


def test_a_torch_that_starts_cuda_passes() -> None:
    assert judge_start(GOOD).status is Status.PASS


@pytest.mark.parametrize(
    "survey",
    [
        broken("Found no NVIDIA driver", nvml=NO_LIBRARY, driver=NO_DRIVER),
        # A driver that answers and has no device, as on a machine whose card was taken out.
        broken(nvml=replace(GOOD.nvml, gpus=()), driver=DriverFacts("560.35.03", (), (), ())),
        broken(nvml=replace(GOOD.nvml, gpus=()), driver=replace(NO_DRIVER, other="WSL")),
        replace(GOOD, torch=TorchFacts("2.13.0+cpu", None, None, 0, "not compiled with CUDA")),
        replace(GOOD, torch=TorchFacts("2.13.0+rocm6", None, "6.1", 0, None)),
        replace(GOOD, torch=TorchFacts(None, None, None, 0, None)),
    ],
)
def test_nothing_to_start_is_a_skip(survey: Survey) -> None:
    check = judge_start(survey)
    assert check.status is Status.SKIP
    assert check.threshold is not None and check.remedy


@pytest.mark.parametrize(
    "torch",
    [
        TorchFacts("2.13.0+cpu", None, None, 0, "not compiled with CUDA"),
        TorchFacts(None, None, None, 0, None),
    ],
)
def test_where_there_is_no_gpu_another_torch_is_no_cure(torch: TorchFacts) -> None:
    with_gpu = judge_start(replace(GOOD, torch=torch))
    assert "no NVIDIA GPU" not in with_gpu.message
    alone = judge_start(replace(GOOD, torch=torch, nvml=NO_LIBRARY, driver=NO_DRIVER))
    assert alone.message.startswith("there is no NVIDIA GPU") and with_gpu.message in alone.message
    assert (alone.remedy or "").startswith("run it on a machine with a GPU")


def nvml(code: int, words: str = "NVML does not start") -> Nvml:
    return Nvml(code, words, None, "560.35.03", None, ())


REASONS = {
    "mismatch by NVML": (broken(nvml=nvml(18)), "upgraded and the old module is loaded", "reboot"),
    "mismatch by versions": (
        broken(driver=replace(GOOD.driver, module_version="550.54.14")),
        "module 550.54.14, the libraries are 560.35.03",
        "reboot",
    ),
    "another libcuda": (
        broken("Error 803: system has unsupported display driver / cuda driver combination"),
        "do not belong together",
        "forward-compatibility",
    ),
    "permission by NVML": (broken(nvml=nvml(4)), "may not open", "NVreg_DeviceFileMode"),
    "permission by the nodes": (
        broken(driver=replace(GOOD.driver, closed_nodes=("/dev/nvidia0",))),
        "may not open /dev/nvidia0",
        "group",
    ),
    "hidden, empty": (broken(visible_devices=""), "CUDA_VISIBLE_DEVICES='' hides", "unset"),
    "hidden, -1": (broken(visible_devices="-1"), "hides every device; NVML sees 1", "unset"),
    "hidden, too high": (broken(visible_devices="1,0"), "hides every device", "nvidia-smi -L"),
    "hidden, another's": (broken(visible_devices="GPU-ffff"), "hides every device", "unset"),
    "no module": (
        broken(nvml=nvml(9), driver=DriverFacts(None, ("0000:01:00.0",), (), ())),
        "GPU at 0000:01:00.0, and the driver's kernel module is not loaded",
        "Secure Boot",
    ),
    "no driver installed": (
        broken("Found no NVIDIA", nvml=NO_LIBRARY, driver=DriverFacts(None, ("0:1",), (), ())),
        "kernel module is not loaded",
        "install the driver",
    ),
    "a torch that cannot be imported": (
        replace(GOOD, torch=TorchFacts(None, None, None, 0, "torch cannot be imported: libcudart")),
        "cannot be imported: libcudart",
        "reinstall it",
    ),
    "too old, by torch": (
        broken("The NVIDIA driver on your system is too old (found version 11040)"),
        "torch 2.13.0+cu126 is built for CUDA 12.6",
        "upgrade the driver",
    ),
    "too old, by NVML": (
        broken(nvml=replace(GOOD.nvml, cuda_version=(11, 8))),
        "knows CUDA 11.8",
        "upgrade the driver",
    ),
    "no nodes": (
        broken(nvml=NO_LIBRARY, driver=DriverFacts("560.35.03", ("0000:01:00.0",), (), ())),
        "no device nodes",
        "--gpus all",
    ),
    "no uvm": (
        broken(driver=replace(GOOD.driver, nodes=("/dev/nvidia0", "/dev/nvidiactl"))),
        "/dev/nvidia-uvm is missing",
        "modprobe nvidia_uvm",
    ),
    "lost": (broken(nvml=nvml(15)), "fallen off the bus", "xid"),
    "lost, in a job that has a share": (
        broken(
            nvml=replace(GOOD.nvml, code=15, problem="GPU is lost", closed=1),
            driver=replace(GOOD.driver, closed_nodes=("/dev/nvidia1",)),
        ),
        "fallen off the bus",
        "xid",
    ),
    "fabric": (broken("Error 802: system not yet initialized"), "not ready", "fabricmanager"),
    # Torch counts devices, so what NVML knows is not what it lacks (a forward-compatible libcuda).
    "a memory that failed": (
        replace(
            GOOD,
            torch=replace(GOOD.torch, problem="cuda:0: CUDA error: uncorrectable ECC error"),
            nvml=replace(GOOD.nvml, cuda_version=(11, 4)),
        ),
        "the GPU's memory has failed: cuda:0",
        "reset or replace",
    ),
    "a GPU that is too old for torch": (
        broken("cuda:0: CUDA error: no kernel image is available for execution on the device"),
        "torch 2.13.0+cu126 has no code for a GPU of this generation: cuda:0",
        "get_arch_list",
    ),
    "a mode that lets nobody in": (
        broken("cuda:0: CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
        "not given to CUDA",
        "nvidia-smi -q -d COMPUTE",
    ),
    "a device named twice": (
        broken("device >= 0 && device < num_gpus INTERNAL ASSERT FAILED", visible_devices="0,0"),
        "does not start with CUDA_VISIBLE_DEVICES='0,0': device >= 0",
        "name each device once; nvidia-smi -L",
    ),
    "a device that is not there, without NVML": (
        broken("cuda:1: invalid device ordinal", visible_devices="0,0", nvml=NO_LIBRARY),
        "does not start with CUDA_VISIBLE_DEVICES='0,0': cuda:1: invalid",
        "unset CUDA_VISIBLE_DEVICES",
    ),
    "an instance that is gone": (
        broken("No CUDA GPUs are available", visible_devices="MIG-x"),
        "does not start with CUDA_VISIBLE_DEVICES='MIG-x'",
        "nvidia-smi -L",
    ),
    "MIG without an instance": (
        broken("No CUDA GPUs are available"),
        "does not start: No CUDA GPUs are available",
        "with MIG on, CUDA sees only instances",
    ),
    "WSL": (
        broken("Found no NVIDIA driver", nvml=NO_LIBRARY, driver=replace(NO_DRIVER, other="WSL")),
        "CUDA does not start: Found no NVIDIA driver",
        "wsl --update",
    ),
    "a Jetson, whose NVML does not answer": (
        broken(
            "Error 801: operation not supported",
            nvml=NO_LIBRARY,
            driver=replace(NO_DRIVER, other="Jetson"),
        ),
        "Error 801: operation not supported",
        "group video",
    ),
    "unknown": (broken("Error 999: unknown error"), "Error 999: unknown error", "dmesg"),
}


@pytest.mark.parametrize("name", REASONS)
def test_a_driver_that_is_there_while_cuda_does_not_start_fails_with_its_reason(name: str) -> None:
    survey, message, remedy = REASONS[name]
    check = judge_start(survey)
    assert check.status is Status.FAIL
    assert message in check.message
    assert remedy in (check.remedy or "")


def test_a_gpu_that_is_lost_beside_those_that_start_is_told() -> None:
    assert judge_lost(GOOD, None) == []
    problem = "NVML does not open GPU 1: GPU is lost"
    lost = replace(GOOD, nvml=replace(GOOD.nvml, code=15, problem=problem, lost=1))
    assert judge_start(lost).status is Status.PASS
    (check,) = judge_lost(lost, None)
    assert check.status is Status.INCONCLUSIVE
    assert "the driver shows 1 GPUs of 2; the others do not answer it" in check.message
    assert problem in check.message and "switch the machine off" in (check.remedy or "")
    # Who asks for the others has them tested.
    for asked in (judge_lost(lost, 0), judge_lost(replace(lost, visible_devices="0"), None)):
        assert [each.status for each in asked] == [Status.WARN]


def test_a_gpu_that_others_hold_is_no_fault_of_the_driver() -> None:
    full = judge_start(broken("cuda:0: CUDA error: out of memory"))
    used = replace(GPU, processes=(GpuProcess(4000, None),))
    exclusive = judge_start(
        broken(
            "cuda:0: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
            nvml=replace(GOOD.nvml, gpus=(used,)),
        )
    )
    for check in (full, exclusive):
        assert check.status is Status.INCONCLUSIVE
        assert "others hold the GPU: cuda:0: CUDA error" in check.message
        assert "nvidia-smi shows them" in (check.remedy or "")


@pytest.mark.parametrize("visible", ["0", "0,5", "GPU-1a2b", "MIG-x", None])
def test_devices_that_are_not_hidden_are_not_said_to_be(visible: str | None) -> None:
    assert "CUDA_VISIBLE_DEVICES" not in judge_start(broken(visible_devices=visible)).message


def test_a_newer_minor_version_of_cuda_is_not_too_old() -> None:
    survey = broken(nvml=replace(GOOD.nvml, cuda_version=(12, 2)))
    assert "knows" not in judge_start(survey).message
