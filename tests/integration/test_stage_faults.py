"""What goes wrong while a data set is staged: reported, never published as if it were whole."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hostprep.errors import HostprepError
from hostprep.staging.inspection import inspect_target
from hostprep.staging.model import StageRequest, StageResult
from hostprep.staging.observer import Silent
from hostprep.staging.planning import plan_stage
from hostprep.staging.preparing import open_target
from hostprep.staging.publishing.publish import publish_new
from hostprep.staging.reasons import GONE
from hostprep.staging.record.records import load_record
from hostprep.staging.shortfall import cure_of
from hostprep.staging.stage import carry_out
from tests.kit import loops
from tests.kit.compare import differences
from tests.kit.failing_fs import FailingFs, Rule, failing_fs
from tests.kit.stagecraft import (
    HOSTPREP,
    NOBODY,
    flip_bit,
    hostprep,
    make_private,
    rewrite,
    run_hostprep,
    snapshot,
)

pytestmark = pytest.mark.usefixtures("state")


def digest_of(tree: Path) -> str:
    """Return the digest of what is there, by staging it as it is."""
    other = tree.parent / "to take its digest"
    found = hostprep("stage", tree, "--to", other, "--name", "probe")
    hostprep("unstage", other / "probe")
    os.rmdir(other)
    digest: str = found["digest"]
    return digest


def visible(tree: Path) -> tuple[int, int]:
    """Return how many files and symlinks there are, and their bytes."""
    found = [p for p in tree.rglob("*") if p.is_symlink() or p.is_file()]
    return len(found), sum(os.lstat(path).st_size for path in found)


def stage_while(
    source: Path, target: Path, meanwhile: Callable[[], object], **options: Any
) -> StageResult:
    """Stage; ``meanwhile`` happens after the source was scanned and before it is copied."""
    request = StageRequest(
        source=str(source),
        name=source.name,
        parent=str(target),
        volume_size_bytes=None,
        **options,
    )
    with plan_stage(request, Silent()) as plan:
        meanwhile()
        return carry_out(plan, Silent())


def failures(result: StageResult) -> dict[str, str]:
    return {item.path: item.reason for item in result.skipped if item.failed}


# -- the source changes while it is copied


@pytest.mark.parametrize("size", [100, 66 << 20], ids=["small", "in ranges"])
def test_a_file_that_vanishes_is_reported_and_nothing_is_published(
    size: int, source: Path, target: Path
) -> None:
    gone = source / "class-1/images/003.bin"
    gone.write_bytes(bytes(size))
    result = stage_while(source, target, gone.unlink)
    assert failures(result) == {"class-1/images/003.bin": GONE}
    assert cure_of(result.skipped) == "let nothing write to the source meanwhile"
    assert not result.published and not (target / "data").exists()
    again = hostprep("stage", source, "--to", target)
    assert again["resumed_files"] == again["files"] - again["copied_files"] > 100
    assert differences(source, target / "data", owners=True) == []


@pytest.mark.parametrize("target_fails", [False, True])
def test_what_is_added_for_a_second_try_has_the_group_of_its_source(
    target_fails: bool, source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then directories may be finished, and hand their group down to what is made in them."""
    shared = source / "class-2/images"
    for folder in (source, shared):
        os.chown(folder, 0, 4242)
        folder.chmod(0o2755)
    if target_fails:
        with monkeypatch.context() as patch, pytest.raises(HostprepError):
            patch.setattr("hostprep.staging.stage.publish_new", failing_publication)
            stage_while(source, target, lambda: None)
    else:
        stage_while(source, target, (source / "class-1/images/003.bin").unlink)
    for folder in (source, shared):
        (folder / "link").unlink(missing_ok=True)
        (folder / "link").symlink_to("elsewhere")
        (folder / "new").write_bytes(b"new")
        for name in ("link", "new"):
            os.chown(folder / name, 0, 0, follow_symlinks=False)
            os.utime(folder / name, (1, 1), follow_symlinks=False)
    assert hostprep("stage", source, "--to", target)["resumed_files"] > 100
    assert differences(source, target / "data", owners=True) == []


def test_a_root_without_privileges_goes_on_where_its_owner_may_not_write(
    source: Path, target: Path
) -> None:
    """As root is in a container that was given none: its files are in its own way then."""
    closed, failing = source / "class-2/images", source / "class-1/images/003.bin"
    os.chown(failing, 7, 7)
    failing.chmod(0)
    closed.chmod(0o555)
    prefix = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--")
    hostprep("stage", source, "--to", target, expect=1, prefix=prefix)
    failing.unlink()
    (closed / "new").touch()
    hostprep("stage", source, "--to", target, prefix=prefix)
    assert differences(source, target / "data", owners=True) == []


def failing_publication(*given: object) -> None:
    raise HostprepError("not now")


@pytest.mark.parametrize("size", [5, 0, 60_000, 2 << 20, 65 << 20])
def test_a_file_that_changed_since_the_scan_is_copied_as_it_is_then(
    size: int, source: Path, target: Path
) -> None:
    file = source / "class-1/images/003.bin"
    result = stage_while(source, target, lambda: file.write_bytes(os.urandom(size)))
    assert result.published and failures(result) == {}
    assert differences(source, target / "data", owners=True) == []
    assert result.digest == digest_of(target / "data")
    assert (result.files, result.bytes) == visible(target / "data")
    assert hostprep("stage", source, "--to", target)["changed"] is False


def test_hard_links_are_on_record_as_they_were_copied(source: Path, target: Path) -> None:
    result = stage_while(source, target, lambda: rewrite(source / "hard", os.urandom(20_000)))
    assert result.published and failures(result) == {}
    assert (result.files, result.bytes) == visible(target / "data")
    record = load_record("data", str(target / "data"))
    assert record is not None
    found = inspect_target(record, seconds=30)
    assert (found.changed, found.missing, found.added) == (0, 0, 0)


@pytest.mark.parametrize("size", [1, 3 << 20, 66 << 20, 130 << 20])
def test_a_large_file_that_changed_since_the_scan_is_copied_once_more(
    size: int, source: Path, target: Path
) -> None:
    file = source / "large"
    file.write_bytes(os.urandom(1 << 20) * 100)
    result = stage_while(source, target, lambda: file.write_bytes(os.urandom(size)))
    again = hostprep("stage", source, "--to", target)
    if result.published:
        assert again["changed"] is False
        assert result.digest == digest_of(target / "data")
        assert (result.files, result.bytes) == visible(target / "data")
    else:
        assert "large" in failures(result)
    assert differences(source, target / "data", owners=True) == []


