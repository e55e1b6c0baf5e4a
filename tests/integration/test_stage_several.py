"""``stage`` without SOURCE: a spec's data sets, none begun before all of them are checked."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostprep.errors import HostprepError, Refused
from hostprep.host.memory import Headroom
from hostprep.host.mounts import mount_at, read_mounts
from hostprep.staging import stage as staging
from hostprep.staging.model import StageResult
from hostprep.staging.observer import Observer
from hostprep.staging.planning import StagePlan
from hostprep.staging.record.records import record_id
from hostprep.system.locks import lock
from tests.kit.compare import differences
from tests.kit.stagecraft import hostprep, make_private, make_source, run_hostprep, snapshot

pytestmark = pytest.mark.usefixtures("state")


@pytest.fixture
def to(volume: Path) -> tuple[str | Path, ...]:
    return ("--to-tmpfs", "64M", "--at", volume, "--reserve", "0")


@pytest.fixture
def sources(safe_dir: Path) -> Path:
    """Return the directory of two data sets, d1 and d2."""
    for number, name in enumerate(("d1", "d2")):
        make_source(safe_dir / "sources" / name, directories=1, files=5, seed=number)
    return safe_dir / "sources"


@pytest.fixture(autouse=True)
def spec(safe_dir: Path, sources: Path, volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the spec file name d1 and d2, both on the volume."""
    write_spec(safe_dir, *(("d1", sources / "d1", volume), ("d2", sources / "d2", volume)))
    monkeypatch.setenv("HOSTPREP_SPEC", str(safe_dir / "hostprep.yml"))


def write_spec(safe_dir: Path, *datasets: tuple[str, Path, Path], disk: Path | None = None) -> None:
    """Write a spec of data sets: name, source, and the volume, or ``disk``, that it lies on."""
    lines = ["volumes:"]
    places = sorted({place for _, _, place in datasets if place != disk})
    lines += [f"  - {{path: {place}, size: 64M}}" for place in places]
    lines.append("datasets:")
    for name, source, place in datasets:
        key = "to" if place == disk else "volume"
        lines.append(f"  - {{name: {name}, source: {source}, {key}: {place}}}")
    (safe_dir / "hostprep.yml").write_text("\n".join(lines) + "\n")


def refused_whole(safe_dir: Path, *words: str | Path, code: int) -> dict[str, Any]:
    """Insist that a run fails and changes nothing at all; return its error."""
    before, mounts = snapshot(safe_dir), Path("/proc/self/mountinfo").read_text()
    found = hostprep("stage", *words, expect=code)
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert snapshot(safe_dir) == before
    assert "datasets" not in found
    error: dict[str, Any] = found["error"]
    return error


def free_memory(monkeypatch: pytest.MonkeyPatch, size_bytes: int) -> None:
    """Have so much memory free, on a machine on which others take and give some meanwhile."""
    headroom = Headroom(64 << 30, size_bytes, "MemAvailable", swap_active=False)
    monkeypatch.setattr("hostprep.volumes.facts.read_headroom", lambda root: headroom)


def test_all_are_staged_and_again_nothing_is_done(
    sources: Path, volume: Path, to: tuple[str | Path, ...]
) -> None:
    found = hostprep("stage", *to)
    assert [each["dataset"] for each in found["datasets"]] == ["d1", "d2"]
    for name in ("d1", "d2"):
        assert differences(sources / name, volume / name, owners=True) == []
    again = hostprep("stage", *to)
    assert [each["changed"] for each in again["datasets"]] == [False, False]


def test_a_source_that_is_missing_is_found_before_anything_is_done(
    safe_dir: Path, sources: Path, to: tuple[str | Path, ...]
) -> None:
    shutil.rmtree(sources / "d2")
    error = refused_whole(safe_dir, *to, code=2)
    assert error["code"] == "usage"
    assert error["message"] == f"d2: the source {sources}/d2 does not exist."


def test_what_somebody_has_put_there_is_found_before_anything_is_done(
    safe_dir: Path, volume: Path, to: tuple[str | Path, ...]
) -> None:
    hostprep("mount", volume, "--size", "64M", "--reserve", "0")
    (volume / "d2").mkdir()
    error = refused_whole(safe_dir, *to, code=5)
    assert error["code"] == "refused" and error["message"].startswith(f"d2: {volume}/d2 exists")


