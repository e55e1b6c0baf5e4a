"""Runs that stage into one place at the same time: the room that one needs is not another's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hostprep.cli.main import run
from hostprep.errors import Refused
from hostprep.staging import deciding, stage
from hostprep.staging.model import StageRequest
from hostprep.staging.plans import space
from hostprep.staging.plans.space import Space
from hostprep.staging.record.records import load_record
from hostprep.staging.target import held
from hostprep.volumes.facts import VolumeFacts
from hostprep.volumes.model import RamBudget
from tests.kit.compare import differences
from tests.kit.stagecraft import hostprep, mount, only_dataset

pytestmark = pytest.mark.usefixtures("state")

# More than the spare inodes that a volume is given beside those of a first data set.
_FILES = 6_000
_LARGE_BYTES = 10 << 20

# Goes on with its copies once it is told to.
_WAITING = """
import sys
from hostprep.cli.main import run
from hostprep.staging import stage

real = stage.copy_all

def waiting(*given, **more):
    print("begun", flush=True)
    assert sys.stdin.readline()
    return real(*given, **more)

stage.copy_all = waiting
sys.exit(run(sys.argv[1:]))
"""


@contextmanager
def at_work(*words: str | Path) -> Iterator[subprocess.Popen[str]]:
    """Have ``hostprep WORDS`` run up to its first copy, and wait there for a line."""
    line = [sys.executable, "-c", _WAITING, *map(os.fspath, words), "--json"]
    with subprocess.Popen(line, stdin=-1, stdout=-1, stderr=-1, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "begun\n"
            yield process
        finally:
            process.kill()


def published(process: subprocess.Popen[str]) -> bool:
    out, said = process.communicate("go on\n", timeout=60)
    assert process.returncode == 0, said
    return bool(json.loads(out)["published"])


@pytest.fixture
def sources(safe_dir: Path) -> tuple[Path, Path]:
    """Return two data sets of 10 MiB each in one file, and two files."""
    for name in ("first", "second"):
        (safe_dir / name).mkdir()
        (safe_dir / name / "large").write_bytes(os.urandom(_LARGE_BYTES))
        (safe_dir / name / "small").write_bytes(b"x")
    return safe_dir / "first", safe_dir / "second"


@pytest.fixture(params=["volume", "directory"])
def into(request: pytest.FixtureRequest, safe_dir: Path) -> tuple[str | Path, ...]:
    """Return the words for a place with room for one of the two."""
    place = safe_dir / "fast"
    if request.param == "volume":
        return ("--to-tmpfs", "16M", "--at", place, "--reserve", "0")
    place.mkdir()
    mount("-t", "tmpfs", "-o", "size=16M,mode=755", "small", place)
    return ("--to", place, "--reserve", "0")


def test_what_another_run_is_still_to_write_is_not_free(
    sources: tuple[Path, Path], into: tuple[str | Path, ...], safe_dir: Path
) -> None:
    first, second = sources
    with at_work("stage", first, *into) as process:
        told = hostprep("stage", second, *into, expect=5)["error"]
        assert "10.0 MiB that the run that stages 'first' is still to write" in told["message"]
        assert told["message"].endswith("Nothing was changed.")
        assert published(process)
    assert differences(first, safe_dir / "fast/first", owners=True) == []
    told = hostprep("stage", second, *into, expect=5)["error"]
    assert "still to write" not in told["message"], "it is written"


def test_without_common_locks_only_one_run_is_at_work_on_a_data_set(
    sources: tuple[Path, Path], safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in two containers with one volume: both would write to the same copies."""
    monkeypatch.setattr(held, "_PATIENCE_SECONDS", 0.05)
    source, place = sources[0], safe_dir / "fast"
    with at_work("stage", source, "--to", place) as process:
        monkeypatch.setenv("HOSTPREP_RUN_DIR", str(safe_dir / "other"))
        assert hostprep("unstage", "first", expect=1)["error"]["code"] == "locked"
        monkeypatch.setenv("HOSTPREP_STATE_DIR", str(safe_dir / "others"))
        error = hostprep("stage", source, "--to", place, expect=1)["error"]
        assert error["code"] == "locked" and "nothing was changed" in error["message"]
        assert hostprep("status")["datasets"] == [], "nothing is on record that was not begun"
        assert published(process)
    assert differences(source, place / "first", owners=True) == []
    assert os.listdir(place) == ["first"]


