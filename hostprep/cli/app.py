"""The Typer application: which commands there are. Each has its own module in this folder."""

from __future__ import annotations

from typing import Annotated

import typer

import hostprep
from hostprep.cli.apply import apply
from hostprep.cli.check import check
from hostprep.cli.explain import explain
from hostprep.cli.facts import facts
from hostprep.cli.mount import mount
from hostprep.cli.output import emit_text
from hostprep.cli.plan import plan
from hostprep.cli.probe import probe
from hostprep.cli.provision import provision
from hostprep.cli.recommend import recommend
from hostprep.cli.restage import restage
from hostprep.cli.spec import spec_app
from hostprep.cli.stage import stage
from hostprep.cli.status import status
from hostprep.cli.unmount import unmount
from hostprep.cli.unstage import unstage
from hostprep.cli.verify import verify
from hostprep.cli.wait import wait
from hostprep.cli.wheelhouse import wheelhouse

app = typer.Typer(
    name="hostprep",
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


# Each command module registers itself here: app.command(name)(function).
COMMANDS = frozenset(
    {
        "mount",
        "unmount",
        "stage",
        "unstage",
        "status",
        "probe",
        "facts",
        "spec",
        "recommend",
        "verify",
        "check",
        "explain",
        "restage",
        "wait",
        "plan",
        "apply",
        "provision",
        "wheelhouse",
    }
)

app.command("stage")(stage)
app.command("unstage")(unstage)
app.command("status")(status)
app.command("mount")(mount)
app.command("unmount")(unmount)
app.command("probe")(probe)
app.command("recommend")(recommend)
app.command("verify")(verify)
app.command("check")(check)
app.command("explain")(explain)
app.command("wait")(wait)
app.command("restage", hidden=True)(restage)
app.add_typer(spec_app, name="spec")
app.command("facts")(facts)
app.command("plan")(plan)
app.command("apply")(apply)
app.command("provision")(provision)
app.command("wheelhouse", hidden=True)(wheelhouse)
