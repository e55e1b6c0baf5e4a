"""What ansible-playbook prints on stderr: warnings, and why it stopped. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_WARNING = "[WARNING]:"
_TAGGED = re.compile(r"\[[A-Z ]+\]:|ERROR!|$")  # the start of something else, or the end
# The second form is from before ansible-core 2.19, the last from before it has read its settings.
_ERROR = re.compile(r"(?:\[ERROR\]:|ERROR!|ERROR:)\s*(.*)")
_NO_MATCH = re.compile(r"Could not match supplied host pattern, ignoring: (.+)")


def warnings_in(stderr: str) -> tuple[str, ...]:
    """Return Ansible's warnings, each in one line and without its tag."""
    return tuple(dict.fromkeys(_warnings(stderr.splitlines())))


def _warnings(lines: Iterable[str]) -> Iterator[str]:
    told: str | None = None
    for line in lines:
        if told is not None and _TAGGED.match(line):
            yield told
            told = None
        if told is not None:
            # Before ansible-core 2.19 long warnings are wrapped, even after a hyphen in a name.
            told += ("" if told.endswith("-") else " ") + line.strip()
        elif line.startswith(_WARNING):
            told = line.removeprefix(_WARNING).strip()
    if told is not None:
        yield told


def nobody_called(warnings: Iterable[str]) -> tuple[str, ...]:
    """Return the names and patterns of ``--limit`` that match no host, by ``warnings_in``."""
    return tuple(match[1] for warning in warnings if (match := _NO_MATCH.fullmatch(warning)))


def told(warnings: Iterable[str]) -> tuple[str, ...]:
    """Return ``warnings_in`` for the user: what they mean for this run, or that Ansible says it."""
    each = tuple(warnings)
    unmet = nobody_called(each)
    others = tuple(f"Ansible says: {warning}" for warning in each if not _NO_MATCH.match(warning))
    if not unmet:
        return others
    return (
        f"--limit names {', '.join(unmet)}, and the inventory has no such host or group: that part"
        " of it was ignored",  # with `!NAME`, all hosts may have been reached
        *others,
    )


def errors_in(stderr: str) -> tuple[str, ...]:
    """Return the errors that Ansible printed, each without its tag."""
    said = (line.strip() for line in stderr.splitlines())
    return tuple(match[1] for line in said if (match := _ERROR.match(line)))


def last_error(stderr: str) -> str:
    """Return the last error that Ansible printed, or else its last line; ``""`` for none."""
    return next(reversed(errors_in(stderr) or _unwarned(stderr)), "")[:2000]


def without_tags(stderr: str) -> str:
    """Return the lines of ``stderr`` except warnings, with errors without their tag."""
    return "\n".join(
        match[1] if (match := _ERROR.match(line)) else line for line in _unwarned(stderr)
    )


def _unwarned(stderr: str) -> list[str]:
    said = (line.strip() for line in stderr.splitlines())
    return [line for line in said if line and not line.startswith(_WARNING)]
