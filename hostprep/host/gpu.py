"""The NVIDIA GPUs of this host, by NVML; the only module that imports ``pynvml``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from hostprep.dataclass import dataclass

# Those of NVML's return codes (nvml.h, nvmlReturn_t) that make a difference.
NO_PERMISSION = 4
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
TIMEOUT = 10
GPU_IS_LOST = 15
LIB_RM_VERSION_MISMATCH = 18
UNKNOWN = 999

# A GPU that is busier than this is working for somebody.
BUSY_PERCENT = 10
_PAUSE_SECONDS = 0.08
# How often to look at a GPU whose hardware throttles.
_LOOKS = 5

# nvml.h, nvmlClocksEventReasons: why the clocks are below what they could be.
_CLOCK_REASONS = (
    (0x1, "idle"),
    (0x2, "clocks set by the user"),
    (0x4, "power cap"),
    (0x8, "hardware slowdown"),
    (0x10, "sync boost"),
    (0x20, "software thermal slowdown"),
    (0x40, "hardware thermal slowdown"),
    (0x80, "power brake"),
    (0x100, "display clocks"),
)
# Those of them that the hardware itself causes.
HARD_REASONS = ("hardware slowdown", "hardware thermal slowdown", "power brake")


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that computes on a GPU, and its memory there if NVML may tell."""

    pid: int
    used_bytes: int | None


@dataclass(frozen=True, slots=True)
class Gpu:
    """What NVML says about one GPU; None if it does not say.

    The link is as at the moment: an idle one slows down. ``ecc`` is None if there is no ECC;
    ``ecc_uncorrected`` counts since the driver was loaded. ``utilisation_percent`` is the share of
    the last moments in which any kernel ran.
    """

    index: int
    name: str
    uuid: str | None
    pci_bus_id: str | None
    total_bytes: int | None
    used_bytes: int | None
    utilisation_percent: int | None
    link_generation: int | None
    link_width: int | None
    max_link_generation: int | None
    max_link_width: int | None
    clock_reasons: tuple[str, ...] | None
    persistence: bool | None
    ecc: bool | None
    ecc_uncorrected: int | None
    processes: tuple[GpuProcess, ...] | None


@dataclass(frozen=True, slots=True)
class Nvml:
    """What NVML says about the host. ``code`` and ``problem`` say why it does not start or answer.

    ``library_version`` is the version of the driver that the library belongs to; ``cuda_version``
    is the newest CUDA that the driver supports, as ``(12, 4)``. ``closed`` counts the GPUs that
    this process may not open, because a batch system assigns them to other jobs, and ``lost`` those
    that do not open for another reason; ``gpus`` contains neither.
    """

    code: int | None
    problem: str | None
    driver_version: str | None
    library_version: str | None
    cuda_version: tuple[int, int] | None
    gpus: tuple[Gpu, ...]
    closed: int = 0
    lost: int = 0


