"""Does every data set that is wanted after a reboot come back by itself?"""

from __future__ import annotations

import os
from collections.abc import Iterator

from hostprep.dataclass import dataclass
from hostprep.readiness.checks._boot import BootService, ask_boot
from hostprep.readiness.checks._datasets import DatasetLook, look_at_datasets
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status
from hostprep.readiness.shell import quote

_APPLY = "`hostprep apply`"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A data set of the spec with ``at_boot``, its target and its service.

    Both paths are without symlinks, ``source`` None where it does not answer, ``target`` where this
    user may not look where it leads; ``named`` is the source as in the spec. What is staged there
    now is ``from_another`` source.
    """

    name: str
    target: str | None
    named: str
    source: str | None
    service: BootService
    from_another: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """The data sets of the spec with ``at_boot``, and the spec's path."""

    spec: str
    wanted: tuple[Wanted, ...]


def look(context: Context) -> Facts:
    """Ask systemd, and the notes of this boot."""
    if context.spec is None:
        return Facts("", ())
    looks = [each for each in look_at_datasets(context) if each.in_spec and each.at_boot]
    return Facts(context.spec.path, tuple(_wanted(context, each) for each in looks))


def _wanted(context: Context, dataset: DatasetLook) -> Wanted:
    service = ask_boot(context, dataset.name)
    target: str | None = dataset.target
    if service.target not in (None, target):
        target = _without_links(dataset.target)
    source, record = dataset.origin.real, dataset.record
    from_another = record is not None and source not in (None, record.source)
    return Wanted(dataset.name, target, dataset.source, source, service, from_another)


def _without_links(target: str) -> str | None:
    """Return where a data set really lies, None where this user may not look."""
    folder, name = os.path.split(target)
    try:
        folder = os.path.realpath(folder, strict=True)
    except PermissionError:
        return None
    except OSError:  # what is missing is as it is
        folder = os.path.realpath(folder)
    return os.path.join(folder, name)


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge the service of each data set."""
    if not facts.wanted:
        message = "no data set of a spec is to be staged at boot."
        yield Finding(Status.SKIP, "boot services", message)
    for wanted in facts.wanted:
        yield _judge_one(wanted, facts.spec)


def _judge_one(wanted: Wanted, spec: str) -> Finding:
    name, service = wanted.name, wanted.service
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
    elif not service.installed:
        status, measured = Status.WARN, "not installed"
        message = f"{name} does not come back after a reboot: {service.unit} is not there."
    elif service.state is None:
        status, measured = Status.WARN, "not recorded"
        message = (
            f"{name} does not come back after a reboot: what {service.unit} is to stage is not on"
            " record."
        )
    elif not service.enabled:
        status, measured = Status.WARN, "not enabled"
        message = f"{name} does not come back after a reboot: {service.unit} is not enabled."
    elif other := _another(wanted):
        status, measured = Status.WARN, "another"
        message = f"{service.unit} was set up for another {name}: {other}."
        if wanted.from_another:
            remedy = Remedy((apply,), f"first what HP012 says of {name}: until then it is refused")
    elif drop_in := service.overridden_by or service.lost_in:
        status, measured = Status.WARN, "overridden" if service.overridden_by else "cannot start"
        does = f"has {service.unit} run {service.lost_program}, which is not there"
        hint = "`hostprep apply` leaves it as it is: correct its ExecStart= lines"
        if service.overridden_by:
            does = f"keeps {service.unit} from running `hostprep restage`"
            hint = "somebody wrote it: ask why first; take its ExecStart= lines out"
        message = f"{name} does not come back after a reboot: the drop-in {drop_in} {does}."
        remedy = Remedy((), f"{hint}, then {_again(unit)}")
    elif service.edited:
        status, measured = Status.WARN, "edited"
        message = (
            f"{name} does not come back after a reboot: {service.unit} does not run"
            " `hostprep restage`."
        )
        remedy = _writing_anew(service, unit, apply)
    elif service.hindered_by is not None:
        status, measured = Status.WARN, "hindered"
        drop_in = service.hindered_in
        where = service.unit if drop_in is None else f"the drop-in {drop_in}"
        message = (
            f"{name} may not come back after a reboot: {where} sets {service.hindered_by}, and"
            " where that does not hold, systemd does not start the service."
        )
        if service.hindered_by.startswith("User="):
            message = (
                f"{name} does not come back after a reboot: {where} sets {service.hindered_by},"
                " and the service stages as root alone."
            )
        remedy = _writing_anew(service, unit, apply)
        if drop_in is not None:
            hint = "somebody wrote it: ask why first; `hostprep apply` leaves it as it is"
            remedy = Remedy((), f"{hint}: take that line out, then {_again(unit)}")
    elif service.lost_program is not None:
        status, measured = Status.WARN, "cannot start"
        message = (
            f"{name} does not come back after a reboot: {service.unit} runs"
            f" {service.lost_program}, which is not there."
        )
    elif service.state == "failed":
        status, measured = Status.WARN, "failed"
        message = f"{name} was not staged at this boot: {service.reason.rstrip('.')}."
        remedy = Remedy((f"systemctl restart {unit}",), f"the reason: `journalctl -b -u {unit}`")
        if service.hint is not None and _APPLY in service.hint:
            # To start it again would end as before. Where something has to be looked at or done
            # before, no line is to be pasted unread: `apply` takes what it finds for what is meant.
            lines = (apply,) if service.hint.startswith(_APPLY) else ()
            remedy = Remedy(lines, service.hint)
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


def _writing_anew(service: BootService, unit: str, apply: str) -> Remedy:
    """Return what helps where the unit's own lines are somebody's."""
    asks = "somebody wrote it: ask why first"
    if service.ours:
        return Remedy((apply,), f"{asks}; settings of your own go into `systemctl edit {unit}`")
    asks += "; once it is moved away, `hostprep apply` writes its own"
    return Remedy((f"systemctl cat {unit}",), asks)


def _again(unit: str) -> str:
    return f"`systemctl daemon-reload` and `systemctl restart {unit}`"


def _another(wanted: Wanted) -> str | None:
    """Say what the service stages, where the spec wants something else by now; else None."""
    service = wanted.service
    if None not in (service.target, wanted.target) and service.target != wanted.target:
        return f"it stages into {service.target}, and the spec has it at {wanted.target}"
    if None not in (service.source, wanted.source) and service.source != wanted.source:
        leads = "" if wanted.named == wanted.source else f", which leads to {wanted.source}"
        return f"it stages from {service.source}, and the spec names {wanted.named}{leads}"
    return None


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

**WARN** the unit is missing, masked or not enabled, or what it is to stage is not on record, or the
program that it runs is gone, or it was edited, or overridden by a drop-in (`systemctl edit`), so
that it runs something else than `hostprep restage`, or nothing, and the data set is gone after the
next reboot; or so that it runs as another user than root (`User=`), or on a condition
(`Condition...=`, `Assert...=`), without which systemd does not start it; or it stages from another
source, or into another target, than the spec names by now; or it failed at this boot. Whether the
data set is there now is HP010's business.

Other settings of a unit are not judged: `hostprep plan` shows each change of its file.
`hostprep apply` writes and enables the units; `systemctl restart` tries one again, and
`journalctl -b -u UNIT` says why it failed. Without systemd (in most containers) nothing stages at
boot, and this is skipped.
""",
)
