"""What a smoke test measured on one device: plain numbers, no torch, from and to JSON.

The verdict is made of these alone (``judge``), so that a recorded run can be judged again.
"""

from __future__ import annotations

from hostprep.dataclass import dataclass

# How often a whole run does what is judged by more than one: measuring and judging go by these.
REPEATS = 7
EPOCHS = 5


@dataclass(frozen=True, slots=True)
class DeviceTrace:
    """What the device is, before any load of ours; link and clocks under the load of copies.

    ``utilisation_percent`` and the number of ``others`` are from before the first stage, without
    this process. ``persistence`` and ``ecc_uncorrected`` are None where NVML does not say.
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
    """Seconds of copy alone, compute alone and both, a repeat each, interleaved.

    ``kind``: ``spin`` or ``matmul`` on two streams; ``same_stream`` and ``pageable`` are the
    negative controls; ``prefetcher`` is a loop over batches. ``call_seconds`` is what the host
    spent in the calls that copy, in the repeats of both.
    """

    kind: str
    copy_seconds: tuple[float, ...]
    compute_seconds: tuple[float, ...]
    both_seconds: tuple[float, ...]
    call_seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class DeliveryTrace:
    """Batches that were checked value for value on the device, in one arrangement.

    ``mismatches`` counts values that differ; None where the arrangement failed with ``problem``.
    """

    case: str
    batches: int
    expected_batches: int
    values: int
    mismatches: int | None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ControlTrace:
    """A prefetcher that is broken on purpose, provoked: how many values came out wrong."""

    mutant: str
    mismatches: int


@dataclass(frozen=True, slots=True)
class EpochTrace:
    """What is held after one epoch."""

    reserved_bytes: int
    threads: int
    descriptors: int


@dataclass(frozen=True, slots=True)
class TrainingTrace:
    """An end-to-end pass, and its parts alone, in samples a second; medians of ``rounds`` passes.

    ``first_batch_seconds``, of ``seconds``, the device waited for the first batch, and for the next
    ones until the prefetcher was ahead by its depth. ``gaps_seconds`` is how long the device had
    nothing to do between the steps after that; ``resident_gaps_seconds`` of ``resident_seconds``
    the same with one batch that stays on the device: launching, not data. ``storage`` says where
    the files were, and, beside RAM, whether they came from there or from the page cache.
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

    What was not reached is None or empty; ``missing`` says why, stage by stage, where it was left
    out, and ``failed`` where it broke off. ``sweep_ended`` says why the largest ``copies`` were
    left out, None where they were not. ``newcomers`` are the processes of others that are on the
    device at the end and were not before, None where NVML does not say. ``took`` has each stage's
    name and seconds.
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
        """Return whether it is said why there is not all of a stage."""
        return stage in dict(self.missing) or stage in dict(self.failed)
