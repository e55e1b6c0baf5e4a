"""What a smoke test measured on one device: plain numbers without torch, to and from JSON.

The verdict is made from these alone (``judge``), so that a recorded run can be judged again.
"""

from __future__ import annotations

from hostprep.dataclass import dataclass

# How often a full run repeats what is judged by several values, both in measuring and in judging.
REPEATS = 7
EPOCHS = 5


@dataclass(frozen=True, slots=True)
class DeviceTrace:
    """What the device is, before any load of ours; link and clocks under the load of copies.

    ``utilisation_percent`` and the number of ``others`` are from before the first stage, without
    this process. ``persistence`` and ``ecc_uncorrected`` are None if NVML does not say.
    """

    name: str
    capability: str
    total_bytes: int
    utilisation_percent: int | None
    others: int | None
    link_generation: int | None
    link_width: int | None
    max_link_generation: int | None
    max_link_width: int | None
    clock_reasons: tuple[str, ...] | None
    persistence: bool | None
    ecc_uncorrected: int | None
    pinned: bool
    contiguous: bool
    own_stream: bool


@dataclass(frozen=True, slots=True)
class CopyPoint:
    """Pinned copies of one size: the median time of one on the device, and of its call."""

    size_bytes: int
    seconds: float
    call_seconds: float


@dataclass(frozen=True, slots=True)
class OverlapTrace:
    """Seconds of copy alone, compute alone and both; one value a repeat, interleaved.

    ``kind``: ``spin`` or ``matmul`` on two streams; ``same_stream`` and ``pageable`` are the
    negative controls; ``prefetcher`` is a loop over batches. ``call_seconds`` is the host's time in
    the copying calls, in the repeats of both.
    """

    kind: str
    copy_seconds: tuple[float, ...]
    compute_seconds: tuple[float, ...]
    both_seconds: tuple[float, ...]
    call_seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class DeliveryTrace:
    """Batches that were checked value for value on the device, in one case.

    ``mismatches`` counts values that differ; None if the case failed with ``problem``.
    """

    case: str
    batches: int
    expected_batches: int
    values: int
    mismatches: int | None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ControlTrace:
    """A deliberately broken prefetcher, provoked: how many values came out wrong."""

    mutant: str
    mismatches: int


@dataclass(frozen=True, slots=True)
class EpochTrace:
    """The resources held after one epoch."""

    reserved_bytes: int
    threads: int
    descriptors: int


@dataclass(frozen=True, slots=True)
class TrainingTrace:
    """An end-to-end pass, and its parts alone, in samples a second; medians of ``rounds`` passes.

    For ``first_batch_seconds`` of ``seconds`` the device waited for the first batch, and for the
    next ones until the prefetcher was ahead by its depth. ``gaps_seconds`` is how long the device
    was idle between the steps after that; ``resident_gaps_seconds`` of ``resident_seconds`` are the
    same with one batch that stays on the device: the cost of launching, not of data. ``storage``
    says where the files were and, unless that is RAM, whether they came from there or from the page
    cache.
    """

    storage: str
    samples: int
    rounds: int
    seconds: float
    first_batch_seconds: float
    gaps_seconds: float
    resident_seconds: float
    resident_gaps_seconds: float
    samples_per_s: float
    loader_samples_per_s: float
    step_samples_per_s: float
    bus_samples_per_s: float


@dataclass(frozen=True, slots=True)
class Trace:
    """One device's run. ``origin`` says where it is from: ``measured on ...``, or ``made``.

    What was not reached is None or empty; by stage, ``missing`` says why it was left out, and
    ``failed`` why it broke off. ``sweep_ended`` says why the largest ``copies`` were left out, None
    if they were not. ``newcomers`` counts other processes on the device at the end that were not
    there before, None if NVML does not say. ``took`` has each stage's name and seconds.
    """

    subject: str
    origin: str
    quick: bool
    device: DeviceTrace | None = None
    copies: tuple[CopyPoint, ...] = ()
    overlaps: tuple[OverlapTrace, ...] = ()
    deliveries: tuple[DeliveryTrace, ...] = ()
    controls: tuple[ControlTrace, ...] = ()
    epochs: tuple[EpochTrace, ...] = ()
    training: TrainingTrace | None = None
    missing: tuple[tuple[str, str], ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    sweep_ended: str | None = None
    newcomers: int | None = None
    took: tuple[tuple[str, float], ...] = ()

    def is_incomplete(self, stage: str) -> bool:
        """Return whether the trace says why a stage is incomplete."""
        return stage in dict(self.missing) or stage in dict(self.failed)
