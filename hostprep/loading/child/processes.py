"""What this process and its children use: processor time, waiting for processors, memory, files.

Read from /proc (a thread's schedstat: its waiting for processors, in nanoseconds) and from the
kernel's clocks of processes, the only ones that include ended threads and programs.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.host.cpu import scheduled_cpus
from hostprep.system.parent import die_with_parent

_TICK = os.sysconf("SC_CLK_TCK")
# The kernel's number for the processor clock of a whole process: MAKE_PROCESS_CPUCLOCK in Linux's
# posix-timers.h, CPUCLOCK_SCHED of it.
_CPUCLOCK_SCHED = 2
# Among the fields after the command's name in /proc/PID/stat: cutime and cstime.
_REAPED_TICKS = slice(13, 15)
_LOOK_SECONDS = 0.3


class WorkerStart:
    """A ``worker_init_fn`` that ties a worker to its parent and then calls the user's own."""

    def __init__(self, then: Callable[[int], Any] | None) -> None:
        self.then = then

    def __call__(self, worker: int) -> None:
        die_with_parent()
        parent = multiprocessing.parent_process()
        if parent is not None and not parent.is_alive():
            # It was killed while this one was still being started, and nobody else will notice.
            os.kill(os.getpid(), signal.SIGKILL)
        if self.then is not None:
            self.then(worker)


def look_for_killed(workers: Iterable[Any]) -> None:
    """Raise the error that torch would raise if one of a DataLoader's ``workers`` was killed.

    Torch reports it when it happens, but not while workers are still being started, not for those
    that it did not fork itself, and in vain if the code running then catches all errors. It looks
    again only when a batch has not come for five seconds, and there may be no time for that.
    """
    for worker in workers:
        if worker.exitcode is not None and worker.exitcode < 0:
            how = signal.strsignal(-worker.exitcode)
            raise RuntimeError(f"DataLoader worker (pid {worker.pid}) is killed by signal: {how}.")


@dataclass(frozen=True, slots=True)
class Usage:
    """Seconds since some moment, read at ``at``: of this process, of all of ours, of everybody.

    ``main_cpu`` is this process alone, including threads that have ended. ``own_cpu`` is this
    process, its workers and the programs that any of them started; ``own_delay`` is how long the
    main threads of those that still live waited for a processor: that is what a loader loses. (A
    library's threads wait in parallel, and for each other.) ``everybody_cpu`` is of the processors
    that this process may use; time taken by another virtual machine counts as used.
    """

    at: float
    main_cpu: float
    own_cpu: float
    own_delay: float
    everybody_cpu: float


def usage(pids: Iterable[int]) -> Usage:
    """Read the present usage of this process and of ``pids``, its workers."""
    own_cpu = own_delay = 0.0
    for pid in _with_descendants([os.getpid(), *pids]):
        own_cpu += _cpu_seconds(pid)
        own_delay += _delay_seconds(f"{pid}/task/{pid}")  # of its main thread
    return Usage(time.perf_counter(), time.process_time(), own_cpu, own_delay, _everybody())


def used_between(before: Usage, after: Usage) -> dict[str, float]:
    """Return how many processors were used in between, as fields of ``Probe``."""
    elapsed = after.at - before.at
    own = (after.own_cpu - before.own_cpu) / elapsed
    delayed = max(0.0, after.own_delay - before.own_delay)  # ended threads took theirs along
    return {
        "own_cpus": own,
        "main_cpus": (after.main_cpu - before.main_cpu) / elapsed,
        "runnable_cpus": own + delayed / elapsed,
        "others_cpus": max(0.0, (after.everybody_cpu - before.everybody_cpu) / elapsed - own),
    }


def others_now() -> float:
    """Return how many processors other programs use at the moment; takes a third of a second."""
    before = usage(())
    time.sleep(_LOOK_SECONDS)
    return used_between(before, usage(()))["others_cpus"]


def thread_delay_seconds() -> float:
    """Return how long this thread has waited for a processor, 0 if the kernel does not say."""
    return _delay_seconds("thread-self")


def _with_descendants(pids: Iterable[int]) -> set[int]:
    found: set[int] = set()
    waiting = list(pids)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            for thread in _threads(pid):
                children = _read(f"/proc/{pid}/task/{thread}/children").split()
                waiting += map(int, children)
    return found


def _cpu_seconds(pid: int) -> float:
    """Return the processor time of a process, its ended threads, and the children it waited for."""
    try:
        own = time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)
    except OSError:
        return 0.0
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return own + sum(map(int, fields[_REAPED_TICKS])) / _TICK


def _delay_seconds(thread: str) -> float:
    """Return how long a thread, given by its folder in /proc, has waited for a processor."""
    words = _read(f"/proc/{thread}/schedstat").split()
    return int(words[1]) / 1e9 if len(words) > 1 else 0.0


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def _everybody() -> float:
    """Return the seconds in which the processors we run on were busy, or stolen from us."""
    mine = scheduled_cpus()
    ticks = 0
    for line in _read("/proc/stat").splitlines():
        name, *numbers = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in mine:
            user, nice, system, _, _, irq, softirq, steal = map(int, numbers[:8])
            ticks += user + nice + system + irq + softirq + steal
    return ticks / _TICK


def own_memory(pid: int) -> int | None:
    """Return the memory in bytes that only this process has written, None if it cannot be read.

    That excludes what it shares with its parent until one of them writes, and files that it has
    mapped, in a tmpfs or elsewhere: another such process does not take them once more.
    """
    held = None
    written = 0
    for line in _read(f"/proc/{pid}/smaps").splitlines():
        # Both lines come for each mapping in turn; anonymous memory belongs to no file.
        if line.startswith("Private_Dirty:"):
            written = int(line.split()[1])
        elif line.startswith("Anonymous:"):
            held = (held or 0) + min(written, int(line.split()[1]))
    return None if held is None else held * 1024


def threads_and_affinity(pid: int) -> tuple[int | None, int | None]:
    """Return how many threads a process has, and on how many processors it may run."""
    threads = None
    for line in _read(f"/proc/{pid}/status").splitlines():
        if line.startswith("Threads:"):
            threads = int(line.split()[1])
    try:
        return threads, len(os.sched_getaffinity(pid))
    except OSError:
        return threads, None


def open_descriptors() -> int:
    """Return how many files this process has open."""
    return len(os.listdir("/proc/self/fd"))


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")  # names may be any bytes
    except OSError:
        return ""
