"""What the kernel counts of processor time: time in use, and time waiting for a processor."""

from __future__ import annotations

from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.host.cpu import scheduled_cpus
from hostprep.host.reading import read_lines, read_text


@dataclass(frozen=True, slots=True)
class CpuTicks:
    """Ticks since boot of the processors that this process may use: ``busy`` ones, and all."""

    busy: int
    total: int

    def busy_share_since(self, before: CpuTicks) -> float | None:
        """Return the share of the time since then that they were busy, whoever used them.

        None if no time has passed, or nothing counts it.
        """
        total = self.total - before.total
        return (self.busy - before.busy) / total if total > 0 else None


def cpu_ticks(root: Path = Path("/")) -> CpuTicks:
    """Read ``/proc/stat``; no ticks at all if it cannot be read."""
    allowed = {f"cpu{number}" for number in scheduled_cpus(root)}
    busy = total = 0
    for line in read_lines(root / "proc/stat"):
        name, _, rest = line.partition(" ")
        # Guest time is part of user time.
        ticks = [int(field) for field in rest.split()[:8] if field.isdigit()]
        if name in allowed and len(ticks) > 4:
            total += sum(ticks)
            busy += sum(ticks) - ticks[3] - ticks[4]  # idle and waiting for a disk
    return CpuTicks(busy, total)


def run_delay_seconds(process: int | str, root: Path = Path("/")) -> float | None:
    """Return how long the present threads of ``process`` (its number, or ``self``) have waited.

    That is, were ready to run but had no processor (the kernel's scheduler/sched-stats): the sum
    over all of them since their start. None if the kernel does not count it.
    """
    delays = []
    for task in (root / f"proc/{process}/task").glob("*/schedstat"):
        numbers = (read_text(task) or "").split()[:2]
        if len(numbers) == 2 and all(map(str.isdigit, numbers)):
            delays.append((int(numbers[0]), int(numbers[1])))
    if not any(ran for ran, _ in delays):  # without the accounting everything is zero
        return None
    return sum(waited for _, waited in delays) / 1e9