@pytest.mark.parametrize("size", [48 << 20, 66 << 20], ids=["at once", "in ranges"])
def test_a_file_that_never_rests_is_reported(size: int, source: Path, target: Path) -> None:
    file = source / "growing"
    file.write_bytes(bytes(size))
    grow = "import sys\nwith open(sys.argv[1], 'ab', buffering=0) as f:\n while True: f.write(b'x')"
    with subprocess.Popen([sys.executable, "-c", grow, str(file)]) as writer:
        try:
            before = file.stat().st_size
            while file.stat().st_size == before:
                time.sleep(0.001)
            result = stage_while(source, target, lambda: None)
        finally:
            writer.kill()
    assert failures(result) == {"growing": "changed while it was copied, twice"}
    assert cure_of(result.skipped) == "let nothing write to the source meanwhile"
    assert not result.published and not (target / "data").exists()
    hostprep("stage", source, "--to", target)
    assert differences(source, target / "data", owners=True) == []


def test_a_directory_replaced_by_a_symlink_is_not_followed(
    source: Path, target: Path, safe_dir: Path
) -> None:
    outside = safe_dir / "outside"
    shutil.copytree(source / "class-2/images", outside, copy_function=shutil.copy2)
    for file in outside.iterdir():
        rewrite(file, b"SECRET" * 10, keep_times=True)

    def replace() -> None:
        (source / "class-2/images").rename(safe_dir / "moved")
        (source / "class-2/images").symlink_to(outside)

    result = stage_while(source, target, replace)
    assert len(failures(result)) == 20
    assert all(path.startswith("class-2/images/") for path in failures(result))
    assert not result.published
    copies = [p for p in (target / ".hostprep-data").rglob("*") if p.is_file()]
    assert copies and not any(b"SECRET" in path.read_bytes() for path in copies)
    hostprep("stage", source, "--to", target)
    assert os.readlink(target / "data/class-2/images") == str(outside)
    assert differences(source, target / "data", owners=True) == []


@pytest.mark.parametrize("what", ["fifo", "symlink", "directory", "device"])
def test_a_file_replaced_by_something_else_is_reported(
    what: str, source: Path, target: Path
) -> None:
    path = source / "class-1/images/003.bin"

    def replace() -> None:
        path.unlink()
        if what == "fifo":
            os.mkfifo(path)
        elif what == "symlink":
            path.symlink_to("/etc/passwd")
        elif what == "directory":
            path.mkdir()
        else:
            os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))

    result = stage_while(source, target, replace)
    assert list(failures(result)) == ["class-1/images/003.bin"]
    assert not result.published
    found = hostprep("stage", source, "--to", target)
    assert differences(source, target / "data", owners=True) == []
    assert len(found["skipped"]) == (what in ("fifo", "device"))


@pytest.mark.parametrize("order", ["listed", "physical"])
def test_a_whole_directory_that_vanishes_is_reported(
    order: str, source: Path, target: Path
) -> None:
    result = stage_while(source, target, lambda: shutil.rmtree(source / "class-2"), order=order)
    assert list(failures(result).values()) == [GONE] * 20 and not result.published
    hostprep("stage", source, "--to", target)
    assert differences(source, target / "data", owners=True) == []


@pytest.mark.parametrize("name", ["hard", "class-0/images/001.bin"])
def test_a_linked_file_replaced_by_another_does_not_pass_for_its_old_links(
    name: str, source: Path, target: Path
) -> None:
    old = (source / "hard").read_bytes()

    def replace() -> None:
        (source / "new").write_bytes(b"another file")
        os.replace(source / "new", source / name)

    result = stage_while(source, target, replace)
    # One of them is copied, and the other would be linked to it: that must not happen blindly.
    assert set(failures(result)) <= {"hard", "class-0/images/001.bin"}
    for path in target.rglob("001.bin"):
        if "class-0" in path.parts and name == "hard":
            assert path.read_bytes() == old
    hostprep("stage", source, "--to", target)
    assert differences(source, target / "data", owners=True) == []


def test_an_update_of_what_vanishes_leaves_the_published_as_it_is(
    source: Path, target: Path
) -> None:
    hostprep("stage", source, "--to", target)
    before = snapshot(target / "data")
    rewrite(source / "class-1/images/002.bin", b"new")
    rewrite(source / "class-1/images/003.bin", b"new too")
    (source / "class-1/images/004.bin").unlink()
    result = stage_while(source, target, (source / "class-1/images/003.bin").unlink)
    assert list(failures(result)) == ["class-1/images/003.bin"] and not result.published
    assert snapshot(target / "data") == before and result.deleted_files == 0
    found = hostprep("stage", source, "--to", target)
    assert (found["resumed_files"], found["copied_files"], found["deleted_files"]) == (1, 0, 2)
    assert differences(source, target / "data", owners=True) == []


# -- the source cannot be read in places


@pytest.fixture
def fs(source: Path, safe_dir: Path) -> Iterator[FailingFs]:
    with failing_fs(source, read_only=True, where=safe_dir) as fs:
        yield fs


def stage_failing(fs: FailingFs, target: Path, *words: str, expect: int = 0) -> dict[str, Any]:
    return hostprep("stage", fs.mount, "--to", target, "--name", "data", *words, expect=expect)


def failed(found: dict[str, Any]) -> set[str]:
    return {item["path"] for item in found["skipped"] if item["failed"]}


BAD_FILES = (
    Rule("/class-1/images/003.bin", "open"),
    Rule("/class-1/images/004.bin", "read"),
    Rule("/class-2/images/*5.bin", "read", after_bytes=1),
    Rule("/class-3/images", "readdir"),
    Rule("/class-0/images/001.bin", "read"),  # one of two hard links,
    Rule("/hard", "read"),  # and the other
)
BAD_NAMES = {
    "class-1/images/003.bin",
    "class-1/images/004.bin",
    "class-2/images/005.bin",
    "class-2/images/015.bin",
    "class-3/images",
    "class-0/images/001.bin",
    "hard",
}


