"""The pool of worker processes, at real directories."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from hostprep.errors import HostprepError, Stopped
from hostprep.host.memory_kills import MemoryKills
from hostprep.staging.processes import pool as pool_module
from hostprep.staging.processes.channel import Channel, Child
from hostprep.staging.processes.dying import Died
from hostprep.staging.processes.job import Job
from hostprep.staging.processes.pool import Pool, TaskFailed
from hostprep.staging.processes.worker import Worker

AUTOGROUP = Path("/proc/self/autogroup")
AUTOGROUP_ENABLED = Path("/proc/sys/kernel/sched_autogroup_enabled")
_THREADS, _FOLDERS = 6, 60


@pytest.fixture
def source(tmp_path: Path) -> Iterator[int]:
    for number in range(_FOLDERS):
        (tmp_path / f"{number}").mkdir()
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def test_a_worker_starts_no_thread_that_has_nothing_to_do(source: int) -> None:
    """Each takes its share of the processor from the others, if only to be started."""
    answered: list[str] = []
    before = set(psutil.Process().children())  # of other tests: the tracker of multiprocessing
    with Pool(Job(source), processes=1, threads=_THREADS) as pool:
        pool.readers = 1
        for number in range(_FOLDERS):
            pool.submit("scan", [f"{number}"], lambda result: answered.append(result[0][0]))
        pool.run()
        (child,) = set(psutil.Process().children()) - before
        assert child.num_threads() == 2  # the other one receives the tasks
    assert sorted(answered) == sorted(map(str, range(_FOLDERS)))


def test_tasks_that_wait_are_done_side_by_side(
    source: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    everybody = threading.Barrier(_THREADS, timeout=60)
    monkeypatch.setattr(Worker, "do", lambda *_: everybody.wait())
    answered: list[int] = []
    with Pool(Job(source), processes=1, threads=_THREADS) as pool:
        for _ in range(3 * _THREADS):
            pool.submit("scan", [], answered.append)
        pool.run()
    assert sorted(answered) == sorted(3 * [*range(_THREADS)])


def test_no_more_are_at_work_than_are_asked_for(
    source: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by threads that are there already, from when there were to be more."""
    at_work: list[None] = []

    def do(*_: object) -> int:
        at_work.append(None)
        time.sleep(0.02)
        together = len(at_work)
        at_work.pop()
        return together

    monkeypatch.setattr(Worker, "do", do)
    together: dict[int, list[int]] = {_THREADS: [], 2: []}
    with Pool(Job(source), processes=1, threads=_THREADS) as pool:
        for readers, seen in together.items():
            pool.readers = readers
            for _ in range(10 * _THREADS):
                pool.submit("scan", [], seen.append)
            pool.run()
            assert pool.at_work == 0
    assert 2 < max(together[_THREADS]) <= _THREADS
    assert max(together[2]) == 2


@pytest.mark.parametrize("threads", [1, 3])
def test_a_worker_does_not_wait_for_a_parent_that_is_busy(
    source: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next task is with it by then, though no second thread is to be at work."""
    monkeypatch.setattr(Worker, "do", lambda *_: time.monotonic())
    answered: list[float] = []
    busy_until: list[float] = []

    def busy() -> Iterator[str]:
        time.sleep(0.5)
        busy_until.append(time.monotonic())
        yield "done"

    with Pool(Job(source), processes=1, threads=threads) as pool:
        pool.readers = 1
        for _ in range(2):
            pool.submit("scan", [], answered.append)
        pool.run(meanwhile=busy())
    assert max(answered) < busy_until[0]


def test_a_child_that_does_not_get_to_its_end_is_not_waited_for() -> None:
    """As one that was killed, and has files open on a server that is gone."""

    def main(channel: Channel) -> None:
        for descriptor in map(int, os.listdir("/proc/self/fd")):
            if descriptor > 2:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        time.sleep(60)

    child = Child(main, ())
    try:
        begun = time.monotonic()
        assert not child.join(0.3)
        assert time.monotonic() - begun < 40
    finally:
        child.kill(signal.SIGKILL)
    assert child.join(60)
    assert child.exit_code == -signal.SIGKILL
    child.close()


@pytest.mark.parametrize("threads", [1, 3])
def test_what_a_worker_leaves_out_that_somebody_stops_is_not_taken_for_done(
    source: int, threads: int
) -> None:
    """SIGUSR1 ends a batch in the middle, and not only hostprep can send it."""
    missing = [("f", "never-there", 1, "0")]
    before = set(psutil.Process().children())
    found: list[object] = []
    with (
        Pool(Job(source, source, looks_only=True), processes=1, threads=threads) as pool,
        pytest.raises(TaskFailed, match="told to stop"),
    ):
        pool.submit("check", ("0", missing, "target"), found.extend)
        pool.run()
        assert found == [("never-there", "No such file or directory")]
        (child,) = set(psutil.Process().children()) - before
        child.send_signal(signal.SIGUSR1)
        pool.submit("check", ("0", missing, "target"), found.append)
        pool.run()
    assert len(found) == 1


@pytest.mark.parametrize("looks_only", [True, False])
def test_who_only_looks_need_not_finish_for_an_interruption(
    looks_only: bool, source: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be at a folder of a million files, and whoever pressed Ctrl-C waits."""
    begun, tell = os.pipe()
    monkeypatch.setattr(pool_module, "_STOP_SECONDS", 60.0 if looks_only else 0.5)

    def look(worker: Worker, kind: str, long: bool) -> None:
        while long:
            os.write(tell, b"x")
            time.sleep(0.1)

    def interrupt(_: object) -> None:
        os.read(begun, 1)  # by now it is at the long one
        raise KeyboardInterrupt

    monkeypatch.setattr(Worker, "do", look)
    with (
        pytest.raises(KeyboardInterrupt),
        Pool(Job(source, source, looks_only=looks_only), processes=1) as pool,
    ):
        (member,) = pool._members
        pool.submit("check", False, interrupt)
        pool.submit("check", True, print)
        pool.run()
    assert member.exit_code == (-signal.SIGTERM if looks_only else -signal.SIGKILL)
    os.close(begun)
    os.close(tell)


@pytest.mark.parametrize("processes", [0, 1])
def test_what_no_worker_can_go_on_with_is_a_sentence_with_a_hint(
    source: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), "a/b")

    monkeypatch.setattr(Worker, "do", broken)
    with (
        Pool(Job(source, source, looks_only=True), processes=processes) as pool,
        pytest.raises(TaskFailed) as caught,
    ):
        pool.submit("check", ("0", [], "target"), print)
        pool.run()
    assert caught.value.message == "a worker process could not go on: Cannot allocate memory."
    assert "free some memory" in str(caught.value.hint) and caught.value.named == "a/b"


