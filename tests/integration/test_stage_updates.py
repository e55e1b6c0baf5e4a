"""A second stage of a changed source: the target becomes what the source is, whatever changed."""

from __future__ import annotations

import errno
import importlib
import os
import shutil
import struct
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hostprep.errors import HostprepError
from hostprep.staging.model import RANGE_BYTES, Recorded, StageRequest
from hostprep.staging.observer import Silent
from hostprep.staging.planning import plan_stage
from hostprep.staging.plans.changed import who_changed
from hostprep.staging.publishing.publish import publish_update
from hostprep.staging.record.lines import Picked
from hostprep.staging.record.manifest import ManifestIndex, manifest_path
from hostprep.staging.record.records import folder
from hostprep.staging.stage import carry_out
from tests.kit import loops
from tests.kit.acls import ACCESS_ACL, access_acl
from tests.kit.compare import differences
from tests.kit.failing_fs import Rule, failing_fs
from tests.kit.stagecraft import hostprep, make_source, rewrite, run_hostprep, snapshot

pytestmark = pytest.mark.usefixtures("state")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_source(tmp_path / "data")


def restage(source: Path, target: Path, *words: str, expect: int = 0) -> dict[str, object]:
    before = snapshot(source)
    found = hostprep("stage", source, "--to", target, *words, expect=expect)
    assert snapshot(source) == before, "the source was touched"
    return found


def file_to_directory(source: Path) -> None:
    path = source / "class-1/images/003.bin"
    path.unlink()
    path.mkdir()
    (path / "inside").write_bytes(b"now a directory")


def directory_to_file(source: Path) -> None:
    shutil.rmtree(source / "class-2")
    (source / "class-2").write_bytes(b"now a file")


def directory_to_symlink(source: Path) -> None:
    shutil.rmtree(source / "class-2")
    (source / "class-2").symlink_to("class-1")


def symlink_to_directory(source: Path) -> None:
    (source / "link").unlink()
    (source / "link").mkdir()
    (source / "link/inside").write_bytes(b"x")


def symlink_to_file(source: Path) -> None:
    (source / "link").unlink()
    (source / "link").write_bytes(b"x")


def file_to_symlink(source: Path) -> None:
    (source / "class-1/images/003.bin").unlink()
    (source / "class-1/images/003.bin").symlink_to("/etc/passwd")


def directory_to_empty_directory(source: Path) -> None:
    shutil.rmtree(source / "class-3/images")
    (source / "class-3/images").mkdir()


def hard_link_made(source: Path) -> None:
    os.link(source / "class-1/images/005.bin", source / "class-2/also")


def hard_link_split(source: Path) -> None:
    path = source / "hard"
    shutil.copy2(path, source / "copy")
    os.replace(source / "copy", path)


def hard_links_regrouped(source: Path) -> None:
    a, c = source / "class-0/images/001.bin", source / "class-1/images/001.bin"
    os.link(c, source / "hard-c")
    c2 = source / "hard"
    c2.unlink()
    os.link(c, c2)
    assert a.stat().st_nlink == 1


def mode_of_file(source: Path) -> None:
    path = source / "class-1/images/003.bin"
    at = path.stat().st_mtime_ns
    path.chmod(0o4711)
    os.utime(path, ns=(at, at))


def owner_of_file(source: Path) -> None:
    os.chown(source / "class-1/images/003.bin", 1234, 4321)


def owner_of_directory(source: Path) -> None:
    os.chown(source / "class-1/images", 1234, 4321)


def owner_of_root(source: Path) -> None:
    os.chown(source, 1234, 4321)


def owner_of_symlink(source: Path) -> None:
    os.chown(source / "link", 1234, 4321, follow_symlinks=False)


def mode_of_directory(source: Path) -> None:
    (source / "class-1/images").chmod(0o2750)


def time_of_file(source: Path) -> None:
    os.utime(source / "class-1/images/003.bin", ns=(0, 1_000_000_001))


def time_of_directory(source: Path) -> None:
    os.utime(source / "class-1/images", ns=(0, 1_000_000_001))


def content(source: Path) -> None:
    rewrite(source / "class-1/images/003.bin", b"other content")


def content_of_hard_link(source: Path) -> None:
    rewrite(source / "hard", b"other content")


def larger_than_a_range(source: Path) -> None:
    with (source / "class-1/images/003.bin").open("wb") as file:
        for number in range(66):
            file.write(number.to_bytes(1) * (1 << 20))
    os.link(source / "class-1/images/003.bin", source / "large")


def added(source: Path) -> None:
    (source / "new/er").mkdir(parents=True)
    (source / "new/er/file").write_bytes(b"new")
    (source / "new/empty").mkdir()


