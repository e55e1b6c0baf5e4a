"""`hostprep verify` on the device; its whole output becomes a transcript.

In a pytest of its own and without torch's CUDA in it, so that nothing of ours is on the device.
``HOSTPREP_TRANSCRIPTS`` names another folder for the transcripts, ``HOSTPREP_COMMIT`` the commit
where there is no repository to ask.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRANSCRIPTS = Path(
    os.environ.get("HOSTPREP_TRANSCRIPTS", ROOT / "docs" / "verify-transcripts")
).resolve()
GOOD = (0, 3, 4)


def verify(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hostprep", "verify", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "NO_COLOR": "1"},
        check=False,
    )


def commit() -> str:
    if told := os.environ.get("HOSTPREP_COMMIT"):
        return told
    try:
        asked = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return "unknown"
    return asked.stdout.strip() or "unknown"


def device_names(answer: str) -> list[str]:
    """Return the names in a document of ``verify --json``; of one that is none, or has none, []."""
    try:
        return [gpu["name"] for gpu in json.loads(answer)["survey"]["nvml"]["gpus"]]
    except (ValueError, KeyError, TypeError):
        return []


@pytest.mark.timeout(1300)  # two whole runs, on as many GPUs as there are
def test_the_whole_test_and_its_transcript() -> None:
    """Write both outputs as they came, whatever the verdict, and only then look at it."""
    now = datetime.now(UTC)
    text, answer = verify(), verify("--json")
    devices = device_names(answer.stdout)
    name = f"{now:%Y-%m-%d-%H%M}-{(devices or ['unknown'])[0].replace(' ', '-')}"
    TRANSCRIPTS.mkdir(parents=True, exist_ok=True)
    (TRANSCRIPTS / f"{name}.json").write_text(answer.stdout)
    (TRANSCRIPTS / f"{name}.txt").write_text(
        f"$ hostprep verify    # {now:%Y-%m-%d %H:%M} UTC, commit {commit()}, exit status"
        f" {text.returncode}\n{text.stdout}{text.stderr}"
    )
    assert text.returncode in GOOD, text.stdout + text.stderr
    document = json.loads(answer.stdout)
    assert document["traces"], document["checks"]
    wrong = [check for check in document["checks"] if check["status"] in ("FAIL", "ERROR")]
    assert wrong == []


@pytest.mark.parametrize("turn", ["cold", "warm"])
def test_quick_is_quick_and_ends_in_a_verdict(turn: str) -> None:
    began = time.monotonic()
    done = verify("--quick", "--device", "cuda:0")
    took = time.monotonic() - began
    assert done.returncode in GOOD, done.stderr
    assert took < 20 or turn == "cold", took
