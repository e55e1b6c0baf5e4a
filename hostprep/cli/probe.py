"""``hostprep probe``: how fast the storage under a path is, and whether that is enough."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from hostprep.cli.completion import training_profiles
from hostprep.cli.keeping import kept
from hostprep.cli.line import Line
from hostprep.cli.options import DryRunOption, JsonOption, size_in_bytes
from hostprep.cli.output import drawable, emit_json, emit_text, printable
from hostprep.errors import UsageError

if TYPE_CHECKING:
    from hostprep.probing.judgement import Need
    from hostprep.probing.model import Settings, Target


def probe(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A directory on the storage to measure.")
    ],
    seconds: Annotated[
        float, typer.Option(metavar="N", help="Approximate time limit in seconds; 5 at least.")
    ] = 30,
    size: Annotated[
        str, typer.Option(metavar="SIZE", help="Maximum amount of test data to write.")
    ] = "1G",
    need: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="The required rate: 1800 (samples/s), 400M (bytes/s)."),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A known rate: resnet50-h100, unet3d-h100, cosmoflow-h100 or retinanet-b200.",
            autocompletion=training_profiles,
        ),
    ] = None,
    readers: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, max=256, help="Number of parallel readers, like num_workers."
        ),
    ] = 8,
    compare: Annotated[
        str | None,
        typer.Option(metavar="PATH_OR_ID", help="Show the changes since this earlier probe."),
    ] = None,
    drop_caches: Annotated[
        bool,
        typer.Option("--drop-caches", help="Drop all caches of the machine first; needs root."),
    ] = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> int:
    """Measure large sequential reads, random reads and small files.

    Takes about 30 seconds. Writes a test file of its own and removes it; existing files are only
    read. Exit status: 0 if measured or PASS, 3 for FAIL, 4 for INVALID.
    """
    from hostprep.cli.probe_text import render
    from hostprep.probing import results
    from hostprep.probing.judge import judge
    from hostprep.probing.judgement import EXIT_CODES
    from hostprep.probing.model import Settings
    from hostprep.probing.probe import probe as measure
    from hostprep.probing.probe import target

    required = _requirement(need, profile)
    settings = Settings(seconds, size_in_bytes(size), readers, drop_caches)
    before = results.load(compare) if compare else None
    to = target(path, seconds)
    if before is not None:
        results.refuse_unlike(before, results.chosen_settings(to, settings))
    if dry_run:
        _show_intent(to, settings, as_json=as_json)
        return 0
    with Progress() as observer:
        measured = measure(to, settings, observer)
    judgement = judge(measured, required)
    fields = results.document(to, measured, judgement, required)
    if not kept(lambda: results.keep(fields)):
        fields.pop("id", None)
    changes: tuple[results.Difference, ...] = ()
    valid = True
    if before is not None:
        results.refuse_unlike(before, fields["settings"])
        changes, valid = results.differences(before, fields), bool(before.get("valid"))
        fields["compared"] = {
            "id": before.get("id"),
            "valid": valid,
            "differences": [asdict(change) for change in changes],
        }
    if as_json:
        emit_json("probe", fields)
    else:
        kept_as = fields.get("id")
        emit_text(render(measured, judgement, required, kept_as, changes, earlier_valid=valid))
    return EXIT_CODES[judgement.verdict]


def _show_intent(to: Target, settings: Settings, *, as_json: bool) -> None:
    """Print what a probe would do."""
    from hostprep.probing.intent import intended
    from hostprep.probing.probe import refuse_odd
    from hostprep.probing.results import folder

    refuse_odd(settings)
    steps = intended(to, settings, folder())
    if as_json:
        changes = [asdict(step) for step in steps]
        emit_json("probe", {"dry_run": True, "path": to.storage.path, "changes": changes})
        return
    for step in steps:
        emit_text(printable(f"would: {step.subject}: {step.action} ({step.reason})"))
    emit_text("dry run: nothing was written, and nothing measured")


def _requirement(need: str | None, profile: str | None) -> Need | None:
    from hostprep.probing.needs import parse_need, profile_need

    if need and profile:
        raise UsageError("--need and --profile are two requirements.", "give one of them")
    if need:
        return parse_need(need)
    return profile_need(profile) if profile else None


class Progress(Line):
    """An observer that shows the phase, its share of the time, and the current measurement.

    It has no thread of its own, because reader processes are forked meanwhile.
    """

    _WIDTH = 20
    _EVERY_SECONDS = 0.1

    def __init__(self) -> None:
        super().__init__()
        self._name = ""
        self._begun = 0.0
        self._seconds = 1.0
        self._drawn = 0.0

    def phase(self, name: str, seconds: float) -> None:
        """Begin a phase that takes about ``seconds``."""
        self._name, self._begun, self._seconds = name, time.monotonic(), max(seconds, 0.1)
        self._drawn = 0.0
        self.progress("")

    def progress(self, text: str) -> None:
        """Show what the phase is measuring; cheap to call often, redraws only now and then."""
        now = time.monotonic()
        if now - self._drawn < self._EVERY_SECONDS:
            return
        self._drawn = now
        share = min(1.0, (now - self._begun) / self._seconds)
        bar = ("█" * round(share * self._WIDTH)).ljust(self._WIDTH, "░")
        self.write(f"{drawable(bar, sys.stderr)} {self._name}  {text}")
