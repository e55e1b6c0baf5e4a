"""How long a process was ready to run and had no processor (kernel: scheduler/sched-stats)."""

from __future__ import annotations

from pathlib import Path

from hostprep.host.reading import read_text


def run_delay_seconds(process: int | str, root: Path = Path("/")) -> float | None:
    """Return for how long the threads that ``process`` (its number, or ``self``) has now waited.

    The sum of them all since their start; None where the kernel does not count it.
    """
    delays = []
    for task in (root / f"proc/{process}/task").glob("*/schedstat"):
        numbers = (read_text(task) or "").split()
        if len(numbers) >= 2:
            delays.append((int(numbers[0]), int(numbers[1])))
    if not any(ran for ran, _ in delays):  # without the accounting all of it is zero
        return None
    return sum(waited for _, waited in delays) / 1e9
