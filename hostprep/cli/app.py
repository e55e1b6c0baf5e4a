"""The Typer application: which commands there are. Each has its own module in this folder.

Only the module of the command that is run is imported, so that a command's start does not grow with
the number of its neighbours.
"""

from __future__ import annotations

import importlib
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

import hostprep
from hostprep.cli.output import emit_text


class Command(NamedTuple):
    """Where a command's function, or its group of subcommands, is, and its line in ``--help``."""

    place: str
    help: str
    hidden: bool = False


COMMANDS = {
    "stage": Command(
        "hostprep.cli.stage:stage",
        "Stage a data set: copy, verify and publish it in one go; run it again to update.",
    ),
    "unstage": Command(
        "hostprep.cli.unstage:unstage",
        "Remove a staged data set. What others added stays, and is named; the source is untouched.",
    ),
    "status": Command(
        "hostprep.cli.status:status",
        "Show volumes (size, use, drift) and data sets (whole, verified, fresh or stale).",
    ),
    "mount": Command(
        "hostprep.cli.mount:mount",
        "Mount a sized tmpfs, or change one that hostprep mounted; what is in it stays.",
    ),
    "unmount": Command(
        "hostprep.cli.unmount:unmount",
        "Unmount a volume that hostprep mounted, if it is empty and nobody uses it.",
    ),
    "probe": Command(
        "hostprep.cli.probe:probe",
        "Measure big sequential reads, random reads and many small files, in about 30 seconds.",
    ),
    "recommend": Command(
        "hostprep.cli.recommend:recommend",
        "Say how many DataLoader workers to use, by measuring, and what binds then.",
    ),
    "verify": Command(
        "hostprep.cli.verify:verify",
        "Prove on the GPU that prefetching overlaps with compute, and that every byte arrives.",
    ),
    "check": Command(
        "hostprep.cli.check:check",
        "Judge whether this host is ready for a training run, and say what cures it if not.",
    ),
    "explain": Command(
        "hostprep.cli.explain:explain",
        "Print the page of a check of `hostprep check`; without a code, list all checks.",
    ),
    "wait": Command(
        "hostprep.cli.wait:wait",
        "Wait until data sets are staged, whole, in this boot; fail at once where they cannot be.",
    ),
    "restage": Command(
        "hostprep.cli.restage:restage",
        "Stage a data set again as `hostprep apply` recorded it; mounts and asks nothing.",
        hidden=True,
    ),
    "spec": Command(
        "hostprep.cli.spec:spec_app",
        "The spec file, hostprep.yml: write it, check it, or print its schema.",
    ),
    "facts": Command(
        "hostprep.cli.facts:facts",
        "Show processors, memory and what of them may be used, and what tmpfs can do here.",
    ),
    "plan": Command(
        "hostprep.cli.plan:plan",
        "Show what the spec would change on this host, and why; changes nothing.",
    ),
    "apply": Command(
        "hostprep.cli.apply:apply",
        "Make this host as the spec says; then look again, and say what is still to be done.",
    ),
    "provision": Command(
        "hostprep.cli.provision:provision",
        "Install hostprep on hosts and apply the spec; a host that fails does not stop the others.",
    ),
    "wheelhouse": Command(
        "hostprep.cli.wheelhouse:wheelhouse",
        "Pack the wheels with which a host installs this hostprep; print the archive's path.",
        hidden=True,
    ),
}


def load(name: str) -> Any:
    """Import a command's module and return the command as the parser wants it."""
    module, _, attribute = COMMANDS[name].place.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    if isinstance(found, typer.Typer):
        return typer.main.get_group(found)
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    alone.command(name)(found)
    return typer.main.get_command(alone)


class _Group(TyperGroup):
    """Has a stub of each command for the help; the one that is run takes its place."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, (_, words, hidden) in COMMANDS.items():
            self.add_command(TyperCommand(name, help=words, hidden=hidden))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in COMMANDS:
            self.commands[args[0]] = load(args[0])
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="hostprep",
    cls=_Group,
    help="Make a Linux host ready to feed a GPU.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        emit_text(f"hostprep {hostprep.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Make a Linux host ready to feed a GPU: mount, stage, measure, judge."""
