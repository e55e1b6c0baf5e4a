"""A status line on a terminal that is overwritten again and again."""

from __future__ import annotations

import os
import sys
import unicodedata
from typing import Self

from hostprep.cli.output import draw, printable, takes_escapes


def _cut(text: str, columns: int) -> str:
    """Cut ``text`` to so many columns; wide characters, such as Chinese ones, take two each."""
    for end, char in enumerate(text):
        columns -= 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1
        if columns < 0:
            return text[:end]
    return text


class Line:
    """A status line on stderr; ``shown`` is false unless stderr is a terminal that takes escapes.

    It has no thread of its own: the code that works calls it now and then.
    """

    def __init__(self) -> None:
        self.shown = takes_escapes(sys.stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._write("")

    def write(self, text: str) -> None:
        """Replace the line by as much of ``text`` as fits."""
        self._write(_cut(printable(text), self._columns() - 1))

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(sys.stderr.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    def _write(self, line: str) -> None:
        if self.shown:
            draw(f"\r\x1b[K{line}")
