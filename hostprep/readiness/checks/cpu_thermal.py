"""Have the processors been slowed down because of heat?"""

from __future__ import annotations

from collections.abc import Iterator

from hostprep.dataclass import dataclass
from hostprep.host.reading import NO_PROC_HINT, first_number
from hostprep.readiness.context import Context
from hostprep.readiness.model import CannotTell, Check, Finding, Measured, Remedy, Severity, Status
from hostprep.units import format_seconds

_CPUS = "sys/devices/system/cpu"
_MUCH_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Facts:
    """Since boot: the most events of any core, and its longest total slowdown (None: unknown)."""

    counters: int
    events: int
    throttled_seconds: float | None
    uptime_seconds: float


def look(context: Context) -> Facts:
    """Read the counters of all processors."""
    events, milliseconds = [], []
    for folder in sorted((context.root / _CPUS).glob("cpu[0-9]*/thermal_throttle")):
        where = f"{_CPUS}/{folder.parent.name}/thermal_throttle"
        count = (context.read(f"{where}/core_throttle_count") or "").strip()
        total = (context.read(f"{where}/core_throttle_total_time_ms") or "").strip()
        events += [int(count)] if count.isdigit() else []
        milliseconds += [int(total)] if total.isdigit() else []
    uptime = first_number(context.read("proc/uptime"))
    if any(events) and not uptime:
        raise CannotTell("/proc/uptime does not say since when these are counted.", NO_PROC_HINT)
    return Facts(
        counters=len(events),
        events=max(events, default=0),
        throttled_seconds=max(milliseconds) / 1000 if milliseconds else None,
        uptime_seconds=uptime or 0.0,
    )


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge the share of the time since boot."""
    if not facts.counters:
        message = (
            "the processors do not count thermal throttling here (only Intel's do, and not in a"
            " VM)."
        )
        yield Finding(Status.SKIP, "heat", message)
        return
    # If only events are counted, each is assumed to take a second, though it may cover several.
    known = facts.throttled_seconds is not None
    seconds = float(facts.events) if facts.throttled_seconds is None else facts.throttled_seconds
    share = min(1.0, seconds / facts.uptime_seconds) if facts.uptime_seconds else 0.0
    status, remedy = Status.PASS, None
    times = f"{facts.events:,} times" + (f" ({format_seconds(seconds)} in all)" if known else "")
    message = f"heat has slowed a core down {times} since boot: hardly ever."
    if not facts.events:
        message = "heat has slowed no core down since boot."
    if share >= _MUCH_SHARE:
        status = Status.WARN
        message = f"heat has slowed a core down {times} since boot: the cooling is not sufficient."
        remedy = Remedy(
            ("sensors",),
            "clean filters and fans, check that the fans turn, and check the room's temperature;"
            " the counters start from zero at the next boot (`sensors` is in the package"
            " lm-sensors)",
        )
    yield Finding(
        status,
        "heat",
        message,
        Measured(f"{share:.2%} of the time", round(share * 100, 3), "percent", "lower"),
        f"below {_MUCH_SHARE:.0%} of the time since boot",
        "hostprep; counters: the kernel's thermal_throttle",
        _MUCH_SHARE * 100,
        remedy,
    )


CHECK = Check(
    code="HP033",
    title="the processors are not slowed by heat",
    severity=Severity.MAJOR,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.SKIP}),
    look=look,
    judge=judge,
    page="""\
Intel processors count how often, and with newer kernels for how long, each core was slowed down
because it was too hot (`thermal_throttle/core_throttle_count` and `core_throttle_total_time_ms`).
The check compares the worst core with the time since boot. A few events are harmless: a short peak.

**WARN**: a core was slowed down for a hundredth of the time since boot or more. Decoding then slows
down, and the GPUs with it. If the kernel counts only events, each event is taken as one second.

The remedy is better cooling: dust, fans, the temperature of the room. Virtual machines, AMD and ARM
have no such counters and are skipped; GPUs report their own slowdowns (HP053).
""",
)
