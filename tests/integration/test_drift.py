"""What somebody changed by hand is found by `plan`, told apart, and mended by `apply`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.converging import apply, keys, plan, write_spec
from tests.kit.stagecraft import make_source, rewrite, snapshot

pytestmark = pytest.mark.usefixtures("state")


@pytest.fixture
def spec(safe_dir: Path, volume: Path) -> Path:
    """A converged host's spec."""
    make_source(safe_dir / "data", directories=2, files=5)
    path = write_spec(
        safe_dir / "hostprep.yml",
        volumes=[{"path": volume, "size": "64M", "owner": "0:0", "mode": "0755"}],
        datasets=[{"source": "data", "volume": volume}],
    )
    apply(path)
    return path


def remount(volume: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", "hostprep", volume], check=True)


Hand = Callable[[Path, Path], object]
BY_HAND: dict[str, tuple[Hand, tuple[str, ...], str]] = {
    "remounted smaller": (lambda at, _: remount(at, "size=32m"), ("volume",), "changed by hand"),
    "remounted larger": (lambda at, _: remount(at, "size=96m"), ("volume",), "changed by hand"),
    "remounted with exec": (
        lambda at, _: remount(at, "nosuid,nodev,exec"),
        ("volume",),
        "changed by hand",
    ),
    "fewer inodes": (lambda at, _: remount(at, "nr_inodes=2000"), ("volume",), "changed by hand"),
    "another owner": (lambda at, _: os.chown(at, 12, 34), ("volume",), "changed by hand"),
    "another mode": (lambda at, _: at.chmod(0o777), ("volume",), "changed by hand"),
    "unmounted": (
        lambda at, _: subprocess.run(["umount", at], check=True),
        ("volume", "dataset"),
        "though fstab has its line",
    ),
    "fstab edited": (
        lambda _, fstab: fstab.write_text(fstab.read_text().replace("67108864", "1048576")),
        ("fstab",),
        "says size=1048576 instead of size=67108864; what is mounted is right",
    ),
    "fstab without nofail": (
        lambda _, fstab: fstab.write_text(fstab.read_text().replace(",nofail", "")),
        ("fstab",),
        "instead of nofail",
    ),
    "line gone": (lambda _, fstab: fstab.write_text(""), ("fstab",), "come back at boot"),
    "both": (
        lambda at, fstab: (
            remount(at, "size=32m"),
            fstab.write_text(fstab.read_text().replace("67108864", "1048576")),
        ),
        ("volume", "fstab"),
        "all differ",
    ),
    "file deleted": (
        lambda at, _: (at / "data/class-0/images/002.bin").unlink(),
        ("dataset",),
        "the source is as it was staged: files of the copy were changed or deleted by hand",
    ),
    "file rewritten": (
        lambda at, _: rewrite(at / "data/class-0/images/002.bin", b"other"),
        ("dataset",),
        "the source is as it was staged: files of the copy were changed or deleted by hand",
    ),
    "data set gone": (
        lambda at, _: shutil.rmtree(at / "data"),
        ("dataset",),
        "gone from its target",
    ),
}


@pytest.mark.parametrize("what", BY_HAND)
def test_by_hand(what: str, spec: Path, volume: Path, fstab: Path) -> None:
    change, kinds, words = BY_HAND[what]
    right = snapshot(volume), fstab.read_bytes(), os.statvfs(volume)
    change(volume, fstab)
    planned = plan(spec)
    assert tuple(dict.fromkeys(each["kind"] for each in planned["changes"])) == kinds
    assert any(words in each["reason"] for each in planned["changes"]), planned["changes"]
    mended = apply(spec)
    assert mended["done"] == planned["changes"]
    files, line, room = snapshot(volume), fstab.read_bytes(), os.statvfs(volume)
    root = os.fsencode(volume)
    assert files[root][0] == right[0][root][0], "the mode of the volume"
    assert files.keys() == right[0].keys()
    assert line == right[1]
    assert (room.f_blocks, room.f_files, room.f_flag) == (
        right[2].f_blocks,
        right[2].f_files,
        right[2].f_flag,
    )


def test_another_spec_is_told_apart_from_drift(spec: Path, volume: Path, safe_dir: Path) -> None:
    spec.write_text(spec.read_text().replace("64M", "96M"))
    planned = plan(spec)
    assert keys(planned["changes"]) == [("volume", str(volume)), ("fstab", str(volume))]
    assert all("the spec asks for something else" in each["reason"] for each in planned["changes"])
    apply(spec)
    spec.write_text(spec.read_text().replace("96M", "48M"))
    assert "shrink" in plan(spec)["changes"][0]["action"]
    apply(spec)
    assert os.statvfs(volume).f_blocks * 4096 == 48 << 20


def test_a_changed_source_is_followed(spec: Path, volume: Path, safe_dir: Path) -> None:
    (safe_dir / "data/new").write_bytes(b"new")
    (safe_dir / "data/hard").unlink()
    (change,) = plan(spec)["changes"]
    assert "copy 1 file," in change["action"] and "delete 1" in change["action"]
    assert change["reason"] == "the source has changed since it was staged"
    (volume / "data/class-0/images/001.bin").unlink()
    assert "and files of the copy" in plan(spec)["changes"][0]["reason"]
    apply(spec)
    assert (volume / "data/new").exists() and not (volume / "data/hard").exists()


def test_files_of_others_are_named_and_left(spec: Path, volume: Path) -> None:
    (volume / "data/mine").write_bytes(b"mine")
    planned = plan(spec)
    assert "mine" in planned["warnings"][0]
    (change,) = planned["changes"]
    assert "times of 1 directory" in change["action"], "the new file changed its folder's time"
    assert "other times or modes" in change["reason"]
    (volume / "data/class-0/images/001.bin").unlink()
    apply(spec)
    assert (volume / "data/mine").read_bytes() == b"mine"
