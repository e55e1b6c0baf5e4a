"""The measuring child: ``python -m hostprep.loading.child.jobs JOB`` does one job and reports it.

Each measurement has a fresh process: no imported module, open file or thread of an earlier one
affects it, and whatever the user's code does ends with it. What user code prints to stdout goes to
stderr; the real stdout carries only events, one JSON object a line.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import traceback
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from hostprep.errors import HostprepError, Inconclusive
from hostprep.host.cpu import scheduled_cpus
from hostprep.host.gpu_memory import lacks_memory
from hostprep.loading.failures import TooSlow, TorchMissing
from hostprep.loading.model import Batching
from hostprep.loading.naming import parts_of
from hostprep.loading.rounds import LEAST_EPOCH_BATCHES
from hostprep.system.parent import die_with_parent, forks_die_with_us
from hostprep.units import format_count

if TYPE_CHECKING:
    from hostprep.loading.child.opening import Opened

_MOST_CAUSES = 10
# As a share of the time for the stages, and after that time.
_SIDE_BY_SIDE_SHARE = 0.25
# Characters kept at either end of an error's text, which may quote a whole sample.
_ENDS = 50_000


class _Events:
    """The channel back to hostprep; ``where`` says what an error of the user's code comes from."""

    def __init__(self) -> None:
        self.where = "start"
        self._descriptor = os.dup(1)  # close-on-exec, so no program of the user's holds it open
        os.dup2(2, 1)

    def tell(self, event: str, **fields: Any) -> None:
        line = json.dumps({"event": event, **fields}) + "\n"
        data = line.encode("ascii")
        while data:
            data = data[os.write(self._descriptor, data) :]

    def refuse(self, error: HostprepError) -> None:
        told: dict[str, Any] = {
            "kind": type(error).__name__,
            "message": error.message,
            "hint": error.hint,
        }
        if isinstance(error, TooSlow):
            told["batches_per_s"] = error.batches_per_s
        self.tell("refused", **told)


def main() -> None:
    """Do the job in ``sys.argv[1]``; errors of user code are reported as events too."""
    die_with_parent()
    forks_die_with_us()
    events = _Events()
    # Removed before the user's module is imported: if that parses arguments, it finds none.
    job = json.loads(sys.argv.pop())
    if job["sockets"] is not None:
        _keep_sockets_in(job["sockets"])
    keep: Any = None
    try:
        if job["cpus"] is not None:
            os.sched_setaffinity(0, job["cpus"])
        match job["job"]:
            case "probe":
                keep = _probe(job, events)
            case "stages":
                _stages(job, events)
            case "gpu":
                _gpu(job, events)
    except HostprepError as error:
        events.refuse(error)
    except BaseException as error:
        events.tell(
            "error",
            where=events.where,
            type=type(error).__name__,
            message=_clipped(str(error)),
            causes=_causes(error),
            trace="".join(traceback.format_exception(error))[-8000:],
        )
    del keep  # all is reported: now the workers may end, in their own time


def _keep_sockets_in(folder: str) -> None:
    """Make this process and its workers keep their sockets in ``folder``, which is removed later.

    Each worker that passes on tensors makes a folder for that, and leaves it behind if it is
    killed. This affects only multiprocessing: what the loader itself keeps in the folder for
    temporary files, it may look for there in the next measurement.
    """
    multiprocessing.current_process()._config["tempdir"] = folder  # type: ignore[attr-defined]


def _clipped(text: str) -> str:
    """Return a long text without its middle: what a worker passed on says most at its end."""
    return text if len(text) <= 2 * _ENDS else f"{text[:_ENDS]}\n{text[-_ENDS:]}"


def _causes(error: BaseException) -> list[str]:
    """Return the messages of the errors that led to this one."""
    found: list[str] = []
    while (cause := error.__cause__ or error.__context__) is not None and len(found) < _MOST_CAUSES:
        found.append(_clipped(str(cause)))
        error = cause
    return found


