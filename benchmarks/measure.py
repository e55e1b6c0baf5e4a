"""Runs a command and measures it: wall time, CPU time and peak memory of all its processes."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import psutil

_SAMPLE_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Run:
    """One finished run. ``peak_bytes`` is the largest sum of PSS over the process tree seen."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int


class Failed(Exception):
    """A command ended with an error."""


def measure(args: Sequence[str], env: Mapping[str, str] | None = None) -> Run:
    """Run ``args`` to its end and return what it took.

    Memory is sampled only 4 times a second, which may miss a short run, because each sample costs
    processor time that the run would otherwise have.
    """
    started = perf_counter()
    process = subprocess.Popen(
        args,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, **(env or {})},
    )
    peak = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(_SAMPLE_SECONDS):
            peak = max(peak, _tree_bytes(process.pid))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    assert process.stderr is not None
    words = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = perf_counter() - started
    done.set()
    watcher.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise Failed(f"{' '.join(args)}: status {process.returncode}: {words.decode()[-500:]}")
    return Run(seconds, usage.ru_utime + usage.ru_stime, peak)


def _tree_bytes(pid: int) -> int:
    total = 0
    try:
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
            line = next(line for line in text.splitlines() if line.startswith("Pss:"))
            total += int(line.split()[1]) * 1024
    except (psutil.Error, OSError, StopIteration, ValueError):
        pass  # it is ending
    return total


def drop_caches() -> None:
    """Make everything cold: flushed first, because dirty pages stay."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3\n")


def compact() -> None:
    """Compact free memory: the last run's pages, freed singly, would cost this one huge pages."""
    Path("/proc/sys/vm/compact_memory").write_text("1\n")


def warm(root: Path) -> None:
    """Read everything once, so that it is in the page cache."""
    buffer = bytearray(1 << 20)
    for folder, _, names in os.walk(root):
        for name in names:
            with open(os.path.join(folder, name), "rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass


def machine() -> str:
    """Return in one line what machine the figures were measured on."""
    memory = psutil.virtual_memory().total / 2**30
    processors = Path("/proc/cpuinfo").read_text()
    named = re.search(r"^model name.*?: (.*)", processors, re.M)
    model = "unknown CPU" if named is None else named[1].strip()
    virtual = "virtual machine, " if "hypervisor" in processors else ""
    return (
        f"{virtual}{os.cpu_count()} cores ({model}), {memory:.0f} GiB, "
        f"Linux {platform.release().split('-')[0]}, Python {platform.python_version()}"
    )
