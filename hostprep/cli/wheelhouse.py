"""``hostprep wheelhouse``: what the Ansible role runs on the controller; not in ``--help``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hostprep.cli.options import JsonOption
from hostprep.cli.output import emit_json, emit_text


def wheelhouse(
    target: Annotated[
        str | None, typer.Option(help="The platform of the host: 3.11-x86_64-glibc-2.36.")
    ] = None,
    only_hostprep: Annotated[
        bool, typer.Option("--only-hostprep", help="Leave out what hostprep depends on.")
    ] = False,
    given: Annotated[
        Path | None,
        typer.Option("--from", help="Take the wheels from this directory; download nothing."),
    ] = None,
    installed: Annotated[
        str | None,
        typer.Option(metavar="BUILD", help="Make no archive if BUILD is this hostprep's own."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Pack the wheels that install this hostprep on a host; print the archive's path."""
    from hostprep.fleet.packing import pack_wheel
    from hostprep.fleet.wheelhouse import Target, make_wheelhouse

    # A host that needs no wheels does not fail because they are not there or cannot be downloaded.
    if installed is not None and (packed := pack_wheel()).build == installed:
        if as_json:
            emit_json("wheelhouse", {"wheel": packed.name, "build": packed.build, "archive": None})
        else:
            emit_text(f"nothing to do: {installed} is this build")
        return
    wanted = None if target is None or only_hostprep else Target.parse(target)
    made = make_wheelhouse(wanted, None if only_hostprep else given)
    if not as_json:
        emit_text(str(made.archive))
        return
    fields = {"wheel": made.wheel, "build": made.build, "archive": str(made.archive)}
    emit_json("wheelhouse", fields)
