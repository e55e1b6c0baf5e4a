"""Whether CUDA starts and, if not, why: from what the kernel, NVML and torch say. Pure."""

from __future__ import annotations

from dataclasses import replace

from hostprep.cuda.results import Check, Status, Threshold
from hostprep.dataclass import dataclass
from hostprep.host.gpu import (
    DRIVER_NOT_LOADED,
    GPU_IS_LOST,
    LIB_RM_VERSION_MISMATCH,
    LIBRARY_NOT_FOUND,
    NO_PERMISSION,
    TIMEOUT,
    Nvml,
)
from hostprep.host.gpu_driver import DriverFacts
from hostprep.system.python import pip_line
from hostprep.units import format_count

_NO_DRIVER = (None, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND)
_ISSUE = Threshold(
    "CUDA starts if there is a driver", "hostprep: SKIP means no device, or no CUDA in torch"
)
_NO_GPU = "there is no NVIDIA GPU, and no driver"
_WHERE_THE_GPU_IS = "run it on a machine with a GPU; a container must be started with --gpus all"
_ALL_SEEN = Threshold("every GPU that the driver counts", "NVML")
# What torch says if CUDA's list of devices is not the expected one.
_OTHER_DEVICES = ("No CUDA GPUs are available", "invalid device ordinal", "INTERNAL ASSERT")
_UNAVAILABLE = "busy or unavailable"  # cudaErrorDevicesUnavailable
# What torch or CUDA says, what it means, and what to do.
_FAULTS = (
    (
        ("no kernel image",),
        "torch {torch} has no code for a GPU of this generation",
        "install a build of torch that has: python -c 'import torch;"
        " print(torch.cuda.get_arch_list())' lists what one is built for; to leave out a card that"
        " only drives the screen, use --device or CUDA_VISIBLE_DEVICES",
    ),
    (
        ("uncorrectable ECC error",),  # cudaErrorECCUncorrectable
        "the GPU's memory has failed",
        "nvidia-smi -q -d ECC,ROW_REMAPPER; reset or replace the card",
    ),
    (
        (_UNAVAILABLE,),
        "the GPU is not given to CUDA",
        "nvidia-smi -q -d COMPUTE (a mode of Exclusive_Process lets one program in, Prohibited"
        " none); nvidia-smi -L (with MIG on it needs an instance)",
    ),
    (
        ("802", "not yet initialized"),
        "the system of GPUs is not ready",
        "systemctl status nvidia-fabricmanager; its version must be the driver's",
    ),
)
# For drivers that are not a module of this kernel.
_OTHER_DRIVERS = {
    "WSL": "upgrade NVIDIA's driver in Windows, then wsl --update and wsl --shutdown; in WSL itself"
    " none may be installed; a container there needs --gpus all",
    "Jetson": "add the user to the group video (ls -l /dev/nvmap), and take a torch that NVIDIA"
    " builds for this JetPack; in a container, --runtime nvidia",
}


@dataclass(frozen=True, slots=True)
class TorchFacts:
    """What torch says. ``version`` is None if it is not installed or cannot be imported.

    ``cuda_version`` is what it is built for, ``(12, 4)``; None for a build without CUDA.
    ``devices`` is how many it sees; ``problem`` is what it said if CUDA started on none of the
    devices wanted, and ``unusable`` what it said about each on which CUDA did not start.
    """

    version: str | None
    cuda_version: tuple[int, int] | None
    hip_version: str | None
    devices: int
    problem: str | None
    unusable: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Survey:
    """All that the question needs; ``visible_devices`` is the environment's, None if unset."""

    torch: TorchFacts
    nvml: Nvml
    driver: DriverFacts
    visible_devices: str | None


def judge_start(survey: Survey) -> Check:
    """Return the check ``cuda.start``: PASS, SKIP, or FAIL with the reason that was found.

    INCONCLUSIVE if other processes hold what CUDA would have started on.
    """
    torch = survey.torch
    started = torch.devices > 0 and torch.problem is None
    if torch.version is not None and torch.cuda_version is not None and started:
        version = ".".join(map(str, torch.cuda_version))
        return Check(
            "cuda.start",
            "driver",
            Status.PASS,
            f"torch {torch.version} starts CUDA {version} and sees"
            f" {format_count(torch.devices, 'device')}",
            measured=torch.devices,
            unit="devices",
            threshold=_ISSUE,
        )
    if torch.version is None and torch.problem is not None and _driver_or_device(survey):
        remedy = "reinstall it in a fresh environment; its message names the missing library"
        return Check(
            "cuda.start", "driver", Status.FAIL, torch.problem, threshold=_ISSUE, remedy=remedy
        )
    if torch.version is None:
        why = torch.problem or "torch is not installed in the Python that runs hostprep"
        cure = f"{pip_line('torch')}, or run hostprep in your training's environment"
        return _skip_without_torch(survey, why, cure)
    if torch.hip_version is not None:
        return _skip(
            f"torch {torch.version} is built for ROCm, which this test does not know",
            "run it on an NVIDIA GPU, with a build of torch with CUDA",
        )
    if torch.cuda_version is None:
        why = f"torch {torch.version} is built without CUDA"
        cure = "install a build of torch with CUDA: https://pytorch.org/get-started/locally"
        return _skip_without_torch(survey, why, cure)
    if not _driver_or_device(survey):
        return _skip(_NO_GPU, _WHERE_THE_GPU_IS)
    return _not_started("driver", survey, torch.cuda_version)


