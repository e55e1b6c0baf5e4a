"""What the tests of the playbooks share."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

import hostprep.fleet.playbook
from hostprep.system.resources import data_path

# Ansible puts something of its own in the place of this function once it is imported, and torch's
# compiler, which other tests import later in the same process, does not load beside that.
_intern = sys.intern
import ansible.module_utils.common.arg_spec  # noqa: E402, F401

sys.intern = _intern


@pytest.fixture
def playbooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the playbooks that is run instead of them."""
    shutil.copytree(data_path("playbooks"), tmp_path / "playbooks")
    monkeypatch.setattr(hostprep.fleet.playbook, "data_path", tmp_path.joinpath)
    return tmp_path / "playbooks"
