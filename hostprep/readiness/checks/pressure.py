"""Is the machine short of anything right now?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hostprep.dataclass import dataclass
from hostprep.readiness.checks._commands import WHO_COMPUTES, WHO_TAKES_MEMORY
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status


@dataclass(frozen=True, slots=True)
class Resource:
    """What is looked at: which line of PSI, and from which share of the time on it matters."""

    name: str
    line: str
    limit_percent: float
    limit_from: str
    waits: str
    remedy: Remedy


_RESOURCES = (
    Resource(
        "io",
        "full",
        20.0,
        "xprof calls a program highly input-bound if it waits for 20% of the time or more",
        "all tasks that had work to do waited for storage",
        Remedy(
            ("iotop -boPn 3",),
            "shows what reads and writes (iotop needs root, and is a package of its own); a staging"
            " run or a backup ends by itself",
        ),
    ),
    Resource(
        "cpu",
        "some",
        50.0,
        "hostprep: half of the time; a decoder that waits might as well not be there",
        "some task waited for a processor",
        Remedy(
            (WHO_COMPUTES,),
            "shows who uses the processors; if HP034 warns too, it has the same cause, and one"
            " remedy fixes both",
        ),
    ),
    Resource(
        "memory",
        "full",
        10.0,
        "systemd-oomd kills programs from 60% on; a machine with even a sixth of that is not"
        " healthy",
        "all tasks that had work to do waited for memory",
        Remedy((WHO_TAKES_MEMORY,), "shows who uses the memory"),
    ),
)
_AVERAGES = re.compile(r"^(some|full) avg10=([0-9.]+) avg60=([0-9.]+)", re.M)


@dataclass(frozen=True, slots=True)
class Pressure:
    """Shares of the last 10 and 60 seconds, in percent; None if the kernel reports none."""

    avg10_percent: float
    avg60_percent: float


@dataclass(frozen=True, slots=True)
class Facts:
    """One pressure for each resource, in their order."""

    pressures: tuple[Pressure | None, ...]


def look(context: Context) -> Facts:
    """Read ``/proc/pressure``."""
    return Facts(tuple(_read(context, resource) for resource in _RESOURCES))


def _read(context: Context, resource: Resource) -> Pressure | None:
    for line, avg10, avg60 in _AVERAGES.findall(
        context.read(f"proc/pressure/{resource.name}") or ""
    ):
        if line == resource.line:
            return Pressure(float(avg10), float(avg60))
    return None


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge what is so now and was for a minute: a short burst hurts nobody."""
    if not any(facts.pressures):
        message = "this kernel does not measure pressure; it may if booted with psi=1."
        yield Finding(Status.SKIP, "pressure", message)
        return
    for resource, pressure in zip(_RESOURCES, facts.pressures, strict=True):
        if pressure is not None:
            yield _judge_one(resource, pressure)


def _judge_one(resource: Resource, pressure: Pressure) -> Finding:
    lasting = min(pressure.avg10_percent, pressure.avg60_percent)
    high = lasting >= resource.limit_percent
    return Finding(
        Status.WARN if high else Status.PASS,
        resource.name,
        f"for {pressure.avg10_percent:.0f}% of the last 10 s ({pressure.avg60_percent:.0f}% of"
        f" the last minute) {resource.waits}.",
        Measured(f"{lasting:.1f}%", lasting, "percent", "lower"),
        f"below {resource.limit_percent:.0f}% in avg10 or avg60 of `{resource.line}` in"
        f" /proc/pressure/{resource.name}",
        resource.limit_from,
        resource.limit_percent,
        resource.remedy if high else None,
    )


CHECK = Check(
    code="HP047",
    title="no shortage right now",
    severity=Severity.MINOR,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.SKIP}),
    look=look,
    judge=judge,
    page="""\
Checks the pressure stall information (PSI) of the whole machine (`/proc/pressure/io`, `cpu`,
`memory`): the share of the time in which tasks were stalled because they waited for the resource.
This says more than the load or iowait, which the kernel's documentation calls unreliable. The check
judges the smaller of the averages over 10 and over 60 seconds, so that only what is true now and
has lasted counts.

**WARN**: all tasks were stalled on storage for 20 % of the time, or on memory for 10 %; or some
task waited for a processor during half of the time. Something else is at work, and a training run
would have to share with it: find out who it is, or wait until it is done. The load (HP034) is often
high for the same reason, and the same remedy fixes both.

Kernels without PSI (some are built to need `psi=1`) are a SKIP.
""",
)