def test_what_cannot_be_read_stops_publishing_but_not_the_rest(
    fs: FailingFs, source: Path, target: Path
) -> None:
    fs.tell(*BAD_FILES)
    found = stage_failing(fs, target, expect=1)
    assert failed(found) == BAD_NAMES
    assert found["published"] is False and not (target / "data").exists()
    done = run_hostprep("stage", fs.mount, "--to", target, "--name", "data")
    assert done.returncode == 1 and done.stdout == ""
    assert "not staged: class-1/images/003.bin: Input/output error" in done.stderr
    assert "nothing was published" in done.stderr and "--partial" in done.stderr
    fs.tell()
    mended = stage_failing(fs, target)
    assert mended["resumed_files"] > 60 and failed(mended) == set()
    assert differences(source, target / "data", owners=True) == []
    assert mended["digest"] == digest_of(source)


def test_partial_publishes_the_rest_and_remembers_what_is_missing(
    fs: FailingFs, source: Path, target: Path
) -> None:
    fs.tell(*BAD_FILES)
    found = stage_failing(fs, target, "--partial")
    staged = target / "data"
    assert found["published"] is True and failed(found) == BAD_NAMES
    for name in BAD_NAMES - {"class-3/images"}:
        assert not (staged / name).exists()
    assert os.listdir(staged / "class-3/images") == []
    assert (found["files"], found["bytes"]) == visible(staged)
    assert found["digest"] == digest_of(staged)
    (status,) = hostprep("status")["datasets"]
    assert status["state"] == "partial" and set(status["failed"]) == BAD_NAMES
    again = stage_failing(fs, target, expect=1)
    assert failed(again) == BAD_NAMES and (staged / "class-0/images/002.bin").exists()
    fs.tell()
    mended = stage_failing(fs, target)
    assert failed(mended) == set() and mended["kept_files"] == found["files"]
    assert differences(source, staged, owners=True) == []
    assert hostprep("status")["datasets"][0]["state"] == "staged"


@pytest.mark.parametrize("update", [False, True])
def test_what_a_killed_run_left_torn_is_never_published(
    fs: FailingFs, source: Path, target: Path, update: bool
) -> None:
    """Below a folder that cannot be read any more nobody can tell what is whole."""
    staged = target / "data"
    if update:
        stage_failing(fs, target)
        rewrite(source / "class-3/images/001.bin", os.urandom(9000))
        rewrite(source / "class-1/images/003.bin", os.urandom(9000))
    old = (staged / "class-3/images/001.bin").read_bytes() if update else None
    fs.tell(Rule("/class-1/images/003.bin", "open"))
    stage_failing(fs, target, expect=1)
    left = target / ".hostprep-data/tree/class-3/images"
    whole = (left / "001.bin").read_bytes()
    (left / "001.bin").write_bytes(whole[:4096])
    (left / "deep").mkdir()
    (left / "deep/torn").write_bytes(b"torn")
    fs.tell(Rule("/class-3/images", "readdir"))
    found = stage_failing(fs, target, "--partial")
    assert failed(found) == {"class-3/images"}
    there = staged / "class-3/images/001.bin"
    assert there.read_bytes() == old if update else not there.exists()
    assert not (staged / "class-3/images/deep").exists()
    assert (found["files"], found["bytes"]) == visible(staged)
    assert found["digest"] == digest_of(staged)
    fs.tell()
    stage_failing(fs, target)
    assert differences(source, staged, owners=True) == []


def test_a_file_that_no_journal_has_is_not_published(source: Path, target: Path) -> None:
    locked = source / "class-1/images/003.bin"
    result = stage_while(source, target, locked.unlink)
    assert not result.published
    (target / ".hostprep-data/tree/class-0/images/stranger").write_bytes(b"half of someth")
    locked.write_bytes(b"back")

    def torn_again() -> None:
        (target / ".hostprep-data/tree/class-0/images/torn").write_bytes(b"half of someth")

    result = stage_while(source, target, torn_again)
    assert result.published
    assert differences(source, target / "data", owners=True) == []


def test_a_partial_update_keeps_the_old_of_what_fails_and_knows_it(
    fs: FailingFs, source: Path, target: Path
) -> None:
    (source / "class-3/images/below").mkdir()
    (source / "class-3/images/below/file").write_bytes(b"below what cannot be read")
    first = stage_failing(fs, target)
    staged = target / "data"
    old = {name: (staged / name).read_bytes() for name in BAD_NAMES - {"class-3/images"}}
    for name in old:
        rewrite(source / name, os.urandom(2000))
    os.link(source / "hard", source / "also hard")
    rewrite(source / "class-5/images/000.bin", b"new")
    fs.tell(*BAD_FILES, Rule("/also hard", "read"))
    found = stage_failing(fs, target, "--partial")
    assert failed(found) == BAD_NAMES | {"also hard"}
    assert {name: (staged / name).read_bytes() for name in old} == old
    assert (staged / "class-5/images/000.bin").read_bytes() == b"new"
    assert not (staged / "also hard").exists()
    assert (found["files"], found["bytes"]) == visible(staged)
    assert found["digest"] == digest_of(staged) != first["digest"]
    assert found["left"] == []
    # Most of which are there as they were, and counted.
    lacking = f"  without the present state of {len(failed(found))} entries of the source\n"
    assert lacking in run_hostprep("status").stdout
    fs.tell()
    mended = stage_failing(fs, target)
    assert failed(mended) == set() and mended["left"] == []
    assert differences(source, staged, owners=True) == []
    assert mended["digest"] == digest_of(staged)
    assert mended["copied_files"] == len(old) + 1  # and what is linked anew
    assert hostprep("unstage", "data")["left"] == []


