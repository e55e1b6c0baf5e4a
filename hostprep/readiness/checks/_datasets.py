"""The data sets that checks judge: the spec's, and others that are on record and present."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, TypeVar

from hostprep.dataclass import dataclass
from hostprep.host.fscrypt import UNLOCK
from hostprep.readiness.checks._commands import aside_line, stage_again_line, stage_line
from hostprep.readiness.checks._records import DamagedRecord, look_at_damaged, targets_of, ways_of
from hostprep.readiness.checks._sizes import too_little_memory
from hostprep.readiness.checks._sources import Origin, Way, ask_source
from hostprep.readiness.checks._volumes import freeing_memory
from hostprep.readiness.context import Context
from hostprep.readiness.model import CannotTell, Finding, Level, Measured, Remedy, Status
from hostprep.readiness.side_by_side import at_once
from hostprep.spec.model import DatasetSpec, Spec
from hostprep.staging.inspection import Inspected, ReadThrough
from hostprep.staging.record.damage import NOBODY_KNOWS, DamagedManifest
from hostprep.staging.record.records import ClosedManifest, Record
from hostprep.staging.status import NOT_FOR_US, DatasetStatus
from hostprep.system.typed_json import from_json

Found = TypeVar("Found", Inspected, ReadThrough)

# A quick check has 2.5 s; asking whether the source answers takes the rest.
COMPARE_SECONDS = {Level.QUICK: 0.7, Level.FULL: 30.0}
_OVERHEAD_SECONDS = {Level.QUICK: 0.5, Level.FULL: 10.0}

_NOT_ASKED = Origin("not asked")


@dataclass(frozen=True, slots=True)
class JudgedDataset:
    """A data set. ``state`` is a ``DatasetStatus``'s, or ``never`` if none is on record.

    It is ``damaged`` if its record cannot be read: ``_records`` reports those.

    ``in_spec`` ones are wanted; others are only judged as they are. ``lost_volume`` is its volume
    if that is not mounted. ``stage`` is the line that stages it, None if its size is not known.
    ``origin`` is how its source answers. ``in_the_way`` says what helps if something is mounted
    over it or in it, because then staging is refused. ``shares_name``: the spec stages others of
    this name elsewhere. ``too_little`` is that of its volume, see ``JudgedVolume``.
    """

    name: str
    source: str
    target: str
    in_spec: bool
    at_boot: bool
    record: Record | None
    state: str
    reason: str
    lost_volume: str | None
    stage: str | None
    origin: Origin
    in_the_way: str | None = None
    shares_name: bool = False
    too_little: str | None = None

    @property
    def subject(self) -> str:
        """What identifies it among all data sets."""
        return self.name if self.in_spec and not self.shares_name else self.target

    @property
    def is_there(self) -> bool:
        """Whether it is published at its target."""
        return self.state in ("staged", "partial")

    def finding(
        self, status: Status, message: str, state: str, wanted: str, remedy: Remedy | None
    ) -> Finding:
        """Return a finding about it; ``state`` is what was found, ``wanted`` what should be."""
        by = "the spec" if self.in_spec else "hostprep's record of it"
        measured = Measured(state, state)
        return Finding(status, self.subject, message, measured, wanted, by, remedy=remedy)

    def staging(self, hint: str | None = None, option: str | None = None) -> Remedy:
        """Return how to stage it, provided that its source has something to stage."""
        if self.in_the_way is not None:
            return Remedy((), self.in_the_way)
        if self.origin.state != "fine":
            return Remedy(
                (), f"nothing can be staged from its source {self.source} now (HP014 says why)"
            )
        if self.too_little is not None:
            # No commands: they would first remove the copy that is there, to stage it anew.
            return Remedy((), freeing_memory(self.too_little).hint)
        if self.stage is None:
            return Remedy((), f"stage {self.source} again, into a volume that is large enough")
        return Remedy((f"{self.stage} {option}" if option else self.stage,), hint)


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Why a data set was not compared with its manifest, as a sentence.

    ``damaged``: the manifest is missing or has lost lines; ``closed``: this user may not read it.
    """

    why: str
    damaged: bool = False
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Compared:
    """A data set and what comparing it found; None: it was not to be compared."""

    dataset: JudgedDataset
    found: Inspected | Unanswered | None


