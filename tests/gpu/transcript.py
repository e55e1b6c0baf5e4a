"""`hostprep verify` on the device; its whole output becomes a transcript.

Needs no pytest: `python3 -m tests.gpu.transcript`. ``HOSTPREP_TRANSCRIPTS`` names another folder
for the transcripts, ``HOSTPREP_COMMIT`` the commit where there is no repository to ask.
"""

from __future__ import annotations

import glob
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TRANSCRIPTS = Path(
    os.environ.get("HOSTPREP_TRANSCRIPTS") or ROOT / "docs" / "verify-transcripts"
).resolve()
GOOD = (0, 3, 4)
# What a run may take whatever it tests, torch's import and a GPU that hangs within it, and for each
# GPU.
_RUN_SECONDS, _DEVICE_SECONDS = 480, 120


@dataclass(frozen=True, slots=True)
class Recorded:
    """Both runs as they were, and what they are in: FILE.txt and FILE.json."""

    text: subprocess.CompletedProcess[str]
    answer: subprocess.CompletedProcess[str]
    file: Path


def longest_seconds() -> int:
    """Return what a run may take, by the GPUs that the driver has nodes for."""
    return _RUN_SECONDS + _DEVICE_SECONDS * max(1, len(glob.glob("/dev/nvidia[0-9]*")))


def untested(document: dict[str, Any]) -> list[str]:
    """Return what a run left out, which exits with 4 as what it could not decide does."""
    return [
        f"{check['subject']} {check['name']}: {check['message']}"
        for check in document["checks"]
        if check["status"] == "SKIP"
    ]


def environment() -> dict[str, str]:
    """Return the environment in which the command prints what is kept."""
    return {**os.environ, "NO_COLOR": "1"}


def verify(
    *arguments: str, under: Sequence[str] = (), **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run the command from this checkout; one that does not end is killed, and keeps its words.

    ``under`` is a command that runs it, ``settings`` go into its environment.
    """
    command = [*under, sys.executable, "-m", "hostprep", "verify", *arguments]
    longest = longest_seconds()
    try:
        return subprocess.run(
            command,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=longest,
            env={**environment(), **settings},
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        words = f"{_text(late.stderr)}\nIt did not end in {longest} s, and was killed.\n"
        return subprocess.CompletedProcess(command, -9, _text(late.stdout), words)


def _text(said: Any) -> str:
    """Return what came before the end, which is bytes whatever was asked for."""
    return said.decode(errors="replace") if isinstance(said, bytes) else said or ""


def record() -> Recorded:
    """Run the whole test twice, as text and as JSON, and keep both as they came."""
    now = datetime.now(UTC)
    TRANSCRIPTS.mkdir(parents=True, exist_ok=True)  # what cannot be kept need not be run
    text, answer = verify(), verify("--json")
    name = f"{now:%Y-%m-%d-%H%M}-{_device(answer.stdout)}"
    file = TRANSCRIPTS / name
    Path(f"{file}.json").write_text(answer.stdout)
    Path(f"{file}.txt").write_text(
        f"$ hostprep verify    # {now:%Y-%m-%d %H:%M} UTC, commit {_commit()}, exit status"
        f" {text.returncode}\n{text.stdout}{text.stderr}"
    )
    return Recorded(text, answer, file)


def _commit() -> str:
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
    except OSError:
        return "unknown"
    return asked.stdout.strip() or "unknown"


def _device(answer: str) -> str:
    """Return a device's name as part of a file's, from what ``verify --json`` printed."""
    try:
        found: Any = json.loads(answer)
        said = found["traces"][0]["device"] or found["survey"]["nvml"]["gpus"][0]
        name = str(said["name"])
    except (ValueError, LookupError, TypeError):
        name = "unknown"
    return re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII).strip("-") or "unknown"


def main() -> int:
    """Record, and print what is to be read; its exit status is that of the run as text."""
    with tempfile.TemporaryDirectory() as state:  # no result of the machine's own
        os.environ["HOSTPREP_STATE_DIR"] = state
        recorded = record()
    sys.stdout.write(Path(f"{recorded.file}.txt").read_text())
    sys.stdout.write(f"kept: {recorded.file}.txt and .json\n")
    return recorded.text.returncode if recorded.text.returncode in range(256) else 1


if __name__ == "__main__":
    sys.exit(main())
