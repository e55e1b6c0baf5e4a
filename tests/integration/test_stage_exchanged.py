"""What others put in the place of copies that root staged into their folder is not altered.

Whoever may rename things in a folder can exchange what root has there, even if they may write to
none of it: a data set, and a directory with entries of the same names.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hostprep.staging import stage, unstage_plan
from hostprep.staging.publishing import removing
from hostprep.staging.record.records import folder, load_record, save_record
from hostprep.staging.target.strangers import exchanged_refusal
from tests.kit.compare import differences
from tests.kit.converging import apply, write_spec
from tests.kit.stagecraft import hostprep, only_dataset, rewrite, snapshot

pytestmark = pytest.mark.usefixtures("state")

_COLLEAGUE = 54321


class Theirs:
    """A folder of a colleague's, into which root has staged, and where it has a directory too."""

    def __init__(self, source: Path, target: Path) -> None:
        self.source, self.parent = source, target
        self.stage = ("stage", source, "--to", target)
        hostprep(*self.stage)
        os.chown(target, _COLLEAGUE, _COLLEAGUE)
        self.copy, self.roots, self.away = target / "data", target / "roots", target / "away"
        subprocess.run(["cp", "-a", source, self.roots], check=True)
        for file in self.roots.rglob("*.bin"):  # by lstat they are as staged
            rewrite(file, b"r" * file.stat().st_size, keep_times=True)
        self.before = self.contents()

    def contents(self) -> dict[str, bytes]:
        found = (path for path in self.parent.rglob("*") if path.is_file())
        return {str(path.relative_to(self.parent)): path.read_bytes() for path in found}

    def exchange(self) -> None:
        """Give either the other's name, as renameat2 does in one step."""
        self.copy.rename(self.away)
        self.roots.rename(self.copy)
        self.away.rename(self.roots)

    def change(self) -> None:
        """Let an update replace one file, and remove another."""
        rewrite(self.source / "class-1/images/000.bin", b"new")
        (self.source / "class-1/images/001.bin").unlink()

    def is_refused(self, *words: str | Path) -> dict[str, Any]:
        before = snapshot(self.parent)
        error: dict[str, Any] = hostprep(*words, expect=5)["error"]
        assert f"{self.copy} is not the directory that was staged there" in error["message"]
        assert snapshot(self.parent) == before
        return error


@pytest.fixture
def theirs(source: Path, target: Path) -> Theirs:
    return Theirs(source, target)


def test_an_update_and_a_removal_are_refused(theirs: Theirs, safe_dir: Path) -> None:
    theirs.exchange()
    theirs.change()
    for words in (theirs.stage, (*theirs.stage, "--dry-run"), ("unstage", "data")):
        error = theirs.is_refused(*words)
        assert f"others, who may rename things in {theirs.parent}, may have" in error["message"]
        assert "move it away and run the same command again" in error["hint"]
    nothing = write_spec(safe_dir / "hostprep.yml")
    (refusal,) = apply(nothing, "--prune", expect=5)["refusals"]
    assert "is not the directory that was staged there" in refusal["message"]
    known = only_dataset()
    assert (known["state"], known["freshness"]) == ("staged", "unknown")
    assert "is not the directory that was staged there" in known["reason"]

    theirs.exchange()
    assert theirs.contents() == theirs.before
    assert hostprep(*theirs.stage)["deleted_files"] == 1
    hostprep("unstage", "data")
    assert not theirs.copy.exists()


def test_what_it_says_to_do_helps(theirs: Theirs) -> None:
    theirs.exchange()
    theirs.change()
    theirs.is_refused(*theirs.stage)
    theirs.copy.rename(theirs.away)
    hostprep(*theirs.stage)
    assert differences(theirs.source, theirs.copy, owners=True) == []

    shutil.rmtree(theirs.copy)
    theirs.away.rename(theirs.copy)
    theirs.is_refused("unstage", "data")
    theirs.copy.rename(theirs.away)
    hostprep("unstage", "data")
    assert hostprep("status")["datasets"] == []


def in_a_folder_further_up(theirs: Theirs) -> None:
    os.chown(theirs.parent, 0, 0)
    os.chown(theirs.parent.parent, _COLLEAGUE, _COLLEAGUE)


def in_their_groups(theirs: Theirs) -> None:
    os.chown(theirs.parent, 0, _COLLEAGUE)
    theirs.parent.chmod(0o775)


def in_everybodys(theirs: Theirs) -> None:
    os.chown(theirs.parent, 0, 0)
    theirs.parent.chmod(0o777)


@pytest.mark.parametrize("where", [in_a_folder_further_up, in_their_groups, in_everybodys])
def test_whoever_may_rename_there_can_do_it(
    where: Callable[[Theirs], None], theirs: Theirs
) -> None:
    where(theirs)
    theirs.exchange()
    theirs.change()
    theirs.is_refused(*theirs.stage)


