"""What killed workers left in shared memory, and what only looks like it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hostprep.loading.measuring.leftovers import remove_batches


def test_only_what_our_workers_left_is_removed(tmp_path: Path) -> None:
    for name in ("torch_71_1_0", "torch_71_2_0", "torch_711_1_0", "torch_72_1_0", "sem.71"):
        (tmp_path / name).touch()
    earlier = time.time() - 60
    os.utime(tmp_path / "torch_71_2_0", (earlier, earlier))  # of a training that runs already
    remove_batches([71, 73], time.time(), tmp_path)
    left = {"torch_71_2_0", "torch_711_1_0", "torch_72_1_0", "sem.71"}
    assert {path.name for path in tmp_path.iterdir()} == left


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_what_somebody_else_made_stays(tmp_path: Path) -> None:
    (tmp_path / "torch_71_1_0").touch()
    os.chown(tmp_path / "torch_71_1_0", 65534, 65534)
    remove_batches([71], time.time(), tmp_path)
    assert list(tmp_path.iterdir())
