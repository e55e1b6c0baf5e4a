"""Progress on stderr: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from hostprep.cli.output import (
    before_printing,
    printable,
    say,
    takes_escapes,
    unless_gone,
    wants_colour,
)
from hostprep.units import format_bytes, format_count, format_rate, format_seconds

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

LINE_SECONDS = 5.0
_TOO_SHORT = 1.5
_TITLES = {
    "scan": "scanning the source",
    "compare": "comparing with what is on record",
    "check": "checking what is there",
    "order": "asking where files lie on the disk",
    "copy": "copying",
    "sync": "writing out to the disk",
    "verify": "reading back",
    "publish": "publishing",
    "directories": "finishing directories",
    "remove": "removing",
    "clear": "removing what an earlier run left",
}
_NOUNS = {"scan": "entry", "directories": "directory", "remove": "entry", "clear": "entry"}


class ProgressReporter:
    """An observer that shows the phase, files, bytes, rate, and the time left.

    The time left follows the mean rate of the phase, and does not rise with every moment that is
    slower: only if it was too short by a third, as where the first files came from the page cache.
    ``quiet`` shows only notes.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._terminal = takes_escapes(sys.stderr) and not quiet
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._name = ""
        self._noun = "file"
        self._files: int | None = None
        self._bytes: int | None = None
        self._done = (0, 0)
        self._started = 0.0
        self._said = 0.0
        self._left: float | None = None

    def __enter__(self) -> ProgressReporter:
        return self

    def __exit__(self, *raised: object) -> None:
        self._take_away()

    def phase(self, name: str, *, files: int | None = None, size_bytes: int | None = None) -> None:
        """Begin a phase."""
        self._name = printable(_TITLES.get(name, name))
        self._files, self._bytes = files, size_bytes
        # A comparison only shows the seconds it has taken of those it may take.
        self._noun = "second" if name.startswith("comparing ") else _NOUNS.get(name, "file")
        self._started = time.monotonic()
        self._said = self._started
        self._done = (0, 0)
        self._left = None
        if self._terminal and self._bar is not None and self._task is not None:
            self._bar.remove_task(self._task)
            self._task = None

    def progress(self, files: int, size_bytes: int) -> None:
        """Show how far the phase is; cheap to call often, redraws only now and then."""
        self._done = (max(files, self._done[0]), max(size_bytes, self._done[1]))
        if self._quiet:
            return
        now = time.monotonic()
        if self._terminal:
            if now - self._started > 0.3:  # a short phase needs no bar
                with unless_gone(sys.stderr):
                    self._draw()
        elif now - self._said >= LINE_SECONDS:
            self._said = now
            say(f"{self._name}: {self._words()}")

    def note(self, message: str) -> None:
        """Print a message in between."""
        say(printable(message))

    def _take_away(self) -> None:
        """Remove the bar from the terminal; the next progress draws it again."""
        if self._bar is not None:
            before_printing(None)
            with unless_gone(sys.stderr):
                self._bar.stop()
            self._bar = self._task = None

    def _share(self) -> float | None:
        """Return the share that is done, of the bytes if they are known, else of the files."""
        if self._bytes:
            return min(1.0, self._done[1] / self._bytes)
        return min(1.0, self._done[0] / self._files) if self._files else None

    def _words(self) -> str:
        files, size_bytes = self._done
        elapsed = time.monotonic() - self._started
        parts = [f"{format_count(files, self._noun)}"]
        if self._files:
            parts = [f"{format_count(files)} of {format_count(self._files, self._noun)}"]
        if size_bytes and elapsed > 0:
            parts.append(format_bytes(size_bytes))
            parts.append(format_rate(size_bytes / elapsed))
        share = self._share()
        if share and elapsed > 1 and share < 1:
            left = elapsed / share - elapsed
            if self._left is None or not self._left <= left <= _TOO_SHORT * self._left:
                self._left = left
            parts.append(f"{format_seconds(self._left)} left")
        return ", ".join(parts)

    def _draw(self) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            self._bar = Progress(
                TextColumn("{task.fields[title]}", markup=False),
                BarColumn(bar_width=30),
                TextColumn("{task.fields[words]}", markup=False),
                console=Console(stderr=True, no_color=not wants_colour(sys.stderr)),
                transient=True,
                # No thread of its own, because worker processes are forked from this process.
                auto_refresh=False,
                # Rich would redirect both streams to this console: results, which may have to go
                # elsewhere, and long lines, which it would wrap.
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._bar.start()
            before_printing(self._take_away)
        share = self._share()
        total = None if share is None else 1000
        completed = 0 if share is None else int(share * 1000)
        words = self._words()
        if self._task is None:  # this draws it, too
            self._task = self._bar.add_task(
                "", total=total, completed=completed, title=self._name, words=words
            )
        else:
            self._bar.update(
                self._task,
                total=total,
                completed=completed,
                title=self._name,
                words=words,
                refresh=True,
            )
