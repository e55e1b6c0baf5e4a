"""``stage --full-check`` names what it finds, in the source and in the copies, and counts it."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from hostprep.staging.processes.worker import Worker
from tests.kit.compare import differences
from tests.kit.failing_fs import Rule, failing_fs
from tests.kit.stagecraft import flip_bit, hostprep, make_source, rewrite, run_hostprep

pytestmark = pytest.mark.usefixtures("state")

_OTHER = "has other content"


def test_what_differs_is_named_by_its_side(source: Path, target: Path) -> None:
    stage = ("stage", source, "--to", target)
    assert hostprep(*stage, "--full-check")["full_check"] is False  # nothing was there
    flip_bit(target / "data/class-1/images/003.bin", 7)
    flip_bit(source / "class-2/images/004.bin")
    flip_bit(source / "class-3/images/005.bin")
    rewrite(source / "class-4/images/006.bin", b"an edit that lstat sees")
    found = [
        {"path": "class-2/images/004.bin", "place": "source", "reason": _OTHER},
        {"path": "class-3/images/005.bin", "place": "source", "reason": _OTHER},
        {"path": "class-1/images/003.bin", "place": "target", "reason": _OTHER},
    ]
    lines = (
        "  full check: 2 source files with other content than was staged, size and time as they"
        " were (an edit that put the time back, an edit within the last minute on a share, or"
        " a damaged disk): class-2/images/004.bin, class-3/images/005.bin\n",
        "  full check: 1 copy with other content than was staged, size and time as they were"
        " (damaged memory or a damaged disk, or somebody wrote to it): class-1/images/003.bin\n",
    )
    assert hostprep(*stage, "--dry-run")["differing"] == []
    planned = hostprep(*stage, "--full-check", "--dry-run")
    assert (planned["full_check"], planned["differing"]) == (True, found)
    said = run_hostprep(*stage, "--full-check", "--dry-run").stdout
    assert all(line in said for line in lines), said
    done = run_hostprep(*stage, "--full-check")
    assert done.returncode == 0
    for stream in (done.stderr, done.stdout):  # the plan, and what came of it
        assert all(line in stream for line in lines), stream
    assert "(read back and compared; kept files: read again here and in the source)" in (
        done.stdout
    )
    assert differences(source, target / "data", owners=True) == []
    flip_bit(target / "data/class-1/images/003.bin", 7)
    mended = hostprep(*stage, "--full-check")
    assert (mended["full_check"], mended["differing"]) == (True, found[2:])


def test_a_symlink_that_leads_elsewhere_by_now_is_found(source: Path, target: Path) -> None:
    (source / "other").symlink_to("class-0")
    stage = ("stage", source, "--to", target)
    hostprep(*stage)
    for link, leads_to in (
        (source / "link", "class-0/images/009.bin"),  # as long as it was
        (target / "data/other", "class-1"),
    ):
        before = link.lstat()
        link.unlink()
        link.symlink_to(leads_to)
        times = (before.st_atime_ns, before.st_mtime_ns)
        os.utime(link, ns=times, follow_symlinks=False)
    found = hostprep(*stage, "--full-check")["differing"]
    assert [(each["path"], each["place"]) for each in found] == [
        ("link", "source"),
        ("other", "target"),
    ]
    assert differences(source, target / "data", owners=True) == []
    assert hostprep(*stage, "--full-check")["changed"] is False


def test_nothing_is_kept_that_was_not_read(source: Path, target: Path) -> None:
    stage, first = ("stage", source, "--to", target), source / "class-0/images/001.bin"
    hostprep(*stage)
    # No link of "hard" any more: neither of the two keeps the copy that both had, a damaged one.
    subprocess.run(["cp", "-a", first, source / "alone"], check=True)
    os.replace(source / "alone", first)
    flip_bit(target / "data/hard")
    mended = hostprep(*stage, "--full-check")
    assert (mended["copied_files"], mended["differing"]) == (2, [])
    assert differences(source, target / "data", owners=True) == []


def test_where_nothing_differs_it_says_what_was_read(source: Path, target: Path) -> None:
    stage = ("stage", source, "--to", target)
    hostprep(*stage)
    for extra in ((), ("--dry-run",)):
        done = run_hostprep(*stage, "--full-check", *extra)
        assert "whole and fresh, by the content of every file here and in the source" in done.stdout
        assert "by the content" not in run_hostprep(*stage, *extra).stdout
    (source / "class-1/images/003.bin").unlink()
    done = run_hostprep(*stage, "--full-check")
    assert "verified (when it was copied and again now), digest" in done.stdout


def test_of_many_some_are_named_and_the_others_counted(source: Path, target: Path) -> None:
    hostprep("stage", source, "--to", target)
    for number in range(12):
        rewrite(target / f"data/class-0/images/{number:03}.bin", b"", keep_times=True)
    for number in range(1, 13):
        flip_bit(target / f"data/class-3/images/{number:03}.bin")
    done = run_hostprep("stage", source, "--to", target, "--full-check")
    assert "full check: 12 copies with other content" in done.stdout
    assert "class-3/images/010.bin and 2 more\n" in done.stdout
    assert "class-0" not in done.stdout  # of another size, as lstat saw


def test_what_cannot_be_read_is_no_other_content(
    source: Path, target: Path, safe_dir: Path
) -> None:
    with failing_fs(source, where=safe_dir) as fs:
        hostprep("stage", fs.mount, "--to", target, "--name", "data")
        fs.tell(Rule("/class-1/images/003.bin", "read"))
        done = run_hostprep("stage", fs.mount, "--to", target, "--name", "data", "--full-check")
    assert done.returncode == 1
    words = "full check: not to be compared: class-1/images/003.bin in the source (Input/output"
    assert words in done.stderr


def test_a_gentle_run_is_gentle_in_all_that_it_reads(
    safe_dir: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make_source(safe_dir / "many", directories=40)  # more than is scanned at once
    log = safe_dir / "log"
    real, main = Worker.do, os.getpid()

    def logged(self: Worker, kind: str, payload: Any) -> Any:
        if os.getpid() != main:
            nice = os.getpriority(os.PRIO_PROCESS, 0)
            with log.open("a") as file:
                file.write(f"{kind} {nice} {os.getpid()}.{threading.get_ident()}\n")
        return real(self, kind, payload)

    monkeypatch.setattr(Worker, "do", logged)
    for module in ("deciding", "comparing"):
        monkeypatch.setattr(f"hostprep.staging.{module}.is_in_ram", lambda path: False)
    monkeypatch.setattr("hostprep.staging.plans.standing._LEAST_FILES", 0)
    both = ("scan", "standing", "check")
    first = ("scan", "copy", "check", "directories")
    for words, kinds in (((), {*first}), (("--full-check",), {*both})):
        hostprep("stage", source, "--to", target, "--gentle", *words)
        lines = [line.split() for line in log.read_text().splitlines()]
        assert {kind for kind, _, _ in lines} == kinds
        assert {nice for _, nice, _ in lines} == {"19"}
        assert len({who for kind, _, who in lines if kind == "check"}) == 1
        log.unlink()