@pytest.mark.parametrize("threads", [1, _THREADS])
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOMEM, "No memory"), "memory ran out in a worker process"),
        (RuntimeError("a mistake of ours"), "a worker process was ended with status 1"),
    ],
)
def test_an_answer_that_cannot_be_sent_is_not_waited_for(
    error: Exception,
    said: str,
    threads: int,
    source: int,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A pipe takes memory, and a thread that ends leaves the others of its process waiting."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Channel, "send", fail)
    begun = time.monotonic()

    def not_for_ever() -> None:
        assert time.monotonic() - begun < 30

    with (
        pytest.raises(Died, match=said),
        Pool(Job(source), processes=1, threads=threads) as pool,
    ):
        for number in range(_FOLDERS):
            pool.submit("scan", [f"{number}"], print)
        pool.run(on_tick=not_for_ever)
    assert ("a mistake of ours" in capfd.readouterr().err) is isinstance(error, RuntimeError)


@pytest.mark.parametrize(
    ("number", "said", "hint"),
    [
        (signal.SIGTERM, "by SIGTERM", "run the same command again: it goes on"),
        (
            signal.SIGKILL,
            "by SIGKILL",
            "see dmesg); run the same command again: it goes on. Until then",
        ),
        (signal.SIGRTMIN + 6, f"by signal {signal.SIGRTMIN + 6}", "again: it goes on"),
    ],
)
def test_a_worker_that_is_ended_is_an_error_that_names_the_signal(
    source: int, number: int, said: str, hint: str
) -> None:
    """Not that nothing was published: an update has published when directories get their times."""
    before = set(psutil.Process().children())
    job = Job(source, in_ram=True, then="it goes on")
    with Pool(job, processes=1) as pool, pytest.raises(HostprepError) as ended:
        (child,) = set(psutil.Process().children()) - before
        pool.submit("scan", ["0"], lambda _: child.send_signal(number))
        for _ in range(20_000):
            pool.submit("scan", ["0"], lambda _: None)
        pool.run()
    assert f"was ended {said} before all was done" in ended.value.message
    assert "published" not in ended.value.message
    assert hint in str(ended.value.hint)


def test_of_one_that_copies_nothing_no_copies_are_promised(source: int) -> None:
    before = set(psutil.Process().children())
    with Pool(Job(source), processes=1) as pool, pytest.raises(HostprepError) as ended:
        (child,) = set(psutil.Process().children()) - before
        pool.submit("scan", ["0"], lambda _: child.send_signal(signal.SIGTERM))
        for _ in range(20_000):
            pool.submit("scan", ["0"], lambda _: None)
        pool.run()
    assert ended.value.hint == "run the same command again"


def test_processes_are_started_where_more_readers_are_asked_for(source: int) -> None:
    before = set(psutil.Process().children())
    answered: list[str] = []

    with Pool(Job(source), processes=1, most_processes=2) as pool:
        pool.readers = 1
        for _ in range(2):
            for number in range(_FOLDERS):
                pool.submit("scan", [f"{number}"], lambda result: answered.append(result[0][0]))
            pool.run()
            if pool.readers == 1:
                assert len(set(psutil.Process().children()) - before) == 1
            pool.readers = 3
        assert len(set(psutil.Process().children()) - before) == 2 == len(pool.pids)
    assert len(answered) == 2 * _FOLDERS


@pytest.mark.skipif(not AUTOGROUP.is_file(), reason="this kernel does not group by session")
@pytest.mark.parametrize("in_ram", [True, False])
def test_where_memory_runs_out_the_worker_that_fills_it_is_killed_first(
    source: int, in_ram: bool
) -> None:
    """Not its parent, which says what happened, nor whatever program is the largest."""
    own = Path("/proc/self/oom_score_adj").read_text()
    with Pool(Job(source, in_ram=in_ram), processes=1) as pool:
        pool.submit("scan", ["0"], lambda result: None)
        pool.run()
        (worker,) = pool.pids
        its = Path(f"/proc/{worker}/oom_score_adj").read_text()
    assert its == ("1000\n" if in_ram else own)
    assert Path("/proc/self/oom_score_adj").read_text() == own


def test_a_gentle_worker_gives_way_to_other_sessions_too(source: int) -> None:
    """Where the kernel shares processors out by session, a priority counts within one alone."""
    before = set(psutil.Process().children())
    with Pool(Job(source, gentle=True), processes=1) as pool:
        pool.submit("scan", ["0"], lambda _: None)
        pool.run()
        (child,) = set(psutil.Process().children()) - before
        assert (child.nice(), child.ionice().ioclass) == (19, psutil.IOPRIO_CLASS_IDLE)
        if AUTOGROUP_ENABLED.read_text().strip() == "1":
            assert os.getsid(child.pid) == child.pid
            group = Path(f"/proc/{child.pid}/autogroup").read_text()
            assert group.split()[-2:] == ["nice", "19"]
            assert group != AUTOGROUP.read_text()


def test_a_gentle_worker_does_not_outlive_a_parent_that_is_killed(source: int) -> None:
    """No terminal reaches the session that it is in."""
    reader, writer = os.pipe()
    if (parent := os.fork()) == 0:
        with Pool(Job(source, gentle=True), processes=1) as pool:
            pool.submit("scan", ["0"], lambda _: None)
            pool.run()
            os.write(writer, str(pool._members[0].pid).encode())
            signal.pause()
    worker = psutil.Process(int(os.read(reader, 20)))
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    psutil.wait_procs([worker], timeout=60)
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
    os.close(reader)
    os.close(writer)


def _ended_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the counters say, once a pool is made, that the limit of a cgroup was met."""
    counts = itertools.count()
    monkeypatch.setattr(
        pool_module,
        "read_memory_kills",
        lambda: MemoryKills(kills := next(counts), {"/job": kills}),
    )


def test_who_is_stopped_because_the_kernel_killed_a_worker_says_so(
    source: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd stops all of a unit then (OOMPolicy=), and may be faster than the worker's end."""
    _ended_by_the_kernel(monkeypatch)

    def killing(pool: Pool) -> Iterator[tuple[str, list[str], Callable[[object], None]]]:
        yield "scan", ["0"], lambda _: None
        os.kill(pool.pids[0], signal.SIGKILL)
        raise KeyboardInterrupt

    with (
        pytest.raises(Stopped, match=r"SIGKILL .*: the memory limit of cgroup /job was") as told,
        Pool(Job(source), processes=1) as pool,
    ):
        pool.run(killing(pool))
    assert "MemoryMax=" in (told.value.hint or "")


@pytest.mark.parametrize("memory_ran_out", [True, False])
def test_who_is_stopped_while_a_death_is_told_is_stopped(
    memory_ran_out: bool, source: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For want of memory where that was it; else it is an interruption like any other."""
    if memory_ran_out:
        _ended_by_the_kernel(monkeypatch)
    stop, told = Child.stop_sending, []

    def stopped_once(child: Child) -> None:
        if not told:
            told.append(child)
            raise KeyboardInterrupt
        stop(child)

    with (
        pytest.raises(Stopped if memory_ran_out else KeyboardInterrupt),
        Pool(Job(source), processes=1) as pool,
    ):
        monkeypatch.setattr(Child, "stop_sending", stopped_once)
        os.kill(pool.pids[0], signal.SIGKILL)
        pool.submit("scan", ["0"], lambda _: None)
        pool.run()
    assert told


def test_who_is_interrupted_and_lost_no_worker_says_no_more(
    source: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else's process was killed for want of memory meanwhile."""
    _ended_by_the_kernel(monkeypatch)
    with pytest.raises(KeyboardInterrupt), Pool(Job(source), processes=1):
        raise KeyboardInterrupt
