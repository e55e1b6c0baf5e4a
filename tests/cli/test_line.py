"""What is going on, on one line of a terminal, and nowhere else."""

from __future__ import annotations

import errno
import io
import json
import os
import pty
import re
import select
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import pytest

from hostprep.cli import progress
from hostprep.cli.line import Line
from hostprep.cli.output import emit_json, say
from hostprep.cli.probe import Progress
from hostprep.cli.progress import ProgressReporter
from hostprep.cli.recommend import _Narrator


@contextmanager
def on_a_terminal() -> Iterator[int]:
    """Make stderr a terminal; yield the descriptor to read what it shows."""
    ours, theirs = pty.openpty()
    with (
        open(theirs, "w", encoding="utf-8") as stream,
        pytest.MonkeyPatch.context() as monkeypatch,
    ):
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(sys, "stderr", stream)
        yield ours
    os.close(ours)


def shown(terminal: int, wanted: str = "") -> str:
    """Read what is there, and on until ``wanted`` is: the kernel hands on what was written late,
    and in parts."""
    text = os.read(terminal, 1 << 16).decode()
    while wanted not in text and select.select([terminal], [], [], 5)[0]:
        text += os.read(terminal, 1 << 16).decode()
    return text


@pytest.mark.parametrize("quiet", [False, True])
def test_on_a_terminal_it_says_what_is_measured_and_how_far_it_is(quiet: bool) -> None:
    with on_a_terminal() as terminal:
        with _Narrator(50, quiet=quiet) as narrator:
            narrator.note("timing mine without workers")
            assert shown(terminal) == "\r\x1b[K0 of 50 s  timing mine without workers ..."
            narrator._began -= 61
            narrator.going_on()
            assert shown(terminal) == "\r\x1b[K61 s  timing mine without workers ..."
        assert shown(terminal) == "\r\x1b[K"


def test_a_line_that_is_too_long_for_the_terminal_is_cut_and_names_stay_harmless() -> None:
    with on_a_terminal() as terminal:
        Line().write("evil\x1b[2J" + 200 * "x")
        text = shown(terminal).removeprefix("\r\x1b[K")
    assert re.fullmatch(r"evil\\x1b\[2Jx+", text)
    assert len(text) < 80


def test_the_line_of_a_probe_is_cut_too() -> None:
    """One that the terminal breaks is written over in its last row alone."""
    with on_a_terminal() as terminal:
        termios.tcsetwinsize(terminal, (24, 40))
        Progress().phase("sequential reads of 1.00 MiB, depth 32", 1)
        assert len(shown(terminal).removeprefix("\r\x1b[K")) == 39


def test_a_name_whose_characters_are_two_columns_wide_is_cut_sooner() -> None:
    with on_a_terminal() as terminal:
        termios.tcsetwinsize(terminal, (24, 40))
        Line().write("listing /srv/" + 40 * "数")
        assert shown(terminal).removeprefix("\r\x1b[K") == "listing /srv/" + 13 * "数"


@pytest.mark.parametrize(("dumb", "quiet"), [(True, False), (False, False), (False, True)])
def test_elsewhere_each_measurement_is_a_line(
    dumb: bool, quiet: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return dumb

    stream: TextIO = Stream()
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stderr", stream)
    with _Narrator(50, quiet=quiet) as narrator:
        narrator.note("timing mine without workers")
        narrator.going_on()
    assert isinstance(stream, io.StringIO)
    assert stream.getvalue() == ("" if quiet else "timing mine without workers\n")


class Closed(io.StringIO):
    """A terminal that was closed after ``left`` writes: the kernel answers EIO."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left
        self.nowhere = os.open(os.devnull, os.O_WRONLY)

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.nowhere

    def write(self, text: str) -> int:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().write(text)


def test_a_scan_tells_of_entries_and_of_no_rate_at_which_it_reads_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Directories are among them, and their content is not read."""
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    with ProgressReporter() as reporter:
        reporter.phase("scan")
        reporter.progress(3, 0)
    assert capsys.readouterr().err == "scanning the source: 3 entries\n"


def test_the_time_left_rises_once_the_work_turns_out_to_be_slow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stayed at the seconds that the cached files promised, however long the others took."""
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    with ProgressReporter() as reporter:
        reporter.phase("copy", files=100)
        began = reporter._started
        for seconds, done in ((20, 50), (26, 52), (60, 60)):
            reporter._started = began - seconds
            reporter.progress(done, 0)
    told = [line.rpartition(", ")[2] for line in capsys.readouterr().err.splitlines()]
    assert [re.sub(r"\..*", "", each) for each in told] == ["20", "20", "40"]


def test_a_note_is_one_line_and_says_what_a_name_holds(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressReporter() as reporter:
        reporter.note("waiting for `hostprep stage /a\x1b[2J\nb`")
    assert capsys.readouterr().err == "waiting for `hostprep stage /a\\x1b[2J\\nb`\n"


@pytest.mark.parametrize("left", range(6))
def test_the_work_goes_on_where_its_terminal_is_closed(
    left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the background of a shell that was left: nobody ends the work, and nobody looks."""
    stream = Closed(left)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("hostprep.cli.probe.Progress._EVERY_SECONDS", 0)
    with Line() as line:
        line.write("one")
    with Progress() as progress:
        progress.phase("reading", 10)
        progress.progress("two")
    with ProgressReporter() as reporter:
        reporter.phase("copy", files=10)
        reporter._started -= 1
        for done in range(5):
            reporter.progress(done, done)
        reporter.note("three")
        reporter.phase("publish")
    os.close(stream.nowhere)
    assert stream.left < 0


def test_beside_the_bar_results_stay_on_stdout_and_long_lines_whole(
    capsys: pytest.CaptureFixture[str],
) -> None:
    long = "volume: " + 40 * "huge=within_size," + " to here"
    with on_a_terminal() as terminal:
        with ProgressReporter() as reporter:
            for printed in (lambda: emit_json("apply", {"changes": 2}), lambda: say(long)):
                reporter.phase("copy", files=10)
                reporter._started -= 1
                reporter.progress(5, 0)
                assert "copying" in shown(terminal, "copying")
                printed()
        text = shown(terminal, long)
    assert json.loads(capsys.readouterr().out)["changes"] == 2
    assert long in text and "changes" not in text
    assert "copying" not in text[: text.index(long)].rpartition("\x1b[2K")[2]  # its line is clear
