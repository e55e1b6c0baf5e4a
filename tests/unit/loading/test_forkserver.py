"""Of what workers are forked where Python has a process for that, and what it has imported."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hostprep.loading.child import forkserver
from hostprep.system.python import own_environment, own_module

# Notes each process that imports it.
_MODULE = """
import multiprocessing, os
with open("imported", "a+") as file:
    print(os.getpid(), file=file, flush=True)
    file.seek(0)
    times = len(file.readlines())
{own}
import torch
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4096
    def __getitem__(self, index):
        return torch.zeros(16)
loader = torch.utils.data.DataLoader(
    Data(), batch_size=4, num_workers=2, multiprocessing_context="{method}"
)
"""
_WORKERS = 2


def measured(folder: Path, own: str, method: str = "forkserver") -> tuple[int, dict[str, Any]]:
    """Return how many processes imported the loader's module, and what the child told at last."""
    (folder / "counted.py").write_text(_MODULE.format(own=own, method=method))
    job = {
        "job": "probe", "source": {"loader": "counted:loader"}, "batch_size": None,
        "workers": _WORKERS, "prefetch_factor": 2, "first": 0, "seconds": 0.1,
        "limit_seconds": 60.0, "ready": False, "background": False, "own_way": True,
        "cpus": None, "sockets": None,
    }  # fmt: skip
    argv = own_module("hostprep.loading.child.jobs", json.dumps(job))
    env = {**os.environ, **own_environment()}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=120)
    assert done.stdout, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    return len((folder / "imported").read_text().splitlines()), told


def test_workers_share_what_the_process_that_forks_them_has_imported(tmp_path: Path) -> None:
    times, told = measured(tmp_path, "")
    assert told["event"] == "result", told
    assert times == (2 if forkserver.imports_once("forkserver") else 1 + _WORKERS)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_nothing_is_written_beside_a_module_in_the_folder_of_another_user(
    tmp_path: Path, method: str
) -> None:
    os.chown(tmp_path, 54321, 54321)
    _, told = measured(tmp_path, "", method)
    assert told["event"] == "result", told
    assert {path.name for path in tmp_path.iterdir()} == {"counted.py", "imported"}


def test_a_list_of_ones_own_of_what_is_imported_there_stays(tmp_path: Path) -> None:
    times, told = measured(tmp_path, "multiprocessing.set_forkserver_preload(['torch'])")
    assert told["event"] == "result", told
    assert times == 1 + _WORKERS


@pytest.mark.skipif(
    not forkserver.imports_once("forkserver"), reason="this Python imports nothing of it there"
)
def test_a_module_that_ends_that_process_is_left_to_the_workers(tmp_path: Path) -> None:
    times, told = measured(tmp_path, "if times == 2: raise SystemExit('not twice')")
    assert told["event"] == "result", told
    assert times == 2 + _WORKERS


@pytest.mark.parametrize(
    ("version", "imports"),
    [
        ((3, 11, 9), False), ((3, 12, 11), False), ((3, 13, 7), False), ((3, 13, 8), True),
        ((3, 14, 0), False), ((3, 14, 1), True), ((3, 15, 0), True),
    ],
)  # fmt: skip
def test_it_imports_scripts_since_python_does(
    version: tuple[int, ...], imports: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forkserver.sys, "version_info", version)
    assert forkserver.imports_once("forkserver") is imports
    assert not forkserver.imports_once("fork")
    assert not forkserver.imports_once("spawn")
