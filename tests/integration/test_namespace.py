"""The fixtures of this folder keep what they promise."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path


def test_mounts_here_are_not_seen_by_the_machine(safe_dir: Path) -> None:
    point = safe_dir / "point"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "seen", str(point)], check=True)
    assert str(point) in Path("/proc/self/mountinfo").read_text()
    assert str(point) not in Path(f"/proc/{os.getppid()}/mountinfo").read_text()


def test_nobody_else_can_write_a_parent(safe_dir: Path) -> None:
    for folder in (safe_dir, *safe_dir.parents):
        found = folder.stat()
        assert found.st_uid == 0
        assert not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
