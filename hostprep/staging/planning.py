"""Planning a ``stage`` run: look at source and target, decide everything, change nothing."""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError, Refused, limit_hint
from hostprep.host.answering import Standstill
from hostprep.host.block import SERVED, PathStorage, StorageClass, locate
from hostprep.host.boot import boot_id
from hostprep.host.cpu import usable_cpus
from hostprep.staging.model import StageRequest, Verify
from hostprep.staging.observer import Observer
from hostprep.staging.processes.descriptors import check_descriptors
from hostprep.staging.record.records import Record, load_record, lock_name
from hostprep.staging.resuming import what_comes_of_it
from hostprep.staging.source.opening import is_served, open_source
from hostprep.staging.source.scan import Scan, scan_tree
from hostprep.staging.target.apart import check_apart
from hostprep.staging.target.place import (
    check_bare,
    check_is_storage,
    check_writable,
)
from hostprep.system.limits import keep_to_one_heap, lift_file_size

if TYPE_CHECKING:
    from hostprep.staging.plans.copy_plan import CopyPlan
    from hostprep.staging.plans.space import Space
    from hostprep.staging.plans.standing import Lookers
    from hostprep.staging.source.reading import Reading
    from hostprep.staging.source.sampling import Sample
    from hostprep.volumes.model import RamBudget
    from hostprep.volumes.plan import VolumePlan

# A server that takes 10 ms to answer about one file does so for many at once.
_LOOKERS = 64
_LEAST_THREADS = 8
# Modules that a run needs once the source is scanned. Loading them takes a tenth of a second from a
# cold disk, so it is done while workers scan; one by one, because workers need tasks in between.
_NEEDED_LATER = (
    "hostprep.system.run",
    "hostprep.volumes.facts",
    "hostprep.volumes.plan",
    "hostprep.staging.plans.copy_plan",
    "hostprep.staging.deciding",
    "hostprep.staging.stage",
)


@dataclass(slots=True)
class StagePlan:
    """Everything that a run would do, and its basis. Valid inside ``plan_stage``.

    ``submounts`` are the mount points inside the source; the source is ``served`` if it, or one of
    these, may cease to answer. ``budget`` is the memory that the run's volume takes, or its copies
    on an existing tmpfs. ``started`` is when planning began, on the monotonic clock; ``seconds``
    are the durations of finished phases.
    """

    request: StageRequest
    source_fd: int
    scan: Scan
    files: CopyPlan
    space: Space
    volume: VolumePlan | None
    budget: RamBudget | None
    storage: PathStorage
    sample: Sample
    reading: Reading
    previous: Record | None
    submounts: tuple[str, ...]
    served: bool
    published: bool
    in_ram: bool
    started: float
    seconds: dict[str, float]
    refusal: Refused | None

    @property
    def answers_from_memory(self) -> bool:
        """Whether reading the source involves no device and no server."""
        return self.sample.is_warm or self.storage.storage_class is StorageClass.RAM

    def owners(self) -> set[int]:
        """Return the ids of the users who own anything in the source."""
        found = {entry.uid for entry in self.scan.directories.values()}
        for listing in self.scan.listings:
            found.update(entry.uid for entry in listing.entries())
        return found

    @property
    def then(self) -> str:
        """What the same command does with the copies of this run if it is interrupted."""
        return what_comes_of_it(self.request, in_ram=self.in_ram)

    @property
    def nothing_to_do(self) -> bool:
        """Whether the data set is there, complete and fresh, and its volume is as asked for."""
        return self.is_fresh and not (self.volume is not None and self.volume.changes)

    @property
    def is_fresh(self) -> bool:
        """Whether the data set is there, complete and fresh, whatever its volume needs."""
        return (
            self.published
            and self.files.nothing_to_do
            and self.previous is not None
            and self.previous.phase == "staged"
            and self._is_verified_as_asked
            and self.previous.partial == any(item.failed for item in self.files.skipped)
        )

    @property
    def _is_verified_as_asked(self) -> bool:
        """Whether the record's digest is as asked for, as far as the data set allows.

        Files staged without verification are copied again; links and directories are kept.
        """
        has_digest = self.previous is not None and self.previous.digest is not None
        return has_digest or self.files.unverified or self.request.verify is Verify.NONE


def stage_lock(request: StageRequest) -> str:
    """Return the name of the lock that is shared by all runs for the same target."""
    return lock_name(request.name, request.target)


