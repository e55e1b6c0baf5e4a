"""What Slurm did with the processors of the tasks that it started side by side (srun(1))."""

from __future__ import annotations

import os
from pathlib import Path

from hostprep.host.cpu import allowed_cores


def has_own_processors(ranks: int, root: Path = Path("/")) -> bool:
    """Return whether Slurm bound this process, and each of ``ranks`` tasks, to other processors.

    Then the affinity is what one rank has, where it is otherwise what all of them share. The
    variables are inherited by whatever a task starts: they count where the affinity is one of the
    masks still.
    """
    if os.environ.get("SLURM_CPU_BIND_TYPE") != "mask_cpu:":
        return False
    masks = os.environ.get("SLURM_CPU_BIND_LIST", "").split(",")
    try:
        bound = [int(mask, 16) for mask in masks]
    except ValueError:
        return False
    mine = sum(1 << number for core in allowed_cores(root) for number in core)
    others = [mask for mask in bound if mask != mine]
    apart = not any(mask & mine for mask in others)
    return 1 < len(bound) == ranks == len(others) + 1 and apart
