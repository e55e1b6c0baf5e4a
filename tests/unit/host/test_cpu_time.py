"""How long processes waited for a processor, from captured files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hostprep.host.cpu_time import CpuTicks, cpu_ticks, run_delay_seconds


def threads(root: Path, *lines: str) -> None:
    for number, line in enumerate(lines):
        folder = root / f"proc/42/task/{number}"
        folder.mkdir(parents=True)
        (folder / "schedstat").write_text(line)


def test_all_threads_of_a_process_count(tmp_path: Path) -> None:
    threads(tmp_path, "5000000 1500000000 7\n", "0 0 0\n", "1 500000000 1\n")
    assert run_delay_seconds(42, tmp_path) == pytest.approx(2.0)


@pytest.mark.parametrize("line", ["0 0 0\n", ""])
def test_a_kernel_that_does_not_count_says_nothing(tmp_path: Path, line: str) -> None:
    threads(tmp_path, line)
    assert run_delay_seconds(42, tmp_path) is None


def test_of_a_process_that_has_ended_nothing_is_known(tmp_path: Path) -> None:
    assert run_delay_seconds(42, tmp_path) is None


def test_without_the_kernels_figures_no_share_is_known(tmp_path: Path) -> None:
    ticks = cpu_ticks(tmp_path)
    assert ticks.busy_share_since(ticks) is None


def test_ticks_that_are_not_told_are_none(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    numbers = "".join(f"cpu{number}\n \n" for number in os.sched_getaffinity(0))
    (tmp_path / "proc/stat").write_text(numbers)
    assert cpu_ticks(tmp_path) == CpuTicks(0, 0)
