"""Three Debian hosts that run systemd and sshd, for all tests of this folder together."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_TOOLS = {
    "debootstrap": "debootstrap",
    "systemd-nspawn": "systemd-container",
    "ssh": "openssh-client",
    "ip": "iproute2",
    "nsenter": "util-linux",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this folder as needing root."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.root)


@pytest.fixture(scope="package", autouse=True)
def able() -> None:
    """Skip, with the reason, where hosts cannot be booted."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to boot hosts of its own")
    for tool, package in _TOOLS.items():
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}, which the package {package} has")
    if "overlay" not in Path("/proc/filesystems").read_text():
        pytest.skip("needs overlayfs in the kernel, for the disks of its hosts")
    tried = subprocess.run(
        ["unshare", "--net", "--", "ip", "link", "add", "type", "bridge"],
        capture_output=True,
        text=True,
    )
    if tried.returncode:
        pytest.skip(f"needs a network namespace with a bridge: {tried.stderr.strip()}")
