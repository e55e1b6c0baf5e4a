"""Folders to probe, and what a probe has left in one."""

from __future__ import annotations

import os
from pathlib import Path

from hostprep.system.own_directory import PROBE_PREFIX


def tree(root: Path, files: int = 60, size: int = 20_000) -> list[Path]:
    made = []
    for number in range(files):
        file = root / f"class{number % 3}" / f"{number}.jpg"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(os.urandom(size + number))
        made.append(file)
    return made


def leftovers(root: Path) -> list[Path]:
    return list(root.glob(f"{PROBE_PREFIX}*"))
