"""The hostile data set, staged and compared entry by entry by code that shares nothing with us."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hostprep.staging.model import StageRequest
from hostprep.staging.planning import plan_stage
from hostprep.staging.stage import carry_out
from tests.integration.test_stage_slow_sources import Watching
from tests.kit import loops
from tests.kit.compare import differences
from tests.kit.hostile import HostileSet, make_hostile
from tests.kit.stagecraft import flip_bit, hostprep, make_source, run_hostprep, snapshot

GIB = 1 << 30


@pytest.fixture(scope="module")
def hostile(private_namespace: Path) -> Iterator[HostileSet]:
    """The set, on a tmpfs: every test puts back what it changes, but for XFS (see there)."""
    root = private_namespace / "hostile set"
    made = make_hostile(root)
    before = snapshot(root)
    yield made
    links = os.fsencode(root / "links")
    after = snapshot(root)
    for path in (links, links + b"/long"):
        before.pop(path), after.pop(path, None)
    assert after == before, "the source was touched"
    shutil.rmtree(root)


@contextmanager
def place(kind: str, safe_dir: Path) -> Iterator[tuple[tuple[str, ...], Path]]:
    """Yield the words of the target and where the data set appears."""
    if kind == "tmpfs":
        point = safe_dir / "volume"
        yield ("--to-tmpfs", "1G", "--at", str(point), "--reserve", "0"), point / "set"
        hostprep("unstage", point / "set")
        assert not os.path.ismount(point)
        return
    assert kind in ("ext4", "xfs", "btrfs")
    with loops.loop_filesystem(kind, 2 * GIB, safe_dir) as mount:
        yield ("--to", str(mount / "fast")), mount / "fast/set"
        hostprep("unstage", mount / "fast/set")
        assert os.listdir(mount / "fast") == []


def change(root: Path) -> None:
    """Change the set in every way, holding on to what an update must not read again."""
    (root / "sizes/4096").write_bytes(b"changed")
    os.truncate(root / "sizes/100003", 50_000)
    with (root / "sizes/209715203").open("r+b") as file:
        file.seek(100 << 20)
        file.write(b"in the middle")
    (root / "sizes/4097").unlink()
    shutil.rmtree(root / "nested/and")
    (root / "nested/and").write_bytes(b"a file now")
    (root / "links/dangling").unlink()
    (root / "links/dangling").mkdir()
    (root / "links/dangling/inside").write_bytes(b"a directory now")
    (root / "links/up").unlink()
    (root / "links/up").symlink_to("elsewhere")
    (root / "links/folder/file").unlink()
    (root / "links/folder/file").symlink_to("../relative")
    (root / "modes/file-0600").chmod(0o4750)
    (root / "modes/folder-0500").chmod(0o2711)
    os.chown(root / "modes/file-0640", 77, 88)
    os.chown(root / "modes/folder-0700", 77, 88)
    os.link(root / "hard/here/a", root / "hard/there/joined")
    (root / "hard/here/five-0").unlink()
    shutil.copy2(root / "hard/there/five-1", root / "alone")
    os.replace(root / "alone", root / "hard/there/five-1")
    name = os.fsencode(root / "names") + b"/\xff\xfe\xfd"
    os.rename(name, name + b"\n\xff")
    with open(os.fsencode(root / "sparse") + b"/all hole", "r+b") as file:
        file.seek(33 << 20)
        file.write(b"an island")
    for number in range(0, 20_000, 100):
        (root / f"many/{number:05}").unlink()
        (root / f"many/new-{number:05}").write_bytes(b"%d" % number)
    (root / "empty/no more").write_bytes(b"")
    os.utime(root / "times", ns=(5, 123_456_789))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["tmpfs", "ext4", "btrfs", "xfs"])
def test_the_hostile_set_arrives_whole_and_again_after_every_change(
    kind: str, hostile: HostileSet, safe_dir: Path
) -> None:
    source = hostile.root
    before = snapshot(source, content=False)
    with place(kind, safe_dir) as (to, staged):
        words = ("stage", source, *to, "--name", "set")
        if kind == "xfs":  # which takes no symlink of more than 1024 bytes; the last one to run
            found = hostprep(*words, expect=1)
            assert [i["path"] for i in found["skipped"] if i["failed"]] == ["links/long"]
            assert not staged.exists()
            (source / "links/long").unlink()
            before = snapshot(source, content=False)
        first = hostprep(*words)
        assert snapshot(source, content=False) == before, "the source was touched"
        assert differences(source, staged, owners=True) == []
        directories = sum(os.path.isdir(p) and not os.path.islink(p) for p in named(hostile))
        assert first["files"] == len(hostile.copied) - directories - (kind == "xfs")
        left_out = {os.fsencode(item["path"]) for item in first["skipped"]}
        assert left_out == hostile.left_out and not any(i["failed"] for i in first["skipped"])
        again = hostprep(*words)
        assert (again["changed"], again["copied_files"]) == (False, 0)
        assert again["digest"] == first["digest"]
        checked = hostprep(*words, "--full-check")
        assert checked["changed"] is False

        if kind in ("tmpfs", "ext4"):
            update(source, staged, words, first)
        flip_bit(staged / "sizes/65536", 4711)
        flip_bit(staged / "sizes/73400320", 70 << 20 - 1)
        assert hostprep(*words)["changed"] is False
        mended = hostprep(*words, "--full-check")
        assert (mended["copied_files"], mended["digest"]) == (2, first["digest"])
        assert differences(source, staged, owners=True) == []


def update(source: Path, staged: Path, words: tuple[str, ...], first: dict[str, Any]) -> None:
    """A working copy changes; then the set is as it was again: two updates, there and back."""
    keep = source.with_name("keep")
    source.rename(keep)
    try:
        copy_exactly(keep, source)
        assert hostprep(*words)["changed"] is False, "an exact copy is no change"
        change(source)
        changed = snapshot(source, content=False)
        updated = hostprep(*words)
        assert snapshot(source, content=False) == changed, "the source was touched"
        assert differences(source, staged, owners=True) == []
        assert updated["digest"] != first["digest"] and updated["left"] == []
        assert updated["kept_files"] > 19_000
        assert hostprep(*words)["changed"] is False
    finally:
        shutil.rmtree(source)
        keep.rename(source)
    back = hostprep(*words)
    assert differences(source, staged, owners=True) == []
    assert back["digest"] == first["digest"]


def named(hostile: HostileSet) -> list[bytes]:
    return [os.path.join(os.fsencode(hostile.root), name) for name in hostile.copied]


def copy_exactly(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", source, target], check=True)
    said = differences(source, target, owners=True, holes=False)
    assert all("'special/" in words for words in said), said  # fifos and devices come along


def test_the_holes_of_what_was_copied_are_counted(safe_dir: Path, target: Path) -> None:
    source = safe_dir / "data"
    source.mkdir()
    (source / "full").write_bytes(b"x" * 100_000)
    (source / "short").write_bytes(b"x")
    with (source / "data.mdb").open("wb") as file:
        file.write(b"x" * 65536)
        file.truncate(1 << 30)
    found = hostprep("stage", source, "--to", target)
    assert found["copied_bytes"] == (1 << 30) + 100_001
    assert found["copied_hole_bytes"] == (1 << 30) - 65536
    # While it copies they count neither as done nor as to be done: a rate is of data.
    (source / "more.mdb").write_bytes((source / "full").read_bytes())
    os.truncate(source / "more.mdb", 1 << 30)
    watching = Watching()
    with plan_stage(StageRequest(str(source), "again", str(target), None), watching) as plan:
        carry_out(plan, watching)
    data_bytes = 100_001 + 65536 + -(-100_000 // 4096) * 4096
    assert watching.told == sorted(watching.told)
    assert watching.told[-1] == (4, data_bytes)
    files, size_bytes = watching.whole
    assert files == 4 and size_bytes is not None
    assert data_bytes <= size_bytes <= data_bytes + 4 * 4096


def test_a_target_that_hands_its_group_down(safe_dir: Path) -> None:
    source = make_source(safe_dir / "data")
    with loops.loop_filesystem("ext4", 24 << 20, safe_dir, ["grpid"]) as disk:
        (disk / "theirs").mkdir()
        os.chown(disk / "theirs", 65534, 65534)
        hostprep("stage", source, "--to", disk / "theirs")
        assert differences(source, disk / "theirs/data", owners=True) == []


def test_symlinks_that_lead_out_are_named(safe_dir: Path, target: Path) -> None:
    """As in a cache of Hugging Face: a snapshot of links into a folder beside it."""
    links, blobs = safe_dir / "cache/snapshot", safe_dir / "cache/blobs"
    (links / "deep").mkdir(parents=True)
    blobs.mkdir()
    for number in range(12):
        (blobs / str(number)).write_bytes(b"image")
        (links / f"{number}.jpg").symlink_to(f"../blobs/{number}")
    (links / "deep/absolute").symlink_to(blobs / "0")
    (links / "deep/inside").symlink_to("../0.jpg")
    (links / "..odd").symlink_to("..odd name")  # which begins with dots, and leads nowhere
    done = run_hostprep("stage", links, "--to", target)
    assert "leading out of the data set: 13 symlinks (" in done.stderr and done.returncode == 0
    found = hostprep("stage", links, "--to", target / "again")
    assert found["outward_links"] == 13 and len(found["outward_named"]) == 10
    assert set(found["outward_named"]) <= {f"{n}.jpg" for n in range(12)} | {"deep/absolute"}
    whole = hostprep("stage", safe_dir / "cache", "--to", target / "both")
    assert (whole["outward_links"], whole["outward_named"]) == (1, ["snapshot/deep/absolute"])


def test_they_are_those_of_the_data_set_and_not_of_what_a_run_copies(
    safe_dir: Path, target: Path
) -> None:
    source = make_source(safe_dir / "data", directories=1, files=2)
    (source / "old").symlink_to("../elsewhere")
    assert hostprep("stage", source, "--to", target)["outward_named"] == ["old"]
    for _ in ("a run that does nothing", "another"):
        again = hostprep("stage", source, "--to", target)
        assert (again["changed"], again["outward_links"]) == (False, 1)
        assert again["outward_named"] == ["old"]
    (source / "new").symlink_to("/etc")
    (source / "inside").symlink_to("old")
    more = hostprep("stage", source, "--to", target)
    assert (more["copied_files"], more["outward_links"]) == (2, 2)
    assert set(more["outward_named"]) == {"old", "new"}
    said = run_hostprep("stage", source, "--to", target).stderr
    assert "leading out of the data set: 2 symlinks (" in said
    (source / "old").unlink()
    assert hostprep("stage", source, "--to", target)["outward_named"] == ["new"]


def test_a_target_that_is_yet_to_be_made_is_named(safe_dir: Path, target: Path) -> None:
    """A mistyped folder, or that of a disk that is not mounted, would fill the disk above it."""
    source = make_source(safe_dir / "set", directories=1, files=2)
    new = target / "not/there"
    done = run_hostprep("stage", source, "--to", new, "--dry-run")
    assert f"target: make directory {new} (it does not exist), on the tmpfs at" in done.stdout
    new.mkdir(parents=True)
    assert "make directory" not in run_hostprep("stage", source, "--to", new, "--dry-run").stdout


@pytest.mark.parametrize("size", [20, 65 << 20], ids=["small", "in ranges"])
def test_what_runs_as_nobody_there_runs_as_nobody_here(
    size: int, safe_dir: Path, target: Path
) -> None:
    """A USB disk or a share is mounted nosuid so that what lies on it gives nobody root."""
    source = safe_dir / "usb"
    source.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "nosuid", "usb", source], check=True)
    for name, mode in (("runs", 0o6755), ("plain", 0o755)):
        (source / name).write_bytes(bytes(size))
        (source / name).chmod(mode)
    (source / "folder").mkdir()
    (source / "folder").chmod(0o2755)  # runs nothing: it hands its group down
    words = ("stage", source, "--to", target)
    hostprep(*words)
    modes = {path.name: path.stat().st_mode & 0o7777 for path in (target / "usb").iterdir()}
    assert modes == {"runs": 0o755, "plain": 0o755, "folder": 0o2755}
    again = hostprep(*words)
    assert (again["changed"], again["copied_files"]) == (False, 0)
    assert hostprep(*words, "--full-check")["changed"] is False