def removed(source: Path) -> None:
    shutil.rmtree(source / "class-4")
    (source / "class-5/images/000.bin").unlink()
    (source / "empty").rmdir()


def all_but_one_removed(source: Path) -> None:
    for path in sorted(source.iterdir())[1:]:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def renamed_directory(source: Path) -> None:
    (source / "class-4").rename(source / "class-9")


def swapped_directories(source: Path) -> None:
    (source / "class-4").rename(source / "x")
    (source / "class-3").rename(source / "class-4")
    (source / "x").rename(source / "class-3")


CHANGES: list[Callable[[Path], None]] = [
    file_to_directory, directory_to_file, directory_to_symlink, symlink_to_directory,
    symlink_to_file, file_to_symlink, directory_to_empty_directory, hard_link_made,
    hard_link_split, hard_links_regrouped, mode_of_file, owner_of_file, owner_of_directory,
    owner_of_root, owner_of_symlink, mode_of_directory, time_of_file, time_of_directory, content,
    content_of_hard_link, larger_than_a_range, added, removed, all_but_one_removed,
    renamed_directory, swapped_directories,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_each_change_of_the_source_arrives(
    change: Callable[[Path], None], source: Path, target: Path
) -> None:
    restage(source, target)
    staged = target / "data"
    assert differences(source, staged, owners=True) == []
    change(source)
    assert differences(source, staged, owners=True) != [], "the change is none"
    changed = restage(source, target)
    assert changed["changed"] is True
    assert differences(source, staged, owners=True) == []
    again = restage(source, target)
    assert (again["changed"], again["copied_files"], again["deleted_files"]) == (False, 0, 0)
    fresh = hostprep("stage", source, "--to", target.parent / "other")
    assert fresh["digest"] == changed["digest"] == again["digest"]
    assert fresh["files"] == changed["files"] and fresh["bytes"] == changed["bytes"]
    assert sorted(os.listdir(target)) == ["data"]


def test_a_default_acl_or_a_group_of_the_target_stays_out_of_the_copies(
    source: Path, target: Path
) -> None:
    target.mkdir()
    for path in source.rglob("*.bin"):
        path.chmod(0o664)
    entries = [(1, 7), (4, 0), (32, 0)]  # user::rwx, group::---, other::---
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", t, p, 2**32 - 1) for t, p in entries)
    try:
        os.setxattr(target, "system.posix_acl_default", acl)
    except OSError:
        pytest.skip("this file system has no ACLs")
    os.chown(target, 0, 4321)
    target.chmod(0o2775)
    restage(source, target)
    assert differences(source, target / "data", owners=True) == []
    rewrite(source / "class-1/images/003.bin", b"new")
    (source / "new").mkdir(mode=0o775)
    (source / "new/file").write_bytes(b"new")
    restage(source, target)
    assert differences(source, target / "data", owners=True) == []
    for path in target.rglob("*"):
        assert "system.posix_acl_default" not in os.listxattr(path, follow_symlinks=False)


@pytest.mark.usefixtures("user_attributes")
def test_attributes_that_the_target_cannot_hold_are_told(source: Path, safe_dir: Path) -> None:
    for path in ("class-1/images/003.bin", "hard", "empty"):
        os.setxattr(source / path, "user.note", b"x")
    (safe_dir / "behind").mkdir()
    with failing_fs(safe_dir / "behind", where=safe_dir) as fs:
        fs.tell(Rule("*", "setxattr", errno.EOPNOTSUPP))
        done = run_hostprep("stage", source, "--to", fs.mount)
        assert done.returncode == 0 and "without theirs: 3 entries" in done.stderr
        assert differences(source, fs.mount / "data", owners=True, xattrs=False, holes=False) == []


@pytest.mark.usefixtures("user_attributes")
@pytest.mark.parametrize(
    ("name", "value"), [(ACCESS_ACL, access_acl(0o750, user=7)), ("user.note", b"x")]
)
def test_what_a_folder_of_the_source_has_no_more_goes_with_the_next_run(
    name: str, value: bytes, source: Path, target: Path
) -> None:
    folder = source / "class-1"
    os.setxattr(folder, name, value)
    restage(source, target)
    assert differences(source, target / "data", owners=True) == []
    os.removexattr(folder, name)
    rewrite(folder / "images/003.bin", b"new")
    restage(source, target)
    assert differences(source, target / "data", owners=True) == []


def test_a_target_without_acls_gets_modes_that_let_nobody_in(source: Path, safe_dir: Path) -> None:
    for path in (source, source / "class-1", source / "hard"):
        os.setxattr(path, ACCESS_ACL, access_acl(0o700, user=7))
        assert path.stat().st_mode & 0o777 == 0o770
    (safe_dir / "behind").mkdir()
    with failing_fs(safe_dir / "behind", where=safe_dir) as fs:
        fs.tell(Rule("*", "setxattr", errno.EOPNOTSUPP))
        done = run_hostprep("stage", source, "--to", fs.mount)
        assert done.returncode == 0 and "without theirs: 3 entries" in done.stderr
        for name in ("", "class-1", "hard"):
            assert (fs.mount / "data" / name).stat().st_mode & 0o777 == 0o700
        again = hostprep("stage", source, "--to", fs.mount)
        assert again["changed"] is False
        (fs.mount / "data/class-1").chmod(0o770)
        assert hostprep("status")["datasets"][0]["freshness"] == "stale"
        mended = hostprep("stage", source, "--to", fs.mount)
        assert mended["changed"] is True
        assert (fs.mount / "data/class-1").stat().st_mode & 0o777 == 0o700


def test_the_time_and_the_room_are_those_of_the_whole_run(
    source: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(module: str, name: str) -> None:
        real = getattr(importlib.import_module(module), name)

        def late(*args: object, **options: object) -> object:
            time.sleep(0.2)
            return real(*args, **options)

        monkeypatch.setattr(f"{module}.{name}", late)

    slowly("hostprep.staging.deciding", "gather")
    slowly("hostprep.staging.preparing", "apply_volume")
    volume = safe_dir / "v"
    stage = ("stage", source, "--to-tmpfs", "64M", "--at", volume, "--reserve", "0")
    for changed in (True, False):
        started = time.monotonic()
        found = hostprep(*stage)
        elapsed = time.monotonic() - started
        assert found["changed"] is changed
        phases = dict(found["phases"])
        assert 0.4 <= found["seconds"] == phases.pop("total") <= elapsed
        assert phases["volume"] >= 0.2 <= phases["plan"]
        assert sum(phases.values()) <= found["seconds"] + 0.0001 * len(phases)  # each is rounded
        now = os.statvfs(volume)
        used = (now.f_blocks - now.f_bfree) * now.f_frsize
        assert found["volume"]["used_bytes"] == used > found["bytes"]
        assert found["volume"]["used_inodes"] == now.f_files - now.f_ffree > found["files"] - 2


def test_a_run_that_copies_nothing_does_not_say_that_it_read_back(
    source: Path, target: Path
) -> None:
    done = run_hostprep("stage", source, "--to", target)
    assert "verified (read back and compared), digest" in done.stdout
    (source / "class-1/images/003.bin").unlink()
    done = run_hostprep("stage", source, "--to", target)
    assert "  copied nothing; " in done.stdout
    assert "verified (when it was copied), digest" in done.stdout
    (source / "new").write_bytes(b"new")
    done = run_hostprep("stage", source, "--to", target)
    assert "(read back and compared; kept files: when they were copied), digest" in done.stdout


def test_what_was_only_hashed_is_not_called_verified(source: Path, target: Path) -> None:
    done = run_hostprep("stage", source, "--to", target, "--verify", "inflight")
    assert "  hashed in flight, not read back; digest xxh3sum:" in done.stdout
    assert ", hashed in flight 2" in run_hostprep("status").stdout
    for said in (done.stdout, run_hostprep("status").stdout):
        assert "verified" not in said
    hostprep("unstage", "data")
    done = run_hostprep("stage", source, "--to", target, "--verify", "none")
    assert "  not verified\n" in done.stdout
    assert ", not verified, digest none" in run_hostprep("status").stdout


def test_a_dry_run_names_as_many_files_as_there_will_be(source: Path, target: Path) -> None:
    os.link(source / "class-0/images/000.bin", source / "linked")
    planned = hostprep("stage", source, "--to", target, "--dry-run")
    staged = hostprep("stage", source, "--to", target)
    again = hostprep("stage", source, "--to", target, "--dry-run")
    for each in (planned, again):
        assert (each["files"], each["bytes"]) == (staged["files"], staged["bytes"])
    assert planned["copy_files"] == staged["copied_files"] == staged["files"]
    assert planned["copy_bytes"] == staged["copied_bytes"] < staged["bytes"]
    rewrite(source / "linked", b"changed")
    planned = hostprep("stage", source, "--to", target, "--dry-run")
    updated = hostprep("stage", source, "--to", target)
    assert (planned["copy_files"], planned["link_files"]) == (updated["copied_files"], 1)
    assert planned["copy_bytes"] == updated["copied_bytes"]


def test_times_beyond_what_the_target_keeps(safe_dir: Path) -> None:
    source = make_source(safe_dir / "data")
    for path, year in (("class-0/images/000.bin", 2106), ("class-1", 2106), ("link", 1601)):
        moment = (year - 1970) * 31_556_952 * 10**9 + 7
        os.utime(source / path, ns=(moment, moment), follow_symlinks=False)
    image, disk = safe_dir / "image", safe_dir / "disk"
    loops.make_filesystem(image, "ext4", 24 << 20, ["-I", "128"])
    disk.mkdir()
    with loops.loop_mount(image, disk, "ext4"):
        hostprep("stage", source, "--to", disk)
        assert (disk / "data/class-1").stat().st_mtime == 2**31 - 1
        assert hostprep("stage", source, "--to", disk)["changed"] is False
        assert hostprep("status")["datasets"][0]["freshness"] == "fresh"
        assert hostprep("unstage", "data")["left"] == []


def put(path: Path, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.write(data)


@pytest.mark.parametrize("size", [5000, RANGE_BYTES + 5000])  # one that is copied in ranges, too
def test_a_write_right_after_the_copy_is_seen_where_times_are_whole_seconds(
    size: int, safe_dir: Path
) -> None:
    image, disk, target = (safe_dir / name for name in ("image", "disk", "target"))
    loops.make_filesystem(image, "ext4", (24 << 20) + size, ["-I", "128"])
    disk.mkdir()
    with loops.loop_mount(image, disk, "ext4"):
        source = disk / "data"
        source.mkdir()
        path = source / "labels"
        path.write_bytes(bytes(size))
        for attempt in range(3):  # the second may be over by itself once, on a busy machine
            while time.time() % 1 > 0.05:
                time.sleep(0.005)
            put(path, b"old%d" % attempt)
            hostprep("stage", source, "--to", target)
            put(path, b"new%d" % attempt)
            hostprep("stage", source, "--to", target)
            with open(target / "data/labels", "rb") as file:
                assert file.read(4) == b"new%d" % attempt


def test_a_snapshot_of_what_holds_another_subvolume_is_up_to_date_once_staged(
    safe_dir: Path,
) -> None:
    with loops.loop_filesystem("btrfs", 128 << 20, safe_dir) as disk:
        for words in (
            ("create", disk / "data"),
            ("create", disk / "data/inner"),
            ("snapshot", "-r", disk / "data", disk / "snapshot"),
        ):
            if words[0] == "snapshot":
                make_source(disk / "data/ours")
                (disk / "data/inner/file").write_bytes(b"of the inner one alone")
            subprocess.run(["btrfs", "subvolume", *words], check=True, capture_output=True)
        staged = hostprep("stage", disk / "snapshot", "--to", safe_dir / "fast")
        assert (safe_dir / "fast/snapshot/inner").is_dir()
        # Only the directory is there: that is told as what is left out.
        (left_out,) = staged["skipped"]
        assert (left_out["path"], left_out["failed"]) == ("inner", False)
        assert "Btrfs snapshot" in left_out["reason"]
        again = hostprep("stage", disk / "snapshot", "--to", safe_dir / "fast")
        assert again["changed"] is False
        assert hostprep("status")["datasets"][0]["freshness"] == "fresh"


class Meanwhile(Silent):
    """Somebody who is at work on the target while an update is copied."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.work = work

    def phase(self, name: str, *, files: int | None = None, size_bytes: int | None = None) -> None:
        if name == "copy":
            self.work()


def update_while(source: Path, target: Path, work: Callable[[], object]) -> tuple[str, ...]:
    with plan_stage(StageRequest(str(source), "data", str(target), None), Silent()) as plan:
        return carry_out(plan, Meanwhile(work)).left


def test_what_somebody_puts_in_place_of_a_new_file_meanwhile_stays(safe_dir: Path) -> None:
    source, target = make_source(safe_dir / "data"), safe_dir / "fast"
    hostprep("stage", source, "--to", target)
    for path in ("class-1/new", "class-1/newer"):
        (source / path).write_bytes(b"new")
    theirs = target / "data/class-1/new"
    with pytest.raises(HostprepError, match="class-1/new appeared on the target"):
        update_while(source, target, lambda: theirs.write_bytes(b"somebody's"))
    assert theirs.read_bytes() == b"somebody's"
    theirs.unlink()
    assert hostprep("stage", source, "--to", target)["resumed_files"] == 2
    assert differences(source, target / "data", owners=True) == []


def test_what_somebody_puts_in_place_of_a_deleted_file_meanwhile_stays(safe_dir: Path) -> None:
    source, target = make_source(safe_dir / "data"), safe_dir / "fast"
    hostprep("stage", source, "--to", target)
    for path in ("class-1/images/003.bin", "class-1/images/004.bin"):
        (source / path).unlink()
    theirs = target / "data/class-1/images/003.bin"
    left = update_while(source, target, lambda: rewrite(theirs, b"somebody's"))
    assert left == ("class-1/images/003.bin",) and theirs.read_bytes() == b"somebody's"
    assert not theirs.with_name("004.bin").exists()
    assert hostprep("unstage", "data", expect=1)["left"] == ["class-1/images/003.bin"]


def test_of_a_large_directory_the_manifest_is_read_a_few_times(
    safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many files of it changed, or failed, and however many folders in it are gone."""
    source, target = safe_dir / "data", safe_dir / "fast"
    files = [source / f"{number}.bin" for number in range(600)]
    for number in range(20):
        (source / f"gone-{number}").mkdir(parents=True)
    for file in files:
        file.write_bytes(b"x")
    (source / "stays").write_bytes(b"x")
    hostprep("stage", source, "--to", target)
    for number in range(20):
        (source / f"gone-{number}").rmdir()
    for file in files:
        file.write_bytes(b"changed")
    reads: Counter[str] = Counter()
    real = ManifestIndex._read

    def counted(
        self: ManifestIndex, directory: str, picked: Picked | None = None
    ) -> Iterator[tuple[int, Recorded]]:
        reads[directory] += 1
        return real(self, directory, picked)

    monkeypatch.setattr(ManifestIndex, "_read", counted)
    request = StageRequest(str(source), "data", str(target), None)
    with plan_stage(request, Silent()) as plan:
        manifest = ManifestIndex([manifest_path(folder("data", request.target))])
        assert who_changed(plan.files, manifest) == (True, False)
        manifest.close()
        result = carry_out(plan, Meanwhile(lambda: [file.unlink() for file in files]))
    assert (len(plan.files.delete_directories), result.kept_files) == (20, 601)
    assert reads[""] <= 8


def test_who_changed_is_told_whatever_it_was(source: Path, target: Path) -> None:
    request = StageRequest(str(source), "data", str(target), None)
    copy = target / "data/class-2/images/001.bin"
    steps: list[tuple[Callable[[], object], tuple[bool, bool]]] = [
        (lambda: (source / "class-1/images/001.bin").unlink(), (True, False)),
        (lambda: (source / "empty").rmdir(), (True, False)),
        (lambda: (source / "class-1/added").write_bytes(b"new"), (True, False)),
        (lambda: rewrite(source / "class-1/added", b"newer"), (True, False)),
        (lambda: rewrite(copy, b"somebody changed it"), (False, True)),
        (lambda: (copy.unlink(), rewrite(source / "class-3/images/001.bin", b"new")), (True, True)),
        (lambda: None, (False, False)),
    ]
    for step, told in steps:
        hostprep("stage", source, "--to", target)
        step()
        with plan_stage(request, Silent()) as plan:
            manifest = ManifestIndex([manifest_path(folder("data", request.target))])
            assert who_changed(plan.files, manifest) == told
            manifest.close()


def test_a_hard_link_that_somebody_took_apart_on_the_target_is_one_again(
    source: Path, target: Path
) -> None:
    hostprep("stage", source, "--to", target)
    names = [target / "data" / name for name in ("hard", "class-0/images/001.bin")]
    apart = target / "apart"
    shutil.copy2(names[0], apart)
    apart.replace(names[0])
    assert not names[0].samefile(names[1])
    hostprep("stage", source, "--to", target)
    assert names[0].samefile(names[1])
    assert differences(source, target / "data", owners=True) == []


def test_what_is_closed_by_now_is_closed_before_anything_new_comes_into_it(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, named = source / "class-0/images", source / "class-1/images"
    os.setxattr(named, ACCESS_ACL, access_acl(0o750, user=7))
    restage(source, target)
    images.chmod(0o700)
    os.chown(images, 7, 8)
    os.removexattr(named, ACCESS_ACL)
    for folder_of_theirs in (images, named):
        (folder_of_theirs / "secret").write_bytes(b"closed by its folder alone")
    found = []

    def look(*arguments: object) -> list[str]:
        for path in ("class-0/images", "class-1/images", "class-2/images"):
            status = (target / "data" / path).stat()
            found.append((oct(status.st_mode & 0o777), status.st_uid))
        return publish_update(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("hostprep.staging.stage.publish_update", look)
    restage(source, target)
    assert found == [("0o700", 0), ("0o700", 0), ("0o755", 0)]
    assert differences(source, target / "data", owners=True) == []
