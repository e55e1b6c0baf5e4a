"""A child for one piece of work: nothing but that is done in it, whenever Ctrl-C comes."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SCRIPT = """
import os, signal, sys
from hostprep.system import forking
from hostprep.system.bounded import ask_in_child

number, in_child = signal.Signals[sys.argv[1]], sys.argv[2] == "child"
signal.signal(number, signal.default_int_handler)
me, fork = os.getpid(), os.fork

def interrupted():
    child = fork()
    if (child == 0) == in_child:
        signal.raise_signal(number)
    return child

os.fork = interrupted
try:
    ask_in_child(lambda: 7, patience_seconds=5)
except KeyboardInterrupt:
    os.write(1, b"interrupted ")
except ChildProcessError:
    os.write(1, b"unanswered ")
finally:
    os.write(1, b"tidied " if os.getpid() == me else b"tidied-by-a-stranger ")
    if os.getpid() == me:
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
        while True:
            try:
                os.wait()
            except ChildProcessError:
                break
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize(("where", "told"), [("child", "unanswered"), ("parent", "interrupted")])
def test_an_interruption_while_it_is_started_leaves_one_that_tidies_up(
    name: str, where: str, told: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, name, where],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == (f"{told} tidied ", "")
