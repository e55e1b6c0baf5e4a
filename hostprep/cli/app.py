"""The Typer application: the list of commands, each of which has its own module in this folder.

Only the module of the command that runs is imported, so that adding commands does not slow down
the start of the others.
"""

from __future__ import annotations

import copy
import importlib
import re
from functools import partial
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

import hostprep
from hostprep.cli.completion import Shell, script
from hostprep.cli.output import emit_text
from hostprep.errors import UsageError
from hostprep.units import is_plain_number

# For these options an empty value means something, or the command itself reports the mistake best.
_MAY_BE_EMPTY = frozenset({"--skip", "--only", "--limit"})
_AN_OPTION = re.compile(r"--|-[a-zA-Z]")


class Command(NamedTuple):
    """Where a command's function or group of subcommands is, and its line in ``--help``."""

    place: str
    help: str
    hidden: bool = False


COMMANDS = {
    "stage": Command(
        "hostprep.cli.stage:stage",
        "Stage a data set: copy, verify and publish it in one go.",
    ),
    "unstage": Command(
        "hostprep.cli.unstage:unstage",
        "Remove a staged data set, and its volume if that is then empty.",
    ),
    "status": Command(
        "hostprep.cli.status:status",
        "Show volumes and data sets: size, usage, drift and freshness.",
    ),
    "mount": Command(
        "hostprep.cli.mount:mount",
        "Mount a tmpfs of a given size, or change one; its data stays.",
    ),
    "unmount": Command(
        "hostprep.cli.unmount:unmount",
        "Unmount a hostprep volume that is empty and not in use.",
    ),
    "probe": Command(
        "hostprep.cli.probe:probe",
        "Measure large sequential reads, random reads and small files.",
    ),
    "recommend": Command(
        "hostprep.cli.recommend:recommend",
        "Measure how many DataLoader workers to use; name the bottleneck.",
    ),
    "verify": Command(
        "hostprep.cli.verify:verify",
        "Test on the GPU that prefetching overlaps and loses no data.",
    ),
    "check": Command(
        "hostprep.cli.check:check",
        "Check whether this host is ready to train, and say what to fix.",
    ),
    "explain": Command(
        "hostprep.cli.explain:explain",
        "Explain what a check looks at and why, or list all checks.",
    ),
    "wait": Command(
        "hostprep.cli.wait:wait",
        "Wait until data sets are completely staged in this boot.",
    ),
    "restage": Command(
        "hostprep.cli.restage:restage",
        "Stage a data set again as `hostprep apply` recorded it; mount and ask nothing.",
        hidden=True,
    ),
    "spec": Command(
        "hostprep.cli.spec:spec_app",
        "Write hostprep.yml, check it, or print its schema.",
    ),
    "facts": Command(
        "hostprep.cli.facts:facts",
        "Show the facts about this machine that hostprep relies on.",
    ),
    "plan": Command(
        "hostprep.cli.plan:plan",
        "Show what applying the spec would change here, and why.",
    ),
    "apply": Command(
        "hostprep.cli.apply:apply",
        "Make this host match the spec, then look at it again.",
    ),
    "provision": Command(
        "hostprep.cli.provision:provision",
        "Install hostprep on many hosts and apply the spec there.",
    ),
    "wheelhouse": Command(
        "hostprep.cli.wheelhouse:wheelhouse",
        "Pack the wheels that install this hostprep on a host; print the archive's path.",
        hidden=True,
    ),
}


def load(name: str) -> Any:
    """Import a command's module and return the command in the form that the parser needs."""
    module, _, attribute = COMMANDS[name].place.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    if isinstance(found, typer.Typer):
        return _heeding(typer.main.get_group(found))
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    # Under PYTHONOPTIMIZE=2 functions have no docstring, so use the line from the list.
    alone.command(name, help=None if found.__doc__ else COMMANDS[name].help)(found)
    return _heeding(typer.main.get_command(alone))


def _heeding(command: Any) -> Any:
    """Make each parameter of a command, or of a group of commands, refuse malformed values."""
    for inner in getattr(command, "commands", {}).values():
        _heeding(inner)
        inner.short_help = (inner.help or "").partition("\n")[0]
    for parameter in command.params:
        if parameter.type.name.startswith(("int", "float")):
            parameter.type = copy.copy(parameter.type)  # parameters share some types
            parameter.type.convert = partial(_plain_number, parameter.type.convert)
        parameter.callback = parameter.callback or _meant
    return command


def _plain_number(convert: Any, value: Any, parameter: Any, context: Any) -> Any:
    """Read a number; refuse ``1_000`` and non-ASCII digits, which the parser would accept."""
    if isinstance(value, str) and not is_plain_number(value):
        parameter.type.fail(f"{value!r} is not a valid {parameter.type.name}.", parameter, context)
    return convert(value, parameter, context)


def _meant(context: Any, parameter: Any, value: Any) -> Any:
    """Raise ``UsageError`` for a value that comes from an unset variable or an unexpanded ``~``.

    An empty path would mean the current directory, which nobody named. Without quotes, as in
    ``--to $DIR --dry-run``, an unset variable would make ``--dry-run`` the name of the folder, and
    the run would not be a dry run. A shell does not expand ``--to=~/x``, so it would create a
    folder called ``~``, and whoever removes that may remove their real home by mistake. While a
    shell asks for completions, nothing is checked.
    """
    if context.resilient_parsing:
        return value
    for text in value if isinstance(value, list | tuple) else (value,):
        if text == "" and _MAY_BE_EMPTY.isdisjoint(parameter.opts):
            raise UsageError(
                f"{_name(parameter)} is empty; nothing was done.",
                "give it a value; a shell variable that is not set is empty",
            )
        written = str(text)
        if parameter.param_type_name == "option" and _AN_OPTION.match(written):
            raise UsageError(
                f"{_name(parameter)} is {written!r}, which reads as another option; nothing was"
                " done.",
                "give it a value; a shell variable that is not set, without quotes, is nothing at"
                f' all; a file or folder that is called so is "./{written}"',
            )
        if written == "~" or written.startswith("~/"):
            raise UsageError(
                f"{_name(parameter)} is {written!r}: the shell has not put the home directory in"
                " its place; nothing was done.",
                f'write it as "$HOME{written[1:]}"; a folder that is called so is "./{written}"',
            )
    return value


def _name(parameter: Any) -> str:
    """Return the name of a parameter that the user knows."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name).strip("[].")
    return str(max(parameter.opts, key=len))


class _Group(TyperGroup):
    """Has a stub of each command for the help; the command that runs replaces its stub."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, (_, words, hidden) in COMMANDS.items():
            # Set the short help too, or a narrow terminal cuts it off instead of wrapping it.
            self.add_command(TyperCommand(name, help=words, short_help=words, hidden=hidden))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in COMMANDS:
            self.commands[args[0]] = load(args[0])
        else:  # do not suggest a hidden command for a typing mistake
            self.commands = {name: each for name, each in self.commands.items() if not each.hidden}
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


def _version(context: typer.Context, value: bool) -> None:
    if value and not context.resilient_parsing:
        emit_text(f"hostprep {hostprep.__version__}")
        raise typer.Exit


def _completion(context: typer.Context, shell: Shell | None) -> None:
    if shell is not None and not context.resilient_parsing:
        emit_text(script(shell))
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    completion: Annotated[
        Shell | None,
        typer.Option(
            "--completion",
            callback=_completion,
            is_eager=True,
            help="Print the completion script for this shell.",
        ),
    ] = None,
) -> None:
    """Make a Linux host ready to feed a GPU: mount, stage, measure, judge."""