def judged_datasets(context: Context) -> tuple[JudgedDataset, ...]:
    """Return the data sets of the spec, then those on record that it does not name.

    All sources are asked at the same time, so several that hang take no longer than one.
    """
    known = {status.record.target: status for status in context.datasets}
    damaged = {each.target: each for each in look_at_damaged(context)}
    spec = context.spec
    looks = []
    if spec is not None:
        targets, ways = targets_of(context, spec.datasets), ways_of(context, spec.datasets)
        for wanted in spec.datasets:
            on_record = [each for each in targets[wanted.target] if each in known]
            status = known.pop(on_record[0]) if on_record else None
            way, record = ways.get(wanted.to), damaged.get(wanted.target)
            looks.append(_wanted(context, spec, wanted, status, record, way))
    for status in known.values():
        # Nobody asked for a data set that was staged by hand and is gone after a reboot or with
        # its volume, or is locked while its user is logged out.
        away = status.state == "missing" or (status.hint or "").startswith(UNLOCK)
        if spec is None or not away:
            looks.append(_found(context, status))
    origins = at_once(lambda look: ask_source(context, look.source), looks)
    return tuple(replace(look, origin=origin) for look, origin in zip(looks, origins, strict=True))


def _wanted(
    context: Context,
    spec: Spec,
    wanted: DatasetSpec,
    status: DatasetStatus | None,
    damaged: DamagedRecord | None,
    way: Way | None,
) -> JudgedDataset:
    """Return a data set of the spec; ``status`` is of its record, if that can be read.

    ``way`` is where its `to:` leads, because records have the path without symlinks.
    """
    lost = wanted.volume is not None and context.live(wanted.volume) is None
    volume = next((each for each in spec.volumes if each.path == wanted.volume), None)
    state, reason = (status.state, status.reason) if status else ("never", "it was never staged")
    if status is None and way is not None and way.closed:
        state, reason = "unreachable", f"{NOT_FOR_US}{way.closed}, where its path leads"
    elif status is None and way is not None and way.real is None:
        state, reason = "unreachable", way.why
    in_the_way = _in_the_way(status) if status else None
    if damaged is not None:
        state, in_the_way = "damaged", damaged.hint
    return JudgedDataset(
        name=wanted.name,
        source=wanted.source,
        target=wanted.target,
        in_spec=True,
        at_boot=wanted.at_boot,
        record=status.record if status else None,
        state=state,
        reason=reason,
        lost_volume=wanted.volume if lost else None,
        stage=stage_line(wanted, spec),
        origin=_NOT_ASKED,
        in_the_way=in_the_way,
        shares_name=sum(each.name == wanted.name for each in spec.datasets) > 1,
        too_little=None if volume is None else too_little_memory(volume, context),
    )


def _found(context: Context, status: DatasetStatus) -> JudgedDataset:
    """Return a data set that is only on record."""
    record = status.record
    live = None if record.volume is None else context.live(record.volume)
    return JudgedDataset(
        name=record.name,
        source=record.source,
        target=record.target,
        in_spec=False,
        at_boot=False,
        record=record,
        state=status.state,
        reason=status.reason,
        lost_volume=None,
        stage=stage_again_line(record, live),
        origin=_NOT_ASKED,
        in_the_way=_in_the_way(status),
    )


def _in_the_way(status: DatasetStatus) -> str | None:
    """Return what helps if staging is refused; an unfinished removal does not prevent it."""
    return None if status.record.phase == "removing" else status.hint


