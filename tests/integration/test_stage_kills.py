"""Killed, ended and interrupted at random moments, hundreds of times: nothing half, nothing lost.

Each round runs the command in a forked process, whose main process alone is killed: its workers
must end by themselves. ``HOSTPREP_KILL_ROUNDS=10`` has ten times as many rounds.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hostprep.cli.main import run
from hostprep.cli.output import say
from tests.kit.compare import differences
from tests.kit.failing_fs import Rule, failing_fs
from tests.kit.stagecraft import (
    HOSTPREP,
    KILL_ROUNDS,
    Snapshot,
    hostprep,
    make_source,
    rewrite,
    snapshot,
)

# Those that a run has left behind have so long, also on a busy machine.
ENDED_SECONDS = 5.0

LONG = pytest.mark.timeout(200 * KILL_ROUNDS)

pytestmark = pytest.mark.usefixtures("state")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended; ``code`` is negative for the signal that ended it."""

    code: int
    said: str


def start(out: Path, *words: str | Path) -> int:
    """Fork and run hostprep there, in a session of its own; return the process id."""
    child = os.fork()
    if child:
        return child
    code = 99
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what the command puts back at its end
        signal.signal(signal.SIGHUP, lambda *_: None)  # likewise; ignored it would stay so
        descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", closefd=False, buffering=1)
        try:
            code = run([os.fspath(word) for word in words])
        except KeyboardInterrupt:  # as it gives the signals back, when `__main__` is there for it
            say("hostprep: interrupted.")
            code = 130
        sys.stdout.flush()
    finally:
        os._exit(code)


def end(child: int, out: Path) -> Ended:
    """Wait for the process, and for whatever it has left behind."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    deadline = time.monotonic() + ENDED_SECONDS
    while left := session(child):
        assert time.monotonic() < deadline, f"still running: {left}"
        time.sleep(0.002)
    return Ended(code, out.read_text())


def session(leader: int) -> list[int]:
    """Return the processes of a session that are still there (zombies have ended)."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == leader and fields[0] not in (b"Z", b"X"):
                found.append(int(name))
    return found


def entries(root: Path) -> dict[str, tuple[object, ...]]:
    """Return what lies below ``root`` by relative path; of directories only that they are."""
    found: Snapshot = snapshot(root)
    said = {}
    for path, (mode, size, mtime_ns, uid, gid, _, content) in found.items():
        name = os.path.relpath(os.fsdecode(path), root)
        is_directory = isinstance(mode, int) and mode & 0o170000 == 0o040000
        said[name] = ("directory",) if is_directory else (mode, size, mtime_ns, uid, gid, content)
    return said


def journal_bytes(target: Path) -> int:
    """Return how long the longest journal of copied files is, -1 where there is none (yet)."""
    longest = -1
    for journal in target.glob(".hostprep-data/journal.*"):
        with contextlib.suppress(FileNotFoundError):  # the run is over
            longest = max(longest, journal.stat().st_size)
    return longest


def some_time(dice: random.Random, seconds: float, target: Path) -> None:
    """Wait for a random moment of a run of ``seconds``: half the time one of its copying.

    Of those, half are right after something is known to be copied, whatever a busy machine makes
    of the rest.
    """
    if dice.random() < 0.5:
        time.sleep(dice.uniform(0, seconds * 1.1))
        return
    bytes_noted = dice.choice((0, 1))
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and journal_bytes(target) < bytes_noted:
        time.sleep(0.0005)
    if not bytes_noted:
        time.sleep(seconds * 0.6 * dice.random() ** 2)


def soon_after_the_first_change(dice: random.Random, seconds: float, published: Path) -> None:
    """Wait until an update shows in what is published, at most a run of ``seconds``, and a bit."""
    lasting = [number for number in range(12) if number not in (3, 4)]  # in both versions
    folders = [published, *(published / f"class-{number}/images" for number in lasting)]

    def times() -> list[int]:
        return [folder.stat().st_mtime_ns for folder in folders]

    before, deadline = times(), time.monotonic() + seconds
    while times() == before and time.monotonic() < deadline:
        pass
    time.sleep(0.05 * seconds * dice.random() ** 2)