def check_ends(request: StageRequest) -> None:
    """Raise what is wrong with source or target at a first look.

    This comes before the lock, whose file stays for good, so that none is made for what can never
    be a data set, and before the scan, which may take minutes. If the data set was staged before,
    the target need not be writable: there may be nothing to do.
    """
    check_is_storage(request.parent)
    if request.volume_size_bytes is None and load_record(request.name, request.target) is None:
        check_writable(request.parent)
    with open_source(request.source, resolved=True):
        pass


@contextmanager
def plan_stage(request: StageRequest, observer: Observer) -> Iterator[StagePlan]:
    """Look at source and target and yield the plan; changes nothing.

    Raises ``HostprepError`` if planning itself is impossible. A rule that forbids the run is the
    plan's ``refusal``, so that a dry run can show both.
    """
    began = time.monotonic()
    check_descriptors()
    lift_file_size()
    keep_to_one_heap()
    check_is_storage(request.parent)
    check_bare(request.target)
    check_apart(request.source, request.target)
    with ExitStack() as stack:
        source_fd = stack.enter_context(open_source(request.source, resolved=True))
        storage = locate(request.source)
        seconds: dict[str, float] = {}
        started = time.monotonic()
        scan = _look_over(request, source_fd, storage, observer)
        seconds["scan"] = time.monotonic() - started

        from hostprep.staging.deciding import decide

        with timed(seconds, "plan"):
            plan = decide(request, source_fd, scan, storage, began, seconds, observer, stack)
        yield plan


def _look_over(
    request: StageRequest, source_fd: int, storage: PathStorage, observer: Observer
) -> Scan:
    """Scan the source; tell the observer how far it is, and of a server that does not answer."""
    served = is_served(request.source, storage.storage_class)
    # A server that lists a very large directory is silent meanwhile, but answers other questions.
    standstill = Standstill(request.source, observer.note, doubted=True)

    def tick(entries: int) -> None:
        if served:
            standstill.seen(entries, time.monotonic())
        observer.progress(entries, 0)  # no content is read

    observer.phase("scan")
    scan = scan_source(
        source_fd,
        storage.storage_class,
        served=served,
        gentle=request.gentle,
        on_tick=tick,
        meanwhile=map(importlib.import_module, _NEEDED_LATER),
    )
    if "" in scan.unreadable:
        reason = scan.skipped[0].reason
        repair = "repair the source (for a disk, `dmesg` says more), or run it as a user who may"
        raise HostprepError(
            f"the source {request.source} cannot be read: {reason}; nothing was changed.",
            limit_hint(reason) or f"{repair} read it",
        )
    observer.progress(scan.totals.entries, 0)
    return scan


def scan_source(
    source_fd: int,
    storage_class: StorageClass,
    *,
    served: bool = False,
    gentle: bool = False,
    on_tick: Callable[[int], None] | None = None,
    meanwhile: Iterator[object] | None = None,
) -> Scan:
    """Scan a source with as many threads as its storage can answer at once.

    ``served``: all or part of it is behind a server or a program, see ``is_served``.
    """
    arm = storage_class is StorageClass.ARM
    processes = 1 if gentle or arm else cores()
    one_a_process = gentle or arm or storage_class is StorageClass.RAM
    return scan_tree(
        source_fd,
        processes=processes,
        threads=1 if one_a_process else _threads(processes),
        from_server=storage_class in SERVED,
        served=served,
        gentle=gentle,
        on_tick=on_tick,
        meanwhile=meanwhile,
    )


def target_lookers(storage_class: StorageClass, *, gentle: bool = False) -> Lookers:
    """Return how to look at a target of that class: with as many as it answers at once."""
    from hostprep.staging.plans.standing import Lookers

    processes = 1 if gentle or storage_class is StorageClass.ARM else cores()
    threads = _threads(processes) if storage_class in SERVED and not gentle else 1
    return Lookers(processes, threads, gentle)


def _threads(processes: int) -> int:
    return max(_LEAST_THREADS, math.ceil(_LOOKERS / processes))


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Record how long the body took."""
    started = time.monotonic()
    yield
    seconds[name] = time.monotonic() - started


def cores() -> int:
    """Return how many worker processes use up what affinity and cgroup quota allow.

    Fractions are rounded up: a quota limits time, and a process less would leave some of it unused.
    """
    return math.ceil(usable_cpus())


def purpose_of(request: StageRequest) -> dict[str, str]:
    """Return what a private directory must have been made for, so that its work is reusable."""
    return {
        "source": request.source,
        "target": request.target,
        "boot_id": boot_id(),
        # Copies that were only hashed in flight, or not at all, are no use to a run that reads
        # back.
        "verify": request.verify.value,
    }
