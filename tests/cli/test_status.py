"""``hostprep status``: what it says of what is not there any more."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.kit.stagecraft import hostprep, make_source, run_hostprep


def test_of_what_is_missing_it_says_how_to_get_it_back(tmp_path: Path) -> None:
    source = make_source(tmp_path / "city", directories=1, files=2)
    hostprep("stage", source, "--to", tmp_path / "fast")
    assert hostprep("status")["datasets"][0]["hint"] is None
    shutil.rmtree(tmp_path / "fast/city")
    (found,) = hostprep("status")["datasets"]
    assert (found["state"], found["reason"]) == ("missing", "it is not on the target")
    assert found["hint"] == (
        "the same `hostprep stage` stages it again;"
        f" `hostprep unstage {tmp_path}/fast/city` forgets it"
    )
    assert f"    -> {found['hint']}\n" in run_hostprep("status").stdout