def test_of_a_directory_that_cannot_be_read_what_still_stands_is_kept(
    fs: FailingFs, source: Path, target: Path
) -> None:
    stage_failing(fs, target)
    staged = target / "data"
    (staged / "class-3/images/000.bin").unlink()
    rewrite(staged / "class-3/images/001.bin", b"somebody changed it")
    rewrite(source / "class-5/images/000.bin", b"new")
    fs.tell(Rule("/class-3/images", "readdir"))
    found = stage_failing(fs, target, "--partial")
    assert failed(found) == {"class-3/images"}
    assert found["files"] == visible(staged)[0] - 1
    again = stage_failing(fs, target, "--partial")
    assert (again["changed"], again["files"]) == (False, found["files"])
    # What was changed is still known as ours, and brought right as soon as that can be done.
    fs.tell()
    mended = stage_failing(fs, target)
    assert (mended["copied_files"], failed(mended), mended["left"]) == (2, set(), [])
    assert differences(source, staged, owners=True) == []
    assert mended["digest"] == digest_of(staged)
    assert hostprep("unstage", "data")["left"] == []


def test_a_changed_copy_of_what_cannot_be_read_stays_known(
    fs: FailingFs, source: Path, target: Path
) -> None:
    stage_failing(fs, target)
    staged, name = target / "data", "class-3/images/001.bin"
    rewrite(staged / name, b"somebody changed it")
    fs.tell(Rule(f"/{name}", "read"))
    found = stage_failing(fs, target, "--partial")
    assert failed(found) == {name} and found["files"] == visible(staged)[0] - 1
    assert (staged / name).read_bytes() == b"somebody changed it"
    fs.tell()
    mended = stage_failing(fs, target)
    assert (mended["copied_files"], failed(mended), mended["left"]) == (1, set(), [])
    assert differences(source, staged, owners=True) == []


def test_what_failed_does_not_hide_that_another_file_changed(source: Path, target: Path) -> None:
    def freshness() -> tuple[str, str]:
        (status,) = hostprep("status")["datasets"]
        return status["state"], status["freshness"]

    hostprep("stage", source, "--to", target)
    (target / "data/class-0/images/new").write_bytes(b"somebody's")
    (source / "class-0/images/new").write_bytes(b"the source's")
    found = hostprep("stage", source, "--to", target, "--partial")
    assert failed(found) == {"class-0/images/new"}
    assert freshness() == ("partial", "fresh")
    rewrite(source / "class-1/images/000.bin", b"another")
    assert freshness() == ("partial", "stale")


def test_a_large_file_that_fails_in_its_last_range(
    fs: FailingFs, source: Path, target: Path
) -> None:
    (source / "large").write_bytes(os.urandom(1 << 20) * 70)
    fs.tell(Rule("/large", "read", after_bytes=65 << 20))
    found = stage_failing(fs, target, "--partial")
    assert failed(found) == {"large"}
    assert (found["files"], found["bytes"]) == visible(target / "data")
    assert not (target / "data/large").exists()
    assert found["digest"] == digest_of(target / "data")
    fs.tell(Rule("/large", "read", after_bytes=65 << 20, times=1))
    assert failed(stage_failing(fs, target, expect=1)) == {"large"}
    mended = stage_failing(fs, target)
    assert (mended["files"], mended["bytes"]) == visible(target / "data")
    assert differences(source, target / "data", owners=True) == []


def test_short_reads_are_read_on(fs: FailingFs, source: Path, target: Path) -> None:
    fs.tell(Rule("*", "read", None, short_bytes=777))
    stage_failing(fs, target)
    assert differences(source, target / "data", owners=True) == []


def test_a_root_that_cannot_be_read_is_an_error_before_anything(
    fs: FailingFs, target: Path
) -> None:
    fs.tell(Rule("/", "readdir"))
    found = stage_failing(fs, target, "--partial", expect=1)
    assert "nothing was changed" in found["error"]["message"]
    assert not target.exists()


@pytest.mark.parametrize(
    "operation", ["listxattr", "getattr", "readlink"], ids=lambda name: str(name)
)
def test_other_operations_that_fail_are_reported_by_name(
    operation: str, fs: FailingFs, source: Path, target: Path
) -> None:
    path = "link" if operation == "readlink" else "class-1/images/003.bin"
    fs.tell(Rule(f"/{path}", operation))
    found = stage_failing(fs, target, expect=1)
    assert found["error"]["code"] == "incomplete"
    assert failed(found) & {path, path.rpartition("/")[0]}
    assert not (target / "data").exists()
    fs.tell()
    stage_failing(fs, target)
    assert differences(source, target / "data", owners=True) == []


