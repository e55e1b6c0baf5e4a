"""The power is cut after a step: copies on one disk, records on another, each with what it has.

What a disk has at that moment is its image. One of the two has written out all by then, as the
kernel does every few seconds; the other one only what it was told to.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from hostprep.staging.publishing import publish
from tests.kit import loops
from tests.kit.compare import differences
from tests.kit.stagecraft import hostprep, make_source

pytestmark = pytest.mark.skipif(bool(loops.unavailable()), reason=str(loops.unavailable()))

_DISKS = ("state", "fast")


@contextmanager
def disks(place: Path) -> Iterator[None]:
    """Mount both disks."""
    with ExitStack() as stack:
        for disk in _DISKS:
            stack.enter_context(loops.loop_mount(image(place, disk), place / disk, "ext4"))
        yield


def write_out(disk: Path) -> None:
    subprocess.run(["sync", "--file-system", disk], check=True)


def image(place: Path, disk: str, cut: int | None = None) -> Path:
    return place / (f"{disk}.img" if cut is None else f"{disk}.img.{cut}")


@contextmanager
def kept_after_each_step(place: Path, ahead: str) -> Iterator[list[str]]:
    """Keep both images as they are after each step of the body; yield the names of the steps."""
    steps: list[str] = []

    def keeping(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(name: Any, *args: Any, **options: Any) -> Any:
            done = real(name, *args, **options)
            if "dir_fd" in options:
                return done  # of one of many copies
            write_out(place / ahead)
            for disk in _DISKS:
                copies = image(place, disk), image(place, disk, len(steps))
                subprocess.run(["cp", "--sparse=always", *copies], check=True)
            steps.append(f"{real.__name__} {Path(name).name}")
            return done

        return step

    with pytest.MonkeyPatch.context() as patch:
        for name in ("replace", "unlink", "rmdir"):
            patch.setattr(os, name, keeping(getattr(os, name)))
        patch.setattr(publish, "rename_new", keeping(publish.rename_new))
        yield steps


@pytest.mark.parametrize("ahead", _DISKS)
@pytest.mark.parametrize("what", ["first", "update", "unstage", "unstage in part"])
def test_what_a_power_cut_leaves_is_taken_up(
    safe_dir: Path, monkeypatch: pytest.MonkeyPatch, what: str, ahead: str
) -> None:
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(safe_dir / "state/records"))
    source = make_source(safe_dir / "data", directories=1, files=2)
    target = safe_dir / "fast/data"
    added = target / "class-0/added"
    for disk in _DISKS:
        (safe_dir / disk).mkdir()
        loops.make_filesystem(image(safe_dir, disk), "ext4", loops.SMALLEST_BYTES["ext4"])
    stage = "stage", source, "--to", target.parent
    with disks(safe_dir):
        if what != "first":
            hostprep(*stage)
        if what == "update":
            (source / "new").mkdir()
            (source / "new/file").write_bytes(b"new")
            (source / "class-0/images/000.bin").write_bytes(b"changed")
            (source / "hard").unlink()
        if what == "unstage in part":
            added.write_bytes(b"somebody's")
        for disk in _DISKS:
            write_out(safe_dir / disk)
        with kept_after_each_step(safe_dir, ahead) as steps:
            if what.startswith("unstage"):
                hostprep("unstage", "data", expect=int("part" in what))
            else:
                hostprep(*stage)
    assert steps

    for cut, step in enumerate(steps):
        for disk in _DISKS:
            shutil.copyfile(image(safe_dir, disk, cut), image(safe_dir, disk))
        with disks(safe_dir):
            try:
                if "part" in what:
                    left = hostprep("unstage", "data", expect=1)["left"]
                    assert left == ["class-0/added"] and added.read_bytes() == b"somebody's"
                    continue
                hostprep(*stage)
                assert differences(source, target, owners=True) == []
                hostprep("unstage", "data")
                assert os.listdir(target.parent) == ["lost+found"]
            except AssertionError as error:
                raise AssertionError(f"cut after {step}: {error}") from None
