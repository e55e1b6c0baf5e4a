"""How results, words and errors leave the program: results on stdout, everything else on stderr."""

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
# For a terminal whose encoding has none of these, on which each sign would be an escape.
_PLAIN = str.maketrans(
    {**dict.fromkeys("█▉▊▋▌", "#"), **dict.fromkeys("▍▎▏", " "), "░": ".", "±": "+-"}
)
# Takes a line that is written over off the terminal, where there is one.
_take_line_away: Callable[[], None] | None = None


def begin() -> None:
    """Begin a run: nothing is printed of it yet."""
    global _document_begun
    _document_begun = False


def before_printing(take_line_away: Callable[[], None] | None) -> None:
    """Have a line that is written over taken away before anything is printed; None: there is none.

    Else what is printed would follow it on the same line.
    """
    global _take_line_away
    _take_line_away = take_line_away


def say(message: str = "") -> None:
    """Print words for people on stderr."""
    _print(message, sys.stderr)


def warn(warning: str) -> None:
    """Say on stderr what to beware of."""
    say(f"hostprep: warning: {printable(warning)}")


def tell_of_waiting(sentence: str) -> None:
    """Say on stderr whom this run waits for."""
    say(f"hostprep: {printable(sentence)}")


def emit_text(text: str) -> None:
    """Print a result for people on stdout."""
    _print(text, sys.stdout)


def emit_json(command: str, fields: dict[str, Any], *, ok: bool = True) -> None:
    """Print the one JSON document of ``--json`` on stdout, its schema first.

    Once it is begun there is no other: an interruption from then on is told of on stderr alone.
    Names that are not UTF-8 appear with their bytes as ``\\udcXX`` escapes, which keeps the
    document pure ASCII and lets Python give the bytes back.
    """
    global _document_begun
    text = json_text(command, fields, ok=ok)
    _document_begun = True
    _print(text, sys.stdout)


def json_text(command: str, fields: dict[str, Any], *, ok: bool = True) -> str:
    """Return the document of ``--json`` as text."""
    return json.dumps({"schema": f"hostprep.{command}/1", "ok": ok, **fields}, indent=2)


def draw(text: str) -> None:
    """Write on the terminal of stderr what will be written over; no work ends with its terminal."""
    with unless_gone(sys.stderr):
        sys.stderr.write(text)
        sys.stderr.flush()


@contextmanager
def unless_gone(stream: TextIO) -> Iterator[None]:
    """Write into nothing from then on where ``stream`` takes no more: a terminal was closed."""
    try:
        yield
    except OSError:
        _lead_nowhere(stream)


def unwritten() -> HostprepError | None:
    """Return why what others printed on stdout cannot be written, as the parser its help."""
    try:
        _print("", sys.stdout, end="")
    except HostprepError as error:
        return error
    return None


def _print(text: str, stream: TextIO, end: str = "\n") -> None:
    """Print; where the reader (`| head`) has gone, the work and its exit code stay what they are.

    The stream leads elsewhere from then on, or the interpreter would complain when it ends. Raises
    ``HostprepError`` where a result cannot be written, to a full disk for instance.
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
            "what was done is done; open stdout, on /dev/null where nobody wants the result",
        )
    return HostprepError(
        f"the result could not be written: {error.strerror}.",
        "what was done is done; make room, and run the same command again to see it",
    )


def say_problem(what: str, message: str, hint: str | None) -> None:
    """Print on stderr what is wrong with what, and below it what to do.

    Further lines of either are set in: a name in it may have some, and would say what we do not.
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
    """Print an error on stderr, and with ``--json`` the document too.

    With ``as_nagios`` also the one line that Nagios reads from stdout, and that before the others:
    where both lead to one place it takes the first.
    """
    if as_nagios:
        words = " ".join(printable(error.message, lines=True).replace("|", "/").split())
        with suppress(HostprepError):  # stdout is closed: as below
            emit_text(f"HOSTPREP UNKNOWN - {words}")
    say_error(error)
    if as_json and not _document_begun:
        try:
            emit_json(command, {"error": error_fields(error), **error.beside}, ok=False)
        except HostprepError as unwritten:  # the error is the news, and the exit code is its own
            say(f"hostprep: {unwritten.message}")


def error_fields(error: HostprepError) -> dict[str, str | None]:
    """Return an error as the contract has it in JSON."""
    return {"code": error.code, "message": error.message, "hint": error.hint}


def printable(text: str, *, lines: bool = False) -> str:
    """Return ``text`` with control characters and undecodable bytes as escapes.

    File names come from strangers: printed raw, they could rewrite what the terminal shows, or add
    a line to it. ``lines`` lets line ends pass, for a message of several lines.
    """
    if text.isprintable():
        return text
    return "\n".join(map(one_line, text.split("\n"))) if lines else one_line(text)


def indented(text: str) -> str:
    """Return ``text`` as `printable` does, in its lines, those after the first one indented."""
    lines = printable(text, lines=True).splitlines()
    return "\n  ".join(line for line in lines if line.strip())


def drawable(text: str, stream: TextIO) -> str:
    """Return signs of ours as `stream` has them: bars of `#` where its encoding knows no blocks."""
    try:
        text.encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        return text.translate(_PLAIN)
    return text


def takes_escapes(stream: Any) -> bool:
    """Return whether ``stream`` is a terminal that does as escapes say; a dumb one shows them."""
    return bool(stream.isatty()) and os.environ.get("TERM") != "dumb"


def painted(text: str, colour: str, *, colours: bool) -> str:
    """Return ``text`` in a colour (``1;31``, of SGR) where ``colours`` are wanted."""
    return f"\x1b[{colour}m{text}\x1b[0m" if colours else text


def wants_colour(stream: Any) -> bool:
    """Return whether ``stream`` takes escapes and ``NO_COLOR`` (no-color.org) is not set."""
    return takes_escapes(stream) and not os.environ.get("NO_COLOR")
