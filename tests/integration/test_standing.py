"""What stands as it was is passed by quickly, and never anything else: against the careful plan."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hostprep.errors import Refused
from hostprep.host.block import StorageClass
from hostprep.staging import parted
from hostprep.staging.files.standing import stands
from hostprep.staging.planning import scan_source
from hostprep.staging.plans import standing
from hostprep.staging.plans.copy_plan import CopyPlan
from hostprep.staging.plans.standing import Lookers
from hostprep.staging.plans.update import plan_update
from hostprep.staging.processes.channel import Child
from hostprep.staging.record.lines import decode_line
from hostprep.staging.record.manifest import ManifestIndex
from hostprep.staging.record.records import load_record, manifest_of
from hostprep.staging.source.opening import open_source
from tests.kit.appended import appended_by_all
from tests.kit.stagecraft import hostprep, rewrite

pytestmark = pytest.mark.usefixtures("state")

_ALL = {"", "a", "a/deep", "b", "c", "empty"}


@pytest.fixture
def staged(safe_dir: Path) -> Iterator[tuple[Path, Path]]:
    """A source and its copy, in each directory a few files, links among them."""
    source, target = safe_dir / "data", safe_dir / "fast"
    for directory in ("a/deep", "b", "c", "empty"):
        (source / directory).mkdir(parents=True)
    for directory in ("", "a", "a/deep", "b", "c"):
        for number in range(4):
            (source / directory / f"{number}.bin").write_bytes(bytes([number]) * 5000)
        (source / directory / "link").symlink_to("0.bin")
    hostprep("stage", source, "--to", target)
    yield source, target / "data"


def plan(
    source: Path, copy: Path, lookers: Lookers, *, verified: bool = True, task_files: int = 1000
) -> tuple[CopyPlan, set[str]]:
    """Return the plan of the next run, and the directories that were passed by."""
    record = load_record(copy.name, str(copy))
    assert record is not None
    manifest = manifest_of(record)
    published_fd = os.open(copy, os.O_RDONLY)
    passed: set[str] = set()
    find = standing.find_standing

    def noted(*args: object, **options: object) -> dict[str, standing.Looked]:
        found = find(*args, **options)  # type: ignore[arg-type]
        passed.update(found)
        return found

    with pytest.MonkeyPatch.context() as patch, open_source(str(source)) as source_fd:
        patch.setattr(standing, "_LEAST_FILES", 0)
        patch.setattr(standing, "_TASK_FILES", task_files)
        patch.setattr("hostprep.staging.plans.update.find_standing", noted)
        found = plan_update(
            scan_source(source_fd, StorageClass.RAM),
            manifest=manifest,
            journal=ManifestIndex([]),
            published_fd=published_fd,
            private_fd=None,
            verified=verified,
            lookers=lookers,
        )
    manifest.close()
    os.close(published_fd)
    return found, passed


def told(of: CopyPlan) -> dict[str, object]:
    """Return all that a plan says, in an order of its own."""
    kept = [(line[0], record) for line in map(decode_line, of.keep_lines) for record in line[1]]
    return {
        "keep": sorted(kept),
        "copy": sorted((d, e.name) for d, entries in of.to_copy() for e in entries),
        "delete": sorted(of.delete),
        "delete_directories": sorted(of.delete_directories),
        "make_directories": sorted(of.make_directories),
        "foreign": sorted(of.foreign),
        "skipped": of.skipped,
        "sums": (of.digest_sum, of.unverified, of.copied, of.kept, of.resumed),
    }


def moved_back(path: Path) -> None:
    """Give a file other content of the same size, and its time to another one."""
    was = path.stat().st_mtime_ns
    os.utime(path, ns=(was, was - 1))


def exchanged(path: Path) -> None:
    """Put a symlink in a file's place, with its time."""
    was = path.stat().st_mtime_ns
    path.unlink()
    path.symlink_to("2.bin")
    os.utime(path, ns=(was, was), follow_symlinks=False)


