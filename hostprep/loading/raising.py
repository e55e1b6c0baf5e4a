"""What the user's code raised in the measuring child, as an error with a sentence and a hint."""

from __future__ import annotations

import re
import shlex
import sys
from typing import Any

from hostprep.errors import HostprepError, Inconclusive
from hostprep.loading.failures import IMPORTING, LoaderFailed, WorkersFailed, cannot_be_sent
from hostprep.loading.hazards import CURE_PROCESSES
from hostprep.loading.last_words import essence, is_workers, last_line, own_words, where
from hostprep.loading.model import Binding
from hostprep.loading.naming import parts_of
from hostprep.units import format_count

_CUDA_ABSENT = re.compile(
    r"not compiled with CUDA|No NVIDIA driver|no NVIDIA driver|No CUDA GPUs|CUDA driver version|"
    r"torch\.cuda\.is_available\(\) is False|no CUDA-capable device|libcuda\.so|"
    # What a torch without CUDA says if it does not name the cause.
    r"has no attribute '_cuda_|requires CUDA support|without CUDA support|without ATen_cuda|"
    r"dummy base class|Cannot access accelerator device when none|"
    r"GPU DALI pipeline while CUDA is not available"
)
_CUDA_FORKED = re.compile(r"re-initialize CUDA in forked subprocess")
_DESCRIPTORS = re.compile(r"Too many open files|received 0 items of ancdata", re.I)
# Not every "No space left on device": the loader may write to another disk.
_SHARED_MEMORY = re.compile(r"Bus error|shared memory|(?<![\w.-])/torch_\d+_\d+", re.I)
# No matter how large it is, or how few workers there are.
_CLOSED_SHARED_MEMORY = re.compile(
    r"shared memory object </torch_.*: (Operation not permitted|Permission denied|Read-only file)"
)
_OPEN_SHARED_MEMORY = (
    "workers pass batches on in files in /dev/shm: `ls -ld /dev/shm` shows whether this user may"
    " create any (drwxrwxrwt), and `findmnt /dev/shm` whether it is read-only (ro); if neither is"
    " the reason, a seccomp profile or an AppArmor rule is in the way"
)
_NO_ROOM = re.compile(r"\A(?!Caught).*No space left on device\Z")
# Not every "Resource temporarily unavailable": the loader's own sockets may report it, too.
_NO_PROCESS = re.compile(
    r"\A\[Errno 11\] Resource temporarily unavailable\Z|can't start new thread"
)
_NO_THREAD = "pthread_create failed"  # OpenBLAS, which then interrupts the program
_ENDED = "exited unexpectedly"
_CHILDREN = "daemonic processes are not allowed to have children"
_NO_CHILDREN = (
    "a DataLoader's workers may not start processes: set num_workers=0 for the inner loader or"
    " pool, or for this one; --loader can name the inner one"
)
_WANTS_NONE = re.compile(r"number of workers .* should be 0")
_OWN_WORKERS = (
    "its data set starts workers of its own and allows no others: set num_workers=0 for this"
    " loader; to learn how many of its own it needs, name a DataLoader of what they read (for"
    " torchio's Queue: its subjects_dataset)"
)
_KILLED = re.compile(r"is killed by signal")
_LAST_WORDS = 16_000
_ARGUMENTS = re.compile(r"missing \d+ required (positional|keyword-only) argument")
_CALLED_PLAINLY = (
    "it is called without arguments: name a function of your own that passes them, or an object of"
    " the module"
)
_GROUP = re.compile(r"[Dd]efault process group has not been initialized")
_WITHOUT_GROUP = (
    "it is opened in a single process, without a process group: DistributedSampler(data,"
    " num_replicas=N, rank=0) needs none, and --ranks N says how many processes share this host"
)
_RELATIVE = re.compile(r"attempted relative import")
_IN_PACKAGE = (
    "the module is part of a package: run hostprep in the folder above the package, and give the"
    " full name: package.module:NAME"
)
_NOT_IN_THIS_PYTHON = (
    f"{sys.executable}, which runs hostprep, does not have it: run hostprep in your training's"
    " environment; modules of your own are looked for in the current folder and in PYTHONPATH"
)
_NOT_SET_UP = (
    "what a LightningDataModule makes in setup() does not exist before: name a function of your own"
    " that calls its setup('fit') and returns its train_dataloader()"
)
_COMMAND_LINE = re.compile(r"\bargument|\busage\b|\boptions?\b", re.I)
# An argument of sys.exit that is not a sentence.
_NO_WORDS = re.compile(r"\A(-?\d*|None)\Z")
_WITHOUT_ARGUMENTS = (
    "it is opened without a command line: name a function that needs no arguments, in a module that"
    " parses none when it is imported"
)
_DEFAULT_COLLATE = "/torch/utils/data/_utils/collate.py"
_COLLATED_PLAINLY = (
    "torch's default_collate cannot make a batch of such samples: name a DataLoader that has a"
    " collate_fn for them, or a data set whose transform makes tensors"
)
_STARTS_WORKERS = (
    "workers that do not start by fork import the module anew: code that makes batches when it is"
    " imported belongs below `if __name__ == '__main__':`"
)
_MAGIC = re.compile(r"\bname 'get_ipython' is not defined")
_OUT_OF_A_NOTEBOOK = (
    "outside of a notebook there are no magics: remove get_ipython() from the exported notebook"
)
_SEE_WHERE = (
    "run the same in Python yourself with PYTHONFAULTHANDLER=1: it prints where this happens"
)
_MEMORY = re.compile(r"Cannot allocate memory|signal: Killed|MemoryError|can't allocate memory")
_PICKLE = re.compile(r"(?<!un)pickl|local object|__reduce__", re.I)


