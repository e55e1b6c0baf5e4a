"""What went wrong in the measuring child, as errors with a sentence and a hint."""

from __future__ import annotations

import re
from typing import Any

from hostprep.errors import HostprepError, Inconclusive, UsageError
from hostprep.loading.hazards import (
    CURE_DESCRIPTORS,
    CURE_PROCESSES,
    holds_a_pool,
    unpicklable_cure,
)
from hostprep.loading.last_words import essence, last_line
from hostprep.loading.model import Binding, Subject
from hostprep.loading.naming import OwnLoaderWanted, with_so_many
from hostprep.system.ending import how_it_ended
from hostprep.system.python import pip_line
from hostprep.units import format_count, format_number

# Marks exceptions that came out of importing the user's module, in the measuring child's notes.
IMPORTING = "hostprep: while the module was imported"
_TRAINS_AT_ONCE = (
    "code that trains when it is imported, as in an exported notebook, belongs below"
    " `if __name__ == '__main__':`; otherwise give it more time with --seconds"
)
_OF_NO_WORKER = re.compile(r"'NoneType' object has no attribute")
_DONE_WITHOUT_WORKERS = (
    "this ran without workers, where worker_init_fn is not called and get_worker_info() is None; a"
    " data set can be measured only if it needs neither: let it open its files when __getitem__ is"
    " first called, for instance"
)

_CURES = {
    Binding.SHARED_MEMORY: "make /dev/shm larger than `df -h /dev/shm` shows it:"
    " mount -o remount,size=SIZE /dev/shm, or docker run --shm-size=SIZE (or --ipc=host)",
    Binding.DESCRIPTORS: CURE_DESCRIPTORS,
    Binding.PROCESSES: CURE_PROCESSES,
    Binding.MEMORY: "fewer workers, or a data set that keeps its index in numpy arrays and not in"
    " Python lists, which each worker copies little by little",
}


class TorchMissing(HostprepError):
    """The loader mode needs torch, which is an extra."""

    code = "torch_missing"

    def __init__(self) -> None:
        super().__init__(
            "torch is not installed in the Python that runs hostprep; DataLoaders cannot be timed.",
            f"{pip_line('torch')}, or run hostprep in your training's environment",
        )


class LoaderFailed(HostprepError):
    """The user's loader raised, hung, or took its process down."""

    code = "loader_failed"

    def tell_without_workers(self, subject: Subject | None) -> None:
        """Make the hint say what a loader made for use with workers may lack without them."""
        if subject is None or not subject.current_workers:
            return
        if any("worker_init_fn" in each for each in subject.kept) or _OF_NO_WORKER.search(
            self.message
        ):
            self.hint = "; ".join(filter(None, [_DONE_WITHOUT_WORKERS, self.hint]))

    def tell_rate_alone(self, samples_per_s: float) -> None:
        """Make the message say that without workers the loader gave that many samples a second."""
        rate = f"{format_number(samples_per_s)} samples/s"
        self.message = (
            f"{self.message.rstrip('.')}. Without workers (num_workers=0) it gave {rate}."
        )


class Hung(LoaderFailed):
    """It had to be killed: it hung, or was slower than the time allowed.

    ``seen`` says what was observed, without a guess at the cause.
    """

    def __init__(self, seen: str, *, first_batch_came: bool) -> None:
        super().__init__(
            f"{seen}: it hangs, or is slower than that; it was killed.",
            "try `python -c` with its import and next(iter(...)); --seconds gives it more time",
        )
        self.seen = seen
        self.first_batch_came = first_batch_came

    def tell_of_pools(self, subject: Subject | None) -> None:
        """Make the hint name a pool of threads for which forked workers would wait in vain."""
        if subject is None or subject.start_method != "fork":
            return
        pools = [each for each in subject.pickle_errors.items() if holds_a_pool(each[1])]
        if pools:
            part, said = pools[0]
            self.hint = f"{unpicklable_cure(said, part)}; {self.hint}"


