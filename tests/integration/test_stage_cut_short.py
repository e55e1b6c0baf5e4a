"""Killed at a step of our choice, and again at another one: what the next run makes of both."""

from __future__ import annotations

import importlib
import os
import signal
from pathlib import Path

import pytest

from tests.integration.test_stage_kills import end, start
from tests.kit.compare import differences
from tests.kit.stagecraft import hostprep

pytestmark = pytest.mark.usefixtures("state")


def killed(out: Path, step: str, *words: str | Path, after: bool = False) -> None:
    """Run hostprep and kill it right before ``step``, a function's full name, or ``after`` it."""
    module, _, name = step.rpartition(".")
    real = getattr(importlib.import_module(module), name)

    def last(*args: object, **options: object) -> None:
        if after:
            real(*args, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step, last)
        assert end(start(out, *words), out).code == -signal.SIGKILL, out.read_text()


@pytest.fixture
def out(safe_dir: Path) -> Path:
    return safe_dir / "said"


_PUBLISHING = "hostprep.staging.stage.publish_update"


def two_updates_cut_short(source: Path, target: Path, out: Path) -> None:
    """The first has put a new file in its place; the second was to put another version there."""
    hostprep("stage", source, "--to", target)
    for content, after in ((b"one", True), (b"two!!", False)):
        (source / "new").write_bytes(content)
        killed(out, _PUBLISHING, "stage", source, "--to", target, after=after)
    assert (target / "data/new").read_bytes() == b"one"


def test_what_one_of_two_updates_put_there_is_no_strangers(
    source: Path, target: Path, out: Path
) -> None:
    two_updates_cut_short(source, target, out)
    assert hostprep("stage", source, "--to", target)["resumed_files"] == 1
    assert differences(source, target / "data", owners=True) == []


def test_what_somebody_put_there_instead_is_theirs(source: Path, target: Path, out: Path) -> None:
    two_updates_cut_short(source, target, out)
    theirs = target / "data/new"
    theirs.write_bytes(b"two")  # in size as the first, but for its time
    hostprep("stage", source, "--to", target, expect=1)
    assert theirs.read_bytes() == b"two"
