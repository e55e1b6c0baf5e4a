"""``hostprep wait``: blocks until data sets are ready, for job scripts."""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hostprep.cli.completion import dataset_names
from hostprep.cli.options import JsonOption
from hostprep.cli.output import emit_json, emit_text, error_fields, printable, say, say_error
from hostprep.errors import HostprepError, UsageError
from hostprep.units import format_seconds

if TYPE_CHECKING:
    from hostprep.converging.boot_state import BootState
    from hostprep.converging.waiting import Waited


def wait(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help="Names or target paths of data sets; with --timeout, also of data sets that"
            " nobody has begun to stage.",
            autocompletion=dataset_names,
        ),
    ],
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", min=0, help="Give up after this time. If not given: never."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Wait until data sets are completely staged in this boot.

    Fails at once if they cannot become ready or, without --timeout, if there is no record of one.
    Every entry must be there with the size and the modification time that it was staged with. This
    is compared for at most 30 s per data set; no contents are read.
    """
    from hostprep.converging.waiting import wait_for

    if timeout is not None and math.isnan(timeout):
        raise UsageError(
            "--timeout nan is not a number of seconds.", "accepted: 0 and more seconds"
        )
    started = time.monotonic()
    waited = wait_for(names, timeout_seconds=timeout, on_change=_tell)
    seconds = time.monotonic() - started
    errors = [_error(each, seconds) for each in waited if not each.ready]
    if as_json:
        fields: dict[str, Any] = {
            "datasets": [_fields(each) for each in waited],
            "seconds": round(seconds, 3),
        }
        if errors:
            fields["error"] = error_fields(errors[0])
        emit_json("wait", fields, ok=not errors)
    for each in waited:
        if each.ready and not as_json:
            caveat = f" ({each.state.caveat})" if each.state.caveat else ""
            emit_text(printable(f"{each.name} is ready: {each.target}{caveat}"))
    for error in errors:
        say_error(error)
    if errors:
        raise typer.Exit(HostprepError.exit_code)


def _error(waited: Waited, seconds: float) -> HostprepError:
    state = waited.state
    if waited.timed_out:
        error = HostprepError(
            f"{waited.name} is not ready after {format_seconds(seconds)}: {state.stage.value}:"
            f" {state.reason}",
            state.hint
            or "give it more time with --timeout; `hostprep status` shows what is staged",
        )
        error.code = "timeout"
        return error
    if state.stage.comes_up:
        return HostprepError(
            f"{waited.name} is not ready yet: {state.reason}",
            "it may still become ready: wait for it alone",
        )
    return HostprepError(f"{waited.name} is not ready: {state.reason}", state.hint)


def _fields(waited: Waited) -> dict[str, Any]:
    state = waited.state
    return {
        "name": waited.name,
        "target": waited.target,
        "ready": waited.ready,
        "state": state.stage.value,
        "reason": state.reason,
        "hint": state.hint,
        "timed_out": waited.timed_out,
    }


def _tell(name: str, state: BootState) -> None:
    """Report progress to people at a terminal; also in a log if a name may be mistyped."""
    from hostprep.converging.boot_state import Stage

    if state.stage is Stage.UNKNOWN:
        known = "" if state.hint is None else f" ({state.hint})"
        say(printable(f"hostprep: {name}: {state.reason} yet; waiting for it{known}"))
    elif sys.stderr.isatty():
        say(printable(f"{name}: {state.stage.value}: {state.reason}"))
