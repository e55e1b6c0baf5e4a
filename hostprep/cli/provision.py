"""``hostprep provision``: make many hosts match the spec, by Ansible."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hostprep.cli.fleet_progress import FleetProgress
from hostprep.cli.options import INVENTORY, JsonOption, PruneOption, SpecArgument
from hostprep.cli.output import emit_json, emit_text, printable, say, say_error, warn
from hostprep.errors import HostprepError, Interrupted, UsageError

if TYPE_CHECKING:
    from hostprep.fleet import FleetRun
    from hostprep.fleet.events import Event


def provision(
    inventory: Annotated[list[str], INVENTORY],
    spec: SpecArgument = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Only these hosts: name, group, a,b."),
    ] = None,
    retry_failed: Annotated[
        bool,
        typer.Option(
            "--retry-failed", help="Only hosts that failed when they were last provisioned."
        ),
    ] = False,
    check: Annotated[
        bool,
        typer.Option("--check", "--dry-run", help="Show what would change; change nothing."),
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Show the changes as a diff.")] = False,
    prune: PruneOption = False,
    forks: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=500, help="Number of hosts to work on in parallel."),
    ] = 10,
    waves: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="Number of waves to stage in, to spare the server that all pull from.",
        ),
    ] = 1,
    wheelhouse: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Directory of wheels for the hosts; downloaded if not given."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Install hostprep on many hosts and apply the spec there.

    A host that fails does not stop the others. Differences between hosts go into the inventory:
    hostprep_volumes, hostprep_datasets, hostprep_requirements and hostprep_packages replace the
    spec's section of that name. Nobody is asked for a password: if sudo needs one, set
    ANSIBLE_BECOME_PASSWORD_FILE to the name of a file that contains it.
    """
    from hostprep.cli.provision_text import run_fields, show_run
    from hostprep.fleet.inventory import limits, only_one
    from hostprep.fleet.last_run import failed_hosts
    from hostprep.fleet.playbook import NobodyMeant, checked_inventory, run_playbook
    from hostprep.fleet.received import understood

    named = only_one(inventory)
    where = checked_inventory(named)
    only = limits(limit)
    if retry_failed:
        if limit:
            raise UsageError(
                "--retry-failed chooses the hosts; it goes without --limit.",
                "leave one of them out",
            )
        only = failed_hosts(where)
        if not only:
            _show_nothing_to_retry(named, check=check, as_json=as_json)
            return
    variables = _variables(spec, prune=prune, waves=waves, wheelhouse=wheelhouse)
    try:
        run = run_playbook(
            "site",
            named,
            variables,
            limit=only,
            forks=forks,
            check=check,
            diff=diff,
            observer=_ProvisionProgress(check=check),
        )
    except KeyboardInterrupt:
        raise _interruption(check=check) from None
    except NobodyMeant:
        if not retry_failed:
            raise
        raise _none_left(only, named) from None
    run = understood(run)
    noted = check or _noted(where, run, whole=not only)
    again = "the same command"
    if not retry_failed and noted:
        again += " with --retry-failed" + (" in place of --limit" if limit else "")
    error = _failure(run, again, check=check)
    for warning in run.warnings:
        warn(warning)
    if as_json:
        emit_json("provision", run_fields(run, check=check, error=error), ok=error is None)
    else:
        show_run(run, check=check, diff=diff)
    if error is not None:
        say_error(error)
        raise typer.Exit(error.exit_code)


def _variables(
    spec: str | None, *, prune: bool, waves: int, wheelhouse: Path | None
) -> dict[str, Any]:
    """Return the roles' variables; the inventory may set what the options leave open."""
    from hostprep.cli.spec import spec_file
    from hostprep.fleet.sending import spec_for_hosts

    path = spec_file(spec, "name one: hostprep provision -i INVENTORY SPEC")
    sections = spec_for_hosts(path, named=spec is not None, prune=prune)
    variables: dict[str, Any] = {"hostprep_spec": sections}
    if prune:
        variables["hostprep_prune"] = True
        if not any(sections.values()):  # an empty spec that is meant: it asks for nothing
            variables["hostprep_prune_all"] = True
    if waves > 1:
        variables["hostprep_waves"] = waves
    if wheelhouse is not None:
        if not wheelhouse.is_dir():
            raise UsageError(
                f"{printable(str(wheelhouse))} is not a folder; no host was reached.",
                "name a folder of wheels, or leave --wheelhouse out: they are downloaded then",
            )
        variables["hostprep_install_wheelhouse"] = str(wheelhouse.absolute())
    return variables


def _show_nothing_to_retry(named: str, *, check: bool, as_json: bool) -> None:
    from hostprep.cli.provision_text import run_fields
    from hostprep.fleet import FleetRun

    if as_json:
        emit_json("provision", run_fields(FleetRun((), 0.0), check=check, error=None))
    else:
        # An inventory never provisioned from here has none either: do not call it success.
        which = printable(named.rstrip(","))
        emit_text(f"nothing to do: no host of {which} is on record as failed")


def _none_left(failed: Sequence[str], named: str) -> UsageError:
    return UsageError(
        f"{', '.join(failed)} failed when last provisioned; {named.rstrip(',')} has no such host"
        " any more, and none was reached.",
        "leave out --retry-failed: a run of all hosts forgets those that are gone",
    )


def _noted(inventory: str, run: FleetRun, *, whole: bool) -> bool:
    """Record the hosts that failed; if that fails, only warn: the result matters more."""
    from hostprep.fleet.last_run import remember

    try:
        remember(inventory, run, whole=whole)
    except (OSError, HostprepError) as error:
        say(f"hostprep: --retry-failed will not know of this run: {printable(str(error))}")
        return False
    return True


def _interruption(*, check: bool) -> Interrupted:
    if check:
        return Interrupted(
            "interrupted; nothing was changed on any host, but a folder /tmp/ansible.*.hostprep may"
            " be left there.",
            "an installation on a later day removes it",
        )
    return Interrupted(
        "interrupted; what was done on the hosts stays, and one may still be at work on its last"
        " task.",
        "the same command again goes on from there; with --check it shows what is left",
    )


def _failure(run: FleetRun, again: str, *, check: bool) -> HostprepError | None:
    if not run.failed:
        return None
    failed = printable(", ".join(run.failed))
    return HostprepError(
        f"{len(run.failed)} of {len(run.hosts)} hosts failed: {failed}.",
        "nothing was changed on any host" if check else f"once they are fixed: {again}",
    )


class _ProvisionProgress(FleetProgress):
    """Reports changes as well as failures."""

    def __init__(self, *, check: bool) -> None:
        super().__init__()
        self._changed = "would change" if check else "changed"

    def _line(self, event: Event) -> str | None:
        if event.kind == "ok" and event.fields.get("changed"):
            return f"{event.host}: {event.task}: {self._changed}"
        return super()._line(event)