@pytest.fixture
def home(safe_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory of an ordinary user's, with their records in it."""
    home = safe_dir / "home"
    home.mkdir()
    os.chown(home, 65534, 65534)
    monkeypatch.setenv("HOSTPREP_STATE_DIR", f"{home}/state")
    monkeypatch.setenv("HOSTPREP_RUN_DIR", f"{home}/run")
    return home


def test_a_directory_that_is_closed_to_us_as_an_ordinary_user(source: Path, home: Path) -> None:
    (source / "class-1").chmod(0o700)
    (source / "class-2/images/003.bin").chmod(0o600)
    (source / "class-4/images").chmod(0o555)
    prefix = NOBODY
    words = ("stage", source, "--to", home / "fast")
    found = hostprep(*words, prefix=prefix, expect=1)
    closed = {"class-1", "class-2/images/003.bin"}
    assert failed(found) == closed and not found["published"]
    assert not (home / "fast/data").exists()
    copied = found["files"], found["bytes"]
    found = hostprep(*words, "--partial", prefix=prefix)
    assert failed(found) == closed and found["published"]
    assert (found["files"], found["bytes"]) == copied == visible(home / "fast/data")
    (source / "class-1").chmod(0o755)
    (source / "class-2/images/003.bin").chmod(0o644)
    mended = hostprep(*words, prefix=prefix)
    assert mended["changed"] and failed(mended) == set()
    assert differences(source, home / "fast/data", owners=False) == []
    # Directories that their owner cannot write do not keep an update out.
    (source / "class-4/images").chmod(0o755)
    rewrite(source / "class-4/images/001.bin", b"new")
    (source / "class-4/images/002.bin").unlink()
    (source / "class-4/images/new").mkdir()
    (source / "class-4/images").chmod(0o555)
    hostprep(*words, prefix=prefix)
    assert differences(source, home / "fast/data", owners=False) == []
    assert hostprep(*words, prefix=prefix)["changed"] is False
    assert hostprep("unstage", "data", prefix=prefix)["left"] == []
    assert os.listdir(home / "fast") == []


def test_a_directory_that_is_closed_to_its_owner_stays_in_an_ordinary_users_reach(
    source: Path, home: Path
) -> None:
    words, copy = ("stage", source, "--to", home / "fast"), home / "fast/data"
    whole = hostprep(*words, prefix=NOBODY)
    (source / "class-1/images").chmod(0)
    found = hostprep(*words, "--partial", prefix=NOBODY)
    assert failed(found) == {"class-1/images"}
    # What was staged of it before is kept, and stays known.
    assert found["files"] == hostprep(*words, "--partial", prefix=NOBODY)["files"] == whole["files"]
    assert (copy / "class-1/images").stat().st_mode & 0o777 == 0o500
    (source / "class-1/images").chmod(0o755)
    assert hostprep(*words, prefix=NOBODY)["digest"] == whole["digest"]
    assert differences(source, copy, owners=False) == []
    (source / "class-2/images").chmod(0)
    hostprep(*words, "--partial", prefix=NOBODY)
    assert hostprep("unstage", "data", prefix=NOBODY)["left"] == []
    assert os.listdir(home / "fast") == []


def test_a_partial_run_that_fails_with_the_same_again_has_changed_nothing(
    source: Path, home: Path
) -> None:
    """Or whoever heeds ``changed``, as Ansible does, would act upon it at each run."""
    (source / "class-0/images/002.bin").chmod(0)
    words = ("stage", source, "--to", home / "fast", "--partial")
    found = hostprep(*words, prefix=NOBODY)
    assert found["changed"] is True and failed(found) == {"class-0/images/002.bin"}
    (file,) = (home / "state").glob("datasets/*/dataset.json")
    before = file.read_bytes()
    again = hostprep(*words, prefix=NOBODY)
    assert (again["changed"], again["published"], failed(again)) == (False, True, failed(found))
    assert (again["files"], again["digest"]) == (found["files"], found["digest"])
    assert file.read_bytes() == before and os.listdir(home / "fast") == ["data"]
    said = run_hostprep(*words, prefix=NOBODY).stdout
    assert "nothing changed" in said and "1 entry could not be staged" in said
    # But what else is to be done is done, and told.
    (source / "class-1/images/003.bin").unlink()
    found = hostprep(*words, prefix=NOBODY)
    assert (found["changed"], found["deleted_files"], failed(found)) == (True, 1, failed(again))


def test_a_root_that_its_owner_may_not_write_is_moved_all_the_same(
    source: Path, home: Path
) -> None:
    """To its place when it is published, and out of sight when it is removed."""
    source.chmod(0o555)
    hostprep("stage", source, "--to", home / "fast", prefix=NOBODY)
    assert (home / "fast/data").stat().st_mode & 0o777 == 0o555
    assert differences(source, home / "fast/data", owners=False) == []
    assert hostprep("unstage", "data", prefix=NOBODY)["left"] == []
    assert os.listdir(home / "fast") == []


@pytest.mark.usefixtures("user_attributes")
def test_attributes_arrive_on_what_its_owner_may_not_write(source: Path, home: Path) -> None:
    for name, mode in (("class-1/images/003.bin", 0o444), ("class-1", 0o555), ("empty", 0o500)):
        os.chown(source / name, 65534, 65534)
        os.setxattr(source / name, "user.note", b"kept")
        (source / name).chmod(mode)
    words = ("stage", source, "--to", home / "fast")
    for _ in range(2):
        assert hostprep(*words, prefix=NOBODY)["lost_attributes"] == 0
        assert differences(source, home / "fast/data", owners=False) == []
        os.utime(source / "class-1", ns=(1, 1))  # an update goes over all directories again


def without(capability: str) -> tuple[str, ...]:
    """Return what starts a command as root without a capability, as in a container."""
    less = f"-{capability}"
    return ("setpriv", "--bounding-set", less, "--inh-caps", less, "--clear-groups", "--")


def test_a_setgid_bit_that_root_may_not_give_is_told(safe_dir: Path, target: Path) -> None:
    few = safe_dir / "few"
    (few / "folder").mkdir(parents=True)
    for name in ("run", "folder"):
        (few / name).touch()
        os.chown(few / name, 0, 4321)
        (few / name).chmod(0o2755)
    done = run_hostprep("stage", few, "--to", target, prefix=without("fsetid"))
    assert done.returncode == 0 and (target / "few/run").stat().st_mode & 0o7777 == 0o755
    assert "setgid bits need CAP_FSETID, which root does not have here" in done.stderr
    assert done.stderr.endswith("; without theirs: 2 entries\n")


@pytest.mark.parametrize("theirs", ["file", "link", "folder"])
def test_a_container_that_may_not_give_files_away_does_not_blame_the_target(
    theirs: str, safe_dir: Path, target: Path
) -> None:
    few = safe_dir / "few"
    (few / "folder").mkdir(parents=True)
    (few / "file").touch()
    (few / "link").symlink_to("file")
    os.chown(few / theirs, 1234, 0, follow_symlinks=False)
    found = hostprep("stage", few, "--to", target, expect=1, prefix=without("chown"))
    said = " ".join(
        [found["error"]["message"], *(each["reason"] for each in found.get("skipped", ()))]
    )
    assert "its owner cannot be set without CAP_CHOWN" in said
    assert found["error"]["hint"].startswith("start it with that capability (docker run --cap-add")


# -- the target fails


@pytest.fixture
def small(safe_dir: Path) -> Iterator[Path]:
    point = safe_dir / "small"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=220m,mode=755", "t", point], check=True)
    yield point


def stopped_while_copying(source: Path, target: Path) -> subprocess.Popen[str]:
    """Begin to stage and stop it (SIGSTOP), so that nobody is too fast for the other."""
    line = [*HOSTPREP, "stage", str(source), "--to", str(target)]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(target.glob(".hostprep-data/tree/*")):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGSTOP)
    return process


def test_a_target_that_fills_up_ends_the_run_and_the_next_one_goes_on(
    source: Path, small: Path
) -> None:
    for number in range(200):
        (source / f"file-{number}").write_bytes(os.urandom(1 << 20))
    process = stopped_while_copying(source, small)
    with (small / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(bytes(1 << 20))
    process.send_signal(signal.SIGCONT)
    out, said = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, ""), said
    assert "the target is full; nothing was published" in said
    assert not (small / "data").exists()
    assert (small / "filler").exists(), "somebody else's file was touched"
    (small / "filler").unlink()
    found = hostprep("stage", source, "--to", small)
    assert found["ok"] and differences(source, small / "data", owners=True) == []


