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
    """CUDA itself needs some hundred MiB for its context."""
    with full(300 * MIB):
        document, checks = found_by()
    assert document["verdict"] == checks["cuda.start"]["status"] == "INCONCLUSIVE"
    assert "others hold the GPU" in checks["cuda.start"]["message"]


def test_where_little_is_left_nothing_is_taken_for_a_fault() -> None:
    with full(900 * MIB):
        document = json.loads(run_verify("--quick", "--json").stdout)
    checks = {check["name"]: check for check in document["checks"]}
    assert checks["cuda.start"]["status"] == "PASS"
    assert checks["device.idle"]["status"] == "WARN"
    assert [check for check in checks.values() if check["status"] in _WRONG] == []


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
