"""``hostprep spec``: write a spec file, check it, and print its schema for editors."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hostprep.cli.options import JsonOption, SpecArgument
from hostprep.cli.output import emit_json, emit_text, error_fields, printable, say, say_error, warn
from hostprep.errors import UsageError
from hostprep.units import format_bytes, format_count, format_rate, lost_unit

if TYPE_CHECKING:
    from hostprep.spec.model import DatasetSpec, RequirementSpec, Spec, SpecError, VolumeSpec

spec_app = typer.Typer(
    help="Write hostprep.yml, check it, or print its schema.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
# The hint if there is no spec file.
_INIT = "`hostprep spec init` writes one; `hostprep spec schema` describes it to your editor"


def wanted_spec(path: str | None) -> Spec:
    """Load the spec file that the user named, or otherwise the one that is found."""
    from hostprep.spec.loading import load_spec

    return load_spec(spec_file(path), named=path is not None)


def spec_file(path: str | None, hint: str = _INIT) -> Path:
    """Return the spec file that the user named or that is found; ``hint`` is for if none is."""
    from hostprep.spec.finding import SYSTEM_SPEC, find_spec

    file = Path(path) if path is not None else find_spec()
    if file is None:
        raise UsageError(
            f"there is no spec file: neither ./hostprep.yml nor {SYSTEM_SPEC}.",
            hint,
        )
    return file


@spec_app.command("check")
def check(
    path: SpecArgument = None,
    as_json: JsonOption = False,
) -> None:
    """Show what the spec file contains, or list all mistakes in it."""
    from hostprep.spec.loading import load_spec
    from hostprep.spec.model import SpecError

    file = spec_file(path)
    try:
        spec = load_spec(file, named=path is not None)
    except SpecError as error:
        if not as_json:
            raise
        say_error(error)
        emit_json("spec", _error_fields(error), ok=False)
        raise typer.Exit(error.exit_code) from None
    for volume in spec.volumes:
        if not volume.size.endswith("%") and (words := lost_unit(volume.size_bytes())):
            warn(f"{volume.path}: {words}")
    if as_json:
        fields = asdict(spec)
        del fields["blank"], fields["bare"]
        for each in fields["volumes"]:
            each["mode"] = None if each["mode"] is None else f"{each['mode']:04o}"
        emit_json("spec", {**fields, "problems": []})
        return
    for line in _lines(spec, file):
        emit_text(printable(line))


@spec_app.command("init")
def init(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE]",
            help="Where to write it; ./hostprep.yml if not given, - is standard output.",
        ),
    ] = None,
    named: Annotated[
        str | None, typer.Option("--output", metavar="FILE", help="Same as FILE.", hidden=True)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a spec file that describes what this host has now.

    It names the volumes, the data sets, and what comes back at boot.
    """
    from hostprep.converging.drafting import draft_spec, write_draft

    if file is not None and named is not None:
        raise UsageError("FILE and --output are the same; nothing was written.", "give one of them")
    given = named if file is None else file
    output = "hostprep.yml" if given is None else given
    if output == "-" and as_json:
        raise UsageError(
            "FILE - prints the file itself, which does not go with --json.",
            "leave --json out, or name a file",
        )
    draft = draft_spec()
    if output != "-":
        write_draft(draft, Path(output))
    for note in draft.notes:
        say(f"hostprep: {printable(note)}")
    if as_json:
        emit_json("spec", {"path": os.path.abspath(output), "notes": list(draft.notes)})
    elif output == "-":
        emit_text(draft.text.rstrip("\n"))
    else:
        path = f"./{output}" if output.startswith("-") else output  # not to look like an option
        emit_text(
            printable(
                f"{path} was written; `hostprep plan {shlex.quote(path)}` shows what it would"
                " change"
            )
        )


@spec_app.command("schema")
def schema(
    as_json: Annotated[
        bool, typer.Option("--json", help="No effect: the schema is JSON.", hidden=True)
    ] = False,
) -> None:
    """Print the JSON Schema, for editors that complete and check YAML."""
    from hostprep.spec.schema import json_schema

    emit_text(json.dumps(json_schema(), indent=2))


def _error_fields(error: SpecError) -> dict[str, Any]:
    return {
        "error": error_fields(error),
        "problems": [asdict(problem) for problem in error.problems],
    }


def _lines(spec: Spec, file: Path) -> list[str]:
    lines = [
        *(f"  volume {_volume_words(volume)}" for volume in spec.volumes),
        *(f"  data set {_dataset_words(dataset)}" for dataset in spec.datasets),
        *(f"  requirement {_requirement_words(required)}" for required in spec.requirements),
    ]
    if spec.packages:
        lines.append(f"  packages {', '.join(spec.packages)}")
    return [f"{file} is valid" + (":" if lines else "; it names nothing"), *lines]


def _volume_words(volume: VolumeSpec) -> str:
    size = volume.size
    words = [f"{size} of the RAM" if size.endswith("%") else format_bytes(volume.size_bytes())]
    if volume.owner is not None:
        words.append(f"owner {volume.owner}")
    if volume.mode is not None:
        words.append(f"mode {volume.mode:04o}")
    if volume.inodes is not None:
        words.append(f"{format_count(volume.inodes, 'inode')}")
    if volume.huge is not None:
        words.append(f"huge pages {volume.huge}")
    if volume.swap:
        words.append("may be swapped out")
    return f"{volume.path}: {', '.join(words)}"


def _dataset_words(dataset: DatasetSpec) -> str:
    at_boot = ", staged again after each boot" if dataset.at_boot else ""
    return f"{dataset.name}: {dataset.source} -> {dataset.target}{at_boot}"


def _requirement_words(required: RequirementSpec) -> str:
    rates = []
    if required.samples_per_second is not None:
        rates.append(f"{required.samples_per_second:g} samples/s")
    if required.bytes_per_second is not None:
        rates.append(format_rate(required.bytes_per_second))
    return f"{required.dataset}: {', '.join(rates)}"
