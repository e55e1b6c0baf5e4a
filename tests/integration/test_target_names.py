"""Targets that take two names for one, or cannot hold a name: nothing is lost without a word."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kit import loops, serving
from tests.kit.compare import differences
from tests.kit.folding import folding_fs
from tests.kit.stagecraft import hostprep, snapshot

pytestmark = pytest.mark.usefixtures("state")

_TOOLS = {
    "exfat": (("mkfs.exfat",), ("mount.exfat-fuse", "-o", "umask=022")),
    "ntfs": (("mkfs.ntfs", "-F", "-f", "-q"), ("ntfs-3g", "-o", "umask=022")),
}


def write(root: Path, **files: str) -> None:
    for name, content in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("case", "A.jpg", "a.jpg"),
        ("case", "Dir/x", "dir/y"),
        ("case", "a/Ä", "a/ä"),
        ("unicode", "\u00e9", "e\u0301"),
        ("dots", "a", "a."),
    ],
)
def test_two_names_that_would_be_one_are_refused_before_anything_is_copied(
    kind: str, one: str, other: str, safe_dir: Path
) -> None:
    source = safe_dir / "data"
    write(source, **{one: "one", other: "two", "plain": "three"})
    with folding_fs(safe_dir / "root", safe_dir / "mount", kind) as target:
        error = hostprep("stage", source, "--to", target, expect=5)["error"]
        for path in (one, other):
            name = path.removesuffix("/x").removesuffix("/y")
            assert (name if name.isascii() else ascii(name)) in error["message"]
        assert os.listdir(target) == []
        assert hostprep("status")["datasets"] == []
        (source / other).unlink()
        if "/" in other and not os.listdir((source / other).parent):
            (source / other).parent.rmdir()
        if kind == "unicode":
            return
        assert hostprep("stage", source, "--to", target)["files"] == 2
        assert not differences(source, target / "data", owners=True, holes=False)


def test_a_name_that_the_target_would_alter_is_refused(safe_dir: Path) -> None:
    source = safe_dir / "data"
    write(source, **{"a/\u00e9": "one"})
    with folding_fs(safe_dir / "root", safe_dir / "mount", "unicode") as target:
        error = hostprep("stage", source, "--to", target, expect=5)["error"]
        assert r"a/\xe9" in error["message"] and r"e\u0301" in error["message"]
        assert os.listdir(target) == []


def test_an_update_may_change_the_case_of_names(safe_dir: Path) -> None:
    """What is renamed from ``a`` to ``A`` is removed and put there, files and directories."""
    source = safe_dir / "data"
    write(source, **{"a.jpg": "one", "Dir/x": "two", "other": "three"})
    with folding_fs(safe_dir / "root", safe_dir / "mount", "case") as target:
        stage = ("stage", source, "--to", target)
        hostprep(*stage)
        (source / "a.jpg").rename(source / "A.jpg")
        (source / "Dir").rename(source / "dir")
        found = hostprep(*stage)
        assert (found["copied_files"], found["deleted_files"]) == (2, 2)
        assert not differences(source, target / "data", owners=True, holes=False)
        assert hostprep(*stage)["changed"] is False
        (source / "a.jpg").write_text("a second one")
        assert "A.jpg" in hostprep(*stage, expect=5)["error"]["message"]
        assert (target / "data" / "A.jpg").read_text() == "one"
        (source / "a.jpg").unlink()
        assert hostprep("status")["datasets"][0]["freshness"] != "unknown"
        hostprep("unstage", "data")
        assert os.listdir(target) == []


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("B.jpg", "b.jpg"), ("New/theirs", "new/ours"), ("sub/two/B.jpg", "sub/two/b.jpg")],
)
def test_a_new_name_that_somebody_elses_folds_onto_is_refused(
    theirs: str, ours: str, safe_dir: Path
) -> None:
    source = safe_dir / "data"
    write(source, **{"plain": "one", "sub/two/plain": "one"})
    with folding_fs(safe_dir / "root", safe_dir / "mount", "case") as target:
        stage = ("stage", source, "--to", target)
        hostprep(*stage)
        write(target / "data", **{theirs: "theirs"})
        write(source, **{ours: "ours"})
        error = hostprep(*stage, expect=1)["error"]
        new, old = ours.removesuffix("/ours"), theirs.removesuffix("/theirs")
        assert f"{new} of the source and {old} on the target" in error["message"]
        assert (target / "data" / theirs).read_text() == "theirs"
        (target / "data" / theirs).unlink()
        if theirs.startswith("New"):
            (target / "data" / theirs).parent.rmdir()
        assert hostprep(*stage)["resumed_files"] == 1
        assert not differences(source, target / "data", owners=True, holes=False)


def test_a_target_in_the_source_is_seen_in_whatever_spelling(safe_dir: Path) -> None:
    with folding_fs(safe_dir / "root", safe_dir / "mount", "case") as there:
        write(there / "data", **{"sub/x": "one"})
        before = snapshot(there)
        for source, *target in (
            (there / "data", there / "DATA"),
            (there / "data", there / "Data/SUB"),
            (there / "DATA/sub", there, "--name", "Data"),
        ):
            refused = hostprep("stage", source, "--to", *target, expect=5)["error"]
            assert "under another spelling; nothing was changed" in refused["message"]
        assert snapshot(there) == before


def test_names_that_vanish_on_the_target_are_found_by_its_listing(
    safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However a target folds names: what was copied and is not listed is not published."""
    source = safe_dir / "data"
    write(source, **{"Dir/x": "one", "dir/y": "two"})
    monkeypatch.setattr("hostprep.staging.naming._try_names", lambda *_: None)
    with folding_fs(safe_dir / "root", safe_dir / "mount", "case") as target:
        error = hostprep("stage", source, "--to", target, expect=1)["error"]
        assert "does not list" in error["message"] and "ir" in error["message"]
        assert os.listdir(target) == [".hostprep-data"]


