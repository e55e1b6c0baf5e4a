"""The training step that `hostprep recommend` times where nobody says what the GPU takes."""

from __future__ import annotations

import json
import os
import subprocess

from hostprep.loading.child import jobs
from hostprep.loading.child.gpu_step import time_steps
from hostprep.system.python import own_environment, own_module


def test_steps_run_in_mixed_precision_on_the_device() -> None:
    found = time_steps("cuda:0", 32, 224, 1.0)
    assert found["samples_per_s"] > 0 and found["steps"] >= 8
    assert "mixed precision" in found["network"]


def test_the_measuring_child_has_it() -> None:
    job = {"job": "gpu", "device": "cuda:0", "batch_size": 64, "side": 160, "seconds": 1.0}
    job |= {"cpus": None, "sockets": None}  # as whoever starts it adds them
    done = subprocess.run(
        own_module(jobs.__name__, json.dumps(job)),
        env={**os.environ, **own_environment()},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["event"] for event in events] == ["opened", "result"], done.stdout + done.stderr
    assert events[1]["result"]["samples_per_s"] > 0
