"""Scripts that do more than make a loader: one that trains is stopped before its first step."""

from __future__ import annotations

import sys
import textwrap
import traceback
from pathlib import Path

import pytest
import torch

from hostprep.errors import UsageError
from hostprep.loading.child.opening import open_source
from hostprep.loading.raising import raised

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


@pytest.mark.parametrize(
    ("module", "end", "named"),
    [("trains_at_once", "train()\n", "loader"), ("trains_if_called", "", "train")],
)
def test_it_is_stopped_before_a_step_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, end: str, named: str
) -> None:
    write(tmp_path, monkeypatch, module, end)
    with pytest.raises(UsageError, match=r"trains where the loader is made.*SGD") as caught:
        open_source({"loader": f"{module}:{named}"}, None)
    assert "__main__" in (caught.value.hint or "")
    assert not (tmp_path / "checkpoint.pt").exists()


@pytest.mark.parametrize(
    "end",
    [
        "try:\n    optimizer.step()\nexcept BaseException:\n    pass\n",
        "try:\n    optimizer.step()\nexcept BaseException as e:\n"
        "    raise OSError('lost') from e\n",
        "import sys\ntry:\n    optimizer.step()\nfinally:\n    sys.exit(3)\n",
        "import threading\nthread = threading.Thread(target=optimizer.step)\n"
        "thread.start()\nthread.join()\n",
    ],
    ids=["kept", "made-another", "exits", "in-a-thread"],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_one_that_keeps_what_stops_it_is_told_of_likewise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, end: str
) -> None:
    name = "keeps_" + request.node.callspec.id.replace("-", "_")
    write(tmp_path, monkeypatch, name, end)
    with pytest.raises(UsageError, match=r"trains where the loader is made.*SGD"):
        open_source({"loader": f"{name}:loader"}, None)
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))]).step()


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
        assert ("-c 'import fails_at_once'` imports it likewise" in (error.hint or "")) is told


def test_the_loader_of_one_that_does_not_is_opened_and_may_train_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, monkeypatch, "trains_never", "")
    assert open_source({"loader": "trains_never:loader"}, None).length == 64
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))]).step()
