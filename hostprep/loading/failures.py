"""What went wrong in the measuring child, as errors with a sentence and a way out."""

from __future__ import annotations

import re
import sys
from typing import Any

from hostprep.errors import HostprepError, Inconclusive, UsageError
from hostprep.loading.hazards import CURE_DESCRIPTORS, CURE_PROCESSES, unpicklable_cure
from hostprep.loading.last_words import essence, is_workers, last_line, own_words, where
from hostprep.loading.model import Binding, Subject
from hostprep.loading.naming import OwnLoaderWanted, with_so_many
from hostprep.system.ending import how_it_ended
from hostprep.system.python import pip_line
from hostprep.units import format_count, format_number

_CUDA_ABSENT = re.compile(
    r"not compiled with CUDA|No NVIDIA driver|no NVIDIA driver|No CUDA GPUs|CUDA driver version|"
    r"torch\.cuda\.is_available\(\) is False|no CUDA-capable device|libcuda\.so|"
    # What a torch without CUDA says where it does not say so itself.
    r"has no attribute '_cuda_|requires CUDA support|without CUDA support|without ATen_cuda|"
    r"dummy base class|Cannot access accelerator device when none|"
    r"GPU DALI pipeline while CUDA is not available"
)
_CUDA_FORKED = re.compile(r"re-initialize CUDA in forked subprocess")
_DESCRIPTORS = re.compile(r"Too many open files|received 0 items of ancdata", re.I)
# Not every "No space left on device": the loader may write to a disk of its own.
_SHARED_MEMORY = re.compile(r"Bus error|shared memory|(?<![\w.-])/torch_\d+_\d+", re.I)
# However large it is and however few the workers are.
_CLOSED_SHARED_MEMORY = re.compile(
    r"shared memory object </torch_.*: (Operation not permitted|Permission denied|Read-only file)"
)
_OPEN_SHARED_MEMORY = (
    "workers hand batches over in files of /dev/shm: `ls -ld /dev/shm` shows whether this user may"
    " make any (drwxrwxrwt), `findmnt /dev/shm` whether it is read-only (ro); else a seccomp"
    " profile or an AppArmor rule is in the way"
)
_NO_ROOM = re.compile(r"\A(?!Caught).*No space left on device\Z")
# Not every "Resource temporarily unavailable": a socket of the loader's own says so, too.
_NO_PROCESS = re.compile(
    r"\A\[Errno 11\] Resource temporarily unavailable\Z|can't start new thread"
)
_NO_THREAD = "pthread_create failed"  # OpenBLAS, which interrupts the program then
_ENDED = "exited unexpectedly"
_CHILDREN = "daemonic processes are not allowed to have children"
_NO_CHILDREN = (
    "a DataLoader's workers may start no processes: num_workers=0 for the inner loader or pool, or"
    " for this one; --loader can name the inner one"
)
_WANTS_NONE = re.compile(r"number of workers .* should be 0")
_OWN_WORKERS = (
    "its data set starts workers of its own, and takes none beside them: num_workers=0 for this"
    " loader; how many those are to be, a DataLoader of what they read tells (of torchio's Queue:"
    " its subjects_dataset)"
)
_KILLED = re.compile(r"is killed by signal")
_LAST_WORDS = 16_000
_ARGUMENTS = re.compile(r"missing \d+ required (positional|keyword-only) argument")
_CALLED_PLAINLY = (
    "what is named is called without arguments: name a function of your own that gives them, or an"
    " object of the module"
)
_GROUP = re.compile(r"[Dd]efault process group has not been initialized")
_WITHOUT_GROUP = (
    "it is opened in one process, without a group: DistributedSampler(data, num_replicas=N, rank=0)"
    " needs none, and --ranks N says how many processes share this host"
)
_RELATIVE = re.compile(r"attempted relative import")
_IN_PACKAGE = (
    "the module is part of a package: run hostprep in the folder above that, and name it in whole:"
    " package.module:NAME"
)
_NOT_IN_THIS_PYTHON = (
    f"{sys.executable} runs hostprep and lacks it: run hostprep in your training's environment; a"
    " module of your own is found in the folder where hostprep is run, and in PYTHONPATH"
)
_NOT_SET_UP = (
    "what a LightningDataModule makes in setup() is not there before: name a function of your own"
    " that calls its setup('fit') and returns its train_dataloader()"
)
_COMMAND_LINE = re.compile(r"\bargument|\busage\b|\boptions?\b", re.I)
_WITHOUT_ARGUMENTS = (
    "it is opened without a command line: name a function that needs none, in a module that reads"
    " none when it is imported"
)
_DEFAULT_COLLATE = "/torch/utils/data/_utils/collate.py"
_COLLATED_PLAINLY = (
    "torch's default_collate cannot make a batch of such samples: name a DataLoader that has a"
    " collate_fn for them, or a data set whose transform makes tensors"
)
_TRAINS_AT_ONCE = (
    "what trains when it is imported, as an exported notebook does, goes below"
    " `if __name__ == '__main__':`; else --seconds gives it more time"
)
_STARTS_WORKERS = (
    "workers that do not start by fork import the module anew: what makes batches when it is"
    " imported goes below `if __name__ == '__main__':`"
)
_OF_NO_WORKER = re.compile(r"'NoneType' object has no attribute")
_DONE_WITHOUT_WORKERS = (
    "it was done without workers, where worker_init_fn is not called and get_worker_info() is None:"
    " a data set that needs either is measured once it does without, as by opening its files when"
    " __getitem__ is first called"
)
_MAGIC = re.compile(r"\bname 'get_ipython' is not defined")
_OUT_OF_A_NOTEBOOK = "Python has no magics: take get_ipython() out of the exported notebook"
_SEE_WHERE = "PYTHONFAULTHANDLER=1 before the same in a Python of your own prints where it was"
_MEMORY = re.compile(r"Cannot allocate memory|signal: Killed|MemoryError|can't allocate memory")
_PICKLE = re.compile(r"(?<!un)pickl|local object|__reduce__", re.I)

