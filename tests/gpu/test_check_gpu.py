"""The checks of GPUs and of CUDA on a machine that has one."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import torch

CODES = tuple(f"HP0{number}" for number in (*range(50, 59), 61, 65))


def test_the_gpu_is_seen_and_every_check_has_something_to_say() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hostprep", "check", "--only", ",".join(CODES), "--json"],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "NO_COLOR": "1"},
        check=False,
    )
    report = json.loads(done.stdout)
    found = {(each["code"], each["subject"]): each["status"] for each in report["checks"]}
    assert {code for code, _ in found} == set(CODES)
    assert found["HP050", "driver"] == "PASS"
    assert found["HP051", "GPUs"] == "PASS"
    assert found["HP061", "torch"] == "PASS", torch.version.cuda
    assert found["HP052", "GPU 0"] in ("PASS", "WARN")
    assert found["HP065", "driver"] == "PASS"  # torch started CUDA
    assert ("HP065", "cuda:0") in found
    left_out = [
        subject
        for (code, subject), status in found.items()
        if code == "HP065" and (status == "SKIP" or " stage." in subject or " run." in subject)
    ]
    assert left_out == []
