"""What to say about an iterable that is not a DataLoader: does it suffice, what would help?"""

from __future__ import annotations

from hostprep.loading.measuring.disturbance import OTHERS_SHARE
from hostprep.loading.model import Binding, Pipeline
from hostprep.loading.recommendation import Recommendation
from hostprep.loading.verdict.binding import BUSY_SHARE
from hostprep.units import format_number

_SETTINGS = {
    "tf.data": "its own settings: num_parallel_calls=tf.data.AUTOTUNE for map and interleave,"
    " prefetch(tf.data.AUTOTUNE) at its end; cache() for what fits into memory",
    "DALI": "its own settings: num_threads and prefetch_queue_depth of its Pipeline, py_num_workers"
    " where Python makes the samples",
}
_OTHERS_SETTINGS = "its own settings: threads, parallel reads, prefetching"
# Share of one processor: what always has work gets this much beside others that do.
_WORKS = 0.4
_LESS_TO_DO = (
    "do less for each sample: prepare once and store it, or move work to the GPU; no processor is"
    " left for more threads of its own"
)


def of_pipeline(found: Pipeline, gpu_rate: float | None, cpus: float) -> Recommendation:
    """Return what to say about it if ``cpus`` processors may be used; ``num_workers`` is None."""
    enough = gpu_rate is not None and found.samples_per_s >= gpu_rate
    # However busy others are: one that does not keep even one processor busy waits for something
    # else, and has no use for theirs.
    works = found.own_cpus >= min(_WORKS, BUSY_SHARE * cpus)
    busy = works and found.own_cpus + found.others_cpus >= BUSY_SHARE * cpus
    if gpu_rate is None:
        words = "give --gpu-rate to learn whether that is enough"
    elif enough:
        words = f"enough for the GPU's {format_number(gpu_rate)}"
    else:
        words = f"the GPU takes {format_number(gpu_rate)}"
    binding, remedy = Binding.PIPELINE, _SETTINGS.get(found.maker or "", _OTHERS_SETTINGS)
    if busy:
        binding, remedy = Binding.CPU, _LESS_TO_DO
    return Recommendation(
        num_workers=None,
        prefetch_factor=None,
        pin_memory=False,
        persistent_workers=False,
        binding=Binding.GPU if enough else binding,
        remedy=None if enough else remedy,
        expected_samples_per_s=found.samples_per_s,
        relative_error=found.relative_error,
        confirmed=True,
        change_needed=False if enough else None,
        verdict=f"it gives {format_number(found.samples_per_s)} samples/s as it is; {words}",
        reasons=(
            f"{found.maker or 'it'} is not a DataLoader, so has no num_workers: timed as it is",
            f"an item counts {found.counted}",
            _processors(found, cpus),
            *_inside(found),
        ),
        code="",
    )


def _inside(found: Pipeline) -> list[str]:
    """Return a sentence on the DataLoader that it wraps, about which more can be said."""
    if found.goes_over is None:
        return []
    return [
        f"its .{found.goes_over} is a DataLoader, which has num_workers: to learn how many it"
        " needs, name a function of your own that returns that"
    ]


def _processors(found: Pipeline, cpus: float) -> str:
    words = f"it kept {found.own_cpus:.1f} of {cpus:.3g} processors busy"
    if found.others_cpus < OTHERS_SHARE * cpus:
        return words
    return f"{words}, and other programs {found.others_cpus:.1f}: alone it may give more"
