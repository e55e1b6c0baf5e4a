"""What goes with ``--prune``, from plans made by hand: no machine is touched."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hostprep.converging import prune
from hostprep.converging.model import Kind
from hostprep.converging.prune import (
    Leftovers,
    UnstageTask,
    _damaged,
    _Going,
    _look_at_unmounting,
    _needed_for,
    _read_from,
    going_volumes,
    plan_leftovers,
)
from hostprep.converging.volumes import Freed
from hostprep.errors import HostprepError, Refused
from hostprep.staging.observer import Silent
from hostprep.staging.record.records import load_record, record_id
from hostprep.units import GIB
from hostprep.volumes.model import Step
from hostprep.volumes.records import record_name
from hostprep.volumes.removal import UnmountPlan, UnmountRequest
from tests.kit.stagecraft import hostprep, make_source, snapshot
from tests.unit.converging.made import mounted
from tests.unit.volumes.made import live_volume

LIVE = live_volume(path="/mnt/old", used_bytes=GIB, size_bytes=3 * GIB, inodes=1)
OLD = UnmountPlan(UnmountRequest("/mnt/old", fstab=True), "/mnt/old", live=LIVE)


def test_a_volume_that_goes_gives_back_what_it_holds_and_what_it_may_yet_take() -> None:
    found = going_volumes(Leftovers((), (("/mnt/old", OLD),)), ["/mnt/older", "/srv/data"])
    assert found == {"/mnt/old": Freed(GIB, 2 * GIB)}


@pytest.mark.parametrize("needed", ["/mnt/old", "/mnt/old/source"])
def test_one_that_something_is_read_from_meanwhile_does_not_go_first(needed: str) -> None:
    assert going_volumes(Leftovers((), (("/mnt/old", OLD),)), [needed]) == {}


@pytest.mark.parametrize(
    "plan",
    [
        None,
        HostprepError("it cannot be looked at."),
        replace(OLD, live=None),
        replace(OLD, refusal=Refused("it is in use.")),
    ],
)
def test_one_that_stays_gives_nothing(plan: UnmountPlan | HostprepError | None) -> None:
    assert going_volumes(Leftovers((), (("/mnt/old", plan),)), []) == {}


def test_what_will_be_gone_is_in_nobodys_way(tmp_path: Path) -> None:
    """A volume inside another, and the directory that it was mounted on, go before that one."""
    volume, made, theirs = (str(tmp_path / name) for name in ("volume", "made", "theirs"))
    for path in (volume, made, theirs):
        os.mkdir(path)
    going = _Going({f"{volume}/data"}, {volume}, {volume, made})
    assert not going.leaves(f"{volume}/data")
    assert not going.leaves(volume), "what is in it now goes with its mount"
    assert not going.leaves(made) and going.leaves(theirs)
    (tmp_path / "made/file").touch()
    (tmp_path / "volume/file").touch()
    assert going.leaves(made) and not going.leaves(volume)
    os.rename(made, f"{made}-2")
    os.symlink(theirs, made)
    assert going.leaves(made), "a link in the place of a directory is somebody's"


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        ("/fast/a", True),
        ("/fast/a/train", True),
        ("/fast", True),  # of which it is a part
        ("/fast/ab", False),
        ("/srv/a", False),
    ],
)
def test_what_the_spec_stages_from_is_kept(source: str, kept: bool) -> None:
    assert _read_from("/fast/a", {source}) == (source if kept else None)


@pytest.mark.parametrize("which", ["volumes", "targets", "sources"])
def test_a_volume_in_which_something_of_the_spec_lies_is_kept(which: str) -> None:
    places: dict[str, tuple[str, ...]] = {"volumes": (), "targets": (), "sources": ()}
    assert _needed_for("/mnt/old", **places) is None
    assert _needed_for("/mnt/old", **{**places, which: ("/mnt/older", "/mnt")}) is None
    needed = _needed_for("/mnt/old", **{**places, which: ("/mnt/old/x", "/srv/y")})
    assert needed is not None and "/mnt/old/x" in needed


def test_a_volume_is_not_tried_where_what_lies_in_it_could_not_go() -> None:
    record: Any = SimpleNamespace(target="/mnt/old/a", volume="/mnt/old")
    elsewhere: Any = SimpleNamespace(target="/mnt/older/a", volume="/mnt/older")
    going = replace(OLD, changes=(Step("/mnt/old", "unmount", "asked for"),))
    volumes = (("/mnt/old/in", going), ("/mnt/old", going))
    left = plan_leftovers(Leftovers(((record, None), (elsewhere, None)), volumes, prune=True))
    after = {each.subject: set(each.after) for each in left if each.kind is Kind.VOLUME}
    assert after == {
        "/mnt/old/in": set(),
        "/mnt/old": {(Kind.DATASET, "/mnt/old/a"), (Kind.VOLUME, "/mnt/old/in")},
    }


def test_what_root_may_not_unmount_is_refused_before_what_lies_in_it_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    barred = HostprepError("root may not unmount here")
    monkeypatch.setattr(prune, "gather", lambda path: mounted(path, GIB))
    monkeypatch.setattr(prune, "others_in", lambda _: ())
    monkeypatch.setattr(prune, "lacking_right_to_unmount", lambda _: barred)
    for uid, found in ((0, barred), (1000, None)):  # others look at what is root's to do
        monkeypatch.setattr(os, "geteuid", lambda uid=uid: uid)
        plan = _look_at_unmounting("/mnt/none-such", _Going(set(), set(), set()))
        assert plan is found if found else isinstance(plan, UnmountPlan) and plan.unmount


def test_a_volume_with_a_mount_that_stays_is_not_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be of a server that is gone: to look at what lies beside it already hangs."""
    facts = replace(mounted(str(tmp_path), GIB), mounts_below=(f"{tmp_path}/nfs",))
    monkeypatch.setattr(prune, "gather", lambda _: facts)
    monkeypatch.setattr(prune, "others_in", lambda _: ())
    looked: list[str] = []
    monkeypatch.setattr(os, "listdir", lambda path: looked.append(path) or [])
    plan = _look_at_unmounting(str(tmp_path), _Going(set(), set(), set()))
    assert isinstance(plan, UnmountPlan) and plan.refusal is not None
    assert "is mounted inside" in plan.refusal.message and looked == []
    _look_at_unmounting(str(tmp_path), _Going(set(), {f"{tmp_path}/nfs"}, set()))
    assert looked == [str(tmp_path)]


