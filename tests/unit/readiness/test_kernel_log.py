"""The kernel's log of this very machine, to a user who may not read it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hostprep.host.gpu import Nvml
from hostprep.readiness.context import Context
from hostprep.readiness.model import Status
from hostprep.readiness.registry import all_checks, find
from hostprep.readiness.runner import run_check
from tests.unit.readiness.captured import build

_NOBODY = 65534


def restricted() -> bool:
    try:
        return Path("/proc/sys/kernel/dmesg_restrict").read_text().strip() == "1"
    except OSError:
        return False


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
@pytest.mark.skipif(not restricted(), reason="here everybody may read the kernel's log")
def test_a_user_who_may_not_read_the_log_is_not_told_that_all_is_well() -> None:
    check = find(all_checks(), "HP055")
    nvml = build(Nvml, {"gpus": [{"index": 0, "name": "Made"}]})
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([])
            os.setgid(_NOBODY)
            os.setuid(_NOBODY)
            (finding,) = run_check(check, Context(given={"nvml": nvml, "environ": {}}))
            status = 0 if finding.status is Status.SKIP else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
