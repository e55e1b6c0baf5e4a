"""Processes of a test: those it has started, whether they end, and what its own has open."""

from __future__ import annotations

import os
import time

import psutil


def open_files() -> int:
    """Return how many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))


def children() -> list[int]:
    """Return our own; others of the same test run may have left a helper running."""
    return [child.pid for child in psutil.Process().children()]


def alive(pid: int) -> bool:
    """Whether it runs: one that nobody has waited for yet does not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pid: int, seconds: float = 60) -> bool:
    """Whether it has ended, after ``seconds`` at most."""
    deadline = time.monotonic() + seconds
    while alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
