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


def test_of_the_processors_that_may_be_used_idle_and_waiting_time_is_not_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 2})
    (tmp_path / "proc").mkdir()
    # user nice system idle iowait irq softirq steal guest guest_nice
    (tmp_path / "proc/stat").write_text(
        "cpu  9999 0 0 9999 0 0 0 0 0 0\n"
        "cpu0 10 2 30 400 50 6 7 8 9 1\n"
        "cpu1 9999 0 0 0 0 0 0 0 0 0\n"
        "cpu2 1 0 0 100 0\n"
        "intr 5 5 5 5 5 5\n"
    )
    ticks = cpu_ticks(tmp_path)
    assert ticks == CpuTicks(busy=63 + 1, total=513 + 101)
    assert CpuTicks(70, 634).busy_share_since(ticks) == pytest.approx(6 / 20)
    (tmp_path / "sys/devices/system/cpu").mkdir(parents=True)
    (tmp_path / "sys/devices/system/cpu/isolated").write_text("2\n")  # nobody is moved to it
    assert cpu_ticks(tmp_path) == CpuTicks(busy=63, total=513)
