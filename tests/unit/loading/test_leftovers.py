"""What killed workers left in shared memory, and what only looks like it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hostprep.loading.measuring import measure
from hostprep.loading.measuring.leftovers import remove_batches
from hostprep.system.python import own_environment
from tests.unit.loading.test_slow_probes import measurer


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


_LEAVING = """
import json, os
left = f"/dev/shm/torch_{os.getpid()}_1_0"
open(left, "w").close()
print(json.dumps({"event": "result", "result": {"left": left}}))
"""


def test_what_the_measuring_process_sent_to_workers_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where /dev/shm has no room for a data set's tensors, torch leaves the file that it began."""
    monkeypatch.setattr(measure, "own_module", lambda *_: [sys.executable, "-c", _LEAVING])
    left = Path(measurer()._ask({"job": "probe"}, 60, 0)["left"])
    try:
        assert not left.exists()
    finally:
        left.unlink(missing_ok=True)


_ORPHANED = """
import os, signal, sys, time
import torch
from hostprep.loading.child.processes import WorkerStart

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 9
    def __getitem__(self, index):
        return torch.zeros(1)
    def __getstate__(self):
        return {"main": os.getpid()}
    def __setstate__(self, state):  # in the worker, which is not yet the loader's
        print(os.getpid(), flush=True)
        os.kill(state["main"], signal.SIGKILL)
        time.sleep(0.2)

if __name__ == "__main__":
    next(iter(torch.utils.data.DataLoader(
        Data(), num_workers=1, worker_init_fn=WorkerStart(None), multiprocessing_context="spawn"
    )))
"""


def test_a_worker_ends_whose_parent_was_killed_while_it_was_being_started(tmp_path: Path) -> None:
    script = tmp_path / "orphaned.py"
    script.write_text(_ORPHANED)
    main = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env={**os.environ, **own_environment()}, start_new_session=True,
    )  # fmt: skip
    try:
        # The worker has the pipe, too: it is only read to its end once that has ended.
        said, _ = main.communicate(timeout=100)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(main.pid, signal.SIGKILL)
    assert main.returncode == -signal.SIGKILL
    assert said.strip().isdigit()
