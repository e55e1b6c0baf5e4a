"""One line of a terminal that is written again and again: what is going on right now."""

from __future__ import annotations

import os
import sys
import unicodedata
from typing import Self

from hostprep.cli.output import draw, printable, takes_escapes


def _cut(text: str, columns: int) -> str:
    """Return as much of ``text`` as so many columns hold: of Chinese each character takes two."""
    for end, char in enumerate(text):
        columns -= 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1
        if columns < 0:
            return text[:end]
    return text


class Line:
    """The line, on stderr; elsewhere than on a terminal that takes escapes it is not ``shown``.

    It has no thread of its own: who works calls now and then.
    """

    def __init__(self) -> None:
        self.shown = takes_escapes(sys.stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._write("")

    def write(self, text: str) -> None:
        """Show ``text`` instead of what was there, as much of it as the line holds."""
        self._write(_cut(printable(text), self._columns() - 1))

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(sys.stderr.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    def _write(self, line: str) -> None:
        if self.shown:
            draw(f"\r\x1b[K{line}")