def read_nvml(*, settle_seconds: float = 0.0) -> Nvml:
    """Ask NVML for everything; what it does not say never raises an error.

    A driver that hangs never answers: ``gpu_bounded`` asks it in a process that can be abandoned. A
    GPU that seems busy although no process is seen on it is looked at again, for at most
    ``settle_seconds``: a driver that starts for us also keeps it busy for a moment, with ECC
    (NVML's manual, nvmlDeviceGetUtilizationRates), and what has just ended still counts. With
    ``settle_seconds`` one whose hardware throttles is looked at again, too, for some 0.4 s.
    """
    try:
        import pynvml
    except ImportError:
        return Nvml(None, "nvidia-ml-py is not installed", None, None, None, ())
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        problem = f"NVML does not start: {error}"
        # It reports the library's version even if that does not match the kernel's module.
        return Nvml(int(error.value), problem, None, _library_version(), None, ())
    try:
        driver = _ask(pynvml.nvmlSystemGetDriverVersion)
        cuda = _ask(pynvml.nvmlSystemGetCudaDriverVersion)
        until = time.monotonic() + settle_seconds
        opened = _open_devices()
        gpus = [_settled(_gpu(index, handle), handle, until) for index, handle in opened.handles]
        if settle_seconds:
            gpus = _braked_for_long(gpus, [handle for _, handle in opened.handles])
        return Nvml(
            code=opened.code,
            problem=opened.problem,
            driver_version=None if driver is None else _text(driver),
            library_version=_library_version(),
            cuda_version=None if not cuda else (cuda // 1000, cuda % 1000 // 10),
            gpus=tuple(gpus),
            closed=opened.closed,
            lost=opened.lost,
        )
    finally:
        pynvml.nvmlShutdown()


@contextmanager
def nvml_held() -> Iterator[None]:
    """Keep NVML open, and with it the devices that are queried meanwhile.

    Without persistence mode the driver shuts a device down when its last user leaves, and takes one
    to three seconds to start it for the next (NVIDIA, Driver Persistence). If there is no NVML,
    nothing is held.
    """
    try:
        import pynvml
    except ImportError:
        yield
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield
        return
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


def watch_gpu(index: int, times: int) -> tuple[Gpu, ...]:
    """Return what NVML says of one GPU, ``times`` times, some 0.1 s apart; () if it says nothing.

    ``index`` is NVML's own.
    """
    import pynvml

    found = []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        for _ in range(times):
            found.append(_gpu(index, handle))
            time.sleep(_PAUSE_SECONDS)
    except pynvml.NVMLError:
        pass
    finally:
        pynvml.nvmlShutdown()
    return tuple(found)


def lasting_reasons(seen: Sequence[Gpu]) -> tuple[str, ...] | None:
    """Return what held the clocks down most of the time; None if NVML never said.

    NVIDIA's hardware slowdown is also reported for a moment when the clocks change.
    """
    told = [gpu.clock_reasons for gpu in seen if gpu.clock_reasons is not None]
    if not told:
        return None
    return tuple(
        words for _, words in _CLOCK_REASONS if 2 * sum(words in each for each in told) > len(told)
    )


def _braked_for_long(gpus: Sequence[Gpu], handles: Sequence[Any]) -> list[Gpu]:
    """Return the GPUs; if the hardware seems to throttle, with only those reasons that last."""
    seen = {
        number: [gpu]
        for number, gpu in enumerate(gpus)
        if not set(HARD_REASONS).isdisjoint(gpu.clock_reasons or ())
    }
    for _ in range(_LOOKS - 1 if seen else 0):
        time.sleep(_PAUSE_SECONDS)
        for number, looks in seen.items():
            looks.append(replace(looks[0], clock_reasons=_clock_reasons(handles[number])))
    return [
        replace(gpu, clock_reasons=lasting_reasons(seen[number])) if number in seen else gpu
        for number, gpu in enumerate(gpus)
    ]


def _settled(gpu: Gpu, handle: Any, until: float) -> Gpu:
    """Return the GPU with the least utilisation seen until it is idle, if nobody uses it."""
    import pynvml

    used = gpu.utilisation_percent
    while used is not None and used >= BUSY_PERCENT and not gpu.processes:
        if time.monotonic() >= until:
            break
        time.sleep(_PAUSE_SECONDS)
        now = _ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
        used = used if now is None else min(used, int(now.gpu))
    return replace(gpu, utilisation_percent=used)


@dataclass(frozen=True, slots=True)
class _Opened:
    """The devices that NVML opens, each with its number; and what is wrong with the others."""

    handles: tuple[tuple[int, Any], ...]
    closed: int
    lost: int
    code: int | None
    problem: str | None


def _open_devices() -> _Opened:
    """Open each device by itself: one that is lost says nothing about those after it.

    NVML also counts devices that this process may not open (nvml.h, nvmlDeviceGetCount_v2), because
    a batch system assigns them to other jobs. That is a problem only if no other is left.
    """
    import pynvml

    handles: list[tuple[int, Any]] = []
    failed: list[tuple[int, Any]] = []
    try:
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                handles.append((index, pynvml.nvmlDeviceGetHandleByIndex(index)))
            except pynvml.NVMLError as error:
                failed.append((index, error))
    except pynvml.NVMLError as error:
        return _Opened((), 0, 0, int(error.value), f"NVML does not answer: {error}")
    lost = [(index, error) for index, error in failed if error.value != NO_PERMISSION]
    troubles = lost if lost or handles else failed
    return _Opened(
        handles=tuple(handles),
        closed=len(failed) - len(lost),
        lost=len(lost),
        code=int(troubles[0][1].value) if troubles else None,
        problem="; ".join(f"NVML does not open GPU {index}: {error}" for index, error in troubles)
        or None,
    )


def _gpu(index: int, handle: Any) -> Gpu:
    import pynvml as nvml

    memory = _ask(nvml.nvmlDeviceGetMemoryInfo, handle)
    name = _ask(nvml.nvmlDeviceGetName, handle)
    uuid = _ask(nvml.nvmlDeviceGetUUID, handle)
    pci = _ask(nvml.nvmlDeviceGetPciInfo, handle)
    utilisation = _ask(nvml.nvmlDeviceGetUtilizationRates, handle)
    persistence = _ask(nvml.nvmlDeviceGetPersistenceMode, handle)
    ecc = _ask(nvml.nvmlDeviceGetEccMode, handle)
    errors = None
    if ecc is not None and ecc[0]:
        errors = _ask(
            nvml.nvmlDeviceGetTotalEccErrors,
            handle,
            nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            nvml.NVML_VOLATILE_ECC,
        )
    processes = _ask(nvml.nvmlDeviceGetComputeRunningProcesses, handle)
    return Gpu(
        index=index,
        name="unknown GPU" if name is None else _text(name),
        uuid=None if uuid is None else _text(uuid),
        pci_bus_id=None if pci is None else _text(pci.busId).lower(),
        total_bytes=None if memory is None else int(memory.total),
        used_bytes=None if memory is None else int(memory.used),
        utilisation_percent=None if utilisation is None else int(utilisation.gpu),
        link_generation=_ask(nvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
        link_width=_ask(nvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        max_link_generation=_ask(nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        max_link_width=_ask(nvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
        clock_reasons=_clock_reasons(handle),
        persistence=None if persistence is None else bool(persistence),
        ecc=None if ecc is None else bool(ecc[0]),
        ecc_uncorrected=errors,
        processes=None
        if processes is None
        else tuple(GpuProcess(int(process.pid), process.usedGpuMemory) for process in processes),
    )


def _clock_reasons(handle: Any) -> tuple[str, ...] | None:
    import pynvml as nvml

    # Renamed in 2023; earlier drivers know only the old name, which is to be removed.
    reasons = _ask(nvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
    old_name = getattr(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None)
    if reasons is None and old_name is not None:
        reasons = _ask(old_name, handle)
    if reasons is None:
        return None
    return tuple(words for bit, words in _CLOCK_REASONS if reasons & bit)


def _library_version() -> str | None:
    import pynvml

    version = _ask(pynvml.nvmlSystemGetNVMLVersion)
    # "12.550.54": the interface's own version precedes the driver's.
    return None if version is None else _text(version).partition(".")[2]


def _ask(question: Callable[..., Any], *arguments: Any) -> Any:
    """Return NVML's answer, or None if this GPU, driver or user gets none."""
    import pynvml

    # No subclass of the first: raised for functions that an older driver's library lacks.
    missing = getattr(pynvml, "NVMLLibraryMismatchError", pynvml.NVMLError)
    try:
        return question(*arguments)
    except (pynvml.NVMLError, missing, UnicodeDecodeError):  # pynvml decodes names, of any bytes
        return None


def _text(answer: Any) -> str:
    return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else str(answer)