def result(target: Path, source: Path) -> dict[str, Any]:
    return hostprep("stage", source, "--to", target)


def private(target: Path) -> list[str]:
    return [name for name in os.listdir(target) if name.startswith(".hostprep")]


@pytest.fixture
def dice() -> random.Random:
    return random.Random(time.time_ns())


@pytest.fixture
def out(safe_dir: Path) -> Path:
    return safe_dir / "said"


def duration(out: Path, *words: str | Path) -> float:
    """Run to the end and return how long it took."""
    started = time.monotonic()
    assert end(start(out, *words), out).code == 0, out.read_text()
    return time.monotonic() - started


@LONG
@pytest.mark.parametrize(
    ("rounds", "large_bytes"), [(30 * KILL_ROUNDS, 0), (16 * KILL_ROUNDS, 65 << 20)]
)
def test_a_first_stage_killed_anywhere_publishes_all_or_nothing(
    rounds: int,
    large_bytes: int,
    safe_dir: Path,
    dice: random.Random,
    out: Path,
    state: Path,
) -> None:
    source = make_source(safe_dir / "data", directories=12, files=30)
    if large_bytes:
        (source / "large").write_bytes(dice.randbytes(large_bytes))  # copied in ranges
    before, target = snapshot(source), safe_dir / "fast"
    wanted = entries(source)
    words = ("stage", source, "--to", target)
    seconds = duration(out, *words)
    shutil.rmtree(target)
    shutil.rmtree(state)
    seconds = min(seconds, duration(out, *words))
    fresh = result(target, source)
    resumed = whole = killed = 0
    for number in range(rounds):
        shutil.rmtree(target)
        shutil.rmtree(state)
        for _ in range(dice.choice((1, 1, 1, 2, 3))):
            child = start(out, *words)
            some_time(dice, seconds, target)
            os.kill(child, signal.SIGKILL)
            killed += end(child, out).code == -signal.SIGKILL
            if (target / "data").exists():
                whole += 1
                assert entries(target / "data") == wanted, f"round {number}: published, not whole"
        assert number % 8 or snapshot(source) == before, "the source was touched"
        found = result(target, source)
        assert found["digest"] == fresh["digest"] and found["verified"]
        assert found["copied_files"] + found["resumed_files"] + found["kept_files"] == len(
            [name for name, what in wanted.items() if what != ("directory",)]
        )
        assert (found["files"], found["bytes"]) == (fresh["files"], fresh["bytes"])
        assert differences(source, target / "data", owners=True) == []
        assert private(target) == []
        resumed += found["resumed_files"] > 0
        if number % 8 == 0:
            again = result(target, source)
            assert (again["changed"], again["digest"]) == (False, fresh["digest"])
    assert killed > rounds / 10
    assert resumed > 1, "the kills never hit the copying"
    print(f"{killed} kills, {resumed} resumed, {whole} whole, {seconds:.3f} s a run")


@dataclass(frozen=True, slots=True)
class Versions:
    """Two versions of a source that take its place in turn."""

    source: Path
    other: Path

    def swap(self) -> None:
        aside = self.source.with_name("aside")
        self.source.rename(aside)
        self.other.rename(self.source)
        aside.rename(self.other)


@pytest.fixture
def versions(safe_dir: Path) -> Iterator[Versions]:
    a = make_source(safe_dir / "data", directories=12, files=20)
    b = safe_dir / "other"
    subprocess.run(["cp", "-a", a, b], check=True)
    for number in range(12):
        folder = b / f"class-{number}/images"
        for index in range(10):
            rewrite(folder / f"{index:03}.bin", b"changed %d" % (number * 100 + index))
        (folder / "010.bin").unlink()
        (folder / "011.bin").unlink()
        (folder / "011.bin").mkdir()
        (folder / "011.bin/inside").write_bytes(b"a directory now")
        (folder / "012.bin").unlink()
        (folder / "012.bin").symlink_to("013.bin")
        (folder / "added").write_bytes(b"new %d" % number)
        os.link(folder / "014.bin", folder / "linked")
    shutil.rmtree(b / "class-3")
    shutil.rmtree(b / "class-4")
    (b / "class-4").write_bytes(b"a file now")
    (b / "new/deep").mkdir(parents=True)
    (b / "new/deep/file").write_bytes(b"deep")
    yield Versions(a, b)


