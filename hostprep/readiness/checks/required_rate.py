"""Is the storage as fast as the spec requires, according to the last probe?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError
from hostprep.host.block import PathStorage, StorageClass
from hostprep.host.file_system_id import surely_another
from hostprep.probing.judgement import Judged
from hostprep.probing.rates import PASS_SHARE, compare, is_certain, rates_in
from hostprep.probing.results import is_of
from hostprep.readiness.checks._disks import file_system_of, is_there, storage_of
from hostprep.readiness.checks._needs import need_of, probe_line, required, say
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status
from hostprep.units import format_age, format_rate

_OLD_SECONDS = 30 * 86400.0
_FROM = f"the spec; MLPerf Storage passes at {PASS_SHARE:.0%} of what keeps an accelerator busy"


@dataclass(frozen=True, slots=True)
class Rate:
    """A requirement, and what was measured where training reads; ``judged`` is None without it.

    ``invalid`` says why the last probe says nothing about it, ``elsewhere`` on which file system it
    measured if that is not the one that is there now, ``damaged`` what is wrong with its file if
    the path has no readable one. ``absent``: there is nothing to measure.
    """

    dataset: str
    path: str
    required: str
    command: str
    judged: Judged | None
    age_seconds: float | None
    invalid: str | None
    elsewhere: str | None = None
    damaged: str | None = None
    absent: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """One rate for each requirement; None if there is no spec."""

    rates: tuple[Rate, ...] | None


def look(context: Context) -> Facts:
    """Find the probe of each required data set's target."""
    if context.spec is None:
        return Facts(None)
    rates = []
    names = [dataset.name for dataset in context.spec.datasets]
    for dataset, requirement in required(context):
        path = dataset.target
        probe, elsewhere = _probe_of(context, path)
        invalid, judged = None, None
        if probe is not None and elsewhere is None:
            judged = compare(rates_in(probe), need_of(requirement))
            if not probe["valid"] and not (judged and _certain(judged, probe)):
                invalid = "; ".join(reason["message"] for reason in probe["invalid_reasons"])
                judged = None
        rates.append(
            Rate(
                dataset=dataset.name if names.count(dataset.name) == 1 else path,
                path=path,
                required=say(requirement),
                command=probe_line(path, requirement),
                judged=judged,
                age_seconds=None if probe is None else context.age_of(probe),
                invalid=invalid,
                elsewhere=elsewhere,
                damaged=None if probe is not None else _damage_of(context, path),
                absent=judged is None and is_there(context, path) is False,
            )
        )
    return Facts(tuple(rates))


def _certain(judged: Judged, probe: dict[str, Any]) -> bool:
    doubts = [(reason["code"], reason.get("of")) for reason in probe["invalid_reasons"]]
    return is_certain(judged, doubts)


def _damage_of(context: Context, path: str) -> str | None:
    """Return what is wrong with the newest kept probe of a path, found by its file's name."""
    names = _names(path, _storage(context, path))
    for file, error in context.damaged_probes.items():
        if any(is_of(file, name) for name in names):
            return error.message
    return None


def _probe_of(context: Context, path: str) -> tuple[dict[str, Any] | None, str | None]:
    """Return the kept probe of a path, under any of its names, and what it really measured.

    The latter only if another file system is there now: because a volume or disk is not mounted, or
    because something else is in its place.
    """
    storage = _storage(context, path)
    names = _names(path, storage)
    probe = next((probe for probe in context.probes if probe["path"] in names), None)
    mount = {} if probe is None else probe.get("mount", {})
    if probe is None or storage is None or "fstype" not in mount:
        return probe, None
    then, now = (mount["target"], mount["fstype"]), (storage.mount.target, storage.fstype)
    if then != now:
        return probe, f"{then[1]} on {then[0]}, but now it is {now[1]} on {now[0]}"
    measured = probe.get("settings", {}).get("file_system")
    # Each mount of a tmpfs is a new file system, but as fast as the one before.
    if measured is None or storage.storage_class is StorageClass.RAM:
        return probe, None
    here = file_system_of(context, storage)
    if surely_another(measured, here):
        return probe, f"{then[1]} on {then[0]} ({measured}), but now another is there ({here})"
    return probe, None