def _probe(job: dict[str, Any], events: _Events) -> Any:
    from hostprep.loading.child import forkserver, training
    from hostprep.loading.child.opening import describe, open_source
    from hostprep.loading.files import decoders

    # Before the user's module: some that it imports must not be loaded before torch.
    try:
        import torch  # noqa: F401
    except ImportError:
        if "files" in job["source"]:
            raise TorchMissing from None
    from hostprep.loading.child.building import ProbeJob
    from hostprep.loading.child.iterables import time_iterable
    from hostprep.loading.child.timing import time_loader

    events.where = "open"
    events.tell("opening")
    if "files" in job["source"]:
        decoders.quiet_threads()
    _leave_folder_of_others()
    with training.ended(job["source"].get("loader", "what was named"), events.refuse):
        opened = open_source(job["source"], job["batch_size"])
    subject = describe(opened, thoroughly=job["workers"] == 0)
    _long_enough(opened)
    once = forkserver.imports_once(subject.start_method)
    if subject.start_method == "forkserver" and job["workers"]:
        forkserver.start(_imported(job["source"]) if once else None)
    events.where = "iterate"
    events.tell("opened", subject=asdict(subject), imports_once=once)
    if opened.kind == "iterable":
        found = time_iterable(opened, job["batch_size"], job["seconds"], job["limit_seconds"])
        events.tell("result", result={"iterable": found})
        return None
    probe = ProbeJob(
        workers=job["workers"],
        prefetch_factor=job["prefetch_factor"],
        batch_size=opened.batch_size,
        first=job["first"],
        seconds=job["seconds"],
        limit_seconds=job["limit_seconds"],
        ready=job["ready"],
        background=job["background"],
        own_way=job["own_way"],
    )
    found, keep = time_loader(opened, probe, events.tell)
    events.tell("result", result=found)
    return keep


def _leave_folder_of_others() -> None:
    """Write no ``__pycache__`` in another user's folder: if it is root's, it stays in their way.

    In a folder of one's own it is written as by any run of the training, because without it each
    worker that is not forked compiles the modules again. Those see the environment.
    """
    if os.stat(os.curdir).st_uid != os.geteuid():
        sys.dont_write_bytecode = True
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


def _imported(source: dict[str, Any]) -> list[str]:
    """Return the modules that a training has imported before it starts workers."""
    modules = ["torch", "hostprep.loading.child.building"]
    return modules + ([parts_of(source["loader"])[0]] if "loader" in source else [])


def _long_enough(opened: Opened) -> None:
    batches = opened.batches
    if opened.kind == "iterable" or batches is None or batches >= LEAST_EPOCH_BATCHES:
        return
    what = format_count(batches, "batch")
    if opened.batching is Batching.SIZE:
        what = f"{format_count(opened.length or 0, 'sample')}, {what} of {opened.batch_size}"
    hint = "name a larger data set, or a smaller --batch-size"
    if opened.collate is None:  # a bare data set does not say what an item is
        hint += "; if its items are batches already, name a DataLoader of it with batch_size=None"
    raise Inconclusive(
        f"{opened.description} has {what}: too few to measure a rate, and hardly worth a worker.",
        hint,
    )


def _stages(job: dict[str, Any], events: _Events) -> None:
    from hostprep.loading.child import processes
    from hostprep.loading.files import decoders
    from hostprep.loading.files.samples import listed_samples
    from hostprep.loading.files.side_by_side import may_bind, read_side_by_side
    from hostprep.loading.files.stages import time_stages

    decoders.quiet_threads()
    samples, _ = listed_samples(job["files"])
    events.tell("opened")
    others_before, before = processes.others_now(), processes.usage(())
    stages = time_stages(samples, job["batch_size"], job["seconds"])
    others = processes.used_between(before, processes.usage(()))["others_cpus"]
    # Beyond the usual, they may work on behalf of this one, as a file server does.
    stages = replace(stages, others_cpus=min(others, others_before))
    if may_bind(stages, len(scheduled_cpus())):
        # Each sample takes two files, as does each that cannot be read: later files are new.
        first = 2 * (stages.samples + stages.unreadable)
        unseen = samples.names[first:]
        together = read_side_by_side(unseen, job["readers"], _SIDE_BY_SIDE_SHARE * job["seconds"])
        stages = replace(stages, side_by_side=together)
    events.tell("result", result=asdict(stages))


def _gpu(job: dict[str, Any], events: _Events) -> None:
    """Time training steps, with smaller batches if the GPU's memory does not suffice."""
    import torch

    from hostprep.loading.child.gpu_step import time_steps

    events.tell("opened")
    size = job["batch_size"]
    while True:
        try:
            result = time_steps(job["device"], size, job["side"], job["seconds"])
        except RuntimeError as error:
            if not lacks_memory(error):
                raise
            if size == 1:
                raise Inconclusive(
                    f"{job['device']} has no memory free for a training step on one sample."
                ) from None
        else:
            events.tell("result", result=result)
            return
        # Not while the error is handled: it references what was on the GPU.
        size //= 2
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