def compared(
    context: Context, dataset: JudgedDataset, name: str, inspect: Callable[..., Inspected]
) -> Compared:
    """Run ``inspect`` on the data set's record, in a child, within the time of the level."""
    record, seconds = dataset.record, COMPARE_SECONDS[context.level]
    assert record is not None
    patience = seconds + _OVERHEAD_SECONDS[context.level]
    found = ask_by_manifest(
        context, name, Inspected, lambda: inspect(record, seconds=seconds), patience
    )
    return Compared(dataset, found)


def ask_by_manifest(
    context: Context,
    name: str,
    kind: type[Found],
    question: Callable[[], Found],
    patience_seconds: float,
) -> Found | Unanswered:
    """Return the answer, a ``kind``, to a question that reads a manifest, asked in a child."""

    def ask() -> dict[str, Any]:
        try:
            return asdict(question())
        except DamagedManifest as error:
            return {"damaged": error.found}
        except ClosedManifest as error:
            return {"closed": error.found}

    try:
        answer = context.ask(name, ask, patience_seconds=patience_seconds)
    except CannotTell as error:
        return Unanswered(error.message)
    if "damaged" in answer:
        return Unanswered(f"{answer['damaged']}.", damaged=True)
    if "closed" in answer:
        return Unanswered(answer["closed"], closed=True)
    return from_json(kind, answer)


def not_compared(dataset: JudgedDataset, found: Unanswered) -> Finding:
    """Return the finding on a data set that was not compared with its manifest.

    If the manifest is damaged, this refers to HP011's remedy, so that it is not run twice.
    """
    if found.closed:
        return Finding(Status.SKIP, dataset.subject, f"{found.why}: check as root.")
    remedy = Remedy(
        ("hostprep status",),
        "--full allows more time; check that target, source and hostprep's records can be read",
    )
    if found.damaged:
        remedy = Remedy(
            ("hostprep check --only HP011",), "the remedy that it prints fixes this too"
        )
    return Finding(Status.UNKNOWN, dataset.subject, f"{found.why.rstrip('.')}.", remedy=remedy)


def staging_anew(dataset: JudgedDataset) -> Remedy:
    """Return the remedy for a damaged manifest: move the copy aside and stage another."""
    return making_way(dataset, f"{NOBODY_KNOWS}, so it cannot be repaired")


def making_way(dataset: JudgedDataset, why: str) -> Remedy:
    """Return the remedy if something that no run touches is in the place of a data set.

    ``why`` explains it. It is moved aside and not removed, because others' files may be in it; if
    the data set cannot be staged now, it stays.
    """
    target = dataset.target
    anew = dataset.staging(
        f"{why}; remove {target}.old once you know that nothing in it belongs to others. If there"
        " is no room for both, move it to another disk"
    )
    if not anew.commands:
        return anew
    return replace(anew, commands=(aside_line(target), *anew.commands))


def comparison(
    each: Compared, found: Inspected, wrong: int, message: str, held_against: str, cure: str
) -> Finding:
    """Return the finding of a comparison; ``cure`` says what staging does if entries differ."""
    differ = "differs" if wrong == 1 else "differ"
    return Finding(
        Status.FAIL if wrong else Status.PASS,
        each.dataset.subject,
        message,
        Measured(f"{wrong:,} of {found.compared:,} entries {differ}", wrong, "entries", "lower"),
        "none differs",
        held_against,
        0,
        each.dataset.staging(cure) if wrong else None,
    )


def extent(found: Inspected) -> str:
    """Say how much was compared."""
    if found.whole:
        few = {1: "its only entry", 2: "both entries"}
        return few.get(found.compared, f"all {found.compared:,} entries")
    part = f"{found.compared:,} of {found.known:,} entries"
    return f"{part} (as many as time allowed; more with --full)"


def difference(found: Inspected) -> str:
    """Say what differs, with examples of each kind."""
    parts = []
    for count, what, word in (
        (found.changed, "changed", "changed"),
        (found.missing, "missing", "missing"),
        (found.added, "added", "new"),
    ):
        paths = ", ".join(path for kind, path in found.examples if kind == what)
        if count:
            parts.append(f"{count:,} {word} ({paths})" if paths else f"{count:,} {word}")
    return ", ".join(parts)
