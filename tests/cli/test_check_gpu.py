"""``hostprep check`` of GPUs, by a real NVML library that answers as it is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hostprep.host.gpu_driver import read_driver
from tests.kit import fake_nvml

pytestmark = pytest.mark.skipif(
    read_driver().module_version is not None,
    reason="this machine has a driver: its own answers would mix with the stand-in's",
)
CODES = ("HP050", "HP051", "HP052", "HP053", "HP054", "HP056", "HP057", "HP058")


def check(folder: Path, told: str = "status", **answers: int) -> dict[tuple[str, str], str]:
    """Return the statuses of the checks of GPUs, or what else is ``told``, by code and subject."""
    library = fake_nvml.build(folder, **answers)
    done = subprocess.run(
        [sys.executable, "-m", "hostprep", "check", "--only", ",".join(CODES), "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **library},
        check=False,
    )
    return {
        (each["code"], each["subject"]): each[told] for each in json.loads(done.stdout)["checks"]
    }


def test_what_a_library_answers_is_judged(tmp_path: Path) -> None:
    found = check(tmp_path, DEVICES=2, REASONS=0x80, BUSY=70, PROCESSES=2)
    assert found["HP050", "driver"] == "PASS"
    assert found["HP051", "GPUs"] == "PASS"
    for number in (0, 1):
        assert found["HP052", f"GPU {number}"] == "WARN"  # busy
        assert found["HP053", f"GPU {number}"] == "FAIL"  # the power brake
        assert found["HP056", f"GPU {number}"] == "WARN"  # 8 lanes of 16


def test_a_driver_that_has_just_started_is_not_at_work_for_somebody(tmp_path: Path) -> None:
    found = check(tmp_path, told="message", BUSY=100, LOOKS=3)
    assert "busy for 0% of the time" in found["HP052", "GPU 0"]


def test_a_library_without_driver_and_bus_is_no_gpu(tmp_path: Path) -> None:
    assert set(check(tmp_path, CODE=9).values()) == {"SKIP"}


def test_gpus_of_other_jobs_are_no_fault_and_a_lost_one_is(tmp_path: Path) -> None:
    found = check(tmp_path, DEVICES=4, CLOSED=0b1011)
    assert found["HP050", "driver"] == found["HP051", "GPUs"] == "PASS"
    assert {subject for _, subject in found} == {"driver", "GPUs", "GPU 2"}
    found = check(tmp_path, DEVICES=4, CLOSED=0b1001, LOST=0b0010)
    assert found["HP050", "driver"] == found["HP051", "GPUs"] == "FAIL"
    assert found["HP054", "GPU 2"] == "SKIP"  # those after it are judged