def test_two_that_fit_by_themselves_and_not_together_are_refused(
    safe_dir: Path, sources: Path, volume: Path
) -> None:
    for name in ("d1", "d2"):
        (sources / name / "large").write_bytes(os.urandom(5 << 20))
    to = ("--to-tmpfs", "9M", "--at", volume, "--reserve", "0")
    error = refused_whole(safe_dir, *to, code=5)
    assert "do not fit together" in error["message"] and "--to-tmpfs 1G" in error["hint"]
    planned = hostprep("stage", *to, "--dry-run", expect=5)
    assert planned["error"]["message"] == error["message"]
    assert [each["ok"] for each in planned["datasets"]] == [True, True]
    # What is there in part, or only replaced, is not counted twice.
    larger = ("--to-tmpfs", "17M", "--at", volume, "--reserve", "0")
    hostprep("stage", *larger)
    for name in ("d1", "d2"):
        (sources / name / "large").write_bytes(os.urandom(5 << 20))
    hostprep("stage", *larger)
    for name in ("d1", "d2"):
        assert differences(sources / name, volume / name, owners=True) == []


def test_two_that_fit_into_the_memory_by_themselves_and_not_together_are_refused(
    safe_dir: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a tmpfs of others, whose size says nothing of the memory that there is for it."""
    free_memory(monkeypatch, 8 << 20)
    for name in ("d1", "d2"):
        (sources / name / "large").write_bytes(os.urandom(5 << 20))
    to = ("--to", safe_dir / "fast", "--reserve", "0")
    error = refused_whole(safe_dir, *to, code=5)
    assert "do not fit together into the memory" in error["message"]
    assert "8.00 MiB are available" in error["message"] and "--force" in error["hint"]
    planned = hostprep("stage", *to, "--dry-run", expect=5)
    assert planned["error"]["message"] == error["message"]
    hostprep("stage", *to, "--force")
    hostprep("stage", *to)  # nothing more is taken
    for name in ("d1", "d2"):
        assert differences(sources / name, safe_dir / "fast" / name, owners=True) == []


def test_what_an_unfinished_run_left_in_the_memory_is_cleared_and_not_counted(
    safe_dir: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = safe_dir / "fast"
    target.mkdir()
    (make_private(target) / "large").write_bytes(bytes(6 << 20))
    data = make_source(safe_dir / "data", directories=1, files=5)
    (data / "large").write_bytes(os.urandom(5 << 20))
    free_memory(monkeypatch, 1 << 20)
    hostprep("stage", data, "--to", target, "--reserve", "0", "--dry-run")
    hostprep("stage", data, "--to", target, "--reserve", "0")
    assert differences(data, target / "data", owners=True) == []


def test_two_for_one_place_are_refused(
    safe_dir: Path, sources: Path, to: tuple[str | Path, ...]
) -> None:
    one, two = safe_dir / "one", safe_dir / "two"
    write_spec(safe_dir, ("d1", sources / "d1", one), ("d1", sources / "d2", two))
    error = refused_whole(safe_dir, *to, code=2)
    assert "would both be staged to" in error["message"]


# -- where to, without --at


def test_without_at_the_volume_is_that_of_the_spec(sources: Path, volume: Path) -> None:
    found = hostprep("stage", "--to-tmpfs", "64M", "--reserve", "0")
    assert {each["target"] for each in found["datasets"]} == {f"{volume}/d1", f"{volume}/d2"}
    assert {each["volume"]["path"] for each in found["datasets"]} == {str(volume)}
    assert mount_at("/mnt/hostprep", read_mounts()) is None


@pytest.mark.parametrize("kind", ["two volumes", "a volume and a directory", "a directory"])
def test_another_place_than_the_spec_says_is_only_taken_by_name(
    kind: str, safe_dir: Path, sources: Path
) -> None:
    one, two = safe_dir / "vol-one", safe_dir / "two"
    places = {"two volumes": (one, two), "a volume and a directory": (one, two)}.get(
        kind, (two, two)
    )
    write_spec(
        safe_dir,
        *((name, sources / name, place) for name, place in zip(("d1", "d2"), places, strict=True)),
        disk=None if kind == "two volumes" else two,
    )
    words = ("--to-tmpfs", "64M", "--reserve", "0")
    error = refused_whole(safe_dir, *words, code=2)
    assert all(str(place) in error["message"] for place in places)
    assert "--at PATH" in error["hint"] and "hostprep apply" in error["hint"]
    third = safe_dir / "third"
    found = hostprep("stage", *words, "--at", third)
    assert {each["target"] for each in found["datasets"]} == {f"{third}/d1", f"{third}/d2"}


def test_a_directory_that_is_named_is_taken_whatever_the_spec_says(safe_dir: Path) -> None:
    found = hostprep("stage", "--to", safe_dir / "fast")
    assert {each["target"] for each in found["datasets"]} == {
        f"{safe_dir}/fast/d1",
        f"{safe_dir}/fast/d2",
    }


# -- where one fails after others were done


@contextlib.contextmanager
def lock_of(target: Path) -> Iterator[None]:
    """Hold the lock of the data set at ``target``, as another run does."""
    name = "stage-" + record_id(target.name, str(target))
    with lock(name, purpose="a test"):
        yield


def fail_second(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Have the data set d2 fail while it is staged."""
    real = staging.carry_out

    def carry_out(plan: StagePlan, observer: Observer) -> StageResult:
        if plan.request.name == "d2":
            raise error
        return real(plan, observer)

    monkeypatch.setattr(staging, "carry_out", carry_out)


@pytest.mark.parametrize(
    ("error", "code", "word"),
    [
        (HostprepError("the target is full."), 1, "failed"),
        (Refused("somebody came first; nothing was changed."), 1, "failed"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_where_a_later_one_fails_what_was_done_before_is_told(
    error: BaseException,
    code: int,
    word: str,
    sources: Path,
    volume: Path,
    to: tuple[str | Path, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail_second(monkeypatch, error)
    found = hostprep("stage", *to, expect=code)
    assert found["error"]["code"] == word
    assert found["error"]["message"].startswith("d2: ")
    assert "What was done before stays: d1." in found["error"]["message"]
    (first,) = found["datasets"]
    assert (first["dataset"], first["ok"], first["published"]) == ("d1", True, True)
    assert differences(sources / "d1", volume / "d1", owners=True) == []


def test_where_nothing_was_done_before_a_refusal_is_one(
    to: tuple[str | Path, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    hostprep("stage", *to)
    fail_second(monkeypatch, Refused("somebody came first; nothing was changed."))
    found = hostprep("stage", *to, expect=5)
    assert found["error"]["message"] == "d2: somebody came first; nothing was changed."
    assert [each["changed"] for each in found["datasets"]] == [False]


def test_what_cannot_be_staged_of_one_keeps_no_other_from_being_staged(
    sources: Path, volume: Path, to: tuple[str | Path, ...]
) -> None:
    hostprep("stage", *to)
    (sources / "d1/taken").write_bytes(b"ours")
    (volume / "d1/taken").write_bytes(b"somebody's")
    (sources / "d2/new").write_bytes(b"new")
    found = hostprep("stage", *to, expect=1)
    assert found["error"]["code"] == "incomplete" == found["datasets"][0]["error"]["code"]
    assert [each["ok"] for each in found["datasets"]] == [False, True]
    assert (volume / "d2/new").read_bytes() == b"new"


def test_the_text_of_what_was_done_stays(
    sources: Path, volume: Path, to: tuple[str | Path, ...]
) -> None:
    hostprep("stage", *to)
    (sources / "d1/new").write_bytes(b"new")
    os.chmod(sources / "d2", 0o700)
    with lock_of(volume / "d2"):
        done = run_hostprep("stage", *to, "--no-wait")
    assert done.returncode == 1 and f"{volume}/d1: 8 files" in done.stdout, done.stdout
    assert "hostprep: d2: " in done.stderr and "What was done before stays: d1." in done.stderr


def test_mounts_are_left_alone_by_a_dry_run(volume: Path, to: tuple[str | Path, ...]) -> None:
    found = hostprep("stage", *to, "--dry-run")
    assert [each["would_change"] for each in found["datasets"]] == [True, True]
    assert mount_at(str(volume), read_mounts()) is None
