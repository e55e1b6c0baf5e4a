"""Processes that a test has started, or what it started: which there are, and whether they end."""

from __future__ import annotations

import time

import psutil


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
