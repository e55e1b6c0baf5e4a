"""Does every data set that is wanted after a reboot come back by itself?"""

from __future__ import annotations

from collections.abc import Iterator

from hostprep.dataclass import dataclass
from hostprep.readiness.checks._boot import BootService, ask_boot
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status
from hostprep.readiness.shell import quote


@dataclass(frozen=True, slots=True)
class Facts:
    """The data sets of the spec with ``at_boot``, by name, and the spec's path."""

    spec: str
    services: tuple[tuple[str, BootService], ...]


def look(context: Context) -> Facts:
    """Ask systemd, and the notes of this boot."""
    if context.spec is None:
        return Facts("", ())
    wanted = [dataset.name for dataset in context.spec.datasets if dataset.at_boot]
    return Facts(context.spec.path, tuple((name, ask_boot(context, name)) for name in wanted))


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge the service of each data set."""
    if not facts.services:
        message = "no data set of a spec is to be staged at boot."
        yield Finding(Status.SKIP, "boot services", message)
    for name, service in facts.services:
        yield _judge_one(name, service, facts.spec)


def _judge_one(name: str, service: BootService, spec: str) -> Finding:
    if not service.systemd:
        message = f"systemd does not run here, so nothing stages {name} at boot."
        return Finding(Status.SKIP, name, message)
    unit = quote(service.unit)
    apply = f"hostprep apply --yes {quote(spec)}"
    remedy: Remedy | None = Remedy((apply,))
    if service.masked:
        status, measured = Status.WARN, "masked"
        message = f"{name} does not come back after a reboot: {service.unit} is masked."
        remedy = Remedy((f"systemctl unmask {unit}", apply), "somebody masked it: ask why first")
    elif not service.installed or service.state is None:
        status, measured = Status.WARN, "not installed"
        message = f"{name} does not come back after a reboot: {service.unit} is not there."
    elif not service.enabled:
        status, measured = Status.WARN, "not enabled"
        message = f"{name} does not come back after a reboot: {service.unit} is not enabled."
    elif service.state == "failed":
        status, measured = Status.WARN, "failed"
        message = f"{name} was not staged at this boot: {service.reason.rstrip('.')}."
        remedy = Remedy((f"systemctl restart {unit}",), f"the reason: `journalctl -b -u {unit}`")
    else:
        status, measured, remedy = Status.PASS, service.state, None
        message = f"{service.unit} brings {name} back at every boot."
    return Finding(
        status,
        name,
        message,
        Measured(measured, measured),
        "installed, enabled, not failed",
        "`at_boot:` in the spec",
        remedy=remedy,
    )


CHECK = Check(
    code="HP013",
    title="data sets come back at boot",
    severity=Severity.MINOR,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.SKIP}),
    look=look,
    judge=judge,
    page="""\
For each data set of the spec with `at_boot: true`: is its service there and enabled, and did it do
its work in this boot?

**WARN** the unit is missing, masked or not enabled, so that the data set is gone after the next
reboot; or it failed at this boot. Whether the data set is there now is HP010's business.

`hostprep apply` writes and enables the units; `systemctl restart` tries one again, and
`journalctl -b -u UNIT` says why it failed. Without systemd (in most containers) nothing stages at
boot, and this is skipped.
""",
)
