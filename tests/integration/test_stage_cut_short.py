"""Killed at a step of our choice, and again at another one: what the next run makes of both."""

from __future__ import annotations

import importlib
import itertools
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.test_stage_kills import end, start
from tests.kit.compare import differences
from tests.kit.stagecraft import flip_bit, hostprep, rewrite

pytestmark = pytest.mark.usefixtures("state")


def killed(out: Path, step: str, *words: str | Path, after: bool = False, earlier: int = 0) -> None:
    """Run hostprep and kill it right before ``step``, a function's full name, or ``after`` it.

    ``earlier`` calls of it do what they always do.
    """
    module, _, name = step.rpartition(".")
    real = getattr(importlib.import_module(module), name)

    calls = itertools.count()

    def last(*args: object, **options: object) -> object:
        if (number := next(calls)) < earlier or after:
            done = real(*args, **options)
        if number < earlier:
            return done
        os.kill(os.getpid(), signal.SIGKILL)
        return None

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


def change_mode(file: Path) -> None:
    file.chmod(0o600)


def change_owner(file: Path) -> None:
    os.chown(file, 7, 8)


@pytest.mark.parametrize("change", [change_mode, change_owner, flip_bit])
def test_what_lstat_hardly_tells_of_is_not_taken_for_done(
    change: Callable[[Path], None], source: Path, target: Path, out: Path
) -> None:
    stage, file = ("stage", source, "--to", target), "class-1/images/003.bin"
    hostprep(*stage)
    change(source / file)
    # On record by then, and not in place; a reboot makes the copies that were prepared worthless.
    killed(out, _PUBLISHING, *stage, *(("--full-check",) if change is flip_bit else ()))
    shutil.rmtree(target / ".hostprep-data")
    hostprep(*stage)
    assert differences(source, target / "data", owners=True) == []
    assert hostprep(*stage)["changed"] is False


@pytest.mark.parametrize("published", [True, False])
def test_a_full_check_takes_nothing_up(
    published: bool, source: Path, target: Path, out: Path
) -> None:
    stage, file = ("stage", source, "--to", target), source / "class-1/images/003.bin"
    if published:
        hostprep(*stage)
    rewrite(file, b"another")
    killed(out, _PUBLISHING if published else "hostprep.staging.stage.publish_new", *stage)
    flip_bit(file)
    assert hostprep(*stage, "--full-check", "--dry-run")["resume_files"] == 0
    assert hostprep(*stage, "--full-check")["resumed_files"] == 0
    assert differences(source, target / "data", owners=True) == []


@pytest.mark.parametrize(("earlier", "file"), [(0, "dataset.json"), (1, "manifest.jsonl")])
def test_what_was_not_yet_in_place_in_the_state_directory_goes(
    earlier: int, file: str, source: Path, target: Path, out: Path, state: Path
) -> None:
    stage = ("stage", source, "--to", target)
    killed(out, "os.replace", *stage, earlier=earlier)
    (home,) = (state / "datasets").iterdir()
    assert list(home.glob(f".{file}.*")) != []
    hostprep(*stage)
    assert sorted(os.listdir(home)) == ["dataset.json", "manifest.jsonl"]
    (home / f".{file}.0123abcd").touch()
    assert hostprep(*stage)["changed"] is False
    assert sorted(os.listdir(home)) == ["dataset.json", "manifest.jsonl"]
