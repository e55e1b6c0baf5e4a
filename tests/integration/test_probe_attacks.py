"""The owner of a folder that root probes, who exchanges root's folder in it for another thing."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hostprep.probing.folder import own_folder
from hostprep.system.own_directory import PROBE_PREFIX

OWNER = 65534
LINE = [sys.executable, "-m", "hostprep", "probe", "--seconds", "5", "--size", "48M", "--json"]


@pytest.fixture
def alice(safe_dir: Path) -> Path:
    """Return a folder of somebody else's, who may do with it as they please."""
    folder = safe_dir / "alice"
    folder.mkdir()
    os.chown(folder, OWNER, OWNER)
    return folder


def fill(victim: Path) -> Path:
    """Make a tree of root's with the names that the probe's own files have, and others."""
    for name in ("lock", "data", "00000", "small/00000", "small/data", "etc/passwd"):
        (victim / name).parent.mkdir(parents=True, exist_ok=True)
        (victim / name).write_text("precious")
    return victim


def state(tree: Path) -> dict[str, tuple[int, ...]]:
    found = {}
    for path in [tree, *tree.rglob("*")]:
        st = path.lstat()
        found[str(path.relative_to(tree))] = (st.st_mode, st.st_uid, st.st_mtime_ns, st.st_ino)
    return found


@contextmanager
def as_owner(work: Callable[[], None]) -> Iterator[int]:
    """Have a process of the folder's owner at work beside the body; yield its id."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(OWNER)
            os.setuid(OWNER)
            work()
        finally:
            os._exit(0)
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def do_as_owner(work: Callable[[], None]) -> None:
    """Have the folder's owner do something, and wait until it is done."""
    with as_owner(work) as child:
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)


def exchanged(kind: str, alice: Path, safe_dir: Path) -> tuple[Path, Callable[[Path], None]]:
    """Return a tree of root's, and what puts it, or what leads to it, in the place of a folder."""
    if kind == "directory of root's":
        victim = fill(alice / "roots")

        def put(place: Path) -> None:
            victim.rename(place)

        return victim, put
    victim = fill(safe_dir / "victim")
    if kind == "symlink":
        return victim, lambda place: place.symlink_to(victim)

    def put_own(place: Path) -> None:
        place.mkdir()
        (place / "lock").touch()
        (place / "small").symlink_to(victim)
        (place / "data").symlink_to(victim / "data")
        (place / "00000").symlink_to(victim / "00000")

    return victim, put_own


def wait_for(alice: Path, pattern: str, probe: subprocess.Popen[str]) -> Path:
    """Return the probe's folder once something in it is there."""
    while probe.poll() is None:
        for found in alice.glob(f"{PROBE_PREFIX}*/{pattern}"):
            return next(path for path in found.parents if path.parent == alice)
        time.sleep(0.002)
    raise AssertionError(f"the probe ended before {pattern}: {probe.communicate()}")


KINDS = ["symlink", "directory", "directory of root's"]