class TooSlow(Inconclusive):
    """Batches came, but too slowly for a rate, which is at most ``batches_per_s``."""

    def __init__(self, message: str, hint: str | None, batches_per_s: float) -> None:
        super().__init__(message, hint)
        self.batches_per_s = batches_per_s


class WorkersFailed(LoaderFailed):
    """The workers failed for lack of something that the host limits; fewer workers might not."""

    code = "workers_failed"

    def __init__(self, message: str, binding: Binding) -> None:
        super().__init__(message, _CURES[binding])
        self.binding = binding


def refused(event: dict[str, Any]) -> HostprepError:
    """Return the error that the child itself raised."""
    kinds = {kind.__name__: kind for kind in (UsageError, Inconclusive, OwnLoaderWanted)}
    if event["kind"] == "TorchMissing":
        return TorchMissing()
    if event["kind"] == "TooSlow":
        return TooSlow(event["message"], event["hint"], event["batches_per_s"])
    return kinds.get(event["kind"], HostprepError)(event["message"], event["hint"])


def unsendable(what: str, subject: Subject) -> LoaderFailed | None:
    """Return why no worker can be started with what was opened, None if no reason is known.

    For when there was no time to see a worker fail, and only pickling was tried.
    """
    if subject.start_method == "fork" or not subject.pickle_errors:
        return None
    part, said = next(iter(subject.pickle_errors.items()))
    return cannot_be_sent(what, said, part)


def cannot_be_sent(what: str, said: str, part: str = "dataset") -> LoaderFailed:
    """Return the error for a ``part`` that cannot be sent to a worker; pickle ``said`` why."""
    return LoaderFailed(
        f"{what} cannot be sent to its workers, which start by spawn or forkserver: {said}.",
        unpicklable_cure(said, part),
    )


def step_failed(event: dict[str, Any]) -> Inconclusive:
    """Return the error for an exception in training steps, which run none of the user's code."""
    said = essence(event["type"], event["message"])
    return Inconclusive(f"a training step failed there: {said}.", "hostprep verify; nvidia-smi")


def hung(what: str, phase: str, workers: int, seconds: float) -> Hung:
    """Return the error for a child that had to be killed."""
    sentence = {
        "start": "the measuring process did not start",
        "opening": f"{what} was not opened",
        "opened": f"{what} gave no batch {with_so_many(workers)}",
        "first_batch": f"{what} stopped giving batches {with_so_many(workers)}",
    }[phase]
    seen = f"{sentence} within {seconds:.0f} s"
    found = Hung(seen, first_batch_came=phase == "first_batch")
    if phase == "opening":
        found.hint = _TRAINS_AT_ONCE
    return found


def died(what: str, phase: str, status: int, stderr: str, workers: int = 0) -> LoaderFailed:
    """Return the error for a child that ended without reporting anything.

    If memory runs out because of workers, the kernel kills the largest process: that may be the one
    that has started them, and fewer workers may still fit.
    """
    how = how_it_ended(status)
    if status == -9 and workers and phase in ("opened", "first_batch"):
        return WorkersFailed(
            f"{format_count(workers, 'worker')} of {what} failed: the process that started them"
            f" ended {how} (killed, as by the kernel when memory runs out).",
            Binding.MEMORY,
        )
    if status == -9:
        how += " (killed, as by the kernel when memory runs out)"
    doing = "it was opened" if phase in ("start", "opening") else "batches were made"
    last = last_line(stderr) or "it said nothing"
    return LoaderFailed(
        f"the process of {what} ended {how} while {doing}: {last}",
        "run the same loader in Python yourself, and see what it does",
    )


def lost(what: str) -> LoaderFailed:
    """Return the error for a child that still runs but can no longer report."""
    return LoaderFailed(
        f"the process of {what} closed the files that it had open, hostprep's among them; it was"
        " killed.",
        "its module must not close files that are not its own (os.closerange, os.dup2)",
    )
