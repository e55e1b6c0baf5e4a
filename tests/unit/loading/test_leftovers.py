"""What killed workers left in shared memory, and what only looks like it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hostprep.loading.measuring.leftovers import remove_batches


def test_only_what_our_workers_left_is_removed(tmp_path: Path) -> None:
    for name in ("torch_71_1_0", "torch_71_2_0", "torch_711_1_0", "torch_72_1_0", "sem.71"):
        (tmp_path / name).touch()
    earlier = time.time() - 60
    os.utime(tmp_path / "torch_71_2_0", (earlier, earlier))  # of a training that runs already
    remove_batches([71, 73], time.time(), tmp_path)
    left = {"torch_71_2_0", "torch_711_1_0", "torch_72_1_0", "sem.71"}
    assert {path.name for path in tmp_path.iterdir()} == left


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_what_somebody_else_made_stays(tmp_path: Path) -> None:
    (tmp_path / "torch_71_1_0").touch()
    os.chown(tmp_path / "torch_71_1_0", 65534, 65534)
    remove_batches([71], time.time(), tmp_path)
    assert list(tmp_path.iterdir())


_KILLED = """
import multiprocessing, os, signal, sys
from hostprep.loading.child.jobs import _keep_sockets_in

_keep_sockets_in(sys.argv[1])

def work():
    import multiprocessing.connection
    held = multiprocessing.connection.Listener(family="AF_UNIX")
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    worker = multiprocessing.get_context(sys.argv[2]).Process(target=work)
    worker.start()
    worker.join()
    sys.exit(-worker.exitcode)
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_sockets_of_workers_that_are_killed_lie_where_they_are_removed(
    method: str, tmp_path: Path
) -> None:
    script, sockets, elsewhere = (tmp_path / name for name in ("killed.py", "own", "tmp"))
    script.write_text(_KILLED)
    sockets.mkdir()
    elsewhere.mkdir()
    env = {**os.environ, "TMPDIR": str(elsewhere)}
    done = subprocess.run([sys.executable, script, sockets, method], env=env, check=False)
    assert done.returncode == signal.SIGKILL
    assert list(sockets.iterdir())
    assert not list(elsewhere.iterdir())
