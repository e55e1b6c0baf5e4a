"""Does every data set that is wanted after a reboot come back by itself?"""

from __future__ import annotations

import os
from collections.abc import Iterator

from hostprep.dataclass import dataclass
from hostprep.readiness.checks._boot import BootService, ask_boot
from hostprep.readiness.checks._datasets import JudgedDataset, judged_datasets
from hostprep.readiness.checks._sources import ask_way
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status
from hostprep.readiness.shell import quote

_APPLY = "`hostprep apply`"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A data set of the spec with ``at_boot``, its target and its service.

    Both paths are without symlinks; ``source`` is None if it does not answer, ``target`` if this
    user may not find out where it leads. ``named`` is the source as written in the spec.
    ``from_another``: the copy that is there now is from another source.
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
    """Ask systemd, and read the records of this boot."""
    if context.spec is None:
        return Facts("", ())
    looks = [each for each in judged_datasets(context) if each.in_spec and each.at_boot]
    return Facts(context.spec.path, tuple(_wanted(context, each) for each in looks))


def _wanted(context: Context, dataset: JudgedDataset) -> Wanted:
    service = ask_boot(context, dataset.name)
    target: str | None = dataset.target
    if service.target not in (None, target):
        target = _without_links(context, dataset.target)
    source, record = dataset.origin.real, dataset.record
    from_another = record is not None and source not in (None, record.source)
    return Wanted(dataset.name, target, dataset.source, source, service, from_another)


def _without_links(context: Context, target: str) -> str | None:
    """Return a data set's path without symlinks, None if this user, or nobody, can find out."""
    folder, name = os.path.split(target)
    way = ask_way(context, folder)
    return None if way.closed or way.real is None else os.path.join(way.real, name)


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
    apply = f"hostprep apply --yes {quote(spec)}"
    wrong = (
        _not_set_up(wanted, apply)
        or _astray(wanted, apply)
        or _failed(wanted, apply)
        or _on_condition(wanted, apply)
    )
    status, remedy = Status.PASS, None
    measured, message = service.state or "", f"{service.unit} brings {name} back at every boot."
    if service.hindered_by is not None:
        message = f"{name} came back in this boot: {_setter(service)}, and that condition was met."
    if wrong is not None:
        status, (measured, message, remedy) = Status.WARN, wrong
    return Finding(
        status,
        name,
        message,
        Measured(measured, measured),
        "installed, enabled, not failed",
        "`at_boot:` in the spec",
        remedy=remedy,
    )


# A word, a sentence, and the remedy.
Wrong = tuple[str, str, Remedy]


def _not_set_up(wanted: Wanted, apply: str) -> Wrong | None:
    """Return what is wrong if the service is missing, never started or for another data set."""
    name, service = wanted.name, wanted.service
    gone = f"{name} does not come back after a reboot:"
    unit, remedy = service.unit, Remedy((apply,))
    if service.masked:
        lines = (f"systemctl unmask {quote(unit)}", apply)
        remedy = Remedy(lines, "somebody masked it: ask why first")
        return "masked", f"{gone} {unit} is masked.", remedy
    if not service.installed:
        return "not installed", f"{gone} {unit} is not there.", remedy
    if service.state is None:
        return "not recorded", f"{gone} there is no record of what {unit} is to stage.", remedy
    if not service.enabled:
        return "not enabled", f"{gone} {unit} is not enabled.", remedy
    if other := _another(wanted):
        if wanted.from_another:
            remedy = Remedy(
                (apply,), f"first do what HP012 says about {name}: until then this is refused"
            )
        return "another", f"{unit} was set up for another {name}: {other}.", remedy
    return None


def _astray(wanted: Wanted, apply: str) -> Wrong | None:
    """Return what is wrong if the service does not run what hostprep wrote."""
    name, service = wanted.name, wanted.service
    gone = f"{name} does not come back after a reboot:"
    unit, again = service.unit, _again(quote(service.unit))
    if drop_in := service.overridden_by:
        message = f"{gone} the drop-in {drop_in} keeps {unit} from running `hostprep restage`."
        hint = "somebody wrote it: ask why first; remove its ExecStart= lines"
        return "overridden", message, Remedy((), f"{hint}, then {again}")
    if drop_in := service.lost_in:
        runs = f"has {unit} run {service.lost_program}, which is not there"
        hint = "`hostprep apply` leaves it as it is: correct its ExecStart= lines"
        remedy = Remedy((), f"{hint}, then {again}")
        return "cannot start", f"{gone} the drop-in {drop_in} {runs}.", remedy
    if service.edited:
        message = f"{gone} {unit} does not run `hostprep restage`."
        return "edited", message, _writing_anew(service, apply)
    if (service.hindered_by or "").startswith("User="):
        message = f"{gone} {_setter(service)}, but the service can only stage as root."
        return "hindered", message, _unhindering(service, apply)
    if service.lost_program is not None:
        message = f"{gone} {unit} runs {service.lost_program}, which is not there."
        return "cannot start", message, Remedy((apply,))
    return None


