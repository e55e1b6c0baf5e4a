"""A GPU that others use: nothing is decided by that, and least of all against the machine."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

from hostprep.cuda.session import Report, verify
from hostprep.units import MIB
from tests.gpu.others import busy, full
from tests.gpu.transcript import verify as run_verify

_WRONG = ("FAIL", "ERROR")


def found_by(*arguments: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the document of a quick run, and its checks by name."""
    done = run_verify("--quick", "--json", *arguments)
    document = json.loads(done.stdout)
    checks = {check["name"]: check for check in document["checks"]}
    assert done.returncode == 4, checks
    return document, checks


def test_a_busy_one_is_inconclusive_and_no_value_is_wrong() -> None:
    with busy():
        document, checks = found_by()
    assert document["verdict"] == "INCONCLUSIVE"
    assert checks["device.idle"]["status"] == "INCONCLUSIVE"
    assert [check for check in checks.values() if check["status"] in _WRONG] == []
    assert checks["delivery.slow_consumer"]["status"] == "PASS"


def test_one_whose_memory_others_hold_is_inconclusive() -> None:
    """What the process needs for CUDA itself fits, and little more."""
    with full(700 * MIB):
        document, checks = found_by()
    assert document["verdict"] == "INCONCLUSIVE"
    assert checks["device.idle"]["status"] == "WARN"
    assert [check for check in checks.values() if check["status"] in _WRONG] == []
    assert "memory" in str([c["message"] for c in checks.values() if c["status"] == "SKIP"])


def test_who_comes_during_the_test_is_seen() -> None:
    class Observer:
        def stage(self, subject: str, name: str) -> None:
            if name == "flatness":
                stack.enter_context(busy())

    with ExitStack() as stack:
        report: Report = verify(device=0, quick=True, folder=None, observer=Observer())
    (idle,) = (check for check in report.checks if check.name == "device.idle")
    assert idle.status == "INCONCLUSIVE" and "came to it during the test" in idle.message
    assert [check for check in report.checks if check.status in _WRONG] == []
