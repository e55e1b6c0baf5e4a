"""What checks know of a data set of the spec, asked of this machine as another user."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hostprep.readiness.checks.dataset_present import CHECK
from hostprep.readiness.context import Context
from hostprep.readiness.model import Status
from hostprep.readiness.runner import run_check
from hostprep.staging.status import NOT_FOR_US
from tests.unit.readiness.captured import spec_of


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes a user who may not look")
@pytest.mark.parametrize("euid", [0, 65534])
def test_a_target_that_this_user_may_not_resolve_is_not_called_missing(
    euid: int, tmp_path: Path
) -> None:
    """It is on record by the path to which that leads."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "link").symlink_to("/nowhere")
    spec = spec_of({"datasets": [{"name": "data", "source": "/usr/share", "to": f"{closed}/link"}]})
    os.seteuid(euid)
    try:
        context = Context(spec=spec, given={"datasets": (), "damaged": {}})
        (found,) = run_check(CHECK, context)
    finally:
        os.seteuid(0)
    if euid == 0:
        assert found.status is Status.FAIL and "it was never staged" in found.message
    else:
        assert found.status is Status.UNKNOWN
        assert NOT_FOR_US in found.message  # nor into those above, perhaps