def raised(event: dict[str, Any], what: str, workers: int, stderr: str = "") -> HostprepError:
    """Return the error for an exception of the user's code, or of torch on its behalf.

    ``stderr`` is what the process and its workers printed.
    """
    said = _said(event, stderr)
    # Code quoted in a traceback says nothing.
    text = "\n".join([said, *map(own_words, [event["message"], *event["causes"]])])
    if _CUDA_FORKED.search(text):
        return LoaderFailed(
            f"{what} uses CUDA in its workers, which are forked, and CUDA does not survive a fork.",
            "load on the CPU and move batches in the main process; or multiprocessing_context="
            "'spawn'",
        )
    if _CUDA_ABSENT.search(text):
        return Inconclusive(
            f"{what} needs a GPU, and there is none that torch can use here ({said}); it was not"
            " timed.",
            "run this on a machine with a GPU, or let the loader return CPU tensors",
        )
    if event["where"] == "open":
        cure = _opening_cure(what, event["type"], said)
        if cure is None and IMPORTING in event["trace"]:
            module = parts_of(what)[0]
            cure = (
                f"`{shlex.quote(sys.executable)} -c 'import {module}'` imports it in the same way"
            )
        hints = [cure, where(event["trace"])]
        return LoaderFailed(
            f"{what} could not be opened: {said}.", "; ".join(filter(None, hints)) or None
        )
    beside = ""
    if workers:
        if not is_workers(event["message"]) and _PICKLE.search(said):
            return cannot_be_sent(what, said)
        of_all = f"{format_count(workers, 'worker')} of {what}"
        if (held_back := _held_back(event, of_all, said, text, stderr)) is not None:
            return held_back
        beside = f" with {format_count(workers, 'worker')}"
    cure = _batch_cure(event, workers, said, text, stderr)
    return LoaderFailed(f"{what} raised while it made a batch{beside}: {said}.", cure)


def _said(event: dict[str, Any], stderr: str) -> str:
    """Return in one line what an exception says, or what ended the process."""
    said = essence(event["type"], event["message"])
    ends = event["type"] in ("SystemExit", "KeyboardInterrupt")
    if ends and _NO_WORDS.match(event["message"]) and (last := last_line(stderr)):
        # Code that ends the program has printed why, as argparse does about missing arguments.
        said = f"{said}: {last}"
    # Only the cause of torch's error says that a worker was killed.
    if _ENDED in said and (by := next(filter(_KILLED.search, event["causes"]), None)):
        said = essence(event["type"], by)
    return said


def _held_back(
    event: dict[str, Any], workers: str, said: str, text: str, stderr: str
) -> LoaderFailed | None:
    """Return the error for ``workers`` stopped by one of the host's limits, None if it is none."""
    if _NO_ROOM.search(event["message"]):
        # A queue or a semaphore of torch's own; an error from a worker's own writing says "Caught".
        text = f"{text}\nshared memory"
    # A worker that cannot start the thread that passes its batches on only prints why.
    printed = stderr[-_LAST_WORDS:] if _ENDED in event["message"] else ""
    if _NO_PROCESS.search(event["message"]) or _NO_PROCESS.search(printed):
        why = "failed because no more processes or threads may be started"
        return WorkersFailed(f"{workers} {why}: {said}.", Binding.PROCESSES)
    if _CLOSED_SHARED_MEMORY.search(text):
        why = "failed because no shared memory may be created here"
        return LoaderFailed(f"{workers} {why}: {said}.", _OPEN_SHARED_MEMORY)
    # Descriptors first: if they are used up, torch also mentions shared memory.
    for pattern, binding in (
        (_DESCRIPTORS, Binding.DESCRIPTORS),
        (_SHARED_MEMORY, Binding.SHARED_MEMORY),
        (_MEMORY, Binding.MEMORY),
    ):
        if pattern.search(text):
            return WorkersFailed(f"{workers} failed: {said}.", binding)
    return None


def _batch_cure(
    event: dict[str, Any], workers: int, said: str, text: str, stderr: str
) -> str | None:
    """Return what helps if a batch could not be made, or the place in the user's code."""
    if _NO_PROCESS.search(said) or _NO_THREAD in stderr:
        return CURE_PROCESSES
    if workers and _WANTS_NONE.search(text):
        return _OWN_WORKERS
    hint = _SEE_WHERE if _KILLED.search(said) else where(event["trace"])
    if workers and _CHILDREN in text:
        return f"{_NO_CHILDREN}; {hint}" if hint else _NO_CHILDREN
    if hint is None and _DEFAULT_COLLATE in event["trace"] + event["message"]:
        return _COLLATED_PLAINLY
    return hint


def _opening_cure(what: str, kind: str, said: str) -> str | None:
    """Return what helps if a loader works in a training but not by itself."""
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
