"""`hostprep verify` on the device, in a pytest of its own and without torch's CUDA in it.

So nothing of ours is on the device beside it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from tests.gpu.transcript import GOOD, longest_seconds, record, untested, verify


@pytest.mark.timeout(2 * longest_seconds() + 100)  # two whole runs
def test_the_whole_test_and_its_transcript() -> None:
    """Write both outputs as they came, whatever the verdict, and only then look at it."""
    recorded = record()
    text = recorded.text
    assert text.returncode in GOOD, text.stdout + text.stderr
    document = json.loads(recorded.answer.stdout)
    assert document["traces"], document["checks"]
    wrong = [check for check in document["checks"] if check["status"] in ("FAIL", "ERROR")]
    assert wrong == []
    assert untested(document) == []


def import_seconds() -> float:
    """Return what torch takes to be imported, which a device's time is without."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.monotonic() - began


def test_quick_is_quick_and_tests_all() -> None:
    """After a whole run, so CUDA's libraries need not be read from the disk."""
    importing = import_seconds()
    began = time.monotonic()
    done = verify("--quick", "--device", "cuda:0", "--json")
    took = time.monotonic() - began - importing
    assert done.returncode in GOOD, done.stderr
    assert untested(json.loads(done.stdout)) == []
    assert took < 20
