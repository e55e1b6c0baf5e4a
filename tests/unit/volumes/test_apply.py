"""What is changed of a mounted volume: of that one, and of nothing that has come in its place."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from hostprep.errors import HostprepError
from hostprep.host.mounts import Mount
from hostprep.volumes.apply import _set_owner_and_mode
from tests.unit.volumes.made import fresh


def test_owner_and_mode_are_set_of_the_volume_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    number = tmp_path.stat().st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    mount = Mount(50, 27, device, "/", str(tmp_path), "tmpfs", "hostprep", ("rw",), ("rw",))
    facts = replace(fresh(str(tmp_path)), mount=replace(mount, device="0:0"))
    with pytest.raises(HostprepError, match="another file system by now"):
        _set_owner_and_mode(facts, None, 0o755)
    assert tmp_path.stat().st_mode & 0o7777 == 0o700
    _set_owner_and_mode(replace(facts, mount=mount), None, 0o755)
    assert tmp_path.stat().st_mode & 0o7777 == 0o755
