"""A FUSE file system in a process of its own that never outlives the one that asked for it.

The serving process watches its parent by a pidfd and a socket. When either ends, for whatever
reason (the end of the ``with`` block, an exception, SIGINT, kill -9), it unmounts what lies on top
of it and itself; users that hold on are cut off after a while.

A module that serves has ``if __name__ == "__main__": serving.main(make)``, where ``make(config)``
returns the operations and the options of the mount; ``served`` starts it.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import importlib.util
import json
import logging
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kit.loops import Unavailable, unmount

START_SECONDS = 20.0
_REPOSITORY = Path(__file__).resolve().parents[2]
_PR_SET_TIMERSLACK = 29

Config = dict[str, Any]


@functools.cache
def unavailable() -> str | None:
    """Return why FUSE file systems cannot be served here, or None where they can."""
    if os.geteuid() != 0:
        return "needs root, to mount FUSE file systems"
    if not os.path.exists("/dev/fuse"):
        return "there is no /dev/fuse"
    if importlib.util.find_spec("mfusepy") is None:
        return "mfusepy is not installed"
    if not (ctypes.util.find_library("fuse3") or ctypes.util.find_library("fuse")):
        return "libfuse is not installed (Debian: fuse3)"
    return None


@contextmanager
def served(
    module: str,
    config: Config,
    point: Path,
    *,
    on_top: Sequence[Path] = (),
    grace_seconds: float = 5.0,
) -> Iterator[None]:
    """Run ``python -m module`` and have its file system at ``point`` while the block lasts.

    ``on_top``: mount points to unmount before ``point`` when it ends. Whoever still uses the file
    system ``grace_seconds`` later gets errors. ``Unavailable`` where there is no FUSE, RuntimeError
    with what the process said where it does not come up within ``START_SECONDS``.
    """
    if reason := unavailable():
        raise Unavailable(reason)
    ours, theirs = socket.socketpair()
    settings = {
        "config": config,
        "point": str(point),
        "on_top": [str(path) for path in on_top],
        "grace_seconds": grace_seconds,
        "line": theirs.fileno(),
        "parent": os.getpid(),
    }
    with ours, tempfile.TemporaryFile() as said:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", module, json.dumps(settings)],
                cwd=_REPOSITORY,
                env={**os.environ, **_libfuse()},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C is for the parent, who then unmounts in order
            )
        try:
            ours.settimeout(START_SECONDS)
            try:
                up = ours.recv(1) == b"1"
            except TimeoutError:
                up = False
            if not up:
                process.kill()
                process.wait()
                said.seek(0)
                raise RuntimeError(
                    f"{module} did not mount: {said.read().decode(errors='replace')}"
                )
            yield
        finally:
            ours.close()
            _end(process, (*on_top, point), grace_seconds)


def _libfuse() -> dict[str, str]:
    """Name libfuse 3 for mfusepy, which takes 2 where both are installed.

    With 2 the kernel sends the direct reads of one thread one after the other.
    """
    newer = ctypes.util.find_library("fuse3")
    return {"FUSE_LIBRARY_PATH": newer} if newer else {}


def _end(process: subprocess.Popen[bytes], points: Sequence[Path], grace_seconds: float) -> None:
    try:
        process.wait(grace_seconds + 5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    finally:
        for point in points:  # a no-op unless the process was killed
            unmount(point)


def main(make: Callable[[Config], tuple[Any, dict[str, Any]]]) -> None:
    """Serve what ``make`` returns, as ``served`` says on the command line in JSON, to the end."""
    import mfusepy

    settings = json.loads(sys.argv[1])
    # Injected errors are no news; only what mfusepy itself trips over is.
    logging.basicConfig(level=logging.WARNING)
    # Sleeps of a millisecond should not take 50 microseconds more.
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    line = socket.socket(fileno=settings["line"])
    points = [Path(path) for path in (*settings["on_top"], settings["point"])]
    parent = os.pidfd_open(settings["parent"])
    if os.getppid() != settings["parent"]:
        return
    operations, options = make(settings["config"])
    inherited: Callable[..., None] = operations.init_with_config

    def init_with_config(connection: Any, config: Any) -> None:
        inherited(connection, config)
        line.send(b"1")

    operations.init_with_config = init_with_config
    last_will = (line, parent, points, settings["grace_seconds"])
    threading.Thread(target=_watch, args=last_will, daemon=True).start()
    mfusepy.FUSE(
        operations,
        settings["point"],
        foreground=True,
        raw_fi=True,
        default_permissions=True,
        allow_other=True,
        **options,
    )


def _watch(line: socket.socket, parent: int, points: Sequence[Path], grace_seconds: float) -> None:
    """Wait for the parent's end or its word, then unmount; exit if somebody still holds on."""
    select.select([line.fileno(), parent], [], [])
    try:
        for point in points:
            unmount(point, patience_seconds=min(1.0, grace_seconds))
        time.sleep(grace_seconds)
    finally:
        os._exit(1)
