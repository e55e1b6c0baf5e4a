"""Processes of hostprep's own find the hostprep that started them, and nothing beside it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hostprep.system import python

ROOT = Path(__file__).parents[3]
_ASK = """
import os, subprocess
from hostprep.system.python import own_environment, own_module
subprocess.run(own_module("hostprep.where"), env={**os.environ, **own_environment()}, check=True)
"""


def test_a_checkout_that_is_not_installed_runs_itself(tmp_path: Path) -> None:
    """Another hostprep is installed in this Python: a wrong one would answer, or none."""
    shutil.copytree(ROOT / "hostprep", tmp_path / "hostprep")
    (tmp_path / "hostprep/where.py").write_text("print(__file__)\n")
    done = subprocess.run(
        [sys.executable, "-c", _ASK], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == str(tmp_path / "hostprep/where.py"), done.stderr


def test_one_that_is_installed_is_given_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the current directory nor a folder that a script is in comes before it there."""
    monkeypatch.setattr(sys, "path", ["/tmp", str(ROOT)])
    assert python.own_environment() == {}
    monkeypatch.setattr(sys, "path", [str(ROOT), "/usr/lib/python3"])
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    assert python.own_environment() == {"PYTHONPATH": f"{ROOT}:/somewhere"}
