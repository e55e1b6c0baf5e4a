"""An automounter as autofs(5) has for homes: a folder whose entries are mounted when one looks."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
# linux/auto_fs.h: autofs_v5_packet, of which the padding at the end is sent too.
_PACKET = struct.Struct("=iiIIQIIIII256s4x")
_MISSING_INDIRECT = 3
_READY, _FAIL = 0x9360, 0x9361


@contextmanager
def automounted(point: Path, entry: str, folder: Path) -> Iterator[Path]:
    """Have ``folder`` bound to ``point/entry`` whenever somebody goes there; yield that path.

    Nobody unmounts it while it is idle: tests do.
    """
    told, tell = os.pipe()
    daemon = os.fork()
    if daemon == 0:
        try:
            _serve(point, entry, folder, tell)
        finally:
            os._exit(1)
    os.close(tell)
    with os.fdopen(told, "rb") as mounted:
        assert mounted.read(1), "this kernel has no autofs"
    try:
        yield point / entry
    finally:
        subprocess.run(["umount", "--lazy", point / entry], capture_output=True)
        subprocess.run(["umount", "--lazy", point], check=True)
        os.kill(daemon, signal.SIGKILL)
        os.waitpid(daemon, 0)


def _serve(point: Path, entry: str, folder: Path, tell: int) -> None:
    os.setpgid(0, 0)  # by which the kernel knows whom it need not keep waiting
    requests, kernel = os.pipe()
    options = f"fd={kernel},pgrp={os.getpid()},minproto=5,maxproto=5,indirect"
    words = [text.encode() for text in ("test", str(point), "autofs")]
    if _libc.mount(*words, 0, options.encode()):
        return
    os.close(kernel)
    root = os.open(point, os.O_RDONLY)
    os.write(tell, b"+")
    while packet := os.read(requests, _PACKET.size):
        _, kind, token, *_, length, name = _PACKET.unpack(packet)
        asked = name[:length].decode()
        answer = _FAIL
        if kind == _MISSING_INDIRECT and asked == entry:
            (point / asked).mkdir(exist_ok=True)
            done = subprocess.run(["mount", "--bind", folder, point / asked])
            answer = _FAIL if done.returncode else _READY
        fcntl.ioctl(root, answer, token)
