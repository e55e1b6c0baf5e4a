"""What the tests of the playbooks share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import hostprep.fleet.playbook
from hostprep.system.resources import data_path


@pytest.fixture
def playbooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the playbooks that is run instead of them."""
    shutil.copytree(data_path("playbooks"), tmp_path / "playbooks")
    monkeypatch.setattr(hostprep.fleet.playbook, "data_path", tmp_path.joinpath)
    return tmp_path / "playbooks"