_CHANGES: dict[str, tuple[Callable[[Path, Path], object], set[str]]] = {
    "nothing": (lambda source, copy: None, set()),
    "content": (lambda source, copy: rewrite(source / "b/1.bin", b"new"), {"b"}),
    "time": (lambda source, copy: moved_back(source / "b/1.bin"), {"b"}),
    "mode": (lambda source, copy: (source / "b/1.bin").chmod(0o600), {"b"}),
    "owner": (lambda source, copy: os.chown(source / "b/1.bin", 7, 8), {"b"}),
    "new file": (lambda source, copy: (source / "a/deep/new").touch(), {"a/deep"}),
    "gone file": (lambda source, copy: (source / "a/2.bin").unlink(), {"a"}),
    "new name": (lambda source, copy: (source / "a/2.bin").rename(source / "a/x"), {"a"}),
    "new folder": (lambda source, copy: (source / "b/more").mkdir(), {"b/more"}),
    "gone folder": (lambda source, copy: (source / "empty").rmdir(), {"empty"}),
    "linked": (lambda source, copy: (source / "b/x").hardlink_to(source / "c/0.bin"), {"b", "c"}),
    "other symlink": (
        lambda source, copy: (
            (source / "c/link").unlink(),
            (source / "c/link").symlink_to("1.bin"),
        ),
        {"c"},
    ),
    "file for a symlink": (
        lambda source, copy: ((source / "c/link").unlink(), (source / "c/link").touch()),
        {"c"},
    ),
    "folder for a file": (
        lambda source, copy: ((source / "c/0.bin").unlink(), (source / "c/0.bin").mkdir()),
        {"c", "c/0.bin"},
    ),
    "copy shorter": (lambda source, copy: rewrite(copy / "b/1.bin", b"other"), {"b"}),
    "copy with another time": (lambda source, copy: moved_back(copy / "b/1.bin"), {"b"}),
    "copy a symlink of its time": (lambda source, copy: exchanged(copy / "b/1.bin"), {"b"}),
    "copy gone": (lambda source, copy: (copy / "a/deep/1.bin").unlink(), {"a/deep"}),
    "copy linked": (
        lambda source, copy: (copy.parent / "aside").hardlink_to(copy / "c/1.bin"),
        {"c"},
    ),
    "folder of the copy gone": (lambda source, copy: (copy / "empty").rmdir(), {"empty"}),
    "somebody's file": (lambda source, copy: (copy / "a/theirs").touch(), {"a"}),
    "somebody's folder": (lambda source, copy: (copy / "a/theirs").mkdir(), set()),
    "folder of the copy closed": (lambda source, copy: (copy / "b").chmod(0o700), set()),
    "folder of the source closed": (lambda source, copy: (source / "b").chmod(0o700), set()),
}


@pytest.mark.parametrize("change", _CHANGES)
def test_what_is_passed_by_has_not_changed(change: str, staged: tuple[Path, Path]) -> None:
    source, copy = staged
    do, touched = _CHANGES[change]
    do(source, copy)
    careful, none = plan(source, copy, Lookers())
    assert none == set()
    there = {
        str(path.relative_to(source)) for path in source.rglob("*") if stat.S_ISDIR(path.lstat()[0])
    }
    for processes, task_files in ((2, 1000), (10, 2)):  # some at a time; each in two parts
        lookers = Lookers(processes, threads=2)
        quick, passed = plan(source, copy, lookers, task_files=task_files)
        assert told(quick) == told(careful)
        assert passed >= ({"", *there} - touched)
        if "linked" in change:  # links are judged together
            assert not passed & touched
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parted, "PART_ENTRIES", 2)  # each directory is a huge one
        assert told(plan(source, copy, Lookers())[0]) == told(careful)
    assert careful.nothing_to_do is (change in ("nothing", "copy linked"))