def judge_unusable(survey: Survey) -> list[Check]:
    """Return a check of each device on which CUDA does not start, besides the driver's check.

    If it starts on none, that check is about the first of them.
    """
    torch = survey.torch
    built_for = torch.cuda_version
    if built_for is None:
        return []
    return [
        _not_started(
            f"cuda:{index}", replace(survey, torch=replace(torch, problem=problem)), built_for
        )
        for index, problem in torch.unusable[0 if torch.problem is None else 1 :]
    ]


def judge_lost(survey: Survey, device: int | None) -> list[Check]:
    """Return a check if the driver does not open some GPU, which cannot be tested here.

    A WARN if it was not asked for, by ``device`` or by CUDA_VISIBLE_DEVICES.
    """
    nvml = survey.nvml
    if not nvml.lost:
        return []
    shown, asked_for_all = len(nvml.gpus), device is None and survey.visible_devices is None
    return [
        Check(
            "cuda.lost",
            "driver",
            Status.INCONCLUSIVE if asked_for_all else Status.WARN,
            f"the driver shows {shown} GPUs of {shown + nvml.lost}; the others do not answer it"
            f" ({nvml.problem})",
            measured=nvml.lost,
            unit="GPUs",
            threshold=_ALL_SEEN,
            remedy="dmesg | grep -iE 'nvrm|xid'; switch the machine off and on (a reboot may not"
            " be enough); then check power cables and slots",
        )
    ]


def _not_started(subject: str, survey: Survey, built_for: tuple[int, int]) -> Check:
    status = Status.FAIL
    if _taken(survey):
        status, message = Status.INCONCLUSIVE, f"others hold the GPU: {survey.torch.problem}"
        remedy = (
            "nvidia-smi shows them; run this again when they are gone, or name another GPU with"
            " --device"
        )
    else:
        message, remedy = _reason(survey, built_for)
    return Check("cuda.start", subject, status, message, threshold=_ISSUE, remedy=remedy)


def _taken(survey: Survey) -> bool:
    """Return whether CUDA would start if other processes left it memory, or an exclusive device.

    The first thing that CUDA is asked for takes some hundred megabytes at most.
    """
    problem = survey.torch.problem or ""
    if "out of memory" in problem:
        return True
    return _UNAVAILABLE in problem and any(gpu.processes for gpu in survey.nvml.gpus)


def _driver_or_device(survey: Survey) -> bool:
    if survey.driver.has_gpu or survey.nvml.gpus or survey.torch.devices:
        return True
    if survey.nvml.code is None and survey.nvml.driver_version is not None:
        return False  # a driver that answers, and says that there is no device
    driver = survey.driver.module_version or survey.driver.other
    return driver is not None or survey.nvml.code in (
        NO_PERMISSION,
        GPU_IS_LOST,
        LIB_RM_VERSION_MISMATCH,
    )


def driver_trouble(nvml: Nvml, driver: DriverFacts) -> tuple[str, str] | None:
    """Return what is wrong with the driver, and what to do, as far as is known without torch.

    None if nothing seems wrong.
    """
    module, library = driver.module_version, nvml.library_version
    if nvml.code == LIB_RM_VERSION_MISMATCH or (module and library and not _same(module, library)):
        return (
            f"the kernel runs the driver's module {module or 'of another version'}, the libraries"
            f" are {library or 'another version'}: it was upgraded and the old module is loaded",
            "reboot, or unload and load the module: rmmod nvidia_uvm nvidia_drm nvidia_modeset"
            " nvidia && modprobe nvidia",
        )
    # The nodes of GPUs that are assigned to other jobs are rightly closed.
    if nvml.code == NO_PERMISSION or (driver.closed_nodes and not nvml.closed):
        nodes = ", ".join(driver.closed_nodes) or "the device nodes"
        return (
            f"this user may not open {nodes}",
            "add the user to the nodes' group (ls -l /dev/nvidia*), or set"
            " NVreg_DeviceFileMode=0666; in a container, allow the devices",
        )
    if nvml.code == GPU_IS_LOST:
        return (
            "a GPU has fallen off the bus (NVML: GPU is lost)",
            "dmesg | grep -i xid; switch the machine off and on; check cables and slot",
        )
    if nvml.code == TIMEOUT:
        return (
            nvml.problem or "NVML does not answer in time",
            "dmesg | grep -iE 'nvrm|xid' says what the driver saw; one that hangs needs a reboot",
        )
    elsewhere = driver.other is not None
    if module is None and nvml.code in _NO_DRIVER and not nvml.gpus and not elsewhere:
        return (
            f"there is a GPU at {', '.join(driver.pci_devices) or 'a device node'}, and the"
            " driver's kernel module is not loaded",
            "install the driver, or modprobe nvidia; dkms status and dmesg say why it does not load"
            " (a kernel upgrade, Secure Boot, nouveau)",
        )
    if module is not None and not driver.nodes:
        return (
            f"the kernel's module {module} is loaded, but there are no device nodes /dev/nvidia*",
            "in a container: start it with --gpus all; otherwise run nvidia-modprobe -c0 -u",
        )
    return None


