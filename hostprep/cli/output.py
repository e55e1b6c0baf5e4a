"""How results, messages and errors are printed: results on stdout, everything else on stderr."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from hostprep.errors import HostprepError, one_line

# Whether this run has begun to print its document.
_document_begun = False
# For terminals whose encoding lacks these characters and would show escapes instead.
_PLAIN = str.maketrans(
    {**dict.fromkeys("█▉▊▋▌", "#"), **dict.fromkeys("▍▎▏", " "), "░": ".", "±": "+-"}
)
# Removes the status line from the terminal, if there is one.
_take_line_away: Callable[[], None] | None = None


def begin() -> None:
    """Begin a run, of which nothing has been printed yet."""
    global _document_begun
    _document_begun = False


def before_printing(take_line_away: Callable[[], None] | None) -> None:
    """Set the function that removes the status line before anything is printed, or None.

    Otherwise the output would follow the status line on the same line.
    """
    global _take_line_away
    _take_line_away = take_line_away


def say(message: str = "") -> None:
    """Print a message for people on stderr."""
    _print(message, sys.stderr)


def warn(warning: str) -> None:
    """Print a warning on stderr."""
    say(f"hostprep: warning: {printable(warning)}")


def tell_of_waiting(sentence: str) -> None:
    """Say on stderr what this run is waiting for."""
    say(f"hostprep: {printable(sentence)}")


def emit_text(text: str) -> None:
    """Print a result for people on stdout."""
    _print(text, sys.stdout)


def emit_json(command: str, fields: dict[str, Any], *, ok: bool = True) -> None:
    """Print the one JSON document of ``--json`` on stdout, its schema first.

    Once it has begun there can be no other: a later interruption is reported on stderr only.
    Names that are not UTF-8 appear with their bytes as ``\\udcXX`` escapes, which keeps the
    document pure ASCII and lets Python restore the bytes.
    """
    global _document_begun
    text = json_text(command, fields, ok=ok)
    _document_begun = True
    _print(text, sys.stdout)


def json_text(command: str, fields: dict[str, Any], *, ok: bool = True) -> str:
    """Return the document of ``--json`` as text."""
    return json.dumps({"schema": f"hostprep.{command}/1", "ok": ok, **fields}, indent=2)


def draw(text: str) -> None:
    """Draw on stderr what will be overwritten; a closed terminal does not end the work."""
    with unless_gone(sys.stderr):
        sys.stderr.write(text)
        sys.stderr.flush()


@contextmanager
def unless_gone(stream: TextIO) -> Iterator[None]:
    """If ``stream`` cannot be written to (a closed terminal), discard all further output."""
    try:
        yield
    except OSError:
        _lead_nowhere(stream)


def unwritten() -> HostprepError | None:
    """Return why stdout cannot take what others printed on it, such as the parser its help."""
    try:
        _print("", sys.stdout, end="")
    except HostprepError as error:
        return error
    return None


def _print(text: str, stream: TextIO, end: str = "\n") -> None:
    """Print; if the reader (`| head`) has gone, the work and its exit code stay the same.

    From then on the stream leads nowhere, or the interpreter would complain at its end. Raises
    ``HostprepError`` if a result cannot be written, for instance to a full disk.
    """
    if _take_line_away is not None:
        _take_line_away()
    try:
        print(text, file=stream, end=end, flush=True)
    except OSError as error:
        _lead_nowhere(stream)
        if stream is sys.stdout and not isinstance(error, BrokenPipeError):
            raise _not_written(error) from None


def _lead_nowhere(stream: TextIO) -> None:
    elsewhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(elsewhere, stream.fileno())
    os.close(elsewhere)


def _not_written(error: OSError) -> HostprepError:
    if error.errno == errno.EBADF:
        return HostprepError(
            "the result could not be written: stdout is closed.",
            "what was done is done; open stdout, or redirect it to /dev/null if nobody wants the"
            " result",
        )
    return HostprepError(
        f"the result could not be written: {error.strerror}.",
        "what was done is done; make room, and run the same command again to see it",
    )


def say_problem(what: str, message: str, hint: str | None) -> None:
    """Print on stderr which thing has what problem, and below it what to do.

    Further lines are indented, so that a line break in a name cannot fake a message of ours.
    """
    say(f"{printable(what)}: {_set_in(message)}")
    if hint:
        say(f"  -> {_set_in(hint)}")


def _set_in(text: str) -> str:
    return printable(text, lines=True).replace("\n", "\n    ")


def say_error(error: HostprepError) -> None:
    """Print an error for people: a sentence and a hint on stderr."""
    say_problem("hostprep", error.message, error.hint)


def emit_error(command: str, error: HostprepError, *, as_json: bool, as_nagios: bool) -> None:
    """Print an error on stderr, and with ``--json`` also as a document.

    With ``as_nagios`` also print the one line that Nagios reads from stdout, before the rest: if
    both streams go to the same place, Nagios takes the first line.
    """
    if as_nagios:
        words = " ".join(printable(error.message, lines=True).replace("|", "/").split())
        with suppress(HostprepError):  # stdout is closed: see below
            emit_text(f"HOSTPREP UNKNOWN - {words}")
    say_error(error)
    if as_json and not _document_begun:
        try:
            emit_json(command, {"error": error_fields(error), **error.beside}, ok=False)
        except HostprepError as unwritten:  # report the original error, with its exit code
            say(f"hostprep: {unwritten.message}")


def error_fields(error: HostprepError) -> dict[str, str | None]:
    """Return an error's JSON fields."""
    return {"code": error.code, "message": error.message, "hint": error.hint}


def printable(text: str, *, lines: bool = False) -> str:
    """Return ``text`` with control characters and undecodable bytes as escapes.

    File names come from strangers: printed raw, they could rewrite what the terminal shows, or add
    a line to it. ``lines`` keeps line ends, for a message of several lines.
    """
    if text.isprintable():
        return text
    return "\n".join(map(one_line, text.split("\n"))) if lines else one_line(text)


def indented(text: str) -> str:
    """Return ``text`` as `printable` does, but in lines, the later ones indented."""
    lines = printable(text, lines=True).splitlines()
    return "\n  ".join(line for line in lines if line.strip())


def drawable(text: str, stream: TextIO) -> str:
    """Replace drawing characters that `stream` cannot encode, for instance blocks by `#`."""
    try:
        text.encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        return text.translate(_PLAIN)
    return text


def takes_escapes(stream: Any) -> bool:
    """Return whether ``stream`` is a terminal that interprets escapes; a dumb one does not."""
    return bool(stream.isatty()) and os.environ.get("TERM") != "dumb"


def painted(text: str, colour: str, *, colours: bool) -> str:
    """Return ``text`` in an SGR colour (``1;31``) if ``colours`` are wanted."""
    return f"\x1b[{colour}m{text}\x1b[0m" if colours else text


def wants_colour(stream: Any) -> bool:
    """Return whether ``stream`` takes escapes and ``NO_COLOR`` (no-color.org) is not set."""
    return takes_escapes(stream) and not os.environ.get("NO_COLOR")
