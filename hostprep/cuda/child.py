"""The smoke test's own process: a GPU or driver that hangs or crashes ends only this.

It is given its settings as JSON, and reports on stdout: first the survey, then a device's trace
with each stage's additions as they come, so that what was found is kept, whatever happens next.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from types import FrameType
from typing import Any

from hostprep.cuda import others, surveying
from hostprep.cuda.telling import tell
from hostprep.cuda.torch_errors import cure_for_the_host, in_a_line
from hostprep.cuda.traces import ControlTrace, DeliveryTrace, DeviceTrace, OverlapTrace, Trace
from hostprep.errors import Inconclusive
from hostprep.host.gpu import Gpu, Nvml, lasting_reasons, nvml_held, watch_gpu
from hostprep.host.gpu_memory import lacks_memory
from hostprep.system.parent import die_with_parent

_LOOKS = 5
# What the shortest training takes: files, workers, a warm-up pass and a round. An estimate: the
# five longer rounds of a whole run on an H100 took 5.7 s, including everything before them.
_TRAINING_SECONDS = 4.0


def main(argument: str) -> None:
    """Survey, then run the stages on the requested device, or on each in turn."""
    settings = json.loads(argument)
    asked = settings["device"]
    # Not counted in the devices' time: reading torch from a cold disk takes minutes.
    torch, problem = surveying.import_torch()
    began = time.monotonic()
    survey = surveying.survey(torch, problem, asked)
    tell("survey", **asdict(survey))
    facts = survey.torch
    wanted = [index for index in range(facts.devices) if asked in (None, index)]
    usable = [index for index in wanted if index not in dict(facts.unusable)]
    each = seconds_each(settings["seconds"], time.monotonic() - began, len(usable))
    began = time.monotonic()
    for turn, index in enumerate(usable, start=1):
        until = began + each * turn
        run = _Run(index, survey.nvml, settings["quick"], settings["folder"], until)
        run.all(first=turn == 1)


def seconds_each(seconds: float, survey_seconds: float, devices: int) -> float:
    """Return how much of ``seconds`` each device gets if the survey of all took that long.

    The survey is shared equally, so that the first of many is not short of time; and a driver that
    starts slowly leaves at least half.
    """
    return max(seconds / 2, seconds - survey_seconds / max(1, devices))


class _Run:
    """The stages on one device, within its time."""

    def __init__(
        self, index: int, nvml: Nvml, quick: bool, folder: str | None, until: float
    ) -> None:
        import torch

        self._torch = torch
        self._index, self._quick, self._folder, self._until = index, quick, folder, until
        self._before = _of(nvml, torch, index)
        name = torch.cuda.get_device_name(index)
        driver = nvml.driver_version or "of unknown version"
        origin = f"measured on {name}, driver {driver}, torch {torch.__version__}"
        self._trace = Trace(f"cuda:{index}", origin, quick)
        self._bytes_per_s = 0.0
        self._bench: Any = None

    def all(self, *, first: bool = True) -> None:
        """Carry out the stages; one that fails, or has no time left, is recorded in the trace.

        For the ``first`` device the survey has just seen what else runs there.
        """
        if self._before is not None and not first:
            self._before = others.look_again(self._before)
        self._torch.cuda.set_device(self._index)
        for name, stage in (
            ("copies", self._copies),
            ("device", self._device),
            ("overlap", self._overlap),
            ("delivery", self._delivery),
            ("flatness", self._flatness),
            ("training", self._training),
        ):
            self._stage(name, stage)
        if self._before is not None:
            self._add(newcomers=others.newcomers(self._before))

    def _stage(self, name: str, stage: Callable[[], Iterator[dict[str, Any]]]) -> None:
        tell("stage", subject=self._trace.subject, stage=name)
        began = time.monotonic()
        missing, failed = self._trace.missing, self._trace.failed
        try:
            if failed:
                self._see_that_cuda_answers()
            if time.monotonic() > self._until:
                raise Inconclusive("there was no time left")
            for found in stage():
                self._add(**found)
            self._torch.cuda.empty_cache()
        except Inconclusive as error:
            self._add(missing=(*missing, (name, error.message)))
        except Exception as error:  # the other stages may still succeed
            kind = "" if isinstance(error, RuntimeError) else f"{type(error).__name__}: "
            said = in_a_line(error)
            lacking = lacks_memory(error) or cure_for_the_host(said) is not None
            if isinstance(error, OSError) or lacking:
                self._add(missing=(*missing, (name, kind + said)))
            else:
                self._add(failed=(*failed, (name, kind + said)))
        self._add(took=(*self._trace.took, (name, round(time.monotonic() - began, 3))))
        tell("done")

    def _add(self, **found: Any) -> None:
        self._trace = replace(self._trace, **found)
        tell("trace", trace=asdict(self._trace))

    def _copies(self) -> Iterator[dict[str, Any]]:
        from hostprep.cuda.bench import QUICK_SWEEP, SWEEP, Bench

        self._bench = Bench(self._index)
        sizes = QUICK_SWEEP if self._quick else SWEEP
        points, ended = self._bench.sweep(sizes, time.monotonic() + self._left() / 3)
        self._bytes_per_s = max(point.size_bytes / point.seconds for point in points)
        yield {"copies": points, "sweep_ended": ended}

    def _device(self) -> Iterator[dict[str, Any]]:
        bench, before = self._known(), self._before
        properties = self._torch.cuda.get_device_properties(self._index)
        with nvml_held():  # with many GPUs starting NVML takes longer than the copies
            seen = bench.under_load(
                self._bytes_per_s, lambda: () if before is None else watch_gpu(before.index, _LOOKS)
            )
        # The first look may find the link still asleep; the last ones may come after the copies, if
        # NVML answers slowly.
        loaded = max(seen, key=lambda gpu: gpu.link_generation or 0, default=None)
        source = bench.pinned(4096)
        trace = DeviceTrace(
            name=properties.name,
            capability=f"{properties.major}.{properties.minor}",
            total_bytes=properties.total_memory,
            utilisation_percent=None if before is None else before.utilisation_percent,
            others=None if before is None or before.processes is None else len(before.processes),
            link_generation=None if loaded is None else loaded.link_generation,
            link_width=None if loaded is None else loaded.link_width,
            max_link_generation=None if loaded is None else loaded.max_link_generation,
            max_link_width=None if loaded is None else loaded.max_link_width,
            clock_reasons=lasting_reasons(seen),
            persistence=None if loaded is None else loaded.persistence,
            ecc_uncorrected=None if loaded is None else loaded.ecc_uncorrected,
            pinned=source.is_pinned(),
            contiguous=source.is_contiguous(),
            own_stream=bench.side != self._torch.cuda.default_stream(self._index),
        )
        yield {"device": trace}

    def _overlap(self) -> Iterator[dict[str, Any]]:
        traces: list[OverlapTrace] = []
        for trace in self._known().overlaps(self._bytes_per_s):
            traces.append(trace)
            yield {"overlaps": tuple(traces)}

    def _delivery(self) -> Iterator[dict[str, Any]]:
        from hostprep.cuda import delivery

        bench = self._known()
        traces: list[DeliveryTrace] = []
        for case in delivery.CASES:
            traces.append(delivery.check(bench, case))
            yield {"deliveries": tuple(traces)}
            if traces[-1].problem is not None:
                self._torch.cuda.synchronize(self._index)  # or every later one would fail from it
        traces.append(delivery.check_failing_loader(bench))
        yield {"deliveries": tuple(traces)}
        controls: list[ControlTrace] = []
        for control in delivery.provoke(bench):
            controls.append(control)
            yield {"controls": tuple(controls)}

    def _flatness(self) -> Iterator[dict[str, Any]]:
        from hostprep.cuda import delivery

        yield {"epochs": delivery.epochs(self._known())}

    def _training(self) -> Iterator[dict[str, Any]]:
        from hostprep.cuda import training
        from hostprep.host.block import StorageClass, locate

        if self._left() < _TRAINING_SECONDS:
            raise Inconclusive("there was too little time left")
        folder = self._folder or _roomy(2 * training.needed_bytes(self._quick))
        kind = locate(folder).storage_class
        trace = training.train(
            self._known(),
            folder,
            f"{folder} ({kind.value})",
            self._bytes_per_s,
            self._quick,
            self._until,
            in_memory=kind is StorageClass.RAM,
        )
        yield {"training": trace}

    def _see_that_cuda_answers(self) -> None:
        """Raise ``Inconclusive`` if CUDA no longer answers, which no later stage would have caused.

        After some errors (an illegal access, a lost device) every call of the process fails.
        """
        try:
            self._torch.cuda.synchronize(self._index)
        except RuntimeError as error:
            stage, _ = self._trace.failed[0]
            raise Inconclusive(
                f"CUDA answers nothing more since the stage {stage}: {in_a_line(error)}"
            ) from None

    def _left(self) -> float:
        return max(0.0, self._until - time.monotonic())

    def _known(self) -> Any:
        if self._bench is None or not self._bytes_per_s:
            raise Inconclusive("the copies could not be timed, which this builds on")
        return self._bench


def _of(nvml: Nvml, torch: Any, index: int) -> Gpu | None:
    """Return NVML's view of torch's device ``index``: their numbers differ, the UUID does not.

    A MIG instance has a UUID of its own, and the address of the GPU that it is a part of: the GPU's
    link, and whether it is throttled, apply to the instance.
    """
    properties = torch.cuda.get_device_properties(index)
    uuid, address = getattr(properties, "uuid", None), _pci_address(properties)
    for gpu in nvml.gpus:
        if uuid is not None and gpu.uuid is not None and gpu.uuid.endswith(str(uuid)):
            return gpu
    for gpu in nvml.gpus:
        if address is not None and gpu.pci_bus_id == address:
            return gpu
    # Older versions of torch lack the one, or both.
    return nvml.gpus[0] if len(nvml.gpus) == 1 == torch.cuda.device_count() else None


def _pci_address(properties: Any) -> str | None:
    """Return a device's bus address as NVML writes it; None if torch does not say."""
    names = ("pci_domain_id", "pci_bus_id", "pci_device_id")
    parts: list[Any] = [getattr(properties, name, None) for name in names]
    return None if None in parts else "{:08x}:{:02x}:{:02x}.0".format(*parts)


def _roomy(size_bytes: int) -> str:
    """Return a folder for sample files: in RAM if there is room, else for temporary files.

    Shared memory also carries the batches of the DataLoader's workers, so half of it stays free.
    """
    import tempfile

    try:
        if shutil.disk_usage("/dev/shm").free > 2 * size_bytes:
            return "/dev/shm"
    except OSError:
        pass
    return tempfile.gettempdir()


def _stop(number: int, frame: FrameType | None) -> None:
    """Unwind, so that the sample files are removed; our parent kills us a little later."""
    signal.signal(number, signal.SIG_IGN)
    # The DataLoader's workers are told to end with us. What torch then raises, at any point, would
    # cut the cleanup short.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    raise KeyboardInterrupt


if __name__ == "__main__":
    die_with_parent()
    signal.signal(signal.SIGTERM, _stop)
    main(sys.argv[1])
