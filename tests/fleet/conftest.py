"""Three Debian hosts that run systemd and sshd, for all tests of this folder together."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.rigs import far
from tests.fleet.kit import base
from tests.fleet.kit.controller import Controller
from tests.fleet.kit.fleet import Fleet, booted
from tests.kit import serving
from tests.kit.needing import mark_folder, need_root, need_tools
from tests.kit.stagecraft import make_source

NAMES = ("alpha", "beta", "gamma")
_TOOLS = {
    "debootstrap": "debootstrap",
    "systemd-nspawn": "systemd-container",
    "ssh": "openssh-client",
    "ip": "iproute2",
    "nsenter": "util-linux",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this folder as needing root, and time: the first may make the base."""
    mark_folder(__file__, items, pytest.mark.root, pytest.mark.timeout(600))


@pytest.fixture(scope="package", autouse=True)
def able() -> None:
    """Skip, with the reason, where hosts cannot be booted."""
    need_root("to boot hosts of its own")
    need_tools(_TOOLS)
    if "overlay" not in Path("/proc/filesystems").read_text():
        pytest.skip("needs overlayfs in the kernel, for the disks of its hosts")
    tried = subprocess.run(
        ["unshare", "--net", "--", "ip", "link", "add", "type", "bridge"],
        capture_output=True, text=True,
    )  # fmt: skip
    if tried.returncode:
        pytest.skip(f"needs a network namespace with a bridge: {tried.stderr.strip()}")
    if reason := serving.unavailable() or base.unavailable():
        pytest.skip(reason)


@dataclass(frozen=True)
class Lab:
    """An admin's controller, hosts, and the folder that a file server shows them.

    ``data`` is that folder on the server; each host has it at ``/srv/datasets``, read-only, through
    a file system that answers like one over a network and that can be taken away; at ``/srv/slow``
    the same, from a server that takes its time.
    """

    fleet: Fleet
    controller: Controller
    data: Path


@pytest.fixture(scope="package")
def lab(able: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Boot the hosts, bare as a Debian is; find this machine unchanged when they are gone."""
    folder = tmp_path_factory.mktemp("lab")
    data = folder / "data"
    make_source(data / "birds")
    before = _machine()
    with ExitStack() as stack:
        shared = {
            point: stack.enter_context(far.far_source(data, folder, request_seconds=seconds)).mount
            for point, seconds in (("/srv/datasets", 0.005), ("/srv/slow", 0.1))
        }
        fleet = stack.enter_context(booted(folder, NAMES, shared=shared))
        yield Lab(fleet, Controller(folder / "controller", fleet.inventory), data)
    assert _machine() == before


def _machine() -> dict[str, str]:
    """Return what tests of hosts could spoil on the machine that they run on."""
    said = {
        name: subprocess.run(["ip", *name.split()], capture_output=True, text=True).stdout
        for name in ("address show", "route show", "-6 route show table all")
    }
    fstab = Path("/etc/fstab")
    units = sorted(map(str, Path("/etc/systemd").rglob("*hostprep*")))
    return {
        "interfaces": "\n".join(sorted(os.listdir("/sys/class/net"))),
        "addresses": said["address show"],
        "routes": said["route show"],
        "fstab": hashlib.sha256(fstab.read_bytes()).hexdigest() if fstab.exists() else "",
        "units": "\n".join(units),
        "state": str(Path("/var/lib/hostprep").exists()),
    }
