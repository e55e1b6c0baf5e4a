"""The machine that an admin sits at: hostprep installed from its wheel, in an empty folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.kit.stagecraft import REPOSITORY

PROVISION_SECONDS = 200.0


class Controller:
    """Runs ``hostprep`` below ``folder``, whose ``cwd`` is empty but for what the tests write."""

    def __init__(self, folder: Path, inventory: Path) -> None:
        self.cwd = folder / "cwd"
        self.inventory = inventory
        self._installed = folder / "installed"
        self._state = folder / "state"
        self.cwd.mkdir(parents=True)
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--quiet", "--no-deps",
             "--target", self._installed, REPOSITORY],
            check=True,
        )  # fmt: skip

    def write_spec(self, spec: dict[str, Any]) -> Path:
        """Write ``hostprep.yml`` (in JSON, which is YAML)."""
        path = self.cwd / "hostprep.yml"
        path.write_text(json.dumps(spec, indent=2))
        return path

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start ``hostprep WORDS``."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(self._installed),
            "HOSTPREP_STATE_DIR": str(self._state),
            "HOSTPREP_RUN_DIR": str(self._state / "run"),
        }
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "hostprep", *words], cwd=self.cwd, env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def provision(self, *words: str, expect: int = 0) -> dict[str, Any]:
        """Run ``hostprep provision --json``, insist on its exit code and return its document."""
        return self.finish(self.start_provision("--json", *words), expect)

    def start_provision(self, *words: str) -> subprocess.Popen[str]:
        """Start ``hostprep provision`` on all hosts of the inventory."""
        return self.start("provision", "-i", str(self.inventory), *words)

    def finish(self, run: subprocess.Popen[str], expect: int) -> dict[str, Any]:
        """Wait for a run with ``--json``, insist on its exit code and return its document."""
        found: dict[str, Any] = json.loads(self.said_by(run, expect))
        return found

    def said_by(self, run: subprocess.Popen[str], expect: int) -> str:
        """Wait for a run, insist on its exit code and return its standard output."""
        try:
            out, said = run.communicate(timeout=PROVISION_SECONDS)
        except subprocess.TimeoutExpired:
            run.kill()
            raise
        assert run.returncode == expect, f"{run.returncode}: {said}{out}"
        return out