@pytest.mark.parametrize("pattern", ["small/00003", "data"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_that_is_exchanged_leads_nowhere(
    alice: Path, safe_dir: Path, kind: str, pattern: str
) -> None:
    victim, put = exchanged(kind, alice, safe_dir)
    before, moved = state(victim), alice / "moved"
    with subprocess.Popen(
        [*LINE, str(alice)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as probe:
        place = wait_for(alice, pattern, probe)

        def exchange() -> None:
            place.rename(moved)
            put(place)

        do_as_owner(exchange)
        there = place.lstat().st_ino
        output, words = probe.communicate(timeout=120)
    fields = json.loads(output)
    assert probe.returncode in (0, 4), words
    assert state(place if kind == "directory of root's" else victim) == before
    assert place.lstat().st_ino == there
    assert moved.is_dir() and not list(moved.iterdir())
    # What was read is what was made, and the figures are of it.
    assert fields["small_files"]["files_per_s"] > 0
    assert fields["sequential"]["bytes_per_s"] > 0 and fields["file"]["source"] == "made"
    assert fields["folder_note"].startswith(f"somebody moved {place}, ")


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_run_removes_what_it_made_wherever_that_is(
    alice: Path, safe_dir: Path, kind: str
) -> None:
    victim, put = exchanged(kind, alice, safe_dir)
    before, moved = state(victim), alice / "moved"
    with subprocess.Popen(
        [*LINE, str(alice)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as probe:
        place = wait_for(alice, "small/00003", probe)

        def exchange() -> None:
            place.rename(moved)
            put(place)

        do_as_owner(exchange)
        assert list(moved.iterdir())  # the test itself: there is something to be removed
        probe.send_signal(signal.SIGINT)
        probe.communicate(timeout=60)
    assert probe.returncode == 130
    assert state(place if kind == "directory of root's" else victim) == before
    assert not list(moved.iterdir())


@pytest.mark.parametrize("kind", ["symlink", "directory"])
def test_folders_that_are_exchanged_as_soon_as_they_are_there(
    alice: Path, safe_dir: Path, kind: str
) -> None:
    """Some before they are opened, some after: each time another name, until there is none."""
    victim, put = exchanged(kind, alice, safe_dir)
    before = state(victim)
    with own_folder(alice) as folder:
        stem = folder.path.name.rpartition("-")[0]
    places = [alice / f"{stem}-{slot}" for slot in range(16)]

    def exchange_all() -> None:
        os.chdir(alice)
        waiting = list(places)
        while waiting:
            for place in waiting:
                try:
                    os.rename(place.name, f"moved-{place.name}")
                except FileNotFoundError:
                    continue
                put(place)
                waiting.remove(place)
                break

    with as_owner(exchange_all):
        done = subprocess.run([*LINE, str(alice)], capture_output=True, text=True, check=False)
    fields = json.loads(done.stdout)
    assert state(victim) == before
    moved = list(alice.glob("moved-*"))
    assert moved  # the test itself
    for folder_of_ours in moved:
        assert not list(folder_of_ours.iterdir())
    note = fields["folder_note"] or fields["file"]["note"]
    assert "somebody moved" in note or "names of hostprep's folder are taken" in note


def left_behind(alice: Path) -> Path:
    """Kill a run, and return the folder that it leaves."""
    with subprocess.Popen(
        [*LINE, str(alice)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as probe:
        place = wait_for(alice, "small/00003", probe)
        # It must not go on between two kills: who is left would tidy up.
        os.kill(probe.pid, signal.SIGSTOP)
        children = Path(f"/proc/{probe.pid}/task/{probe.pid}/children").read_text().split()
        for pid in [*map(int, children), probe.pid]:
            os.kill(pid, signal.SIGKILL)
        probe.communicate(timeout=60)
    with open(place / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until readers of files are gone, too
    return place


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_the_name_of_a_folder_that_was_left_is_left_alone(
    alice: Path, safe_dir: Path, kind: str
) -> None:
    victim, put = exchanged(kind, alice, safe_dir)
    place = left_behind(alice)
    assert (place / "small").exists() and (place / "lock").exists()  # the test itself
    if kind == "directory of root's":
        victim.chmod(0o700)
    before = state(victim)

    def exchange() -> None:
        place.rename(alice / "moved")
        put(place)

    do_as_owner(exchange)
    with own_folder(alice) as folder:
        assert folder.path != place
    assert state(place if kind == "directory of root's" else victim) == before
    assert (alice / "moved").is_dir()  # out of reach: nobody knows its name


def test_a_folder_that_was_left_is_removed_by_the_next_run(alice: Path) -> None:
    place = left_behind(alice)
    with own_folder(alice) as folder:
        assert folder.path == place
        assert [path.name for path in place.iterdir()] == ["lock"]
    assert not list(alice.iterdir())


def test_a_folder_of_root_that_is_moved_while_it_is_removed(
    alice: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim, put = exchanged("symlink", alice, safe_dir)
    before = state(victim)
    place = left_behind(alice)
    flock = fcntl.flock

    def exchanging(lock: int, operation: int) -> None:
        flock(lock, operation)
        monkeypatch.setattr(fcntl, "flock", flock)

        def exchange() -> None:
            place.rename(alice / "moved")
            put(place)

        do_as_owner(exchange)

    monkeypatch.setattr(fcntl, "flock", exchanging)
    with own_folder(alice):
        assert place.is_symlink()
    assert state(victim) == before
    assert not list((alice / "moved").iterdir())


def test_all_names_taken_by_others_are_a_sentence(alice: Path) -> None:
    with own_folder(alice) as folder:
        stem = folder.path.name.rpartition("-")[0]

    def take() -> None:
        for slot in range(16):
            if slot % 2:
                os.mkfifo(alice / f"{stem}-{slot}")
            else:
                (alice / f"{stem}-{slot}").mkdir()
                (alice / f"{stem}-{slot}" / "lock").touch()

    do_as_owner(take)
    done = subprocess.run(
        [*LINE, str(alice)], capture_output=True, text=True, check=False, timeout=60
    )
    fields: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode, fields["verdict"]) == (4, "INVALID")
    words = " ".join(reason["message"] for reason in fields["invalid_reasons"])
    assert "all 16 names of hostprep's folder are taken" in words
    assert len(list(alice.iterdir())) == 16
