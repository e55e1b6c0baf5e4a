"""A target over sshfs, which lists an open directory once only, and has no times of symlinks."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.stagecraft import hostprep, make_source

SERVER = Path("/usr/lib/openssh/sftp-server")


@pytest.fixture
def far(safe_dir: Path) -> Iterator[Path]:
    """Return where a directory is mounted by its server alone, without ssh between them."""
    if shutil.which("sshfs") is None or not SERVER.exists() or not os.path.exists("/dev/fuse"):
        pytest.skip("needs sshfs, sftp-server and /dev/fuse")
    point, there = safe_dir / "far", safe_dir / "there"
    point.mkdir()
    there.mkdir()
    line = ["sshfs", "-f", "-o", f"ssh_command=sh -c {SERVER}", f"x:{there}", point]
    with subprocess.Popen(line, stdin=subprocess.DEVNULL) as process:
        while not os.path.ismount(point):
            assert process.poll() is None
            time.sleep(0.01)
        yield point
        subprocess.run(["umount", point], check=True)


def test_what_has_no_symlinks_is_staged_kept_and_removed(far: Path, safe_dir: Path) -> None:
    source = make_source(safe_dir / "data")
    (source / "link").unlink()
    hostprep("stage", source, "--to", far)
    subprocess.run(["diff", "-r", source, far / "data"], check=True)  # times are in seconds
    assert (source / "hard").stat().st_nlink == 2 > (far / "data/hard").stat().st_nlink
    assert hostprep("stage", source, "--to", far)["changed"] is False
    (source / "class-0/images/new").write_bytes(b"new")
    assert hostprep("stage", source, "--to", far)["copied_files"] == 1
    assert hostprep("status")["datasets"][0]["freshness"] == "fresh"
    hostprep("unstage", "data")
    assert os.listdir(far) == []


def test_symlinks_are_what_it_cannot_hold(far: Path, safe_dir: Path) -> None:
    source = make_source(safe_dir / "data")
    (source / "nowhere").symlink_to("nothing")
    for name in ("link", "nowhere"):
        os.utime(source / name, ns=(1, 10**18), follow_symlinks=False)
    skipped = hostprep("stage", source, "--to", far, expect=1)["skipped"]
    assert sorted(item["path"] for item in skipped) == ["link", "nowhere"]
    assert {item["reason"] for item in skipped} == {
        "the target's file system cannot hold the times of symlinks"
    }