def test_a_target_without_another_inode_is_not_called_full(source: Path, small: Path) -> None:
    subprocess.run(["mount", "-o", "remount,nr_inodes=4000", small], check=True)
    for number in range(3000):
        (source / f"file-{number}").write_bytes(b"x")
    process = stopped_while_copying(source, small)
    (small / "others").mkdir()
    with contextlib.suppress(OSError):
        for number in range(4000):
            (small / f"others/{number}").touch()
    process.send_signal(signal.SIGCONT)
    out, said = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, ""), said
    assert "the target has no inode left" in said and "full" not in said
    shutil.rmtree(small / "others")
    # What it goes on with may be nothing: the first batch may not have come to its end.
    found = hostprep("stage", source, "--to", small)
    assert found["published"] and found["files"] > 3000
    assert differences(source, small / "data", owners=True) == []


@pytest.mark.usefixtures("user_attributes")
def test_attributes_for_which_a_tmpfs_has_no_inodes_left_are_not_lost(safe_dir: Path) -> None:
    """It counts them as inodes: what was copied without would be taken up by the next run."""
    source, small = safe_dir / "data", safe_dir / "small"
    source.mkdir()
    small.mkdir()
    for number in range(60):
        (source / f"{number}").write_bytes(b"x")
        os.setxattr(source / f"{number}", "user.note", bytes(4000))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755,nr_inodes=200", "t", small], check=True)
    said = hostprep("stage", source, "--to", small, expect=5)
    assert "too few inodes" in said["error"]["message"]
    for number in range(60):
        (source / f"{number}").write_bytes(b"")  # of which no sample is taken
    said = hostprep("stage", source, "--to", small, expect=1)
    assert "the target has no inode left" in said["error"]["message"]
    subprocess.run(["mount", "-o", "remount,nr_inodes=900", small], check=True)
    assert hostprep("stage", source, "--to", small)["resumed_files"] > 0
    assert all(os.listxattr(small / f"data/{number}") for number in range(60))


def test_what_an_unfinished_run_left_does_not_stand_in_the_way(source: Path, small: Path) -> None:
    for number in range(200):
        (source / f"file-{number}").write_bytes(os.urandom(1 << 20))
    stage_while(source, small, (source / "file-100").unlink)
    left = hostprep("stage", source, "--to", small, "--dry-run")
    assert left["resume_files"] > 300 and left["copy_files"] == left["link_files"]
    # Another way to verify, as after a reboot: nothing can be taken up, and there is no room for
    # both. The unfinished copies go first.
    found = hostprep("stage", source, "--to", small, "--verify", "inflight")
    assert found["resumed_files"] == 0
    assert differences(source, small / "data", owners=True) == []


def test_an_unfinished_run_is_taken_up_where_every_mode_is_0755(source: Path, target: Path) -> None:
    """As exFAT has it, whatever a directory was made with."""
    stage_while(source, target, (source / "class-1/images/003.bin").unlink)
    (target / ".hostprep-data").chmod(0o755)
    found = hostprep("stage", source, "--to", target)
    assert found["resumed_files"] > 0
    assert differences(source, target / "data", owners=True) == []


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Rule("*/tree/class-1/images/003.bin", "write", errno.ENOSPC), "the target is full"),
        (Rule("*/tree/class-3*", "mkdir", errno.EDQUOT), "the disk quota at the target"),
        (Rule("*/tree/class-1/images/003.bin", "create", errno.EROFS), "Read-only file system"),
        (Rule("*/tree/class-1/images/003.bin", "write", errno.EIO), "class-1/images/003.bin"),
        (Rule("*/tree/class-1/images/003.bin", "read", errno.EIO), "class-1/images/003.bin"),
        (Rule("*/journal.*", "write", errno.ENOSPC), "the target is full"),
        (Rule("/data", "rename", errno.EIO), "Input/output error"),
        (Rule("*/tree/class-0/images/001.bin", "link", errno.ENOSPC), "001.bin"),
    ],
    ids=str,
)
def test_a_failing_target_publishes_nothing_and_the_next_run_completes(
    rule: Rule, words: str, source: Path, safe_dir: Path
) -> None:
    (safe_dir / "behind").mkdir()
    with failing_fs(safe_dir / "behind", where=safe_dir) as fs:
        fs.tell(rule)
        done = run_hostprep("stage", source, "--to", fs.mount)
        assert fs.injected(), "the rule was never met"
        assert done.returncode == 1, done.stderr
        assert words in done.stderr and "Traceback" not in done.stderr
        assert "this is a bug" not in done.stderr, done.stderr
        assert not (fs.mount / "data").exists()
        fs.tell()
        hostprep("stage", source, "--to", fs.mount)
        assert differences(source, fs.mount / "data", owners=True, holes=False) == []


def test_what_goes_is_not_forgotten_where_its_copy_cannot_be_looked_at(
    source: Path, safe_dir: Path
) -> None:
    """It would stay for ever, and the data set be called as its source is."""
    (safe_dir / "behind").mkdir()
    with failing_fs(safe_dir / "behind", where=safe_dir) as fs:
        hostprep("stage", source, "--to", fs.mount)
        (source / "class-1/images/003.bin").unlink()
        fs.tell(Rule("/data/class-1/images", "readdir", errno.EIO))
        told = hostprep("stage", source, "--to", fs.mount, expect=1)["error"]
        assert "Input/output error (class-1/images on the target" in told["message"]
        assert "bug" not in told["hint"]
        fs.tell()
        assert hostprep("stage", source, "--to", fs.mount)["deleted_files"] == 1
        assert differences(source, fs.mount / "data", owners=True, holes=False) == []