@pytest.mark.parametrize(("kind", "code"), [("exfat", 5), ("ntfs", 0)])
def test_exfat_folds_names_and_ntfs_does_not(kind: str, code: int, safe_dir: Path) -> None:
    source, image, point = safe_dir / "data", safe_dir / "image", safe_dir / "point"
    write(source, **{"A.jpg": "one", "a.jpg": "two"})
    point.mkdir()
    with image.open("wb") as file:
        file.truncate(64 << 20)
    make, serve = _TOOLS[kind]
    if reason := loops.unavailable() or serving.unavailable():
        pytest.skip(reason)
    if not (shutil.which(make[0]) and shutil.which(serve[0])):
        pytest.skip(f"{make[0]} or {serve[0]} is not installed")
    subprocess.run([*make, image], check=True, capture_output=True)
    with loops.loop_device(image) as device:
        subprocess.run([*serve, device, point], check=True, capture_output=True)
        try:
            found = hostprep("stage", source, "--to", point, expect=code)
            if code:
                message = found["error"]["message"]
                assert "A.jpg" in message and "a.jpg" in message
                (source / "A.jpg").unlink()
                hostprep("stage", source, "--to", point)
            assert sorted(os.listdir(point / "data")) == sorted(os.listdir(source))
        finally:
            loops.unmount(point)


@pytest.mark.parametrize(("kind", "bad"), [("strict", "a:b"), ("short", "x" * 200)])
def test_names_that_the_target_cannot_hold_are_left_out_with_what_is_below(
    kind: str, bad: str, safe_dir: Path
) -> None:
    source = safe_dir / "data"
    write(source, **{bad: "", "plain": "kept", f"d{bad}/below/file": "", "d/file": "kept"})
    (source / f"empty{bad}" / "inner").mkdir(parents=True)
    lost = {bad, f"d{bad}", f"d{bad}/below", f"d{bad}/below/file", f"empty{bad}"}
    lost.add(f"empty{bad}/inner")
    with folding_fs(safe_dir / "root", safe_dir / "mount", kind) as target:
        stage = ("stage", source, "--to", target)
        found = hostprep(*stage, expect=1)
        assert {each["path"] for each in found["skipped"]} == lost
        assert "fix the source" not in found["error"]["hint"] and "hold" in found["error"]["hint"]
        assert os.listdir(target) == [".hostprep-data"]
        for _ in range(2):
            found = hostprep(*stage, "--partial")
            assert {each["path"] for each in found["skipped"]} == lost
            assert (found["files"], found["verified"]) == (2, True)
            (status,) = hostprep("status")["datasets"]
            assert (status["state"], status["freshness"]) == ("partial", "fresh")
        assert sorted(os.listdir(target / "data")) == ["d", "plain"]
        hostprep("unstage", "data")
        assert os.listdir(target) == []


def test_links_that_the_target_cannot_hold_are_not_the_sources_fault(safe_dir: Path) -> None:
    source = safe_dir / "data"
    write(source, file="content")
    (source / "symlink").symlink_to("file")
    os.link(source / "file", source / "hard")
    with folding_fs(safe_dir / "root", safe_dir / "mount", "strict") as target:
        error = hostprep("stage", source, "--to", target, expect=1)["error"]
        assert "can hold" in error["hint"] and "fix the source" not in error["hint"]


def test_a_symlink_that_is_too_long_for_the_target_is_not_all_of_them(safe_dir: Path) -> None:
    source = safe_dir / "data"
    write(source, file="content")
    (source / "long").symlink_to("x" * 2000)
    with loops.loop_filesystem("xfs", loops.SMALLEST_BYTES["xfs"], safe_dir) as target:
        (lost,) = hostprep("stage", source, "--to", target, expect=1)["skipped"]
        assert "a symlink whose name or target is so long" in lost["reason"]