def test_a_volume_that_cannot_be_listed_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(path: str) -> list[str]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    monkeypatch.setattr(prune, "gather", lambda _: mounted(str(tmp_path), GIB))
    monkeypatch.setattr(prune, "others_in", lambda _: ())
    monkeypatch.setattr(os, "listdir", failing)
    found = _look_at_unmounting(str(tmp_path), _Going(set(), set(), set()))
    assert isinstance(found, HostprepError) and "ulimit -n" in str(found.hint)
    assert found.message == (
        f"what is in {tmp_path} cannot be listed: Too many open files; nothing was changed."
    )


def test_what_came_since_the_plan_keeps_all_of_the_data_set(tmp_path: Path) -> None:
    source = make_source(tmp_path / "data", directories=2, files=3)
    hostprep("stage", source, "--to", tmp_path / "to")
    record = load_record("data", f"{tmp_path}/to/data")
    assert record is not None
    (tmp_path / "to/data/note").write_text("mine")
    before = snapshot(tmp_path / "to")
    with pytest.raises(
        Refused, match=r"holds 1 entry added or changed since it was staged \(note\), .*nothing was"
    ):
        UnstageTask(record).carry_out(Silent())
    assert snapshot(tmp_path / "to") == before
    (tmp_path / "to/data/note").unlink()
    UnstageTask(record).carry_out(Silent())
    assert not (tmp_path / "to/data").exists() and load_record("data", record.target) is None
    UnstageTask(record).carry_out(Silent())  # somebody else's unstage was faster


def test_what_comes_while_it_is_removed_is_left_and_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make_source(tmp_path / "data", directories=2, files=3)
    hostprep("stage", source, "--to", tmp_path / "to")
    record = load_record("data", f"{tmp_path}/to/data")
    assert record is not None
    unstage = prune.unstage

    def late(*args: Any, **words: Any) -> Any:
        (tmp_path / "to/data/note").write_text("mine")
        return unstage(*args, **words)

    monkeypatch.setattr(prune, "unstage", late)
    with pytest.raises(HostprepError, match="data: 1 entry came while it was removed") as caught:
        UnstageTask(record).carry_out(Silent())
    assert not isinstance(caught.value, Refused), "something was changed"
    assert os.listdir(tmp_path / "to/data") == ["note"]


def test_records_that_cannot_be_read_are_named_but_for_the_specs_own(own_state: Path) -> None:
    for path in ("/mnt/ours", "/mnt/theirs"):
        record = own_state / f"state/volumes/{record_name(path)}.json"
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text("{")
    for target in ("/fast/ours", "/fast/theirs"):
        folder = own_state / "state/datasets" / record_id(os.path.basename(target), target)
        folder.mkdir(parents=True)
        (folder / "dataset.json").write_text("{")
    found = _damaged({"/fast/ours"}, {"/mnt/ours"})
    assert [(kind, name) for kind, name, _ in found] == [
        (Kind.DATASET, record_id("theirs", "/fast/theirs")),
        (Kind.VOLUME, record_name("/mnt/theirs")),
    ]
    assert len(_damaged((), ())) == 4


@pytest.mark.parametrize("prune", [False, True])
def test_of_what_nobody_can_tell_nothing_goes_and_who_asked_for_it_is_told(prune: bool) -> None:
    damaged = ((Kind.VOLUME, "mnt-x", HostprepError("the record x cannot be read.", "look")),)
    (found,) = plan_leftovers(Leftovers((), (), damaged, prune=prune))
    assert (found.refusal is not None) is prune and not found.changes and found.task is None