def _storage(context: Context, path: str) -> PathStorage | None:
    """Return the storage under a path, None if it does not answer now, though it may have."""
    try:
        return storage_of(context, path)
    except HostprepError:
        return None


def _names(path: str, storage: PathStorage | None) -> set[str]:
    return {path} if storage is None else {path, storage.path}


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge each requirement."""
    if not facts.rates:
        why = "there is no spec file" if facts.rates is None else "the spec has no requirements"
        yield Finding(Status.SKIP, "rates", f"{why}, so no rate is required.")
        return
    for rate in facts.rates:
        yield _judge_one(rate)


def _judge_one(rate: Rate) -> Finding:
    if rate.judged is None:
        return _not_measured(rate)
    judged, age = rate.judged, rate.age_seconds
    least = PASS_SHARE * judged.required
    enough, old = judged.measured >= least, age is None or age > _OLD_SECONDS
    status = Status.FAIL if not enough else Status.WARN if old else Status.PASS
    when = "at an unknown time" if age is None else format_age(age)
    given = _rate(judged.measured, judged.unit)
    message = (
        f"{rate.path} gives {given} in {judged.of}, measured {when};"
        f" {_rate(judged.required, judged.unit)} are required."
    )
    if status is Status.WARN:
        why = "nothing" if age is None else "too long ago"
        message = f"{message[:-1]}: {why} to rely on."
    return Finding(
        status,
        rate.dataset,
        message,
        Measured(f"{given}, {when}", judged.measured, judged.unit, "higher"),
        f"at least {_rate(least, judged.unit)}, not older than {_OLD_SECONDS / 86400:.0f} days",
        _FROM,
        least,
        None
        if status is Status.PASS
        else Remedy(
            (rate.command,),
            "measure again"
            if enough
            else "the probe says what would be enough: more readers, shards, RAM or NVMe",
        ),
    )


def _not_measured(rate: Rate) -> Finding:
    why = f"it was never measured whether {rate.path} gives {rate.required}"
    if rate.elsewhere is not None:
        why = f"the last probe of {rate.path} was of {rate.elsewhere}"
    elif rate.invalid is not None:
        why = f"the last probe of {rate.path} is not valid: {rate.invalid}"
    elif rate.damaged is not None:
        measured = (
            f"it was measured whether {rate.path} gives {rate.required}, but the result cannot"
            " be read"
        )
        why = f"{measured}: {rate.damaged.removesuffix('.')}"
    elif rate.age_seconds is not None:
        why = f"the last probe of {rate.path} says nothing about {rate.required}"
    hint = "takes half a minute, and writes a test file and removes it"
    if rate.absent:
        hint = (
            f"first stage it (HP010): {rate.path} is not there to be measured. The measurement"
            f" {hint}"
        )
    remedy = Remedy((rate.command,), hint)
    return Finding(Status.UNKNOWN, rate.dataset, f"{why}.", remedy=remedy)


def _rate(value: float, unit: str) -> str:
    return format_rate(value) if unit == "bytes/s" else f"{value:,.0f} {unit}"


CHECK = Check(
    code="HP062",
    title="the storage gives what is required",
    severity=Severity.MAJOR,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.FAIL, Status.UNKNOWN, Status.SKIP}),
    look=look,
    judge=judge,
    after_full=True,
    page="""\
Compares each of the spec's `requirements` with the last valid `hostprep probe` of the target of the
data set, which is where training reads. Samples per second are compared with the rate of small
files (one file is one sample); bytes per second with the rate at which files were read whole or, if
no shards were read whole, with the sequential rate. With `--full`, the data sets are probed first.

**FAIL**: less than 90 % of the requirement was measured. MLPerf Storage demands that accelerators
are busy for 90 % of the time. The probe says what would be enough.
**WARN**: the rate is enough, but was measured more than 30 days ago, or the clock was set back
since then: disks fill up, wear out and are replaced.
**UNKNOWN**: the rate was never measured, or it was measured on another file system than the one
that is there now; or the saved result is damaged; or the last probe contradicts itself, and so
proves nothing; or only samples per second are required of a data set of shards. If the probe was
limited by the processors, this does not invalidate a rate that is high enough.
""",
)