def in_roots_folder(theirs: Theirs, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(theirs.parent, 0, 0)


def in_a_folder_like_dev_shm(theirs: Theirs, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(theirs.parent, 0, 0)
    theirs.parent.chmod(0o1777)


def by_sudo_in_ones_own(theirs: Theirs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", str(_COLLEAGUE))


def on_another_disk(theirs: Theirs, monkeypatch: pytest.MonkeyPatch) -> None:
    record = load_record("data", str(theirs.copy))
    assert record is not None and record.target_identity is not None
    _, number = record.target_identity.split()
    save_record(replace(record, target_identity=f"1234 {number}"), durable=False)


def recorded_by_an_earlier_version(theirs: Theirs, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder("data", str(theirs.copy)) / "dataset.json"
    fields = json.loads(path.read_bytes())
    del fields["target_identity"]
    path.write_text(json.dumps(fields))


@pytest.mark.parametrize(
    "case",
    [
        in_roots_folder,
        in_a_folder_like_dev_shm,
        by_sudo_in_ones_own,
        on_another_disk,
        recorded_by_an_earlier_version,
    ],
)
def test_what_others_cannot_have_put_there_is_taken_for_the_copy(
    case: Callable[[Theirs, pytest.MonkeyPatch], None],
    theirs: Theirs,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one that was restored from a backup, or moved to another disk."""
    with monkeypatch.context() as patched:
        case(theirs, patched)
        theirs.exchange()
        theirs.change()
        hostprep(*theirs.stage)
    # From then on, it is the one that is known.
    record = load_record("data", str(theirs.copy))
    descriptor = os.open(theirs.copy, os.O_RDONLY)
    other = os.open(theirs.roots, os.O_RDONLY)
    try:
        os.chown(theirs.parent, _COLLEAGUE, _COLLEAGUE)
        assert exchanged_refusal(record, descriptor) is None
        assert exchanged_refusal(record, other) is not None
    finally:
        os.close(descriptor)
        os.close(other)


def test_where_nothing_is_to_be_done_a_restored_copy_is_whole(theirs: Theirs) -> None:
    theirs.exchange()
    assert not hostprep(*theirs.stage)["changed"]
    assert only_dataset()["freshness"] == "fresh"


def test_what_took_the_place_before_the_first_publication_is_told_of_as_that(
    theirs: Theirs,
) -> None:
    record = load_record("data", str(theirs.copy))
    assert record is not None
    save_record(replace(record, phase="copying"), durable=False)
    theirs.exchange()
    theirs.change()
    error = hostprep(*theirs.stage, expect=5)["error"]
    assert "exists and was not staged by hostprep" in error["message"]


def test_what_is_exchanged_after_the_plan_is_left_alone(
    theirs: Theirs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is gone from the source is the first to be removed."""
    carry_on = stage.open_target

    def exchange(*given: Any) -> int:
        theirs.exchange()
        return carry_on(*given)

    theirs.change()
    monkeypatch.setattr(stage, "open_target", exchange)
    error = hostprep(*theirs.stage, expect=5)["error"]
    assert "is not the directory that was staged there" in error["message"]
    theirs.exchange()
    assert theirs.contents() == theirs.before


@pytest.mark.parametrize("added", [False, True])
def test_what_is_exchanged_while_it_is_compared_is_not_removed(
    added: bool, theirs: Theirs, monkeypatch: pytest.MonkeyPatch
) -> None:
    if added:  # what somebody added stays, and so the rest is removed where it is
        (theirs.copy / "added").write_bytes(b"somebody's")
    carry_on = unstage_plan.compare

    def exchange(*given: Any) -> Any:
        found = carry_on(*given)
        theirs.exchange()
        return found

    with monkeypatch.context() as patched:
        patched.setattr(unstage_plan, "compare", exchange)
        error = hostprep("unstage", "data", expect=5)["error"]
    assert "is not the directory that was staged there" in error["message"]
    theirs.exchange()
    assert theirs.contents().items() >= theirs.before.items()
    hostprep("unstage", "data", expect=1 if added else 0)
    assert not (theirs.copy / "class-0").exists()
    assert (theirs.roots / "class-0").exists()


def test_what_is_exchanged_right_before_it_is_hidden_is_put_back(
    theirs: Theirs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever exchanges the two without end may do it between any two steps."""
    rename = os.rename

    def exchange(old: str, new: str, **places: int) -> None:
        theirs.exchange()
        rename(old, new, **places)

    with monkeypatch.context() as patched:
        patched.setattr(removing, "os", SimpleNamespace(**{**vars(os), "rename": exchange}))
        error = hostprep("unstage", "data", expect=5)["error"]
    assert "is not the directory that was staged there" in error["message"]
    theirs.exchange()
    assert theirs.contents().items() >= theirs.before.items()
    hostprep("unstage", "data")
    assert not theirs.copy.exists() and (theirs.roots / "class-0").exists()
