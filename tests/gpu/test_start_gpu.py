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
def test_a_node_that_is_missing() -> None:
    under = in_another_dev()
    nodes = "/dev/nvidia0 /dev/nvidiactl"
    start = start_of(verify("--quick", "--json", under=under, NODES=nodes, MODE="666").stdout)
    assert start["status"] == "FAIL" and "/dev/nvidia-uvm is missing" in start["message"], start
    assert "modprobe nvidia_uvm" in start["remedy"]


@as_root
def test_nodes_that_are_not_for_everybody() -> None:
    under = in_another_dev("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    nodes = "/dev/nvidia0 /dev/nvidiactl /dev/nvidia-uvm"
    done = verify(
        "--quick", "--json", under=under, NODES=nodes, MODE="600", HOME="/", HOSTPREP_STATE_DIR=""
    )
    start = start_of(done.stdout)
    assert start["status"] == "FAIL" and "permission" in start["message"], start
