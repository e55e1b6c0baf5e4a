"""Questions in a child process: answered, raised, given up; and nothing kept open by it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time

import pytest

from hostprep.errors import HostprepError
from hostprep.system.bounded import NoAnswerInTime, QuestionFailed, ask_in_child
from tests.kit.processes import children


def test_the_answer_comes_back() -> None:
    assert ask_in_child(lambda: {"pid": os.getpid()}, patience_seconds=5)["pid"] != os.getpid()


def test_a_long_answer_comes_back_whole() -> None:
    assert ask_in_child(lambda: "x" * 1_000_000, patience_seconds=10) == "x" * 1_000_000


def test_what_it_raises_comes_back_in_words() -> None:
    def question() -> None:
        raise ValueError("no such thing")

    with pytest.raises(ChildProcessError, match="no such thing"):
        ask_in_child(question, patience_seconds=5)


def test_what_helps_comes_with_what_the_question_raised() -> None:
    def question() -> None:
        raise HostprepError("it is closed.", "open it")

    with pytest.raises(QuestionFailed, match=r"^it is closed\.$") as caught:
        ask_in_child(question, patience_seconds=5)
    assert caught.value.hint == "open it"


def test_a_child_that_dies_is_told() -> None:
    with pytest.raises(QuestionFailed) as caught:
        ask_in_child(lambda: os.kill(os.getpid(), 9), patience_seconds=5)
    assert "memory ran out" in str(caught.value.hint)


def test_a_limit_that_the_question_met_comes_with_what_helps() -> None:
    def question() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with pytest.raises(QuestionFailed, match="Too many open files") as caught:
        ask_in_child(question, patience_seconds=5)
    assert "ulimit -n" in str(caught.value.hint)


@pytest.mark.parametrize(("euid", "helps"), [(0, False), (1000, True)])
def test_who_is_root_is_not_told_to_become_root(
    euid: int, helps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a share whose server takes root for nobody."""

    def question() -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/srv/nfs")

    monkeypatch.setattr(os, "geteuid", lambda: euid)
    with pytest.raises(QuestionFailed, match="Permission denied: /srv/nfs") as caught:
        ask_in_child(question, patience_seconds=5)
    assert caught.value.hint is not None
    assert ("run it with sudo" in caught.value.hint) is helps
    assert "as root" not in caught.value.hint


def test_one_that_hangs_is_given_up_and_killed() -> None:
    begun, before = time.monotonic(), children()
    with pytest.raises(NoAnswerInTime):
        ask_in_child(lambda: time.sleep(60), patience_seconds=0.3)
    assert time.monotonic() - begun < 40
    assert children() == before


def test_it_closes_what_is_open_and_does_not_try_every_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the kernel has no close_range(2), a limit of 10^9 would take minutes."""
    monkeypatch.setattr(os, "closerange", lambda low, high: time.sleep((high - low) * 1e-3))
    with open(os.devnull) as file:
        os.dup2(file.fileno(), 900)
        try:
            held = ask_in_child(lambda: os.listdir("/proc/self/fd"), patience_seconds=5)
        finally:
            os.close(900)
    assert len(held) == 5 and "900" not in held, "0, 1, 2, the pipe and the listing's own"


def test_it_holds_nothing_of_ours_open() -> None:
    """A reader of our pipe is not kept waiting by a child that is stuck."""
    code = (
        "import os, time\n"
        "from hostprep.system import bounded\n"
        "bounded.leave = lambda child: None\n"  # as if it could not be killed
        "try: bounded.ask_in_child(lambda: time.sleep(60), patience_seconds=0.2)\n"
        "except bounded.NoAnswerInTime: print('given up')\n"
    )
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "given up\n"
    assert time.monotonic() - begun < 40
