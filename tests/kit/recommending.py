"""``hostprep recommend`` in a process of its own, of which nothing may be left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CONTRACT = {
    "num_workers",
    "prefetch_factor",
    "pin_memory",
    "persistent_workers",
    "binding",
    "expected_samples_per_s",
    "evidence",
}
MARK = "HOSTPREP_TEST_MARK"
NO_RANKS = {
    "LOCAL_WORLD_SIZE": "",
    "SLURM_NTASKS_PER_NODE": "",
    "SLURM_STEP_TASKS_PER_NODE": "",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "",
}


def command(*arguments: str) -> list[str]:
    """Return the words that run ``hostprep recommend`` with some arguments."""
    return [sys.executable, "-m", "hostprep", "recommend", *arguments]


def marked(mark: str) -> list[int]:
    """Return the processes that carry a mark in their environment."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if f"{MARK}={mark}".encode() in Path(f"/proc/{name}/environ").read_bytes():
                found.append(int(name))
        except OSError:
            continue
    return found


def gone(mark: str, seconds: float = 60) -> bool:
    """Return whether all that carry a mark have ended, in ``seconds`` at most."""
    deadline = time.monotonic() + seconds
    while marked(mark):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def recommend(
    *arguments: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it to its end; no process and no shared memory may be left of it."""
    mark = uuid.uuid4().hex
    before = set(os.listdir("/dev/shm"))
    done = subprocess.run(
        command(*arguments),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
        env={**os.environ, **NO_RANKS, MARK: mark, **(env or {})},
        check=False,
    )
    assert gone(mark), f"left running: {marked(mark)}"
    # Other programs may use it, too: only what did not exist before and stays can be ours.
    assert not (_left_over(before) and time.sleep(2) is None and _left_over(before))
    return done


def _left_over(before: set[str]) -> set[str]:
    return {name for name in os.listdir("/dev/shm") if name.startswith("torch_")} - before


def recommend_for(
    name: str, *arguments: str, env: dict[str, str] | None = None
) -> tuple[int, dict[str, Any], str]:
    """Return (status, document, stderr) for one of ``tests.cli.recommend_loaders``."""
    spec = f"tests.cli.recommend_loaders:{name}"
    seconds = () if "--seconds" in arguments else ("--seconds", "10")
    done = recommend("--loader", spec, *seconds, *arguments, "--json", env=env)
    document = json.loads(done.stdout)
    assert document["schema"] == "hostprep.recommend/1"
    assert document["ok"] is (done.returncode == 0)
    return done.returncode, document, done.stderr
