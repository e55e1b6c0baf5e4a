"""``hostprep check``: is this host ready to feed its GPUs, and if not, what fixes it?"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from hostprep.cli.completion import check_code_lists
from hostprep.cli.line import Line
from hostprep.cli.options import INVENTORY, JsonOption, SpecArgument
from hostprep.cli.output import emit_json, emit_text, json_text, printable, say, wants_colour
from hostprep.errors import HostprepError, UsageError
from hostprep.readiness.formats import Format, render
from hostprep.system.following import followed

if TYPE_CHECKING:
    from hostprep.readiness.context import Context
    from hostprep.readiness.model import Level


def check(
    spec: SpecArgument = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Take a few seconds and cause no load; the default.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Measure as well: two to three minutes, under load.")
    ] = False,
    form: Annotated[
        Format | None, typer.Option("--format", help="The format of the report.")
    ] = None,
    as_json: JsonOption = False,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            metavar="FILE",
            help="Write the report to this file, and print the text; - is standard output.",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Show what got worse or better since this saved report."),
    ] = None,
    save_baseline: Annotated[
        str | None, typer.Option(metavar="FILE", help="Save this report for later comparison.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CODES",
            help="Run only these checks: HP001,HP020.",
            autocompletion=check_code_lists,
        ),
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CODES",
            help="Skip these checks: HP044,HP060.",
            autocompletion=check_code_lists,
        ),
    ] = None,
    inventory: Annotated[list[str] | None, INVENTORY] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN", help="Only these hosts of the inventory: name, group, a,b."
        ),
    ] = None,
) -> int:
    """Check whether this host is ready to train, and say what to fix.

    Changes nothing, except that --full writes test files and removes them. Exit status: 0 if
    ready (PASS or WARN), 3 for FAIL, 4 for UNKNOWN without a FAIL, or if nothing was checked.
    """
    from hostprep.cli.check_fleet import check_fleet, fleet_text
    from hostprep.cli.check_text import report_text
    from hostprep.readiness import baseline as baselines
    from hostprep.readiness.model import Level
    from hostprep.readiness.registry import all_checks, select
    from hostprep.readiness.report import class_fields, make_report

    if quick and full:
        raise UsageError("--quick and --full exclude each other.", "give one of them")
    level = Level.FULL if full else Level.QUICK
    output = None if output == "-" else output
    wanted = _form(form, as_json=as_json, output=output)
    selection = select(
        all_checks(), level=level, only=_codes("--only", only), skip=_codes("--skip", skip)
    )
    _refuse_files(output, baseline=baseline, save_baseline=save_baseline)
    if limit and not inventory:
        raise UsageError("--limit chooses hosts of an inventory.", "name it: -i INVENTORY")
    if inventory:
        if spec or baseline or save_baseline:
            raise UsageError(
                "with -i each host is checked against its own spec, and there is no baseline.",
                "leave out SPEC, --baseline and --save-baseline",
            )
        if wanted is Format.NAGIOS:
            raise UsageError(
                "--format nagios reports on one host.",
                "let the monitoring run it on each host by itself",
            )
        fleet = check_fleet(inventory, _arguments(level, only=only, skip=skip), limit)
        shown = _Shown("check-fleet", fleet, lambda _: fleet_text(fleet))
        _show(shown, wanted, as_json=as_json, output=output)
        return int(fleet["exit_code"])
    before = None if baseline is None else baselines.load_baseline(Path(baseline))
    context = _context(spec, level)
    if before is not None:
        baselines.refuse_unlike(before, class_fields(context))
    with _Progress() as observer:
        report = make_report(selection, context, observer)
    if save_baseline is not None:
        baselines.save_baseline(Path(save_baseline), report)
    if before is not None:
        report["baseline"] = baselines.compare(before, report)
    shown = _Shown("check", report, lambda colours: report_text(report, colours=colours))
    _show(shown, wanted, as_json=as_json, output=output)
    return int(report["exit_code"])


def _form(form: Format | None, *, as_json: bool, output: str | None) -> Format:
    if as_json and output is None and form not in (None, Format.JSON):
        raise UsageError(
            f"--json and --format {form} both print.", "write one into a file: --output FILE"
        )
    return form or (Format.JSON if as_json else Format.TEXT)


def _codes(option: str, lists: list[str] | None) -> tuple[str, ...]:
    if not lists:
        return ()
    named = (code.strip() for codes in lists for code in codes.split(","))
    codes = tuple(filter(None, named))
    if not codes and option == "--only":
        raise UsageError(
            "--only names no check.", "name some, HP001,HP020, or leave it out for all"
        )
    return codes


def _context(spec: str | None, level: Level) -> Context:
    from hostprep.readiness.context import Context
    from hostprep.spec.finding import find_spec
    from hostprep.spec.loading import load_spec

    path = find_spec() if spec is None else Path(spec)
    loaded = None if path is None else load_spec(path, named=spec is not None)
    return Context(spec=loaded, level=level)


def _refuse_files(output: str | None, *, baseline: str | None, save_baseline: str | None) -> None:
    """Raise if an output file cannot be written or would overwrite a baseline."""
    if save_baseline == "-":
        raise UsageError(
            "--save-baseline needs a file, which a later --baseline reads.",
            "--json prints the report; ./- is a file of that name",
        )
    for file in filter(None, (output, save_baseline)):
        _refuse_unwritable(file)
    kept = {followed(file) for file in (baseline, save_baseline) if file}
    if output is not None and followed(output) in kept:
        raise UsageError(
            f"--output would write over the baseline {output}.", "name another file for the report"
        )


def _refuse_unwritable(file: str) -> None:
    """Raise if the report cannot be written, before spending minutes on measuring."""
    folder = os.path.dirname(file) or "."
    replaced = not os.path.lexists(file) or (os.path.isfile(file) and not os.path.islink(file))
    if os.path.isdir(file):
        reason = "it is a directory"
    elif not os.path.isdir(folder):
        reason = f"there is no folder {folder}"
    elif replaced and not os.access(folder, os.W_OK | os.X_OK):
        reason = f"this user may not write to {folder}"
    else:
        return
    raise HostprepError(
        f"the report cannot be written to {file}: {reason}; nothing was checked.",
        "name another file, in a folder that is there and that you may write to",
    )


class _Shown(NamedTuple):
    """A host's or fleet's report: the document ``name``, and ``text``, with colours or without."""

    name: str
    fields: dict[str, Any]
    text: Callable[[bool], str]


def _show(shown: _Shown, form: Format, *, as_json: bool, output: str | None) -> None:
    """Write the chosen format into the file and print the text; without a file, print the format.

    If the file cannot be written, the findings are printed all the same.
    """
    if output is not None:
        try:
            _write(Path(output), _in_form(shown, form), shown.fields["verdict"])
        except HostprepError as error:
            if as_json or form is Format.JSON:  # stdout has room for one document: the error's
                error.beside = shown.fields
            else:
                emit_text(shown.text(wants_colour(sys.stdout)))
            raise
    if as_json or (form is Format.JSON and output is None):
        emit_json(shown.name, shown.fields)
    elif form is Format.TEXT or output is not None:
        emit_text(shown.text(wants_colour(sys.stdout)))
    else:
        emit_text(_in_form(shown, form).rstrip("\n"))


def _in_form(shown: _Shown, form: Format) -> str:
    if form is Format.JSON:
        return json_text(shown.name, shown.fields) + "\n"
    if form is Format.TEXT:
        return shown.text(False) + "\n"
    return render(form, shown.fields)


def _arguments(level: Level, *, only: list[str] | None, skip: list[str] | None) -> list[str]:
    """Return the options to pass to `hostprep check` on each host of a fleet."""
    named = (("--only", only), ("--skip", skip))
    return [f"--{level}", *(f"{option}={','.join(lists)}" for option, lists in named if lists)]


def _write(path: Path, text: str, verdict: str) -> None:
    """Write the report so that a reader of the file finds the old one or the new one, whole."""
    from hostprep.system.files import writing_hint
    from hostprep.system.named_files import write_named

    try:
        # Names that are not UTF-8 appear with their bytes as escapes.
        write_named(path, text.encode(errors="backslashreplace"), durable=False)
    except OSError as error:
        raise HostprepError(
            f"the report cannot be written to {path}: {error.strerror}; the verdict is {verdict}.",
            writing_hint(error, "name another file"),
        ) from None
    except HostprepError as error:
        error.message += f" The verdict is {verdict}."
        raise
    say(printable(f"the verdict is {verdict}; the report is in {path}"))


class _Progress(Line):
    """Shows the check that is running on one line of a terminal; silent elsewhere."""

    def looking(self, title: str) -> None:
        """Show the title."""
        self.write(f"{title} ...")
