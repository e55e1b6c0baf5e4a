"""What `make` runs before there is a hostprep, interrupted where people interrupt it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.stagecraft import REPOSITORY

# Notes how it is called, and makes a virtual environment whose Python has a pip.
_SYSTEM_PYTHON = """#!/bin/sh
echo "$*" >>calls
if [ "$2" = venv ]; then printf '#!/bin/sh\\nexit 0\\n' >.venv/bin/python; fi
"""
# As it is left by a Ctrl-C while `python -m venv` installs pip.
_WITHOUT_PIP = """#!/bin/sh
[ "$1" = -c ] || { echo "No module named pip" >&2; exit 1; }
"""


def test_environment_that_was_interrupted_is_made_anew(tmp_path: Path) -> None:
    python, half_made = tmp_path / "python3", tmp_path / ".venv/bin/python"
    half_made.parent.mkdir(parents=True)
    for path, script in ((python, _SYSTEM_PYTHON), (half_made, _WITHOUT_PIP)):
        path.write_text(script)
        path.chmod(0o755)
    (tmp_path / "scripts").mkdir()
    shutil.copy(REPOSITORY / "scripts/setup.sh", tmp_path / "scripts")
    again = ["scripts/setup.sh", "--base"]
    environment = {**os.environ, "PYTHON": str(python)}
    for _ in range(2):  # the second finds it whole
        subprocess.run(again, cwd=tmp_path, env=environment, check=True, capture_output=True)
    made = [line for line in (tmp_path / "calls").read_text().splitlines() if "-m venv" in line]
    assert made == ["-m venv --clear .venv"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_demo_that_is_ended_leaves_nothing(number: signal.Signals) -> None:
    # What was started with nohup ignores a signal, and so would all that it starts.
    line = ["env", "--default-signal", sys.executable, REPOSITORY / "scripts/demo.py"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        making = next(said for said in demo.stdout if said.startswith("making "))
        source = Path(making.split()[-1])
        assert source.parent.exists()
        demo.send_signal(number)
        demo.stdout.read()
    assert demo.returncode == 130
    assert not source.parent.exists()