def test_a_partial_update_forgets_nothing_that_it_cannot_look_at(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostprep("stage", source, "--to", target)
    rewrite(source / "class-1/images/003.bin", b"new")
    real = os.lstat

    def failing_at_one(path: Any, **options: Any) -> os.stat_result:
        if path == "003.bin" and sys._getframe(1).f_code.co_name == "keep_failed":
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return real(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", failing_at_one)
        with pytest.raises(HostprepError, match="Input/output error"):
            stage_while(source, target, (source / "class-1/images/003.bin").unlink, partial=True)
    assert (target / "data/class-1/images/003.bin").exists()
    hostprep("stage", source, "--to", target)
    assert differences(source, target / "data", owners=True) == []


def test_an_unfinished_run_is_kept_where_it_cannot_be_told_what_it_was_for(
    source: Path, safe_dir: Path
) -> None:
    (safe_dir / "behind").mkdir()
    with failing_fs(safe_dir / "behind", where=safe_dir) as fs:
        fs.tell(Rule("/data", "rename", errno.EIO))
        hostprep("stage", source, "--to", fs.mount, expect=1)
        fs.tell(Rule("*/info.json", "read", errno.EIO))
        told = hostprep("stage", source, "--to", fs.mount, expect=1)["error"]
        assert "Input/output error" in told["message"] and "info.json" in told["message"]
        assert "move" not in told["hint"] and "bug" not in told["hint"]
        fs.tell()
        found = hostprep("stage", source, "--to", fs.mount)
        assert found["resumed_files"] == found["files"] - 1  # hard links are made anew
        assert differences(source, fs.mount / "data", owners=True, holes=False) == []


def test_what_is_published_is_no_failure_where_only_its_clean_up_fails(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    notes: list[str] = []
    monkeypatch.setattr(Silent, "note", lambda _, message: notes.append(message))
    with monkeypatch.context() as patch:
        patch.setattr("hostprep.staging.target.private.remove_opened", refuse)
        result = stage_while(source, target, lambda: None)
    assert result.published
    assert [f"{target}/.hostprep-data could not be removed" in each for each in notes] == [True]
    assert notes[0].endswith("the next `hostprep stage` or `apply` of it removes that")
    assert hostprep("status")["datasets"][0]["state"] == "staged"
    assert hostprep("stage", source, "--to", target)["changed"] is False
    assert os.listdir(target) == ["data"]


class Vandal(Silent):
    """An observer that changes a bit of a copy when it is first about to be read back.

    ``read`` has for each time how many files were to be read and how many were.
    """

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.done = 0
        self.phases: list[str] = []
        self.read: list[tuple[int | None, int]] = []

    def progress(self, files: int, size_bytes: int) -> None:
        if self.phases and self.phases[-1] == "verify":
            self.read[-1] = self.read[-1][0], files

    def phase(self, name: str, *, files: int | None = None, size_bytes: int | None = None) -> None:
        self.phases.append(name)
        if name == "verify":
            self.read.append((files, 0))
        if name == "verify" and not self.done:
            for file in ("class-1/images/003.bin", "large", "hard"):
                flip_bit(self.tree / file)
                self.done += 1


@pytest.mark.parametrize("kind", ["ext4", "btrfs"])
def test_what_a_disk_gives_back_differently_is_copied_again(
    kind: loops.Kind, source: Path, safe_dir: Path
) -> None:
    (source / "large").write_bytes(os.urandom(1 << 20) * 65)
    with loops.loop_filesystem(kind, 512 << 20, safe_dir) as disk:
        request = StageRequest(str(source), "data", str(disk / "fast"), None)
        vandal = Vandal(disk / "fast/.hostprep-data/tree")
        with plan_stage(request, Silent()) as plan:
            result = carry_out(plan, vandal)
        assert vandal.done == 3
        files = sum(path.is_file() or path.is_symlink() for path in source.rglob("*"))
        # One of two hard links is copied and read; the second time only what was copied again is.
        assert vandal.read == [(files - 1, files - 1), (3, 3)]
        assert vandal.phases[-5:-1] == ["verify", "copy", "verify", "publish"]
        assert result.published and result.verified and failures(result) == {}
        assert differences(source, disk / "fast/data", owners=True) == []
        assert (result.files, result.bytes) == visible(disk / "fast/data")
        assert result.digest == digest_of(source)
        # An update too: what was made after a directory was opened must be seen.
        for path in ("class-1/images/003.bin", "hard", "new"):
            (source / path).write_bytes(os.urandom(5000))
        found = hostprep("stage", source, "--to", disk / "fast")
        assert differences(source, disk / "fast/data", owners=True) == []
        assert found["digest"] == digest_of(disk / "fast/data")


@pytest.mark.parametrize("verify", ["none", "inflight", "readback"])
def test_copies_that_the_disk_did_not_take_are_not_taken_up(verify: str, safe_dir: Path) -> None:
    """A thin disk that is full, and is given more: the kernel forgets what it could not write."""
    source, thin = safe_dir / "set", safe_dir / "thin"
    source.mkdir()
    for number in range(40):
        (source / f"{number}").write_bytes(random.Random(number).randbytes(1_000_000))
    thin.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "thin", thin]
    subprocess.run(mount, check=True)
    (point := thin / "disk").mkdir()
    options = ("-m0", "-N256", "-O^has_journal", "-Enodiscard")
    loops.make_filesystem(thin / "image", "ext4", 200 << 20, options)
    with loops.loop_mount(thin / "image", point, "ext4", ("errors=continue",)):
        line = ("stage", source, "--to", point, "--verify", verify)
        failed = hostprep(*line, expect=1)["error"]
        assert "could not be flushed to its disk" in failed["message"]
        assert "nothing was published" in failed["message"]
        assert not (point / "set").exists()
        subprocess.run(["mount", "-o", "remount,size=400m", thin], check=True)
        found = hostprep(*line)
    # From the disk, without what the kernel remembers of it.
    with loops.loop_mount(thin / "image", point, "ext4", ("errors=continue",)):
        assert differences(source, point / "set", owners=True) == []
    # What it took is taken up, by a look at all of it; without a hash none would show it.
    assert (found["resumed_files"] == 0) is (verify == "none")
    loops.unmount(thin)


def test_links_and_directories_are_verified_without_being_copied_again(
    safe_dir: Path, target: Path
) -> None:
    (safe_dir / "data/inside").mkdir(parents=True)
    (safe_dir / "data/link").symlink_to("inside")
    stage = ("stage", safe_dir / "data", "--to", target)
    assert hostprep(*stage, "--verify", "none")["verified"] is False
    assert hostprep(*stage, "--dry-run")["would_change"] is True
    found = hostprep(*stage)
    assert (found["verified"], found["copied_files"]) == (True, 0)
    again = hostprep(*stage)
    assert (again["changed"], again["digest"]) == (False, found["digest"])
    assert hostprep(*stage, "--verify", "none")["changed"] is False


@pytest.mark.parametrize("then", [("--full-check",), ("--verify", "inflight"), ()])
def test_what_was_staged_without_verification_is_copied_again_to_be_verified(
    source: Path, target: Path, then: tuple[str, ...]
) -> None:
    first = hostprep("stage", source, "--to", target, "--verify", "none")
    assert first["verified"] is False
    flip_bit(target / "data/class-1/images/003.bin", 7)
    again = hostprep("stage", source, "--to", target, "--verify", "none")
    assert again["changed"] is False  # as it was asked for
    assert hostprep("status")["datasets"][0]["freshness"] == "fresh"
    mended = hostprep("stage", source, "--to", target, *then)
    assert mended["copied_files"] == first["files"] - 1  # of a symlink all is known
    assert mended["verified"] is True
    assert differences(source, target / "data", owners=True) == []
    assert hostprep("stage", source, "--to", target, *then)["changed"] is False


def test_full_check_finds_what_lstat_cannot(source: Path, target: Path) -> None:
    first = hostprep("stage", source, "--to", target)
    staged = target / "data"
    flip_bit(staged / "class-1/images/003.bin", 7)
    assert hostprep("stage", source, "--to", target)["changed"] is False
    mended = hostprep("stage", source, "--to", target, "--full-check")
    assert (mended["changed"], mended["copied_files"]) == (True, 1)
    assert mended["digest"] == first["digest"]
    assert differences(source, staged, owners=True) == []
    flip_bit(source / "class-2/images/004.bin")
    flip_bit(source / "hard")
    assert hostprep("stage", source, "--to", target)["changed"] is False
    mended = hostprep("stage", source, "--to", target, "--full-check")
    assert mended["changed"] is True and mended["copied_files"] == 3  # two of them linked
    assert mended["digest"] == digest_of(source) != first["digest"]
    assert differences(source, staged, owners=True) == []
    assert hostprep("stage", source, "--to", target, "--full-check")["changed"] is False


def test_ctrl_c_says_how_to_go_on_and_never_to_remove_what_is_published(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> StageResult:
        raise KeyboardInterrupt

    def hint(*words: str) -> str:
        with monkeypatch.context() as patched:
            patched.setattr("hostprep.staging.stage.carry_out", interrupted)
            found = hostprep("stage", source, "--to", target, *words, expect=130)
        return str(found["error"]["hint"])

    assert "goes on" in hint() and "hostprep unstage" in hint()
    assert "anew" not in hint() and "copies anew" in hint("--full-check")
    hostprep("stage", source, "--to", target)
    rewrite(source / "hard", b"new")
    assert "goes on" in hint() and "unstage" not in hint()


def test_who_takes_the_name_before_the_first_copy_keeps_it(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run went on as if it were its own, and published into it what had no place there yet."""
    theirs = target / "data"

    def late(*args: Any) -> int:
        descriptor = open_target(*args)
        theirs.mkdir()
        os.chown(theirs, 65534, 65534)
        return descriptor

    monkeypatch.setattr("hostprep.staging.stage.open_target", late)
    told = hostprep("stage", source, "--to", target, expect=5)["error"]
    assert "exists and was not staged by hostprep" in told["message"]
    assert os.listdir(theirs) == [] and theirs.stat().st_uid == 65534
    assert os.listdir(target) == ["data"] and hostprep("status")["datasets"] == []


@pytest.mark.parametrize("taken_by", ["directory", "file"])
def test_who_takes_the_name_while_it_is_staged_keeps_it(
    taken_by: str, source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = target / "data"

    def late(*args: Any) -> None:
        if taken_by == "directory":
            shutil.copytree(source, theirs, symlinks=True)  # just as ours would be
            (theirs / "notes").write_bytes(b"somebody's")
        else:
            theirs.write_bytes(b"somebody's")
        publish_new(*args)

    with monkeypatch.context() as patch:
        patch.setattr("hostprep.staging.stage.publish_new", late)
        told = hostprep("stage", source, "--to", target, expect=1)["error"]
    assert "data appeared on the target" in told["message"]
    before = snapshot(theirs)
    hostprep("stage", source, "--to", target, expect=5)
    assert snapshot(theirs) == before
    if taken_by == "directory":
        assert hostprep("unstage", "data")["removed_entries"] == 0
    else:
        theirs.rename(target / "moved away")
        staged = hostprep("stage", source, "--to", target)
        assert staged["resumed_files"] > 0
        assert differences(source, theirs, owners=True) == []
        theirs = target / "moved away"
        before = {os.fsencode(theirs): next(iter(before.values()))}
    assert snapshot(theirs) == before


def test_what_a_killed_run_left_to_sweep_is_no_fault_of_a_read_only_target(
    source: Path, target: Path
) -> None:
    target.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "disk", target], check=True)
    hostprep("stage", source, "--to", target)
    (make_private(target) / "tree").mkdir()
    subprocess.run(["mount", "-o", "remount,ro", target], check=True)
    assert hostprep("stage", source, "--to", target)["changed"] is False
    subprocess.run(["mount", "-o", "remount,rw", target], check=True)
    hostprep("stage", source, "--to", target)
    assert os.listdir(target) == ["data"]


def test_a_directory_that_the_target_cannot_hold_is_named(source: Path, safe_dir: Path) -> None:
    """As where its name is not UTF-8 and the target is NTFS, or it is too long for the target."""
    root = safe_dir / "behind"
    root.mkdir()
    with failing_fs(root, [Rule("*/class-2", "mkdir", errno.EILSEQ)], where=safe_dir) as fs:
        stage = ("stage", source, "--to", fs.mount, "--name", "data")
        lost = {each["path"]: each["reason"] for each in hostprep(*stage, expect=1)["skipped"]}
        assert "cannot hold this name: Invalid" in lost["class-2"]
        assert {"class-2/images", "class-2/images/000.bin"} < lost.keys()
        found = hostprep(*stage, "--partial")
        assert {each["path"] for each in found["skipped"]} == lost.keys()
        assert not (root / "data" / "class-2").exists() and (root / "data" / "class-1").exists()
