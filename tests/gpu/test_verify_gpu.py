"""`hostprep verify` on the device; its whole output becomes a transcript."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]
TRANSCRIPTS = ROOT / "docs" / "verify-transcripts"


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
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=40"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip() or "unknown"


def test_quick_is_quick_and_ends_in_a_verdict() -> None:
    began = time.monotonic()
    done = verify("--quick", "--device", "cuda:0")
    assert done.returncode in (0, 3, 4), done.stderr
    assert time.monotonic() - began < 60


def test_the_whole_test_and_its_transcript() -> None:
    """Write both outputs as they came, whatever the verdict, and only then look at it."""
    now = datetime.now(UTC)
    name = f"{now:%Y-%m-%d-%H%M}-{torch.cuda.get_device_name(0).replace(' ', '-')}"
    answer, text = verify("--json"), verify()
    TRANSCRIPTS.mkdir(exist_ok=True)
    (TRANSCRIPTS / f"{name}.json").write_text(answer.stdout)
    (TRANSCRIPTS / f"{name}.txt").write_text(
        f"$ hostprep verify    # {now:%Y-%m-%d %H:%M} UTC, commit {commit()}, exit status"
        f" {text.returncode}\n{text.stdout}{text.stderr}"
    )
    document = json.loads(answer.stdout)
    assert document["traces"], document["checks"]
    wrong = [check for check in document["checks"] if check["status"] in ("FAIL", "ERROR")]
    assert wrong == []