def _reason(survey: Survey, built_for: tuple[int, int]) -> tuple[str, str]:
    """Return why CUDA does not start, and what to do; the surest sign first."""
    nvml, driver, problem = survey.nvml, survey.driver, survey.torch.problem or ""
    module = driver.module_version
    if trouble := driver_trouble(nvml, driver):
        return trouble
    if "803" in problem or "unsupported display driver / cuda driver" in problem:
        return (
            f"libcuda and the kernel's module {module or ''} do not belong together: {problem}",
            "reboot after a driver upgrade; in a container, remove its own libcuda (and the"
            " forward-compatibility package) so that the host's is used",
        )
    visible = survey.visible_devices
    if visible is not None and _hides_all(visible, nvml):
        return (
            f"CUDA_VISIBLE_DEVICES={visible!r} hides every device; NVML sees {len(nvml.gpus)}",
            "unset CUDA_VISIBLE_DEVICES, or name devices that exist (nvidia-smi -L)",
        )
    known = nvml.cuda_version
    # If torch counts devices, CUDA has started: an old driver with a forward-compatible library.
    older = known is not None and known[0] < built_for[0] and not survey.torch.devices
    if "too old" in problem or older:
        knows = "an older CUDA" if known is None else f"CUDA {known[0]}.{known[1]}"
        return (
            f"the driver {nvml.driver_version or module or ''} knows {knows}, torch"
            f" {survey.torch.version} is built for CUDA {built_for[0]}.{built_for[1]}",
            "upgrade the driver, or install a torch that is built for the driver's CUDA",
        )
    if driver.nodes and "/dev/nvidia-uvm" not in driver.nodes:
        return (
            f"/dev/nvidia-uvm is missing, which CUDA needs: {problem}",
            "modprobe nvidia_uvm, or nvidia-modprobe -u",
        )
    for signs, fault, cure in _FAULTS:
        if any(sign in problem for sign in signs):
            return f"{fault.format(torch=survey.torch.version)}: {problem}", cure
    listed = bool(nvml.gpus) or visible is not None
    if listed and any(words in problem for words in _OTHER_DEVICES):
        named = "" if visible is None else f" with CUDA_VISIBLE_DEVICES={visible!r}"
        fault = "" if visible is None else "unset CUDA_VISIBLE_DEVICES, or name each device once; "
        return (
            f"CUDA does not start{named}: {problem}",
            f"{fault}nvidia-smi -L lists devices and instances; with MIG on, CUDA sees only"
            " instances (nvidia-smi mig -lgi)",
        )
    return (
        f"CUDA does not start: {problem or nvml.problem or 'torch sees no device'}",
        _OTHER_DRIVERS.get(
            driver.other or "", "nvidia-smi; dmesg | grep -iE 'nvrm|xid'; then reinstall the driver"
        ),
    )


def _hides_all(visible: str, nvml: Nvml) -> bool:
    """Return whether the first name in the list names no GPU: CUDA stops reading there."""
    first = visible.split(",")[0].strip()
    if first.isascii() and first.isdigit():
        return bool(nvml.gpus) and int(first) >= len(nvml.gpus)
    if first.startswith(("GPU-", "MIG-")):
        known = [gpu.uuid for gpu in nvml.gpus if gpu.uuid]
        return bool(known) and not any(
            first.startswith("MIG-") or uuid.startswith(first) for uuid in known
        )
    return True


def _same(module: str, library: str) -> bool:
    """Return whether two versions agree as far as both go: 550.54 and 550.54.15 do."""
    one, other = module.split("."), library.split(".")
    parts = min(len(one), len(other))
    return one[:parts] == other[:parts]


def _skip_without_torch(survey: Survey, why: str, cure: str) -> Check:
    """Return the check for an unsuitable torch; without a GPU, another torch is no remedy."""
    if _driver_or_device(survey):
        return _skip(why, cure)
    return _skip(f"{_NO_GPU}; and {why}", f"{_WHERE_THE_GPU_IS}; also {cure}")


def _skip(message: str, remedy: str) -> Check:
    return Check("cuda.start", "driver", Status.SKIP, message, threshold=_ISSUE, remedy=remedy)