@LONG
def test_an_update_killed_anywhere_shows_each_file_old_or_new(
    safe_dir: Path, dice: random.Random, out: Path, versions: Versions
) -> None:
    source, target = versions.source, safe_dir / "fast"
    fresh = {}
    for _ in range(2):
        fresh[(source / "new").exists()] = result(safe_dir / "elsewhere", source)
        versions.swap()
    result(target, source)
    versions.swap()
    seconds = duration(out, "stage", source, "--to", target)
    halves = 0
    for number in range(45 * KILL_ROUNDS):
        old = entries(source)
        versions.swap()
        new, before = entries(source), snapshot(source)
        for _ in range(dice.choice((1, 1, 1, 2, 3))):
            child = start(out, "stage", source, "--to", target)
            if dice.random() < 0.7:
                some_time(dice, seconds, target)
            else:  # a moment of some milliseconds, which is seldom hit by chance
                soon_after_the_first_change(dice, seconds, target / "data")
            os.kill(child, signal.SIGKILL)
            end(child, out)
            there = entries(target / "data")
            for name, what in there.items():
                assert what in (old.get(name), new.get(name)), f"round {number}: {name}: {what}"
            for name in old.keys() & new.keys() - there.keys():
                assert old[name][0] != new[name][0], f"round {number}: {name} is gone"
            halves += there not in (old, new)
        assert snapshot(source) == before, "the source was touched"
        if dice.random() < 0.2:
            # As after a reboot: what grew in the private directory does not count any more.
            shutil.rmtree(target / ".hostprep-data", ignore_errors=True)
        found = result(target, source)
        assert differences(source, target / "data", owners=True) == []
        assert found["left"] == [] and found["verified"]
        assert private(target) == []
        wanted = fresh[(source / "new").exists()]
        for field in ("digest", "files", "bytes"):
            assert found[field] == wanted[field], f"round {number}: {field}"
        if number % 8 == 0:
            assert result(target, source)["changed"] is False
    assert halves > 0, "the kills never hit the publishing"
    print(f"{halves} half-way through the publishing, {seconds:.3f} s a run")
    print(f"{halves} kills while publishing, {seconds:.3f} s a run")


@LONG
def test_an_unstage_killed_anywhere_leaves_all_or_nothing(
    safe_dir: Path, dice: random.Random, out: Path
) -> None:
    source, target = make_source(safe_dir / "data", directories=12, files=30), safe_dir / "fast"
    wanted = entries(source)
    seconds = 0.0
    hidden = 0
    for number in range(15 * KILL_ROUNDS):
        result(target, source)
        if not seconds:
            seconds = duration(out, "unstage", "data")
            result(target, source)
        child = start(out, "unstage", "data")
        time.sleep(dice.uniform(0, seconds * 1.1))
        os.kill(child, signal.SIGKILL)
        end(child, out)
        if (target / "data").exists():
            assert entries(target / "data") == wanted, f"round {number}: half removed"
        else:
            hidden += 1
        if dice.random() < 0.5:
            known = hostprep("status")["datasets"]
            if known:
                hostprep("unstage", "data")
            assert os.listdir(target) == []
        else:
            assert result(target, source)["ok"]
            assert entries(target / "data") == wanted
            assert private(target) == []
    assert hidden > 0