@pytest.mark.parametrize("many", [1, 30])
def test_where_little_has_changed_the_rest_is_passed_by(many: int, safe_dir: Path) -> None:
    """Whatever it is, and however many processes look at parts of the folder."""
    source, copy = safe_dir / "data", safe_dir / "fast/data"
    (source / "in/below").mkdir(parents=True)
    for number in range(400):
        (source / f"in/{number}.bin").write_bytes(bytes([number % 250]) * 50)
    (source / "in/link").symlink_to("0.bin")
    (source / "in/other").symlink_to("1.bin")
    hostprep("stage", source, "--to", copy.parent)
    rewrite(source / "in/1.bin", b"new")
    (source / "in/2.bin").chmod(0o600)
    (source / "in/3.bin").rename(source / "in/3.new")
    (source / "in/4.bin").unlink()
    (source / "in/4.bin").mkdir()
    (source / "in/link").unlink()
    (source / "in/link").symlink_to("2.bin")
    exchanged(copy / "in/5.bin")
    (copy / "in/6.bin").unlink()
    (copy / "in/theirs").touch()
    (source / "in/7.bin").unlink()
    (source / "in/taken").touch()
    (copy / "in/taken").touch()
    careful, _ = plan(source, copy, Lookers())
    assert sorted(entry.name for _, entries in careful.to_copy() for entry in entries) == [
        *("1.bin", "2.bin", "3.new", "5.bin", "6.bin", "link"),
    ]
    for processes in (many, 2):
        quick, passed = plan(source, copy, Lookers(processes), task_files=many)
        assert told(quick) == told(careful)
        assert passed == {"", "in", "in/below"}
    (copy / "in/other").unlink()
    (copy / "in/other").mkdir()
    for processes in (0, many):
        with pytest.raises(Refused, match="has to take its place"):
            plan(source, copy, Lookers(processes), task_files=many)


def test_what_was_copied_without_a_hash_stands_where_none_is_asked_for(
    safe_dir: Path,
) -> None:
    source, target = safe_dir / "data", safe_dir / "fast"
    (source / "a").mkdir(parents=True)
    (source / "a/file").write_text("one")
    hostprep("stage", source, "--to", target, "--verify", "none")
    for verified, passed in ((True, {""}), (False, {"", "a"})):
        careful, _ = plan(source, target / "data", Lookers(), verified=verified)
        quick = plan(source, target / "data", Lookers(1), verified=verified)
        assert (told(quick[0]), quick[1]) == (told(careful), passed)
        assert careful.unverified is not verified


def test_of_what_is_passed_by_directories_are_not_put_down_again(safe_dir: Path) -> None:
    """They stand in the next manifest anyway: kept too, it would grow with each run."""
    source, target = safe_dir / "data", safe_dir / "fast"
    (source / "alone/with/it").mkdir(parents=True)
    (source / "alone/with/file").touch()
    hostprep("stage", source, "--to", target)
    quick, passed = plan(source, target / "data", Lookers(1))
    assert passed == {"", "alone", "alone/with", "alone/with/it"}
    kept = [record for line in quick.keep_lines for record in decode_line(line)[1]]
    assert [(record.kind, record.name) for record in kept] == [("f", "file")]


def test_after_an_update_the_next_one_passes_by_what_it_wrote(staged: tuple[Path, Path]) -> None:
    source, copy = staged
    rewrite(source / "b/1.bin", b"new")
    (source / "a/new").touch()
    assert hostprep("stage", source, "--to", copy.parent)["copied_files"] == 2
    assert plan(source, copy, Lookers(1))[1] == _ALL


@pytest.mark.parametrize(("processes", "parts"), [(2, 1), (10, 2), (30, 4)])
def test_a_directory_is_split_no_more_than_it_helps(
    processes: int, parts: int, staged: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each part all records are taken apart, and held in memory meanwhile."""
    asked = appended_by_all()
    sent = 0
    post = Child.post

    def look(directory: str, *args: Any, **options: Any) -> tuple[Any, ...] | None:
        os.write(asked, f"{directory}\n".encode())
        return stands(directory, *args, **options)

    def counted(child: Child, message: bytes) -> None:
        nonlocal sent
        sent += len(message)
        post(child, message)

    monkeypatch.setattr("hostprep.staging.processes.worker.stands", look)
    monkeypatch.setattr(Child, "post", counted)
    _, passed = plan(*staged, Lookers(processes), task_files=1)
    assert passed == _ALL
    times = Counter(os.pread(asked, 10_000, 0).decode().splitlines())
    os.close(asked)
    assert times == {name: 1 if name == "empty" else parts for name in _ALL}
    if parts > 1:
        assert sent < 25 * 100  # not what is known of the 25 files, which all have already
