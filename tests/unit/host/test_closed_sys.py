"""Hosts where ordinary users may not look into ``/sys``, as hardened ones forbid it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostprep.host.block_device import chain, device_folder, folder_of_name
from hostprep.host.block_link import nvme_link
from hostprep.host.cgroup_folders import hierarchies, limits_are_hidden
from hostprep.host.gpu_driver import read_driver
from hostprep.readiness.checks import limit_locked_memory
from hostprep.readiness.context import Context
from hostprep.readiness.model import CannotTell

_CGROUP = "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host whose ``/sys`` is closed, to root as well: whoever runs the tests."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/job\n")
    (tmp_path / "proc/self/mountinfo").write_text(_CGROUP)
    (tmp_path / "sys").mkdir()

    def closed(call: Callable[..., Any]) -> Callable[..., Any]:
        def refuse(path: Any = ".", *args: Any, **named: Any) -> Any:
            if isinstance(path, str | os.PathLike) and f"{tmp_path}/sys/" in f"{path}/":
                raise PermissionError(13, os.strerror(13), str(path))
            return call(path, *args, **named)

        return refuse

    for name in ("stat", "lstat", "listdir", "scandir", "readlink"):
        monkeypatch.setattr(os, name, closed(getattr(os, name)))
    return tmp_path


def test_what_cannot_be_seen_there_is_not_known(root: Path) -> None:
    assert device_folder("8:0", root) is None
    assert folder_of_name("/dev/sda", root) is None
    (device,), _ = chain(root / "sys/devices/pci0000:00/block/sda")
    assert (device.name, device.kind, device.rotational_says_kernel) == ("sda", "disk", None)
    assert nvme_link("nvme0n1", root) is None
    assert read_driver(root).pci_devices == ()


def test_limits_are_not_said_to_be_none(root: Path) -> None:
    assert limits_are_hidden("memory", root)
    (found,) = hierarchies(root)
    assert found.folders == ()


def test_infiniband_is_not_said_to_be_missing(root: Path) -> None:
    with pytest.raises(CannotTell, match="may not be read by this user"):
        limit_locked_memory.look(Context(root=root))
