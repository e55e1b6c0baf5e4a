"""What ended a removal, as a sentence and what to do."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace
from typing import Any

import pytest

from hostprep.staging.unstage import _stopped


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.EIO])
def test_a_quota_that_is_used_up_is_to_be_raised_before_removing(number: int) -> None:
    """Btrfs takes room of it for removing, and refuses that, too."""
    record: Any = SimpleNamespace(target="/fast/data")
    error = _stopped(OSError(number, os.strerror(number)), record)
    assert "/fast/data could not be removed" in error.message
    assert ("quota raised" in (error.hint or "")) is (number == errno.EDQUOT)
    assert "run the same command again" in (error.hint or "")