@pytest.mark.parametrize("again", [False, True])
def test_without_common_locks_what_is_on_record_stays_that_of_the_run_at_work(
    sources: tuple[Path, Path], safe_dir: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """As with common records alone: what one run has on record is not the other's to change."""
    monkeypatch.setattr(held, "_PATIENCE_SECONDS", 0.05)
    source, place = sources[0], safe_dir / "fast"
    if again:
        hostprep("stage", source, "--to", place)
        (source / "small").write_bytes(b"other")
    real, same = stage.begin, []

    def meanwhile(*given: Any, **more: Any) -> Any:
        monkeypatch.setenv("HOSTPREP_RUN_DIR", str(safe_dir / "other"))
        with at_work("stage", source, "--to", place) as process:
            before = load_record("first", str(place / "first"))
            try:
                return real(*given, **more)
            finally:
                same.append(load_record("first", str(place / "first")) == before)
                assert published(process)

    monkeypatch.setattr(stage, "begin", meanwhile)
    assert hostprep("stage", source, "--to", place, expect=1)["error"]["code"] == "locked"
    assert same == [True]
    assert only_dataset()["state"] == "staged"


def test_so_is_what_an_update_is_still_to_write(
    sources: tuple[Path, Path], into: tuple[str | Path, ...], safe_dir: Path
) -> None:
    first, second = sources
    (first / "large").rename(safe_dir / "large")
    hostprep("stage", first, *into)
    (safe_dir / "large").rename(first / "large")
    with at_work("stage", first, *into) as process:
        told = hostprep("stage", second, *into, expect=5)["error"]
        assert "10.0 MiB that the run that stages 'first' is still to write" in told["message"]
        assert published(process)
    assert differences(first, safe_dir / "fast/first", owners=True) == []
    (first / "large").unlink()
    hostprep("stage", first, *into)
    (first / "small").write_bytes(bytes(_LARGE_BYTES))
    with at_work("stage", first, *into):
        pass
    hostprep("stage", second, *into)  # what a killed update was to write is free


def test_what_a_killed_run_had_to_write_is_free(
    sources: tuple[Path, Path], into: tuple[str | Path, ...], safe_dir: Path
) -> None:
    first, second = sources
    with at_work("stage", first, *into):
        pass
    hostprep("stage", second, *into)
    assert differences(second, safe_dir / "fast/second", owners=True) == []


def test_who_finds_another_run_at_work_once_it_has_begun_gives_way(
    sources: tuple[Path, Path],
    into: tuple[str | Path, ...],
    safe_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each had planned before the other was there to be seen."""
    first, second = sources
    real = deciding.check_space
    with ExitStack() as stack:
        others: list[subprocess.Popen[str]] = []

        def then_another(request: StageRequest, found_space: Space) -> Refused | None:
            found = real(request, found_space)
            others.append(stack.enter_context(at_work("stage", first, *into)))
            return found

        monkeypatch.setattr(deciding, "check_space", then_another)
        assert run([*map(os.fspath, ("stage", second, *into)), "--json"]) == 5
        told = json.loads(capsys.readouterr().out)["error"]["message"]
        assert "that the run that stages 'first' is still to write" in told
        (other,) = others
        assert published(other)
    assert os.listdir(safe_dir / "fast") == ["first"]
    assert only_dataset()["name"] == "first"


def test_what_another_run_is_still_to_write_to_a_tmpfs_is_not_free_memory(
    sources: tuple[Path, Path],
    safe_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each has room enough in its own, and the memory of the machine is for one."""
    first, second = sources
    for name in ("theirs", "others"):
        (safe_dir / name).mkdir()
        mount("-t", "tmpfs", "-o", "size=64M,mode=755", name, safe_dir / name)
    real = space.gather

    def short_of_memory(path: str) -> VolumeFacts:
        facts = real(path)
        headroom = replace(facts.headroom, available_bytes=_LARGE_BYTES * 3 // 2)
        return replace(facts, headroom=headroom, promised_bytes=0)

    monkeypatch.setattr(space, "gather", short_of_memory)
    into = ("--to", safe_dir / "others", "--reserve", "0")
    with at_work("stage", first, "--to", safe_dir / "theirs") as process:
        told = hostprep("stage", second, *into, expect=5)["error"]["message"]
        assert "does not fit into the memory" in told
        assert "promised to other volumes and runs" in told
        assert published(process)
    with ExitStack() as stack:
        check = deciding.check_memory

        def then_another(request: StageRequest, budget: RamBudget) -> Refused | None:
            line = ("stage", first, "--to", safe_dir / "theirs", "--name", "again")
            stack.enter_context(at_work(*line))
            return check(request, budget)

        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(deciding, "check_memory", then_another)
            assert run([*map(os.fspath, ("stage", second, *into)), "--json"]) == 5
        assert "promised to other volumes and runs" in capsys.readouterr().out
    hostprep("stage", second, *into)


def test_a_volume_gets_the_inodes_of_all_that_are_at_work(safe_dir: Path) -> None:
    first, second = safe_dir / "first", safe_dir / "second"
    for source in (first, second):
        source.mkdir()
        for number in range(_FILES):
            (source / str(number)).touch()
    into = ("--to-tmpfs", "32M", "--at", safe_dir / "ram", "--reserve", "0")
    with at_work("stage", first, *into) as process:
        hostprep("stage", second, *into)
        assert published(process)
    for source in (first, second):
        assert differences(source, safe_dir / "ram" / source.name, owners=True) == []
