"""Worker processes over pipes: whole messages of any size both ways, and ends that are noticed."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from hostprep.staging.processes.channel import Channel, Child

LARGE = 5 * 1024 * 1024  # many times what a pipe holds


def echo(channel: Channel) -> None:
    while True:
        try:
            channel.send(channel.receive())
        except EOFError:
            return


@pytest.fixture
def child() -> Iterator[Child]:
    child = Child(echo, [])
    yield child
    child.stop_sending()
    assert child.join(60)
    child.close()


def answers(child: Child, count: int) -> list[bytes]:
    """Collect answers as the pool does, sending on whenever the pipe takes more."""
    found: list[bytes] = []
    while len(found) < count:
        writers = [w for w in [child.waiting_to_send] if w is not None]
        readable, writable, _ = select.select([child], writers, [], 60)
        assert readable or writable
        if writable:
            child.flush()
        if readable:
            found += child.take()
    return found


def test_messages_of_any_size_come_back_in_order(child: Child) -> None:
    messages = [b"", b"x", os.urandom(70_000), os.urandom(LARGE), b"last"]
    for message in messages:
        child.post(message)
    assert answers(child, len(messages)) == messages


def test_neither_side_waits_for_the_other(child: Child) -> None:
    """The worker is stuck with an answer while the parent has more for it: both go on."""
    for _ in range(3):
        child.post(bytes(LARGE))
    assert [len(answer) for answer in answers(child, 3)] == [LARGE] * 3


def test_the_end_of_a_child_is_seen_with_its_status() -> None:
    child = Child(lambda channel: os._exit(7), [])
    assert child.join(60)
    assert child.exit_code == 7
    with pytest.raises(BrokenPipeError):
        child.post(b"anybody?")
    child.close()


def test_a_killed_child_is_seen_with_its_signal(child: Child) -> None:
    child.kill(signal.SIGKILL)
    assert child.join(60)
    assert child.exit_code == -signal.SIGKILL
    child.kill(signal.SIGTERM)  # must not meet another process of the same number


def test_a_child_that_hangs_is_not_waited_for() -> None:
    child = Child(lambda channel: signal.pause(), [])
    assert not child.join(0.05)
    child.kill(signal.SIGKILL)
    assert child.join(60)
    child.close()


@pytest.mark.parametrize("when", ["before", "after"])
def test_ctrl_c_while_it_is_started_leaves_nothing(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a mask that keeps the next one out, nor pipes for which a child would stay."""
    fork, mask = os.fork, signal.pthread_sigmask

    def forked() -> int:
        child = fork()
        if child and when == "after":
            signal.raise_signal(signal.SIGINT)
        return child

    def masked(how: signal.Signals, numbers: Iterable[int]) -> set[int | signal.Signals]:
        found = mask(how, numbers)
        if how == signal.SIG_BLOCK and numbers and when == "before":
            raise KeyboardInterrupt  # as the call itself does, of one that came before it
        return found

    opened = os.listdir("/proc/self/fd")
    monkeypatch.setattr(signal, "pthread_sigmask", masked)
    monkeypatch.setattr(os, "fork", forked)
    with pytest.raises(KeyboardInterrupt):
        Child(echo, [])
    assert mask(signal.SIG_BLOCK, ()) == set()
    assert os.listdir("/proc/self/fd") == opened
    if when == "after":
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0


def test_siblings_do_not_hold_each_others_pipes() -> None:
    first = Child(echo, [])
    second = Child(echo, [first])
    first.stop_sending()
    assert first.join(60) and first.exit_code == 0
    second.post(b"still there")
    assert answers(second, 1) == [b"still there"]
    second.stop_sending()
    assert second.join(60)
    first.close()
    second.close()


def test_what_a_worker_raises_is_told_and_ends_it(capfd: pytest.CaptureFixture[str]) -> None:
    def fail(channel: Channel) -> None:
        raise ValueError("of its own")

    child = Child(fail, [])
    assert child.join(60) and child.exit_code == 1
    assert "of its own" in capfd.readouterr().err
    child.close()


def test_a_worker_that_fails_ends_where_nobody_reads_what_is_said(tmp_path: Path) -> None:
    """The pipe that the parent was given may have lost its reader."""

    def fail(channel: Channel) -> None:
        raise ValueError("of its own")

    os.mkfifo(tmp_path / "said")
    reader = os.open(tmp_path / "said", os.O_RDONLY | os.O_NONBLOCK)
    writer, stderr = os.open(tmp_path / "said", os.O_WRONLY), os.dup(2)
    os.dup2(writer, 2)
    os.close(writer)
    os.close(reader)
    try:
        child = Child(fail, [])
        ended = child.join(5)
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
    if not ended:
        child.kill(signal.SIGKILL)
        child.join(5)
    assert ended and child.exit_code == 1
    child.close()


def test_a_worker_holds_nothing_that_somebody_reads_to_its_end() -> None:
    def tell(channel: Channel) -> None:
        for number in range(3):
            channel.send(os.readlink(f"/proc/self/fd/{number}").encode())

    child = Child(tell, [])
    assert answers(child, 3) == [os.devnull.encode()] * 3
    assert child.join(60)
    child.close()
