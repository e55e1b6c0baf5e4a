"""Does the source of every data set answer?"""

from __future__ import annotations

from collections.abc import Iterator

from hostprep.dataclass import dataclass
from hostprep.host.block import is_remote
from hostprep.host.mounts import mount_containing
from hostprep.readiness.checks._datasets import JudgedDataset, judged_datasets
from hostprep.readiness.checks._records import (
    NONE_KNOWN,
    DamagedRecord,
    look_at_damaged,
    not_judged,
)
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Level, Remedy, Severity, Status
from hostprep.readiness.shell import quote
from hostprep.spec.feeding import holder_of


@dataclass(frozen=True, slots=True)
class Source:
    """A data set; ``mount`` is the mount point of the share that has its source, None for a disk.

    ``in_fstab`` says whether fstab can mount it again; ``denied_root``, that not even root may read
    the source; ``waited_long``, that the wait was ten seconds instead of one. ``feeder`` is the
    data set whose copy contains the source, if that copy is not there.
    """

    dataset: JudgedDataset
    mount: str | None
    in_fstab: bool
    denied_root: bool = False
    waited_long: bool = False
    feeder: str | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """One source for each data set; ``damaged`` are unreadable records, with their sources."""

    sources: tuple[Source, ...]
    damaged: tuple[DamagedRecord, ...]


def look(context: Context) -> Facts:
    """Look at the storage of each source."""
    mounted = {entry.simple_target for entry in context.fstab}
    found = []
    datasets = judged_datasets(context)
    gone = {each.target: each.name for each in datasets if not each.is_there}
    for dataset in datasets:
        path = dataset.source
        if dataset.record is not None and dataset.origin.real is None:
            path = dataset.record.source  # without symlinks, as it was then
        mount = mount_containing(dataset.origin.real or path, context.mounts)
        point = mount.target if mount is not None and is_remote(mount) else None
        denied_root = dataset.origin.state == "denied" and context.euid == 0
        waited_long = context.level is Level.FULL
        feeder = holder_of(path, gone)
        found.append(Source(dataset, point, point in mounted, denied_root, waited_long, feeder))
    # The sources of the spec's data sets are known without their records.
    damaged = tuple(each for each in look_at_damaged(context) if each.target is None)
    return Facts(tuple(found), damaged)


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge each source."""
    yield from not_judged(facts.sources, facts.damaged, NONE_KNOWN)
    for source in facts.sources:
        yield _judge_one(source)


def _judge_one(found: Source) -> Finding:
    dataset, path, origin = found.dataset, found.dataset.source, found.dataset.origin
    if origin.state == "fine":
        return _finding(found, Status.PASS, f"{path} answers.", None)
    # A staged data set can be trained on without its source; it just cannot be updated.
    status = Status.WARN if dataset.is_there else Status.FAIL
    so = "its copy is there" if dataset.is_there else "it cannot be staged"
    if dataset.state == "unreachable":
        status, so = Status.UNKNOWN, "nobody can tell whether its copy is there (HP010 says why)"
    if origin.state == "hangs":
        return _judge_hanging(found, status, so)
    if origin.state == "denied":
        return _judge_denied(found, so)
    message = f"{path}: {origin.why}; {so}."
    if origin.state == "failing":
        return _finding(found, status, message, _let_go(found))
    if origin.state == "locked":
        return _finding(found, status, message, Remedy((), origin.cure))
    if origin.state == "empty":
        if dataset.record is not None and dataset.record.files:
            message = f"{path} is empty, and {dataset.name} was not; {so}."
        else:
            so = "nor does what was staged from it" if dataset.is_there else so
            message = f"{path} answers, and holds nothing; {so}."
    hint = f"bring {path} back: is its disk or share mounted?"
    if found.feeder is not None:
        hint = f"it is part of the copy of {found.feeder}: stage that first (HP010 says how)"
    return _finding(found, status, message, Remedy((), hint))


def _judge_hanging(found: Source, status: Status, so: str) -> Finding:
    why = _silence(found.dataset.origin.why)
    if found.waited_long:
        message = f"{why}; processes that touch it hang."
        return _finding(found, Status.FAIL, message, _let_go(found))
    remedy = Remedy(
        ("hostprep check --full --only HP014",),
        "a share that was idle, or is busy, may just be slow: this command waits for ten"
        " seconds and, if the share really hangs, says how to detach it",
    )
    return _finding(found, status, f"{why}; {so}.", remedy)


def _judge_denied(found: Source, so: str) -> Finding:
    who = "root" if found.denied_root else "this user"
    closed = f"{found.dataset.source} may not be read by {who}"
    if found.dataset.is_there:
        message = (
            f"{closed}, so it was not looked at; {so}. To look at it, run"
            f" `hostprep check --only HP014` {_who_may(found)}."
        )
        return _finding(found, Status.SKIP, message, None)
    message = f"{closed}; it cannot be staged from here."
    return _finding(found, Status.UNKNOWN, message, Remedy((), f"check {_who_may(found)}"))


def _silence(said: str) -> str:
    """Return what was said of a source that does not answer without a colon: one is before it."""
    return said.rstrip(".").replace(": no answer", " gave no answer", 1)


def _finding(found: Source, status: Status, message: str, remedy: Remedy | None) -> Finding:
    wanted = "answers, and is a directory that is not empty"
    return found.dataset.finding(status, message, found.dataset.origin.state, wanted, remedy)


def _who_may(found: Source) -> str:
    if found.denied_root:
        return "as a user who may read it (a server with root_squash treats root as nobody)"
    return "as root, or as a user who may read it"


def _let_go(found: Source) -> Remedy:
    if found.mount is None:
        return Remedy(
            ("dmesg | tail",),
            "it is not a share: the kernel's log may say what is wrong with the disk",
        )
    point = quote(found.mount)
    again = (f"mount {point}",) if found.in_fstab else ()
    hint = "first see whether its server or disk can be brought back: then nothing else is needed"
    if not again:
        hint += f"; after these lines mount {found.mount} again as it was"
    return Remedy((f"umount --force --lazy {point}", *again), hint)


CHECK = Check(
    code="HP014",
    title="sources answer",
    severity=Severity.MAJOR,
    verdicts=frozenset(Status),
    look=look,
    judge=judge,
    page="""\
Opens the source of each data set and reads its first entry, in a child process that gets one second
(ten with `--full`) and is then left behind: a dead NFS server never hangs the check.

**FAIL**: with `--full`, the source does not answer: anything else that touches it hangs as well,
often for days. Or the source is gone, empty, broken, slow or locked (encrypted, without its key),
and its data set is not staged.
**WARN**: the source is gone, empty, broken or locked, or takes more than a second, but its data set
is staged: the copy works, but cannot be updated.
**UNKNOWN**: this user may not read the source, and there is no copy of it (if there is one, the
result is SKIP). Or the source is gone or broken, and it cannot be determined whether there is a
copy. Or hostprep's record, which would name the source, cannot be read.

An empty source is most often a disk or a share that is not mounted: stage nothing from it then. If
the copy is just as empty, HP010 reports it.

If the source lies in the copy of another data set and that copy is missing, stage that one first,
as `hostprep apply` does.

If the source did not answer, first let `--full` wait longer: a sleeping disk, or a share that is
mounted on access, takes its time. Bring the server or the disk back. If that is not possible,
`umount --force --lazy` releases a share: processes that hang in it get an error. If the mount is in
fstab, `mount` mounts it again.
""",
)
