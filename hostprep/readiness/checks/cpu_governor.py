"""Do the processors run as fast as they can when there is work?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hostprep.dataclass import dataclass
from hostprep.host.cpu import online_cpus
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status
from hostprep.units import format_count

_CPUS = "sys/devices/system/cpu"
_SET = "echo {} | tee /sys/devices/system/cpu/cpu*/cpufreq/{} > /dev/null"
# With these drivers in active mode the default governor "powersave" does raise the clock;
# energy_performance_preference says what they favour.
_SELF_SCALING = frozenset({"intel_pstate", "amd-pstate-epp"})
_SLOW = frozenset({"powersave", "conservative", "userspace"})
_SAVING = frozenset({"power", "balance_power"})
# Of the processor's highest frequency; nobody would notice the difference that is left.
_LEAST_SHARE = 0.9
_WANTED = "performance, or one that scales with the load"
_FROM = "the kernel's admin-guide/pm/cpufreq; Meta's GCM looks at the governor too"


@dataclass(frozen=True, slots=True)
class Policy:
    """How one processor's clock is governed; frequencies in kHz, None if not reported."""

    driver: str
    governor: str
    preference: str
    highest_khz: int | None
    allowed_khz: int | None


@dataclass(frozen=True, slots=True)
class Facts:
    """The policies of the online processors; most virtual machines have none."""

    policies: tuple[Policy, ...]


def look(context: Context) -> Facts:
    """Read the policies."""
    online = online_cpus(context.root)
    folders = [
        folder
        for folder in sorted((context.root / _CPUS).glob("cpu[0-9]*/cpufreq"))
        # A processor that was switched off keeps its folder, but reading there gives EBUSY.
        if not online or int(folder.parent.name.removeprefix("cpu")) in online
    ]
    found = []
    for folder in folders:

        def word(name: str, cpu: str = folder.parent.name) -> str:
            return (context.read(f"{_CPUS}/{cpu}/cpufreq/{name}") or "").strip()

        highest, allowed = word("cpuinfo_max_freq"), word("scaling_max_freq")
        found.append(
            Policy(
                driver=word("scaling_driver"),
                governor=word("scaling_governor"),
                preference=word("energy_performance_preference"),
                highest_khz=int(highest) if highest.isdigit() else None,
                allowed_khz=int(allowed) if allowed.isdigit() else None,
            )
        )
    return Facts(tuple(found))


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge the policies together, because they are almost always alike."""
    if not facts.policies:
        message = "the kernel does not set the clock here (as in most virtual machines)."
        yield Finding(Status.SKIP, "clock", message)
        return
    slow = [each for each in facts.policies if _is_slow(each)]
    capped = [each for each in facts.policies if _is_capped(each)]
    governors = Counter(each.governor for each in facts.policies)
    shown = ", ".join(f"{name} on {count}" for name, count in sorted(governors.items()))
    measured = Measured(f"governor {shown}", shown)
    remedy = _remedy(facts, slow=bool(slow), capped=bool(capped))
    if slow:
        how = slow[0].governor
        if slow[0].driver in _SELF_SCALING:
            how += f", preference {slow[0].preference}"
        count = format_count(len(slow), "processor")
        message = f"the governor ({how}) keeps {count} slow under load."
        yield Finding(Status.WARN, "clock", message, measured, _WANTED, _FROM, remedy=remedy)
    elif capped:
        yield _judge_capped(capped, remedy)
    else:
        noun = "processor" if len(facts.policies) == 1 else "processors"
        message = f"the clock rises with the load (governor {shown} {noun})."
        yield Finding(Status.PASS, "clock", message, measured, _WANTED, _FROM)


def _judge_capped(capped: list[Policy], remedy: Remedy) -> Finding:
    low, high = capped[0].allowed_khz or 0, capped[0].highest_khz or 0
    are = "is" if len(capped) == 1 else "are"
    return Finding(
        Status.WARN,
        "clock",
        f"{format_count(len(capped), 'processor')} {are} limited to {low / 1e6:.2f} GHz, of"
        f" {high / 1e6:.2f} GHz that the hardware can do.",
        Measured(f"at most {low / 1e6:.2f} GHz", low * 1000, "Hz", "higher"),
        f"at least {_LEAST_SHARE:.0%} of {high / 1e6:.2f} GHz",
        "hostprep; the kernel's scaling_max_freq and cpuinfo_max_freq",
        remedy=remedy,
    )


def _remedy(facts: Facts, *, slow: bool, capped: bool) -> Remedy:
    # If there are two kinds of processors, the kernel lowers it to what each of them supports.
    highest = max(each.highest_khz or 0 for each in facts.policies)
    return Remedy(
        (
            *((_SET.format("performance", "scaling_governor"),) if slow else ()),
            *((_SET.format(highest, "scaling_max_freq"),) if capped else ()),
        ),
        "until the next boot; see whether tuned, power-profiles-daemon or tlp sets it",
    )


def _is_slow(policy: Policy) -> bool:
    if policy.driver in _SELF_SCALING and policy.governor == "powersave":
        return policy.preference in _SAVING
    return policy.governor in _SLOW


def _is_capped(policy: Policy) -> bool:
    known = policy.allowed_khz is not None and policy.highest_khz is not None
    return known and (policy.allowed_khz or 0) < _LEAST_SHARE * (policy.highest_khz or 0)


CHECK = Check(
    code="HP032",
    title="processor clocks are not held down",
    severity=Severity.MAJOR,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.SKIP}),
    look=look,
    judge=judge,
    page="""\
Checks the frequency governor of each online processor (`/sys/devices/system/cpu/cpu*/cpufreq`), its
energy preference if the processor scales by itself, and the highest frequency that it may use.

`performance` is best for a machine that feeds GPUs. `schedutil`, `ondemand`, and the `powersave` of
intel_pstate and amd-pstate raise the clock with the load, so they are fine.

**WARN**: the governor keeps the clock low (`powersave` of other drivers, `conservative`,
`userspace`), or the energy preference is to save power, or the highest frequency allowed is less
than nine tenths of what the processor can do.

The printed command changes the setting until the next boot; `cpupower frequency-set -g performance`
sets the governor as well. tuned, power-profiles-daemon, tlp or the firmware may set it back behind
your back.
""",
)
