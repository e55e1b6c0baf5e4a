"""A path to the copies that leads elsewhere by now: nothing is written or removed there."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from hostprep.errors import Refused
from hostprep.staging.observer import Silent
from hostprep.staging.record.records import load_record, save_record
from hostprep.staging.target.apart import check_apart
from hostprep.staging.target.place import moved_refusal
from hostprep.staging.unstage import unstage
from hostprep.staging.unstage_plan import plan_unstage
from tests.kit.stagecraft import (
    findings,
    hostprep,
    make_source,
    mount,
    only_dataset,
    run_hostprep,
    snapshot,
    unmount,
)

pytestmark = pytest.mark.usefixtures("state")


@pytest.fixture
def source(safe_dir: Path) -> Path:
    return make_source(safe_dir / "srv/datasets/data", directories=3, files=8)


@pytest.fixture
def disk(safe_dir: Path) -> Path:
    path = safe_dir / "nvme"
    path.mkdir()
    mount("-t", "tmpfs", "-o", "size=64M", "disk", path)
    return path


def test_the_same_path_on_two_disks_is_two_places(disk: Path, safe_dir: Path) -> None:
    other = safe_dir / "other"
    other.mkdir()
    mount("-t", "tmpfs", "-o", "size=64M", "other", other)
    source = make_source(other / "data", directories=1, files=2)
    hostprep("stage", source, "--to", disk)
    before = snapshot(source)
    assert hostprep("unstage", "data")["left"] == []
    assert snapshot(source) == before and not (disk / "data").exists()


def test_neither_lies_in_the_other_by_a_mount(source: Path, safe_dir: Path) -> None:
    """Of an unstaging nothing else tells that."""
    alias = safe_dir / "alias"
    alias.mkdir()
    mount("--bind", source.parent, alias)
    for one, other in (("data", "data/class-1"), ("data/class-1", "data")):
        with pytest.raises(Refused, match="are now the same files, or one lies in the other"):
            check_apart(str(source.parent / one), str(alias / other))


def test_where_nothing_tells_which_disk_it_is_another_mount_is_not_taken_for_it(
    source: Path, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostprep("stage", source, "--to", disk)
    record = load_record("data", str(disk / "data"))
    assert record is not None and moved_refusal(record) is None
    unmount(disk)
    monkeypatch.setattr("hostprep.staging.target.place.place_on_disk", lambda directory: None)
    assert moved_refusal(replace(record, target_place=None)) is not None


def test_what_is_bound_onto_itself_is_where_it_was(source: Path, disk: Path) -> None:
    # So a service sees it that names it in ReadWritePaths=.
    target = disk / "datasets"
    hostprep("stage", source, "--to", target)
    mount("--bind", target, target)
    assert hostprep("stage", source, "--to", target)["changed"] is False
    (source / "class-1/added").write_bytes(b"since")
    hostprep("stage", source, "--to", target)
    unmount(target)
    assert hostprep("stage", source, "--to", target)["changed"] is False
    mount("--bind", target, target)
    record = load_record("data", str(target / "data"))
    assert record is not None and record.target_mount == str(disk)
    # As earlier versions recorded it.
    save_record(replace(record, target_mount=str(target)), durable=False)
    assert hostprep("unstage", "data")["changed"]
    assert not any(target.iterdir())


def test_a_container_that_was_given_one_folder_of_the_disk_has_what_lies_there(
    source: Path, disk: Path, safe_dir: Path
) -> None:
    target, handed = disk / "datasets", safe_dir / "handed"
    hostprep("stage", source, "--to", target)
    record = load_record("data", str(target / "data"))
    assert record is not None
    if record.target_place is None:
        pytest.skip("this kernel does not tell of a tmpfs which it is")
    handed.mkdir()
    mount("--bind", target, handed)
    unmount(disk)
    target.mkdir()
    mount("--bind", handed, target)
    assert only_dataset()["state"] == "staged"
    (source / "class-1/added").write_bytes(b"since")
    assert hostprep("stage", source, "--to", target)["copied_files"] == 1
    assert hostprep("unstage", "data")["changed"] and not any(handed.iterdir())


def test_another_disk_is_not_taken_for_it_by_the_path_on_it(
    source: Path, disk: Path, safe_dir: Path
) -> None:
    target, other = disk / "datasets", safe_dir / "other"
    hostprep("stage", source, "--to", target)
    other.mkdir()
    mount("-t", "tmpfs", "other", other)
    shutil.copytree(target, other / "datasets", symlinks=True)
    mount("--bind", other / "datasets", target)
    before = snapshot(other)
    assert (
        "that is not what is there now" in hostprep("unstage", "data", expect=5)["error"]["message"]
    )
    assert only_dataset()["state"] == "missing" and snapshot(other) == before


@pytest.mark.parametrize("how", ["symlink", "bind of the root", "bind of the parent"])
def test_the_source_in_the_place_of_the_copies_is_spared(
    how: str, source: Path, disk: Path, safe_dir: Path
) -> None:
    """Size and time of each of its files are those of the manifest: they look like the copies."""
    target = disk / "datasets"
    hostprep("stage", source, "--to", target)
    if how == "symlink":  # the disk went, and jobs were to keep their paths
        unmount(disk)
        disk.rmdir()
        disk.symlink_to(safe_dir / "srv")
    elif how == "bind of the root":
        mount("--bind", safe_dir / "srv", disk)
    else:
        mount("--bind", source.parent, target)
    (source / "class-1/added").write_bytes(b"since")
    before = snapshot(source)
    for line in (
        ("unstage", "data", "--dry-run"),
        ("unstage", "data"),
        ("stage", source, "--to", target),
    ):
        refused = hostprep(*line, expect=5)
        assert "nothing was changed" in refused["error"]["message"]
        assert snapshot(source) == before
    empty = safe_dir / "empty.yml"
    empty.write_text("{}\n")
    pruned = run_hostprep("apply", empty, "--prune", "--yes")
    assert pruned.returncode == 5 and str(target / "data") in pruned.stderr + pruned.stdout
    assert snapshot(source) == before


def test_what_became_the_source_itself_is_spared(source: Path, disk: Path) -> None:
    """The original went, and a link leads to the copy: the only one there is."""
    hostprep("stage", source, "--to", disk)
    before = snapshot(disk / "data")
    source.rename(source.with_name("gone"))
    source.symlink_to(disk / "data")
    refused = hostprep("unstage", "data", expect=5)
    assert "the same files" in refused["error"]["message"]
    assert snapshot(disk / "data") == before
    refused = hostprep("stage", source, "--to", disk, expect=5)
    assert snapshot(disk / "data") == before


def test_what_is_advised_can_be_pasted_whatever_a_path_is_called(safe_dir: Path) -> None:
    source, target = safe_dir / "a b", safe_dir / "c $d"
    source.mkdir()
    target.symlink_to(source)
    with pytest.raises(Refused, match="the same files") as caught:
        check_apart(str(source), str(target))
    hint = caught.value.hint
    assert hint is not None and f"namei '{target}'" in hint and f"unstage '{target}'" in hint


def test_an_absent_disk_is_neither_filled_nor_forgotten(source: Path, disk: Path) -> None:
    target = disk / "sets"
    hostprep("stage", source, "--to", target)
    kept = disk.with_name("elsewhere")
    kept.mkdir()
    mount("--move", disk, kept)
    for line in (("unstage", "data"), ("stage", source, "--to", target)):
        refused = hostprep(*line, expect=5)
        assert f"lies on the file system at {disk}" in refused["error"]["message"]
        assert "--forget" in refused["error"]["hint"]
        assert os.listdir(disk) == []
    mount("--move", kept, disk)
    assert hostprep("stage", source, "--to", target)["copied_files"] == 0
    assert hostprep("unstage", "data")["left"] == []
    assert not (target / "data").exists()


def test_what_is_gone_for_good_can_be_forgotten(source: Path, disk: Path) -> None:
    hostprep("stage", source, "--to", disk / "sets")
    hostprep("unstage", "data", "--forget", "--fstab", expect=2)
    unmount(disk)
    planned = run_hostprep("unstage", "data", "--forget", "--dry-run")
    assert planned.returncode == 0 and "forget" in planned.stdout
    done = run_hostprep("unstage", "data", "--forget")
    assert done.returncode == 0 and "no file was removed" in done.stdout
    assert hostprep("status")["datasets"] == []
    assert hostprep("stage", source, "--to", disk / "sets")["published"] is True


def test_records_without_the_mount_point_are_taken_as_before(
    source: Path, disk: Path, state: Path
) -> None:
    hostprep("stage", source, "--to", disk)
    (record,) = state.glob("datasets/*/dataset.json")
    text = record.read_text()
    assert f'"target_mount": "{disk}"' in text
    record.write_text(text.replace(f'"target_mount": "{disk}"', '"later": 1'))
    assert hostprep("unstage", "data")["left"] == []


def test_what_is_added_while_it_is_looked_at_stays(
    source: Path, disk: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostprep("stage", source, "--to", disk)
    record = load_record("data", str(disk / "data"))
    assert record is not None
    (disk / "data").chmod(0o750)
    plan = plan_unstage(record, fstab=False)
    assert plan.foreign == ()
    (disk / "data/class-1/checkpoint").write_bytes(b"hours of work")
    result = unstage(plan, Silent())
    assert result.foreign == ("class-1/checkpoint",)
    assert (disk / "data/class-1/checkpoint").read_bytes() == b"hours of work"
    assert (disk / "data").stat().st_mode & 0o777 == 0o750
    found = hostprep("unstage", "data", expect=1)
    assert found["left"] == ["class-1/checkpoint"]


@pytest.mark.parametrize("how", ["over the copies", "over a parent", "symlink"])
def test_what_cannot_be_seen_is_not_called_staged(
    how: str, source: Path, disk: Path, safe_dir: Path
) -> None:
    """The source itself, or another copy of it, stands in for the copies: fresh as can be."""
    target = disk / "datasets"
    hostprep("stage", source, "--to", target)
    if how == "over the copies":
        mount("--bind", source, target / "data")
    elif how == "over a parent":
        mount("--bind", source.parent, target)
    else:
        target.rename(disk / "before")
        target.symlink_to(source.parent)
    found = only_dataset()
    assert (found["state"], found["freshness"]) == ("missing", "unknown")
    waited = hostprep("wait", "data", "--timeout", "0", expect=1)
    for words in (found["reason"], found["hint"], str(waited)):
        assert str(target) in words
    assert found["hint"] in run_hostprep("status").stdout
    checked = findings("--only", "HP010,HP011")
    assert (checked[0]["status"], checked[0]["remedy"]["commands"]) == ("WARN", [])
    assert checked[0]["remedy"]["hint"] == found["hint"]


def test_a_mount_inside_the_copies_is_named_as_what_to_undo(source: Path, disk: Path) -> None:
    hostprep("stage", source, "--to", disk)
    inside = disk / "data/class-1/images"
    mount("-t", "tmpfs", "-o", "size=1M", "scratch", inside)
    found = only_dataset()
    assert (found["state"], found["freshness"]) == ("staged", "stale")
    hostprep("stage", source, "--to", disk, expect=5)
    (checked,) = findings("--only", "HP011")
    assert checked["remedy"]["commands"] == [] and f"umount {inside}" in checked["remedy"]["hint"]
    unmount(inside)
    assert findings("--only", "HP011")[0]["status"] == "PASS"


@pytest.mark.parametrize("name", ["a\rb", "a\nb"])
def test_a_mount_is_seen_whatever_its_name(name: str, source: Path, disk: Path) -> None:
    """The kernel leaves a carriage return in its list of mounts as it is."""
    (source / name).mkdir()
    (source / name / "precious").write_bytes(b"the only one")
    hostprep("stage", source, "--to", disk)
    mount("--bind", source / name, disk / "data" / name)
    for words in (("unstage", "data"), ("stage", source, "--to", disk)):
        found = hostprep(*words, expect=5)
        assert "is mounted on" in found["error"]["message"]
    assert (source / name / "precious").read_bytes() == b"the only one"


def test_the_source_where_the_disk_was_is_not_called_fresh(
    source: Path, disk: Path, safe_dir: Path
) -> None:
    hostprep("stage", source, "--to", disk / "datasets")
    mount("--bind", safe_dir / "srv", disk)
    found = only_dataset()
    assert found["freshness"] == "unknown" and "the same files" in found["reason"]
