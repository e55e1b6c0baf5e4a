"""A real driver under which CUDA does not start: why, and with what exit status."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests.gpu.transcript import verify

# A /dev with what a program needs, and of the driver's nodes those that fit ``$NODES``, of a mode.
_OTHER_DEV = """
set -e
mount -t tmpfs hostprep /mnt && cd /mnt
cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom .
mkdir -m 1777 shm
ln -s /proc/self/fd fd
for node in $NODES; do cp -a $node . && chmod $MODE ${node##*/}; done
mount --bind . /dev
cd "$OLDPWD"
exec "$@"
"""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="hides device nodes: only root can")


def in_another_dev(*command: str) -> tuple[str, ...]:
    return ("unshare", "--mount", "bash", "-c", _OTHER_DEV, "dev", *command)


def start_of(answer: str) -> dict[str, Any]:
    document = json.loads(answer)
    (start,) = (check for check in document["checks"] if check["name"] == "cuda.start")
    return {**start, "verdict": document["verdict"]}


@pytest.mark.parametrize("visible", ["", "7", "GPU-00000000-0000-0000-0000-000000000000"])
def test_devices_that_the_environment_hides(visible: str) -> None:
    done = verify("--quick", "--json", CUDA_VISIBLE_DEVICES=visible)
    start = start_of(done.stdout)
    assert (done.returncode, start["verdict"], start["status"]) == (3, "FAIL", "FAIL"), start
    assert f"CUDA_VISIBLE_DEVICES={visible!r}" in start["message"]
    assert "unset CUDA_VISIBLE_DEVICES" in start["remedy"]


def test_a_device_that_is_not_there_is_a_mistake() -> None:
    done = verify("--quick", "--device", "cuda:9")
    assert done.returncode == 2 and "there is no cuda:9" in done.stderr


@as_root
@pytest.mark.parametrize(
    ("nodes", "mode", "message", "remedy"),
    [
        # An ordinary user, for root's CUDA makes a missing node itself.
        ("nvidia0 nvidiactl", "666", "/dev/nvidia-uvm is missing", "modprobe nvidia_uvm"),
        ("nvidia0 nvidiactl nvidia-uvm", "600", "this user may not open /dev/nvidia", ""),
    ],
)
def test_nodes_that_are_missing_or_not_for_everybody(
    nodes: str, mode: str, message: str, remedy: str
) -> None:
    under = in_another_dev("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    paths = " ".join(f"/dev/{node}" for node in nodes.split())
    settings = {"NODES": paths, "MODE": mode, "HOME": "/", "HOSTPREP_STATE_DIR": ""}
    start = start_of(verify("--quick", "--json", under=under, **settings).stdout)
    assert start["status"] == "FAIL" and message in start["message"], start
    assert remedy in start["remedy"]
