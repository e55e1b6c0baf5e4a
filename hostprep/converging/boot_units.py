"""Data sets that come back after a reboot: a systemd service for each with ``at_boot: true``.

In a first apply volumes come first, then staging, and then this, planned again, because the boot
records contain on which file systems things are and what was staged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from hostprep.converging.boot_facts import BootFacts, Footing, Installed
from hostprep.converging.boot_links import AT_BOOT, make_links, remove_links, wanted_by
from hostprep.converging.boot_record import (
    BootRecord,
    dataset_of,
    forget_boot_record,
    save_boot_record,
    unit_name,
)
from hostprep.converging.boot_template import render
from hostprep.converging.model import Change, Kind, ObjectPlan, Unchanged
from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError, Refused
from hostprep.spec.model import DatasetSpec
from hostprep.system.files import remove_stale_temps, replace_file, writing_hint
from hostprep.system.systemd import (
    SYSTEM_UNIT_DIR,
    daemon_reload,
    start_unit,
    stop_unit,
    systemd_runs,
)
from hostprep.volumes.paths import check_path

# The limit of systemd and of file systems, less what the name of a temporary file adds.
_LONGEST_UNIT_NAME = 255 - 27


@dataclass(frozen=True, slots=True)
class BootStep:
    """What is ``planned`` for the service at ``path``, and the one ``installed`` now, if any.

    ``record`` and ``content`` are the new contents of record and unit, None if they stay as they
    are; ``wanted_by`` are the units that should start it, None if the links stay as they are;
    ``start`` starts it now, ``remove`` removes all three.
    """

    planned: ObjectPlan
    path: Path
    installed: Installed | None
    record: BootRecord | None = None
    content: bytes | None = None
    wanted_by: tuple[str, ...] | None = None
    start: bool = False
    remove: bool = False


def plan_boot(
    datasets: tuple[DatasetSpec, ...],
    facts: BootFacts,
    *,
    prune: bool = False,
    reserve_bytes: int | None = None,
) -> tuple[BootStep, ...]:
    """Return what has to be done so that exactly the ``at_boot`` ones of ``datasets`` come back.

    Services of other data sets stay, unless ``prune`` is set. ``facts`` are of the same data sets.
    ``reserve_bytes`` is the memory that a target in memory must leave, None for what is recorded.
    A warning about all of them is given with the first.
    """
    wanted = [dataset for dataset in datasets if dataset.at_boot]
    steps: list[BootStep] = []
    units: set[str] = set()
    for dataset in wanted:
        unit = unit_name(dataset.name)
        try:
            if unit in units:
                raise Refused(
                    "another data set of this name is staged at boot, by a service of this name.",
                    "give it another `name`",
                )
            units.add(unit)
            steps.append(_plan_one(dataset, facts, reserve_bytes))
        except Refused as refusal:
            planned = ObjectPlan.refused(Kind.BOOT, dataset.name, refusal)
            steps.append(BootStep(planned, facts.unit_dir / unit, facts.installed_as(unit)))
    ours = [installed.unit for installed in facts.installed if installed.made_by_us]
    steps += [
        _plan_leftover(unit, facts, prune=prune)
        for unit in (*ours, *facts.traces)
        if unit not in units
    ]
    warnings = []
    if units and facts.program_writer is not None:
        warnings.append(
            f"at boot root runs {facts.command[0]}, and {facts.program_writer}: others could put"
            " another program in its place; install hostprep where only root writes"
        )
    if units and not facts.systemd:
        names = ", ".join(dataset.name for dataset in wanted)
        warnings.append(
            f"systemd does not run here, and only a boot with systemd stages {names} (`at_boot`);"
            " elsewhere run `hostprep apply` after each boot"
        )
    if warnings:
        planned = replace(steps[0].planned, warnings=tuple(warnings))
        steps[0] = replace(steps[0], planned=planned)
    return tuple(steps)


def apply_boot(steps: Iterable[BootStep]) -> None:
    """Carry out ``steps``, except refused ones, and reload systemd once, at the end.

    This starts only services that failed in this boot: what they stage is there by now, however it
    was repaired, but for systemd they remain failed, and the machine degraded, until they have run.
    Raises ``HostprepError`` for the first that fails; what was done before stays, and the next plan
    finds the rest.
    """
    steps = [step for step in steps if step.planned.changes]
    changed: list[str] = []
    try:
        for step in steps:
            _carry_out(step)
            if _is_for_systemd(step):
                how = "removed" if step.remove else "written"
                changed.append(f"{step.path.name} is {how}")
    finally:
        if changed:
            daemon_reload(" and ".join(changed))
    for step in steps:
        if step.start:
            start_unit(step.path.name)


def _plan_one(dataset: DatasetSpec, facts: BootFacts, reserve_bytes: int | None) -> BootStep:
    name, unit = dataset.name, unit_name(dataset.name)
    if len(unit) > _LONGEST_UNIT_NAME:
        raise Refused(
            f"{name} is too long a name for a service: {unit} has {len(unit)} characters, and"
            f" {_LONGEST_UNIT_NAME} are possible.",
            "give the data set a shorter `name`",
        )
    footing = facts.footing_of(name)
    moved = (variable.partition("=")[2] for variable in facts.environment)
    for each in (footing.source, footing.parent, facts.command[0], *moved):
        check_path(each)  # text after a line break in it would be a setting of its own
    path, installed = facts.unit_dir / unit, facts.installed_as(unit)
    if installed is not None and not installed.made_by_us:
        raise installed.problem or Refused(
            f"{path} was not written by hostprep; it stays as it is.",
            "move it away, or give the data set another `name`",
        )
    earlier = facts.record_of(name)
    record = _wanted_record(dataset, footing, earlier, reserve_bytes)
    starters = wanted_by(record.source_mount, fed=footing.fed)
    content = render(
        record,
        facts.command,
        facts.environment,
        starters,
        footing.feeders,
        automounted=footing.automounted,
    )
    changes = []
    if differing := _differences(record, earlier):
        changes.append(Change(Kind.BOOT, name, "write what to stage at boot", differing))
    have = installed or Installed(unit, None)
    if have.writer is not None:
        changes.append(Change(Kind.BOOT, name, f"make {unit} root's alone", f"it {have.writer}"))
    if have.content != content:
        reason = "it is missing" if have.content is None else "it differs from what it must be now"
        changes.append(Change(Kind.BOOT, name, f"write {unit}", reason))
    linked = have.wanted_by == frozenset(starters)
    if not linked:
        why = _unlinked(have.wanted_by, starters)
        changes.append(Change(Kind.BOOT, name, f"enable {unit}", why))
    if have.failed:
        why = "it failed in this boot, for which systemd calls the machine degraded"
        changes.append(Change(Kind.BOOT, name, f"start {unit} again", why))
    unchanged = Unchanged(Kind.BOOT, name, f"{unit} is as it should be, and enabled")
    overruled = _overruled(name, path, have)
    kept = overruled or (() if changes else (unchanged,))
    return BootStep(
        ObjectPlan(Kind.BOOT, name, changes=tuple(changes), unchanged=kept),
        path,
        installed,
        # Any change also writes the record, so that it has the present digest.
        record=record if changes else None,
        content=content if have.content != content or have.writer else None,
        wanted_by=None if linked else starters,
        start=have.failed,
    )


def _overruled(name: str, unit: Path, installed: Installed) -> tuple[Unchanged, ...]:
    """Name the drop-in that keeps it from staging; its own lines would be written anew.

    Not a drop-in with a condition: the condition may hold, see HP013.
    """
    found, setting = installed.astray, installed.hindrance
    drop_in, cure = None, "correct its ExecStart= lines, or take them out"
    if found is not None and found.file != unit:
        drop_in, does = found.file, f"keeps {unit.name} from running `hostprep restage`"
        if found.lost_program is not None:
            does = f"has {unit.name} run {found.lost_program}, which is not there"
    elif setting is not None and setting.name == "User":
        drop_in = setting.drop_in
        does = f"sets User={setting.value}, but the service can only stage as root"
        cure = "take that line out"
    if drop_in is None:
        return ()
    reason = (
        f"it does not come back at boot: the drop-in {drop_in}, which stays as it is, {does};"
        f" {cure}, then `systemctl daemon-reload`"
    )
    return (Unchanged(Kind.BOOT, name, reason, as_wanted=False),)


def _unlinked(linked: frozenset[str], starters: tuple[str, ...]) -> str:
    if AT_BOOT not in linked:
        return "nothing starts it at boot"
    missing = [each for each in starters if each not in linked]
    if missing:
        return f"{missing[0]} does not start it if its source is mounted late"
    return "it is started by a mount that is not its source's"


def _wanted_record(
    dataset: DatasetSpec, footing: Footing, earlier: BootRecord | None, reserve_bytes: int | None
) -> BootRecord:
    """Return the record by the spec and the host; what does not exist now, as it was."""
    if earlier is not None and earlier.source != footing.source:
        earlier = None
    source_mount, remote = footing.source_mount, footing.remote
    if source_mount is None or remote is None:
        if earlier is None:
            raise Refused(
                f"the source {footing.source} is not there, so where it belongs is not known, and"
                f" {dataset.name} cannot be staged at boot.",
                "mount or fix the source, and run it again",
            )
        source_mount, remote = earlier.source_mount, earlier.remote
    size_bytes = footing.volume_size_bytes
    if size_bytes is None and earlier is not None:
        size_bytes = earlier.volume_size_bytes
    if reserve_bytes is None and earlier is not None:
        reserve_bytes = earlier.reserve_bytes
    return BootRecord(
        name=dataset.name,
        source=footing.source,
        parent=footing.parent,
        volume=dataset.volume,
        volume_size_bytes=size_bytes if dataset.volume else None,
        source_mount=source_mount,
        target_mount=footing.target_mount,
        remote=remote,
        digest=footing.digest or (earlier.digest if earlier is not None else None),
        # A volume was compared with the memory when it was mounted.
        reserve_bytes=reserve_bytes if footing.in_memory else None,
    )


def _differences(record: BootRecord, earlier: BootRecord | None) -> str:
    """Say in which ways the record has to change; the digest alone is no reason."""
    if earlier is None:
        return "nothing is recorded"
    words = {
        "source": "its source",
        "parent": "its target",
        "volume": "its volume",
        "volume_size_bytes": "the volume's size",
        "source_mount": "the mount point of its source",
        "target_mount": "the mount point of its target",
        "remote": "the kind of its source's file system",
        "reserve_bytes": "the memory that it must leave",
    }
    changed = [said for key, said in words.items() if getattr(record, key) != getattr(earlier, key)]
    return f"changed: {', '.join(changed)}" if changed else ""


def _plan_leftover(unit: str, facts: BootFacts, *, prune: bool) -> BootStep:
    subject, reason = dataset_of(unit), "the spec does not stage it at boot"
    planned = ObjectPlan.prunable(Kind.BOOT, subject, f"{reason}; --prune removes {unit}")
    if prune:
        change = Change(Kind.BOOT, subject, f"disable and remove {unit}", reason)
        planned = ObjectPlan(Kind.BOOT, subject, changes=(change,))
    return BootStep(planned, facts.unit_dir / unit, facts.installed_as(unit), remove=prune)


def _is_for_systemd(step: BootStep) -> bool:
    return step.path.parent == SYSTEM_UNIT_DIR and systemd_runs()


def _carry_out(step: BootStep) -> None:
    path, installed, subject = step.path, step.installed, step.planned.subject
    try:
        if step.remove:
            if installed is not None and _is_for_systemd(step):
                stop_unit(path.name)  # nobody wants its result any more
            remove_links(path.parent, path.name)
            path.unlink(missing_ok=True)
            forget_boot_record(subject)
            return
        # The record first: without it the service could only fail.
        if step.record is not None:
            save_boot_record(step.record)
        if step.content is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            remove_stale_temps(path)
            expected = installed.snapshot if installed is not None else None
            if installed is not None and installed.writer is not None:
                path.unlink()  # this removes its owner, mode and open descriptors too
                expected = None
            replace_file(path, step.content, expected=expected)
        if step.wanted_by is not None:
            make_links(path.parent, path.name, step.wanted_by)
    except OSError as error:
        where = error.filename or path
        what = "may still be staged at boot" if step.remove else "does not come back at boot"
        raise HostprepError(
            f"{subject} {what}: {where}: {error.strerror}.",
            writing_hint(error),
        ) from None