@LONG
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_an_interrupted_run_says_so_in_a_sentence_and_is_taken_up(
    name: str, safe_dir: Path, dice: random.Random, out: Path, state: Path
) -> None:
    source = make_source(safe_dir / "data", directories=24, files=60)
    before, target = snapshot(source), safe_dir / "fast"
    seconds = duration(out, "stage", source, "--to", target)
    fresh = result(target, source)
    number = signal.Signals[name]
    interrupted = resumed = 0
    for _ in range(16 * KILL_ROUNDS):
        shutil.rmtree(target)
        shutil.rmtree(state)
        out.unlink()
        child = start(out, "stage", source, "--to", target)
        while not out.exists():  # before that it is not hostprep that is interrupted
            time.sleep(0.0005)
        time.sleep(0.02)
        some_time(dice, seconds, target)
        if number == signal.SIGTERM:
            os.kill(child, number)
        else:
            os.killpg(child, number)  # as a terminal sends it: to the workers too
        if number == signal.SIGHUP:
            os.kill(child, number)  # as the shell has sent it before
        ended = end(child, out)
        assert ended.code in (0, 130), ended
        said = ended.said.splitlines()
        if ended.code == 130:
            interrupted += 1
            assert said.count("hostprep: interrupted.") == 1, ended.said
            assert not (target / "data").exists() or entries(target / "data") == entries(source)
        assert "Traceback" not in ended.said and "Exception" not in ended.said, ended.said
        assert snapshot(source) == before
        found = result(target, source)
        assert found["digest"] == fresh["digest"]
        assert private(target) == []
        resumed += found["resumed_files"] > 0
    assert interrupted > 3 and resumed > 1
    print(f"{interrupted} interrupted, {resumed} resumed, {seconds:.3f} s a run")


def test_interrupted_from_outside_with_json_there_is_one_document(safe_dir: Path) -> None:
    source = make_source(safe_dir / "data", directories=40, files=100)
    line = [*HOSTPREP, "stage", str(source), "--to", str(safe_dir / "fast"), "--json"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not any(file.stat().st_size for file in safe_dir.glob("fast/.*/journal.*")):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.001)
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGCONT):
        process.send_signal(number)
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    found = json.loads(said)
    assert (found["ok"], found["error"]["code"]) == (False, "interrupted")
    assert errors.count("\n") <= 3, errors
    assert hostprep("stage", source, "--to", safe_dir / "fast")["resumed_files"] > 0


def test_a_killed_worker_is_named_and_the_work_is_kept(safe_dir: Path) -> None:
    source, target = make_source(safe_dir / "data", directories=20, files=100), safe_dir / "fast"
    for number in range(4):
        (source / f"large-{number}").write_bytes(os.urandom(1 << 20) * 200)
    out = safe_dir / "said"
    child = start(out, "stage", source, "--to", target)
    deadline = time.monotonic() + 60
    while not list(target.glob(".hostprep-data/tree/large*")):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    os.kill(child, signal.SIGSTOP)
    workers = [process for process in session(child) if process != child]
    os.kill(workers[0], signal.SIGKILL)
    os.kill(child, signal.SIGCONT)
    ended = end(child, out)
    assert ended.code == 1, ended.said
    assert "ended by SIGKILL" in ended.said and "Traceback" not in ended.said
    assert not (target / "data").exists()
    result(target, source)
    assert differences(source, target / "data", owners=True) == []


def test_workers_that_wait_for_a_source_end_with_the_killed_run(safe_dir: Path, out: Path) -> None:
    source = make_source(safe_dir / "data", directories=30, files=40)
    for number in range(40):
        (source / f"large-{number}").write_bytes(os.urandom(400_000))
    # What is sampled is the beginning of files, so it is a copy that waits: for longer than the
    # workers have to end.
    waits = Rule("/large-*", "read", after_bytes=1 << 18, times=4, hang_seconds=2 * ENDED_SECONDS)
    with failing_fs(source, [waits], read_only=True, where=safe_dir) as fs:
        # Of many readers none is the thread that hears of the end: the kernel ends nobody who waits
        # so, and what is seen of a busy machine's source may be one reader.
        words = ("stage", fs.mount, "--to", safe_dir / "fast", "--name", "data")
        child = start(out, *words, "--readers", "64")
        deadline = time.monotonic() + 60
        while not fs.injected():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert len(session(child)) > 1
        os.kill(child, signal.SIGKILL)
        assert end(child, out).code == -signal.SIGKILL
        fs.tell()
        hostprep(*words)
    assert differences(source, safe_dir / "fast/data", owners=True) == []