def _on_condition(wanted: Wanted, apply: str) -> Wrong | None:
    """Return what may be wrong if somebody made the service start only under a condition."""
    service = wanted.service
    if service.hindered_by is None or (service.held and service.state == "ready"):
        return None
    message = (
        f"{wanted.name} may not come back after a reboot: {_setter(service)}, and if that condition"
        " is not met, systemd does not start the service."
    )
    return "hindered", message, _unhindering(service, apply)


def _setter(service: BootService) -> str:
    drop_in = service.hindered_in
    who = service.unit if drop_in is None else f"the drop-in {drop_in}"
    return f"{who} sets {service.hindered_by}"


def _unhindering(service: BootService, apply: str) -> Remedy:
    if service.hindered_in is None:
        return _writing_anew(service, apply)
    hint = "somebody wrote it: ask why first; `hostprep apply` leaves it as it is"
    return Remedy((), f"{hint}: remove that line, then {_again(quote(service.unit))}")


def _failed(wanted: Wanted, apply: str) -> Wrong | None:
    """Return what is wrong if the service failed in this boot."""
    service, unit = wanted.service, quote(wanted.service.unit)
    if service.state != "failed":
        return None
    message = f"{wanted.name} was not staged at this boot: {service.reason.rstrip('.')}."
    remedy = Remedy((f"systemctl restart {unit}",), f"the reason: `journalctl -b -u {unit}`")
    if service.hint is not None and _APPLY in service.hint:
        # Restarting it would fail in the same way. If something has to be inspected or done first,
        # offer no line to paste unread, because `apply` takes what it finds as intended.
        lines = (apply,) if service.hint.startswith(_APPLY) else ()
        remedy = Remedy(lines, service.hint)
    return "failed", message, remedy


def _writing_anew(service: BootService, apply: str) -> Remedy:
    """Return the remedy if somebody edited the unit's own lines."""
    unit = quote(service.unit)
    asks = "somebody wrote it: ask why first"
    if service.ours:
        return Remedy((apply,), f"{asks}; settings of your own go into `systemctl edit {unit}`")
    asks += "; once it is moved away, `hostprep apply` writes its own"
    return Remedy((f"systemctl cat {unit}",), asks)


def _again(unit: str) -> str:
    return f"`systemctl daemon-reload` and `systemctl restart {unit}`"


def _another(wanted: Wanted) -> str | None:
    """Say what the service stages if the spec now wants something else, otherwise None."""
    service = wanted.service
    if None not in (service.target, wanted.target) and service.target != wanted.target:
        return f"it stages into {service.target}, but the spec has it at {wanted.target}"
    if None not in (service.source, wanted.source) and service.source != wanted.source:
        leads = "" if wanted.named == wanted.source else f", which leads to {wanted.source}"
        return f"it stages from {service.source}, but the spec names {wanted.named}{leads}"
    return None


CHECK = Check(
    code="HP013",
    title="data sets come back at boot",
    severity=Severity.MINOR,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.SKIP}),
    look=look,
    judge=judge,
    page="""\
Checks, for each data set of the spec with `at_boot: true`, whether its service is installed and
enabled, and whether it did its work in this boot.

**WARN**: one of the following.
- The unit is missing, masked or not enabled, there is no record of what it is to stage, or the
  program that it runs is missing.
- The unit was edited, or overridden by a drop-in (`systemctl edit`), so that it runs something
  other than `hostprep restage`, or nothing: the data set is gone after the next reboot.
- The unit runs as a user other than root (`User=`).
- The unit has a condition (`Condition...=`, `Assert...=`): if it is not met, systemd does not start
  the service. It is not a WARN if the condition was met in this boot and the data set was staged.
- The service stages from another source, or into another target, than the spec names now.
- The service failed in this boot.

HP010 checks whether the data set is there now. Other settings of a unit are not judged;
`hostprep plan` shows each change of its file.

`hostprep apply` writes and enables the units, `systemctl restart` runs one again, and
`journalctl -b -u UNIT` says why it failed. Without systemd (in most containers) nothing is staged
at boot, and the check is skipped.
""",
)
