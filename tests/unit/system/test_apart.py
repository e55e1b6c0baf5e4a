"""Work in a child process: heard, returned, raised, given up, interrupted and tidied up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostprep.errors import HostprepError, MissingTool
from hostprep.system.apart import work_apart
from hostprep.system.bounded import NoAnswerInTime
from tests.kit.processes import children

Tell = Callable[[Any], None]


def nothing(told: Any) -> None:
    """Hear and forget."""


def test_what_it_tells_is_heard_and_what_it_returns_comes_back() -> None:
    def work(tell: Tell) -> tuple[int, int]:
        tell("half")
        tell(("phase", 1.5))
        return os.getpid(), 7

    heard: list[Any] = []
    before = children()
    pid, seven = work_apart(work, heard.append, silence_seconds=5)
    assert (heard, seven) == (["half", ("phase", 1.5)], 7)
    assert pid != os.getpid()
    assert children() == before


@pytest.mark.parametrize(
    "error",
    [
        HostprepError("it failed.", "do this"),
        MissingTool("fio", wanted_for="measure", package="fio"),  # its constructor takes no message
        OSError(5, "Input/output error", "/data"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_it_raises_is_raised_here(error: Exception) -> None:
    def work(tell: Tell) -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        work_apart(work, nothing, silence_seconds=5)
    known = {name: said for name, said in vars(caught.value).items() if name != "__notes__"}
    assert (str(caught.value), known) == (str(error), vars(error))


def test_a_bug_in_it_says_where() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        work_apart(lambda tell: 1 // 0, nothing, silence_seconds=5)
    assert "test_apart.py" in caught.value.__notes__[0]


def test_silence_is_given_up_but_not_slowness() -> None:
    def slow(tell: Tell) -> str:
        for _ in range(6):
            time.sleep(0.4)
            tell("on")
        return "done"

    assert work_apart(slow, nothing, silence_seconds=2) == "done"
    begun, before = time.monotonic(), children()
    with pytest.raises(NoAnswerInTime):
        work_apart(lambda tell: time.sleep(60), nothing, silence_seconds=0.3)
    assert time.monotonic() - begun < 40
    assert children() == before


def test_one_that_is_killed_is_told() -> None:
    with pytest.raises(HostprepError, match="killed"):
        work_apart(lambda tell: os.kill(os.getpid(), 9), nothing, silence_seconds=5)


def test_an_interruption_lets_it_tidy_up(tmp_path: Path) -> None:
    mark = tmp_path / "tidied"

    def work(tell: Tell) -> None:
        try:
            tell("begun")
            for _ in range(600):  # no single long sleep: see the last test here
                time.sleep(0.1)
        except KeyboardInterrupt:
            time.sleep(0.2)  # a second signal meanwhile does not cut it short
            mark.touch()
            raise

    def interrupt(told: Any) -> None:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()

    with pytest.raises(KeyboardInterrupt):
        work_apart(work, interrupt, silence_seconds=20)
    assert mark.exists()


def test_kill_9_of_the_parent_lets_it_tidy_up(tmp_path: Path) -> None:
    mark = tmp_path / "tidied"
    code = (
        "import os, pathlib, time\n"
        "from hostprep.system.apart import work_apart\n"
        "def work(tell):\n"
        "    try:\n"
        "        tell('begun')\n"
        # A signal that comes just before a sleep begins is seen when it ends.
        "        for _ in range(600): time.sleep(0.1)\n"
        "    finally:\n"
        f"        pathlib.Path({str(mark)!r}).touch()\n"
        "work_apart(work, lambda told: os.kill(os.getpid(), 9), silence_seconds=20)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    deadline = time.monotonic() + 60
    while not mark.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert mark.exists()


@pytest.mark.parametrize(("halt_seconds", "said"), [("0.2", "halted"), ("math.inf", "done")])
def test_a_time_in_which_nothing_of_ours_ran_is_seen(halt_seconds: str, said: str) -> None:
    code = (
        "import math, os, signal, time\n"
        "from hostprep.system.apart import WorkHalted, work_apart\n"
        "def work(tell):\n"
        "    time.sleep(0.3)\n"  # on a busy machine the parent has not looked at the clock yet
        "    os.kill(os.getppid(), signal.SIGSTOP)\n"
        "    time.sleep(1.2)\n"
        "    os.kill(os.getppid(), signal.SIGCONT)\n"
        "    return 'done'\n"
        "try:\n"
        f"    print(work_apart(work, print, silence_seconds=20, halt_seconds={halt_seconds}))\n"
        "except WorkHalted:\n"
        "    print('halted')\n"
    )
    # In a session of its own, whose stop no shell sees.
    ran = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, start_new_session=True
    )
    assert ran.stdout.decode().split() == [said]