_CURES = {
    Binding.SHARED_MEMORY: "make /dev/shm larger: mount -o remount,size=8G /dev/shm, or"
    " docker run --shm-size=8g (or --ipc=host)",
    Binding.DESCRIPTORS: CURE_DESCRIPTORS,
    Binding.PROCESSES: CURE_PROCESSES,
    Binding.MEMORY: "fewer workers, or a data set that keeps its index in numpy arrays and not in"
    " Python lists, which each worker copies bit by bit",
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
    """The user's loader raised, hung, or took its process with it."""

    code = "loader_failed"

    def tell_without_workers(self, subject: Subject | None) -> None:
        """Have the hint say what a loader that is used with workers may have missed alone."""
        if subject is None or not subject.current_workers:
            return
        if any("worker_init_fn" in each for each in subject.kept) or _OF_NO_WORKER.search(
            self.message
        ):
            self.hint = "; ".join(filter(None, [_DONE_WITHOUT_WORKERS, self.hint]))

    def tell_rate_alone(self, samples_per_s: float) -> None:
        """Have the message say that without workers the loader gave so many samples a second."""
        rate = f"{format_number(samples_per_s)} samples/s"
        self.message = (
            f"{self.message.rstrip('.')}. Without workers (num_workers=0) it gave {rate}."
        )


class Hung(LoaderFailed):
    """It had to be killed: it hung, or was slower than there was time for.

    ``seen`` says what was seen, without a word on what it may come from.
    """

    def __init__(self, seen: str, *, first_batch_came: bool) -> None:
        super().__init__(
            f"{seen}: it hangs, or is slower than that; it was killed.",
            "try `python -c` with its import and next(iter(...)); --seconds gives it more time",
        )
        self.seen = seen
        self.first_batch_came = first_batch_came


class TooSlow(Inconclusive):
    """Batches came, too slowly for a rate; more than ``batches_per_s`` it cannot be."""

    def __init__(self, message: str, hint: str | None, batches_per_s: float) -> None:
        super().__init__(message, hint)
        self.batches_per_s = batches_per_s


class WorkersFailed(LoaderFailed):
    """The workers failed for want of something that the host limits; fewer might not."""

    code = "workers_failed"

    def __init__(self, message: str, binding: Binding) -> None:
        super().__init__(message, _CURES[binding])
        self.binding = binding


def refused(event: dict[str, Any]) -> HostprepError:
    """Return the error that the child raised by itself."""
    kinds = {kind.__name__: kind for kind in (UsageError, Inconclusive, OwnLoaderWanted)}
    if event["kind"] == "TorchMissing":
        return TorchMissing()
    if event["kind"] == "TooSlow":
        return TooSlow(event["message"], event["hint"], event["batches_per_s"])
    return kinds.get(event["kind"], HostprepError)(event["message"], event["hint"])


def raised(event: dict[str, Any], what: str, workers: int, stderr: str = "") -> HostprepError:
    """Return the error for an exception of the user's code, or of torch on its behalf.

    ``stderr`` is what the process and its workers said besides.
    """
    said = essence(event["type"], event["message"])
    if event["type"] in ("SystemExit", "KeyboardInterrupt") and (last := last_line(stderr)):
        # Whoever ends the program has said why, as argparse of arguments that are missing.
        said = f"{said}: {last}"
    # Of a worker that was killed torch says so only in the cause of the error that it raises.
    if _ENDED in said and (by := next(filter(_KILLED.search, event["causes"]), None)):
        said = essence(event["type"], by)
    # What a traceback quotes of anybody's code says nothing.
    text = "\n".join([said, *map(own_words, [event["message"], *event["causes"]])])
    if _CUDA_FORKED.search(text):
        return LoaderFailed(
            f"{what} uses CUDA in its workers, which are forked, and CUDA does not survive that.",
            "load on the CPU and move batches in the main process; or multiprocessing_context="
            "'spawn'",
        )
    if _CUDA_ABSENT.search(text):
        return Inconclusive(
            f"{what} needs a GPU, and there is none that torch can use here ({said}); it was not"
            " timed.",
            "run this where the GPU is, or let the loader return CPU tensors",
        )
    if event["where"] == "open":
        hints = [_opening_cure(what, event["type"], said), where(event["trace"])]
        return LoaderFailed(
            f"{what} could not be opened: {said}.", "; ".join(filter(None, hints)) or None
        )
    if workers and not is_workers(event["message"]) and _PICKLE.search(said):
        return _cannot_be_sent(what, said)
    if workers and _NO_ROOM.search(event["message"]):
        # A queue or a semaphore of torch's own; what a worker wrote to would be "Caught" there.
        text = f"{text}\nshared memory"
    # A worker that cannot start the thread that hands its batches over only prints why.
    printed = stderr[-_LAST_WORDS:] if _ENDED in event["message"] else ""
    if workers and (_NO_PROCESS.search(event["message"]) or _NO_PROCESS.search(printed)):
        words = f"{format_count(workers, 'worker')} of {what} failed, as no more processes or"
        return WorkersFailed(f"{words} threads may be started: {said}.", Binding.PROCESSES)
    if workers and _CLOSED_SHARED_MEMORY.search(text):
        words = f"{format_count(workers, 'worker')} of {what} failed, as no shared memory may be"
        return LoaderFailed(f"{words} made here: {said}.", _OPEN_SHARED_MEMORY)
    # Descriptors first: where they are used up, torch speaks of shared memory, too.
    for pattern, binding in (
        (_DESCRIPTORS, Binding.DESCRIPTORS),
        (_SHARED_MEMORY, Binding.SHARED_MEMORY),
        (_MEMORY, Binding.MEMORY),
    ):
        if workers and pattern.search(text):
            return WorkersFailed(
                f"{format_count(workers, 'worker')} of {what} failed: {said}.", binding
            )
    hint = _SEE_WHERE if _KILLED.search(said) else where(event["trace"])
    if workers and _CHILDREN in text:
        hint = f"{_NO_CHILDREN}; {hint}" if hint else _NO_CHILDREN
    if workers and _WANTS_NONE.search(text):
        hint = _OWN_WORKERS
    if hint is None and _DEFAULT_COLLATE in event["trace"] + event["message"]:
        hint = _COLLATED_PLAINLY
    if _NO_PROCESS.search(said) or _NO_THREAD in stderr:
        hint = CURE_PROCESSES
    beside = f" with {format_count(workers, 'worker')}" if workers else ""
    return LoaderFailed(f"{what} raised while it made a batch{beside}: {said}.", hint)


def unsendable(what: str, subject: Subject) -> LoaderFailed | None:
    """Return why no worker can be started with what was opened, None where nothing is known of it.

    That is for where there was no time to see a worker fail: it was only tried to pickle it.
    """
    if subject.start_method == "fork" or not subject.pickle_errors:
        return None
    part, said = next(iter(subject.pickle_errors.items()))
    return _cannot_be_sent(what, said, part)


def _cannot_be_sent(what: str, said: str, part: str = "dataset") -> LoaderFailed:
    return LoaderFailed(
        f"{what} cannot be sent to its workers, which start by spawn or forkserver: {said}.",
        unpicklable_cure(said, part),
    )


def step_failed(event: dict[str, Any]) -> Inconclusive:
    """Return the error for an exception of training steps, in which the user's code has no part."""
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
    """Return the error for a child that ended without a word.

    Where memory runs out for workers, the kernel kills whichever is largest: that may be the
    process that has started them, and fewer of them may be borne all the same.
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
        "see what the same loader does in a Python of your own",
    )


def lost(what: str) -> LoaderFailed:
    """Return the error for a child that runs on and can tell nothing any more."""
    return LoaderFailed(
        f"the process of {what} closed the files that it had open, hostprep's too; it was killed.",
        "let its module leave open files that are not its own: no os.closerange, no os.dup2",
    )


def _opening_cure(what: str, kind: str, said: str) -> str | None:
    """Return what helps where a loader works in a training and not by itself."""
    if kind == "SystemExit" and _COMMAND_LINE.search(said):
        return _WITHOUT_ARGUMENTS
    if kind == "AttributeError" and what.endswith("_dataloader"):
        return _NOT_SET_UP
    if _GROUP.search(said):
        return _WITHOUT_GROUP
    if _RELATIVE.search(said):
        return _IN_PACKAGE
    if kind == "ModuleNotFoundError":
        return _NOT_IN_THIS_PYTHON
    if _MAGIC.search(said):
        return _OUT_OF_A_NOTEBOOK
    if said.endswith(_ENDED):
        return _STARTS_WORKERS
    return _CALLED_PLAINLY if _ARGUMENTS.search(said) else None
