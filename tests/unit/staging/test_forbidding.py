"""What a run is refused for before it begins: whose the place is."""

from __future__ import annotations

import os
from pathlib import Path

from hostprep.staging.forbidding import ownership_refusal
from hostprep.staging.model import StageRequest


def test_what_has_the_name_is_judged_as_it_was_opened(tmp_path: Path) -> None:
    """Whoever owns the target may move it away between two looks."""
    request = StageRequest("/data", "data", str(tmp_path), None)
    (tmp_path / "data").mkdir()
    descriptor = os.open(tmp_path / "data", os.O_RDONLY)
    try:
        (tmp_path / "data").rmdir()
        refusal = ownership_refusal(request, None, descriptor)
    finally:
        os.close(descriptor)
    assert refusal is not None and "data exists and was not staged" in refusal.message
