"""What this process and its children use: processor time, waiting for processors, memory, files.

From /proc (proc_pid_schedstat: processor time, time runnable but waiting; both in nanoseconds).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hostprep.system.parent import die_with_parent

_TICK = os.sysconf("SC_CLK_TCK")
_LOOK_SECONDS = 0.3


class WorkerStart:
    """A ``worker_init_fn`` that ties a worker to its parent and goes on with the user's own."""

    def __init__(self, then: Callable[[int], Any] | None) -> None:
        self.then = then

    def __call__(self, worker: int) -> None:
        die_with_parent()
        if self.then is not None:
            self.then(worker)


@dataclass(frozen=True, slots=True)
class Usage:
    """Seconds since some beginning, at ``at``: of this process, of all of them, of everybody.

    ``everybody_cpu`` and ``stolen`` are of the processors this process may use; time that another
    virtual machine took counts as stolen.
    """

    at: float
    main_cpu: float
    own_cpu: float
    own_delay: float
    everybody_cpu: float


def usage(pids: Iterable[int]) -> Usage:
    """Read the usage of this process and of ``pids``, its children, now."""
    main_cpu, main_delay = _times(os.getpid())
    own_cpu, own_delay = main_cpu, main_delay
    for pid in pids:
        cpu, delay = _times(pid)
        own_cpu += cpu
        own_delay += delay
    return Usage(time.perf_counter(), main_cpu, own_cpu, own_delay, _everybody())


def others_now() -> float:
    """Return how many processors other programs take at the moment; takes a third of a second."""
    before = usage(())
    time.sleep(_LOOK_SECONDS)
    after = usage(())
    mine = after.own_cpu - before.own_cpu
    return max(0.0, (after.everybody_cpu - before.everybody_cpu - mine) / (after.at - before.at))


def thread_delay_seconds() -> float:
    """Return how long this thread has waited for a processor, 0 where the kernel does not say."""
    words = _read("/proc/thread-self/schedstat").split()
    return int(words[1]) / 1e9 if len(words) > 1 else 0.0


def _times(pid: int) -> tuple[float, float]:
    """Return the processor time of a process's threads, and how long they waited for one."""
    cpu = delay = 0
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return 0.0, 0.0
    for thread in threads:
        words = _read(f"/proc/{pid}/task/{thread}/schedstat").split()
        if len(words) > 1:
            cpu += int(words[0])
            delay += int(words[1])
    return cpu / 1e9, delay / 1e9


def _everybody() -> float:
    """Return the seconds in which the processors that we may use were busy, or stolen from us."""
    mine = os.sched_getaffinity(0)
    ticks = 0
    for line in _read("/proc/stat").splitlines():
        name, *numbers = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in mine:
            user, nice, system, _, _, irq, softirq, steal = map(int, numbers[:8])
            ticks += user + nice + system + irq + softirq + steal
    return ticks / _TICK


def proportional_memory(pid: int) -> int | None:
    """Return the memory of a process in bytes, shared pages counted by their share (PSS)."""
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return None


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
        return Path(path).read_text()
    except OSError:
        return ""
