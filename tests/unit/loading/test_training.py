"""Scripts that do more than make a loader: one that trains is stopped before its first step."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import traceback
from pathlib import Path
from typing import Any

import pytest

from hostprep.loading.child.opening import open_source
from hostprep.loading.raising import raised
from hostprep.system.python import own_environment, own_module

SCRIPT = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    loader = DataLoader(TensorDataset(torch.ones(64, 3)), batch_size=8)

    def train():
        for (batch,) in loader:
            try:
                model(batch).sum().backward()
                optimizer.step()
            except Exception:
                pass  # as loops that are to survive a bad batch
        open("checkpoint.pt", "w").close()
        return loader
"""


def write(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, end: str) -> None:
    (folder / f"{name}.py").write_text(textwrap.dedent(SCRIPT) + end)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))


def told(folder: Path, loader: str) -> list[dict[str, Any]]:
    """Return what the measuring child tells."""
    job = {
        "job": "probe", "source": {"loader": loader}, "batch_size": None,
        "workers": 0, "prefetch_factor": 2, "first": 0, "seconds": 0.1, "limit_seconds": 60.0,
        "ready": False, "background": False, "own_way": True, "cpus": None, "sockets": None,
    }  # fmt: skip
    argv = own_module("hostprep.loading.child.jobs", json.dumps(job))
    done = subprocess.run(
        argv, cwd=folder, env=own_environment(), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("end", "named"),
    [
        ("train()\n", "loader"),
        ("", "train"),
        ("try:\n    optimizer.step()\nfinally:\n    train()\n", "loader"),
        ("try:\n    optimizer.step()\nexcept BaseException:\n    train()\n", "loader"),
        (
            "import threading\nthread = threading.Thread(target=train)\n"
            "thread.start()\nthread.join()\n",
            "loader",
        ),
        ("import os\nif os.fork() == 0:\n    train()\nos.wait()\n", "loader"),
    ],
    ids=["at-once", "if-called", "finally", "in-spite", "in-a-thread", "in-a-child"],
)
def test_it_is_ended_before_a_step_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, named: str
) -> None:
    write(tmp_path, monkeypatch, "trains", end)
    refused = next(event for event in told(tmp_path, f"trains:{named}") if "message" in event)
    assert (refused["event"], refused["kind"]) == ("refused", "UsageError")
    assert refused["message"].startswith(f"trains:{named} trains while the loader is made")
    assert "(SGD)" in refused["message"] and "__main__" in refused["hint"]
    assert not (tmp_path / "checkpoint.pt").exists()


def test_of_what_fails_when_it_is_imported_it_is_told_how_to_see_it_without_hostprep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a torchvision built for another torch: its words name nothing of the user's."""
    write(tmp_path, monkeypatch, "fails_at_once", "raise RuntimeError('no operator nms')\n")
    for name, told in (("fails_at_once:loader", True), ("torch:optim.SGD", False)):
        with pytest.raises((RuntimeError, TypeError)) as caught:
            open_source({"loader": name}, None)
        trace = "".join(traceback.format_exception(caught.value))
        event = {"where": "open", "type": caught.type.__name__, "causes": []}
        error = raised({**event, "message": str(caught.value), "trace": trace}, name, 0)
        assert (
            "-c 'import fails_at_once'` imports it in the same way" in (error.hint or "")
        ) is told


def test_a_loader_that_trains_nothing_is_opened_and_what_follows_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a sample is made by what its worker trains."""
    write(
        tmp_path,
        monkeypatch,
        "trains_never",
        """
class Fitted(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        optimizer.step()
        return torch.ones(3)

fitted = DataLoader(Fitted(), batch_size=8)
""",
    )
    assert [event["event"] for event in told(tmp_path, "trains_never:fitted")][-1] == "result"
