"""What ``stage`` refuses and how it says so: exit codes, one document, nothing changed."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.rigs import far
from tests.kit import loops
from tests.kit.compare import differences
from tests.kit.stagecraft import (
    CONTAINED,
    HOSTPREP,
    NOBODY,
    hostprep,
    make_source,
    mount,
    only_dataset,
    rewrite,
    run_hostprep,
    snapshot,
    unmount,
)

pytestmark = pytest.mark.usefixtures("state")


@pytest.fixture
def source(safe_dir: Path) -> Path:
    return make_source(safe_dir / "data", directories=2, files=5)


def refused(*words: str | Path, code: int = 5) -> str:
    """Insist on the refusal, with and without --dry-run and --json; return its message."""
    texts = set()
    for extra in ((), ("--dry-run",)):
        found = hostprep(*words, *extra, expect=code)
        assert found["error"]["code"] == {5: "refused", 2: "usage", 1: "failed"}[code]
        texts.add(found["error"]["message"])
        done = run_hostprep(*words, *extra)
        assert done.returncode == code
        assert texts <= {line.removeprefix("hostprep: ") for line in done.stderr.splitlines()}
    (text,) = texts
    return text


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_file_is_no_target(below: str, source: Path, target: Path) -> None:
    target.write_text("somebody's")
    said = refused("stage", source, "--to", target / below, code=2)
    assert said == f"the target {target / below} is a file, or lies below one; nothing was changed."
    assert target.read_text() == "somebody's"


def test_the_root_directory_needs_a_name(target: Path) -> None:
    assert "/ has no name of its own" in refused("stage", "/", "--to", target, code=2)


def test_what_is_on_record_elsewhere_is_not_said_to_be_a_strangers(
    source: Path, target: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As what an ordinary user staged is to root, whose records are others."""
    hostprep("stage", source, "--to", target)
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(safe_dir / "other"))
    said = refused("stage", source, "--to", target)
    assert f"was not staged by hostprep, according to its records in {safe_dir}/other;" in said


def somebody(kind: str, path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    if kind == "directory":
        path.mkdir()
        (path / "file").write_bytes(b"somebody's")
    elif kind == "empty directory":
        path.mkdir()
    elif kind == "file":
        path.write_bytes(b"somebody's")
    elif kind == "symlink":
        path.symlink_to("/etc")
    else:
        os.mkfifo(path)


@pytest.mark.parametrize("kind", ["directory", "empty directory", "file", "symlink", "fifo"])
def test_what_somebody_has_put_there_is_refused_and_left(
    kind: str, source: Path, target: Path, safe_dir: Path
) -> None:
    somebody(kind, target / "data")
    before = snapshot(safe_dir)
    message = refused("stage", source, "--to", target)
    assert "data" in message and "nothing was changed" in message
    assert snapshot(safe_dir) == before


def test_what_appears_there_while_we_stage_is_left(source: Path, target: Path) -> None:
    hostprep("stage", source, "--to", target)
    hostprep("unstage", "data")
    somebody("directory", target / "data")
    before = snapshot(target)
    refused("stage", source, "--to", target)
    assert snapshot(target) == before


@pytest.mark.parametrize("inside", ["", "sub", "class-0/images"])
def test_a_target_inside_the_source_is_refused(inside: str, source: Path) -> None:
    before = snapshot(source)
    assert "inside the source" in refused("stage", source, "--to", source / inside)
    link = source.parent / "link"
    link.symlink_to(source)
    assert "inside the source" in refused("stage", source, "--to", link / inside)
    assert "inside the source" in refused("stage", link, "--to", source / inside)
    assert snapshot(source) == before


def test_a_source_inside_the_target_is_refused(source: Path, safe_dir: Path) -> None:
    message = refused("stage", source / "class-0", "--to", safe_dir, "--name", "data")
    assert "inside the target" in message


def test_another_source_under_the_same_name_is_refused(
    source: Path, target: Path, safe_dir: Path
) -> None:
    hostprep("stage", source, "--to", target)
    other = make_source(safe_dir / "other", directories=1, files=2, seed=9)
    before = snapshot(target)
    message = refused("stage", other, "--to", target, "--name", "data")
    assert str(source) in message and str(other) in message
    assert snapshot(target) == before


def test_a_source_with_nothing_in_it_is_refused(safe_dir: Path, target: Path) -> None:
    """A share that is not mounted: what waits for the data must not start without it."""
    source = safe_dir / "share"
    source.mkdir()
    before = snapshot(safe_dir)
    for to in (("--to", target), ("--to-tmpfs", "8M", "--at", safe_dir / "v", "--reserve", "0")):
        assert "is empty; nothing was changed" in refused("stage", source, *to)
        assert snapshot(safe_dir) == before
    (source / "folder").mkdir()  # which somebody made: it is there
    assert hostprep("stage", source, "--to", target)["published"] is True


def test_nothing_is_copied_under_the_mount_point_of_a_volume_that_is_not_mounted(
    source: Path, safe_dir: Path
) -> None:
    point = safe_dir / "v"
    hostprep("mount", point, "--size", "64M", "--reserve", "0")
    subprocess.run(["umount", point], check=True)
    before = snapshot(safe_dir)
    for place in (point, point / "deep"):
        message = refused("stage", source, "--to", place)
        assert message.startswith(f"{point} is a volume of hostprep that is not mounted")
    assert snapshot(safe_dir) == before
    hostprep("unmount", point)
    assert hostprep("stage", source, "--to", point)["published"] is True


@pytest.mark.parametrize("known_by", ["record and fstab", "fstab"])
def test_a_volume_that_fstab_knows_is_to_be_mounted_as_that_says(
    known_by: str, source: Path, safe_dir: Path, state: Path
) -> None:
    """Its line has owner, mode and inodes as well, and is flushed to the disk as no record is."""
    point = safe_dir / "volume"
    hostprep("mount", point, "--size", "16M", "--mode", "1777", "--fstab", "--reserve", "0")
    subprocess.run(["umount", point], check=True)
    if known_by == "fstab":
        shutil.rmtree(state / "volumes")
    refused = hostprep("stage", source, "--to", point / "sets", expect=5)["error"]
    assert refused["message"].startswith(f"{point} is a volume of hostprep that is not mounted")
    assert refused["hint"] == (
        f"mount it: mount {point}; or give it up: hostprep unmount {point} --fstab"
    )
    hostprep("unmount", point, "--fstab")
    assert hostprep("stage", source, "--to", point / "sets")["published"] is True


def test_a_source_that_is_empty_all_at_once_does_not_empty_the_copy(
    source: Path, target: Path
) -> None:
    hostprep("stage", source, "--to", target)
    before = snapshot(target)
    away = source.with_name("away")
    source.rename(away)
    source.mkdir()  # as a mount point whose file system is not mounted
    assert "is empty" in refused("stage", source, "--to", target)
    assert snapshot(target) == before
    source.rmdir()
    away.rename(source)
    assert not hostprep("stage", source, "--to", target)["changed"]


@pytest.mark.parametrize("below", [False, True], ids=["itself", "below a mount point"])
def test_what_is_not_mounted_in_a_source_does_not_count_as_deleted(
    below: bool, source: Path, target: Path, safe_dir: Path
) -> None:
    """A mount point whose file system is not mounted is an empty directory."""
    elsewhere = make_source(safe_dir / "elsewhere", directories=1, files=3)
    point = source / "archive/raw" if below else source / "archive"
    point.mkdir(parents=True)
    subprocess.run(["mount", "--bind", elsewhere, point], check=True)
    hostprep("stage", source, "--to", target)
    before = snapshot(target)
    unmount(point)

    said = refused("stage", source, "--to", target)
    assert said.startswith(f"{point} is empty, and a file system was mounted there when ")
    assert snapshot(target) == before
    found = only_dataset()
    assert (found["freshness"], found["reason"]) == (
        "unknown",
        f"{point} is empty, where a file system was mounted before",
    )
    shutil.rmtree(target)  # as a reboot does with what is in RAM
    assert refused("stage", source, "--to", target) == said

    subprocess.run(["mount", "--bind", elsewhere, point], check=True)
    assert hostprep("stage", source, "--to", target)["published"]
    assert snapshot(target, content=False).keys() == before.keys()
    unmount(point)
    point.rmdir()  # meant so
    assert hostprep("stage", source, "--to", target)["deleted_files"] > 0
    point.mkdir()
    assert hostprep("stage", source, "--to", target)["changed"]


def test_what_was_moved_from_a_mount_into_its_mount_point_is_taken(
    source: Path, target: Path
) -> None:
    point = source / "archive"
    point.mkdir()
    mount("-t", "tmpfs", "-o", "size=1m", "none", point)
    hostprep("stage", source, "--to", target)  # nothing in it: nothing to miss
    unmount(point)
    assert not hostprep("stage", source, "--to", target)["deleted_files"]
    mount("-t", "tmpfs", "-o", "size=1m", "none", point)
    (point / "file").write_text("mounted")
    hostprep("stage", source, "--to", target)
    unmount(point)
    (point / "file").write_text("moved here")
    hostprep("stage", source, "--to", target)
    assert (target / "data/archive/file").read_text() == "moved here"


@pytest.mark.parametrize("how", ["mode", "owner", "file", "symlink"])
def test_a_private_directory_that_is_not_ours_is_refused(
    how: str, source: Path, target: Path, safe_dir: Path
) -> None:
    private = target / ".hostprep-data"
    target.mkdir()
    if how == "file":
        private.write_bytes(b"")
    elif how == "symlink":
        (safe_dir / "elsewhere").mkdir(mode=0o700)
        private.symlink_to(safe_dir / "elsewhere")
    else:
        private.mkdir()
        private.chmod(0o775 if how == "mode" else 0o700)
        (private / "precious").write_bytes(b"somebody's")
        if how == "owner":
            os.chown(private, 1234, 1234)
    before = snapshot(safe_dir)
    assert "not a private directory" in refused("stage", source, "--to", target)
    assert snapshot(safe_dir) == before


def test_too_little_space_is_refused_with_the_arithmetic(source: Path, safe_dir: Path) -> None:
    (source / "large").write_bytes(os.urandom(1 << 20) * 30)
    with loops.loop_filesystem("ext4", 24 << 20, safe_dir) as small:
        before = snapshot(small)
        message = refused("stage", source, "--to", small)
        for words in ("MiB to copy", "MiB free", "keeps for root only", "are missing"):
            assert words in message
        assert snapshot(small) == before
    before = snapshot(safe_dir)
    message = refused(
        "stage", source, "--to-tmpfs", "24M", "--at", safe_dir / "v", "--reserve", "0"
    )
    assert "does not fit" in message and "a volume of 24.0 MiB" in message
    assert snapshot(safe_dir) == before, "something was made"


def test_a_target_that_is_mounted_read_only_is_refused(source: Path, target: Path) -> None:
    target.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "disk", target], check=True)
    hostprep("stage", source, "--to", target)
    subprocess.run(["mount", "-o", "remount,ro", target], check=True)
    assert hostprep("stage", source, "--to", target)["changed"] is False
    rewrite(source / "class-0/images/002.bin", b"new")
    for words in (["--to", target], ["--to", target / "new"]):
        message = refused("stage", source, *words)
        assert message == f"the file system of {target} is mounted read-only; nothing was changed."
    subprocess.run(["mount", "-o", "remount,rw", target], check=True)
    assert hostprep("stage", source, "--to", target)["copied_files"] == 1
    subprocess.run(["umount", target], check=True)


@pytest.mark.parametrize("kind", ["read-only", "closed"])
def test_a_target_that_cannot_be_written_is_told_before_the_source_is_scanned(
    kind: str, source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.mkdir()
    options = "mode=755,ro" if kind == "read-only" else "mode=755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "disk", target], check=True)
    monkeypatch.setattr("hostprep.staging.planning.scan_source", lambda *_, **__: pytest.fail())
    code, words = 5, f"the file system of {target} is mounted read-only; nothing was changed."
    if kind == "closed":
        monkeypatch.setattr("os.access", lambda *_, **__: False)  # as to an ordinary user
        code, words = 1, f"{target} may not be written to; nothing was changed."
    found = hostprep("stage", source, "--to", target / "new", expect=code)
    assert found["error"]["message"] == words
    assert ("ReadWritePaths=" in found["error"]["hint"]) is (kind == "read-only")
    subprocess.run(["umount", target], check=True)


@pytest.mark.parametrize("islands", [1, 2500])
def test_a_sparse_file_counts_by_what_it_takes(islands: int, source: Path, safe_dir: Path) -> None:
    with (source / "sparse").open("wb") as file:
        file.truncate(3 << 30)
        for number in range(islands):
            os.pwrite(file.fileno(), b"x", number << 20)
    at = ("--to-tmpfs", "24M", "--at", safe_dir / "v", "--reserve", "0")
    assert hostprep("stage", source, *at)["bytes"] > 3 << 30
    assert differences(source, safe_dir / "v/data", owners=True) == []
    hostprep("unstage", "data")


def test_too_few_inodes_are_refused(source: Path, safe_dir: Path) -> None:
    for number in range(200):
        (source / f"file-{number}").write_bytes(b"")
    small = safe_dir / "small"
    small.mkdir()
    options = "size=50m,nr_inodes=100,mode=755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "small", small], check=True)
    message = refused("stage", source, "--to", small)
    assert "too few inodes" in message and "needed" in message and "free" in message
    assert os.listdir(small) == []


def test_the_memory_budget_holds_and_force_overrides_it(source: Path, safe_dir: Path) -> None:
    at = ("--to-tmpfs", "100%", "--at", safe_dir / "v")
    before = snapshot(safe_dir)
    found = hostprep("stage", source, *at, expect=5)
    assert "reserved for the machine" in found["error"]["message"]
    planned = hostprep("stage", source, *at, "--dry-run", expect=5)
    assert "reserved for the machine" in planned["error"]["message"]
    assert planned["free_bytes"] > planned["needed_bytes"]  # as it was asked for
    assert snapshot(safe_dir) == before
    forced = ("stage", source, *at, "--force")
    for found in (hostprep(*forced, "--dry-run"), hostprep(*forced)):
        assert any("--force overrides the memory budget" in words for words in found["warnings"])
    assert hostprep("unstage", "data")["unmounted"] is True


def test_a_tmpfs_that_others_mounted_counts_as_memory_too(source: Path, target: Path) -> None:
    """It may be larger than the memory that is free, as /dev/shm is."""
    to = ("--to", target, "--reserve", "100%")
    before = snapshot(target.parent)
    for words in ((), ("--dry-run",)):
        found = hostprep("stage", source, *to, *words, expect=5)
        assert "reserved for the machine" in found["error"]["message"]
    assert snapshot(target.parent) == before
    forced = ("stage", source, *to, "--force")
    for found in (hostprep(*forced, "--dry-run"), hostprep(*forced)):
        assert "--force overrides the memory budget" in found["warnings"][0]
    again = hostprep("stage", source, *to)
    assert (again["changed"], again["warnings"]) == (False, [])  # it takes nothing more
    assert hostprep("unstage", "data")["left"] == []


def test_a_directory_in_a_volume_was_counted_with_it(source: Path, safe_dir: Path) -> None:
    hostprep("mount", safe_dir / "v", "--size", "64M", "--reserve", "0")
    to = ("--to", safe_dir / "v" / "below", "--reserve", "100%")
    assert hostprep("stage", source, *to)["published"] is True
    hostprep("unstage", "data")
    hostprep("unmount", safe_dir / "v", "--discard-data")


def test_a_disk_is_no_memory(source: Path, safe_dir: Path) -> None:
    with loops.loop_filesystem("ext4", 64 << 20, safe_dir) as disk:
        to = ("--to", disk, "--reserve", "100%")
        assert hostprep("stage", source, *to)["published"] is True


@pytest.mark.parametrize(
    "bad",
    ["symlink", "file", "parent of others"],
)
def test_bad_mount_points_are_refused(bad: str, source: Path, safe_dir: Path) -> None:
    point = safe_dir / "v"
    if bad == "symlink":
        point.symlink_to(safe_dir)
    elif bad == "file":
        point.write_bytes(b"")
    else:
        (safe_dir / "open").mkdir()
        (safe_dir / "open").chmod(0o777)
        point = safe_dir / "open/v"
    before = snapshot(safe_dir)
    refused("stage", source, "--to-tmpfs", "64M", "--at", point, "--reserve", "0")
    assert snapshot(safe_dir) == before


def test_foreign_entries_in_the_way_of_an_update(source: Path, target: Path) -> None:
    hostprep("stage", source, "--to", target)
    staged = target / "data"
    # A file of somebody where the source gets a file: that one is reported.
    (staged / "taken").write_bytes(b"somebody's")
    (source / "taken").write_bytes(b"ours")
    found = hostprep("stage", source, "--to", target, expect=1)
    assert [item["path"] for item in found["skipped"] if item["failed"]] == ["taken"]
    assert found["published"] is False
    assert (staged / "taken").read_bytes() == b"somebody's"
    found = hostprep("stage", source, "--to", target, "--partial")
    assert (staged / "taken").read_bytes() == b"somebody's"
    (staged / "taken").unlink()
    hostprep("stage", source, "--to", target)
    assert differences(source, staged, owners=True) == []
    # One where the source gets a directory, and one in a directory that becomes a file: refused.
    (staged / "place").write_bytes(b"somebody's")
    (source / "place").mkdir()
    (source / "place/file").write_bytes(b"ours")
    before = snapshot(target)
    assert "place" in refused("stage", source, "--to", target)
    assert snapshot(target) == before
    (staged / "place").unlink()
    (staged / "class-1/images/added").write_bytes(b"somebody's")
    shutil.rmtree(source / "class-1")
    (source / "class-1").write_bytes(b"a file now")
    before = snapshot(target)
    assert "class-1/images/added" in refused("stage", source, "--to", target)
    assert snapshot(target) == before
    (staged / "class-1/images/added").unlink()
    hostprep("stage", source, "--to", target)
    assert differences(source, staged, owners=True) == []


@pytest.mark.parametrize("what", ["file", "symlink", "directory"])
def test_what_somebody_added_survives_updates_and_is_named(
    what: str, source: Path, target: Path
) -> None:
    hostprep("stage", source, "--to", target)
    added = target / "data/class-1/images/added"
    somebody(what, added)
    (source / "new").write_bytes(b"new")
    found = hostprep("stage", source, "--to", target)
    assert "class-1/images/added" in [name.rstrip("/") for name in found["left"]]
    shutil.rmtree(source / "class-1")
    found = hostprep("stage", source, "--to", target)
    assert os.path.lexists(added)
    assert sorted(os.listdir(added.parent)) == ["added"]
    again = hostprep("stage", source, "--to", target)
    assert again["changed"] is False and os.path.lexists(added)


def test_what_somebody_changed_stays_where_the_source_has_no_such_directory_any_more(
    source: Path, target: Path
) -> None:
    hostprep("stage", source, "--to", target)
    changed = target / "data/class-1/images/001.bin"
    rewrite(changed, b"somebody changed it")
    shutil.rmtree(source / "class-1")
    found = hostprep("stage", source, "--to", target)
    assert "class-1/images/001.bin" in found["left"]
    assert changed.read_bytes() == b"somebody changed it"
    assert os.listdir(changed.parent) == ["001.bin"]


def test_a_directory_that_somebody_made_where_a_file_was_staged_stays(
    source: Path, target: Path
) -> None:
    hostprep("stage", source, "--to", target)
    made = target / "data/class-1/images/001.bin"
    made.unlink()
    made.mkdir()
    (source / "class-1/images/001.bin").unlink()
    found = hostprep("stage", source, "--to", target)
    assert found["left"] == ["class-1/images/001.bin/"] and made.is_dir()


# -- usage


@pytest.mark.parametrize(
    "words",
    [
        ("stage", "{source}"),
        ("stage", "{source}", "--to", "{target}", "--to-tmpfs", "1G"),
        ("stage", "{source}", "--to", "{target}", "--at", "/mnt/x"),
        ("stage", "{source}", "--to", "{target}", "--fstab"),
        ("stage", "{source}", "--to", "{target}", "--reserve", "much"),
        ("stage", "{source}/none", "--to", "{target}"),
        ("stage", "{source}/class-0/images/000.bin", "--to", "{target}"),
        ("stage", "{source}", "--to", "{target}", "--name", "a/b"),
        ("stage", "{source}", "--to", "{target}", "--name", ".."),
        ("stage", "{source}", "--to", "{target}", "--name", ""),
        ("stage", "{source}", "--to", "{target}", "--name", ".hidden"),
        ("stage", "{source}", "--to", "{target}", "--name", "new\nline"),
        ("stage", "{source}", "--to", "{target}", "--name", "x" * 201),
        ("stage", "/", "--to", "{target}"),
        ("stage", "{source}", "--to", "{target}", "--verify", "twice"),
        ("stage", "{source}", "--to", "{target}", "--order", "random"),
        ("stage", "{source}", "--to", "{target}", "--readers", "0"),
        ("stage", "{source}", "--to-tmpfs", "1.5G"),
        ("stage", "{source}", "--to-tmpfs", "-1"),
        ("stage", "{source}", "--to-tmpfs", "1G", "--reserve", "some"),
        ("unstage", "nothing of that name"),
    ],
)
def test_usage_errors_change_nothing(
    words: tuple[str, ...], source: Path, target: Path, safe_dir: Path
) -> None:
    before = snapshot(safe_dir)
    line = [word.format(source=source, target=target) for word in words]
    found = hostprep(*line, expect=2)
    assert found["error"]["code"] == "usage" and found["error"]["message"]
    assert snapshot(safe_dir) == before


@pytest.mark.parametrize("kind", ["file", "symlink", "fifo"])
def test_what_took_the_place_of_a_staged_directory_is_refused_before_all(
    kind: str, source: Path, target: Path
) -> None:
    hostprep("stage", source, "--to", target)
    shutil.rmtree(target / "data/class-1")
    somebody(kind, target / "data/class-1")
    (source / "class-0/new").write_bytes(b"new")
    before = snapshot(target)
    said = refused("stage", source, "--to", target)
    assert "class-1 on the target is not as hostprep staged it" in said
    assert snapshot(target) == before
    (target / "data/class-1").unlink()
    hostprep("stage", source, "--to", target)
    assert differences(source, target / "data", owners=True) == []


# -- dry run


@pytest.mark.parametrize("where", ["--to", "--to-tmpfs"])
def test_a_dry_run_changes_nothing_and_tells_all(
    where: str, source: Path, target: Path, safe_dir: Path
) -> None:
    os.mkfifo(source / "fifo")
    to: tuple[str | Path, ...] = ("--to", target)
    if where == "--to-tmpfs":
        to = ("--to-tmpfs", "64M", "--at", safe_dir / "v", "--reserve", "0")
    words = ("stage", source, *to)

    def unchanged(expected: dict[str, object]) -> None:
        before, mounts = snapshot(safe_dir), Path("/proc/self/mountinfo").read_text()
        found = hostprep(*words, "--dry-run")
        said = run_hostprep(*words, "--dry-run")
        assert said.returncode == 0
        assert snapshot(safe_dir) == before
        assert Path("/proc/self/mountinfo").read_text() == mounts
        assert (found["dry_run"], found["changed"]) == (True, False)
        assert {name: found[name] for name in expected} == expected
        assert ("nothing to do" in said.stdout) is not expected["would_change"]

    unchanged({"would_change": True, "copy_files": 12, "keep_files": 0, "delete_files": 0})
    said = run_hostprep(*words, "--dry-run").stdout
    for part in ("11 files", "inodes", "left out: fifo (a fifo)", "space:", "dry run"):
        assert part in said
    if where == "--to-tmpfs":
        assert "RAM:" in said and "volume: " in said
    hostprep(*words)
    unchanged({"would_change": False, "copy_files": 0, "keep_files": 12})
    rewrite(source / "class-0/images/000.bin", b"new")
    (source / "class-0/images/002.bin").unlink()
    unchanged({"would_change": True, "copy_files": 1, "keep_files": 10, "delete_files": 1})
    hostprep(*words)
    hostprep("unstage", "data", "--dry-run")
    unchanged({"would_change": False})
    hostprep("unstage", "data")


# -- how it is shown


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which ``hostprep`` is ours; its exit code is the first command's."""
    return subprocess.run(
        ["bash", "-c", f'hostprep() {{ {shlex.quote(HOSTPREP[0])} -m hostprep "$@"; }}; {line}'],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )


def test_the_output_can_be_cut_short_and_piped(source: Path, target: Path) -> None:
    stage = f"hostprep stage {source} --to {target}"
    done = shell(f"{stage} --dry-run | head -1; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, done.stdout.count("\n")) == (0, 1), done.stderr
    for line, code in ((stage, 0), (f"{stage} --to-tmpfs 1G", 2), ("hostprep status", 0)):
        done = shell(f"{line} --json | true; exit ${{PIPESTATUS[0]}}")
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr and "Exception" not in done.stderr
    (source / "taken").write_bytes(b"ours")
    (target / "data/taken").write_bytes(b"somebody's")
    for extra in ("", " --json"):
        done = shell(f"{stage}{extra} | true; exit ${{PIPESTATUS[0]}}")
        assert done.returncode == 1, done.stderr
        assert "Traceback" not in done.stderr and "Exception" not in done.stderr
    (target / "data/taken").unlink()
    done = shell(f"{stage} 2>&1 | true; exit ${{PIPESTATUS[0]}}")
    assert done.returncode == 0
    assert differences(source, target / "data", owners=True) == [], "head ended the work"


def test_a_volume_that_stays_larger_than_was_asked_for_is_told_of(
    source: Path, safe_dir: Path
) -> None:
    stage = ("stage", source, "--at", safe_dir / "v", "--reserve", "0", "--to-tmpfs")
    hostprep(*stage, "64M")
    words = f"volume: {safe_dir}/v: as it is, 64.0 MiB, more than was asked for"
    smaller = run_hostprep(*stage, "32M")
    assert smaller.returncode == 0 and "nothing to do" in smaller.stdout
    assert words in smaller.stderr
    assert words in run_hostprep(*stage, "32M", "--dry-run").stdout
    same = run_hostprep(*stage, "64M")
    assert same.stderr == "" and "nothing to do" in same.stdout


def test_results_go_to_stdout_and_everything_else_to_stderr(source: Path, target: Path) -> None:
    done = run_hostprep("stage", source, "--to", target)
    assert str(target / "data") in done.stdout.splitlines()[0]
    assert "digest xxh3sum:" in done.stdout and "digest" not in done.stderr
    quiet = run_hostprep("stage", source, "--to", target, "--json")
    assert json.loads(quiet.stdout)["changed"] is False and quiet.stderr == ""


@pytest.mark.parametrize("no_color", ["", "1"])
def test_on_a_terminal_there_is_progress_and_colour_only_if_wanted(
    no_color: str, source: Path, target: Path, safe_dir: Path
) -> None:
    for number in range(60):
        (source / f"more-{number}").write_bytes(os.urandom(10_000))
    environment = {"TERM": "xterm-256color", **({"NO_COLOR": no_color} if no_color else {})}
    # A copy that is over at once shows no bar: 60 files, 20 ms each, one after the other.
    with far.far_source(source, safe_dir) as slow:
        words = f"stage {slow.mount} --to {target} --name data --gentle"
        done = subprocess.run(
            ["script", "-qec", f"{shlex.quote(HOSTPREP[0])} -m hostprep {words}", "/dev/null"],
            capture_output=True,
            timeout=60,
            env={**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, **environment},
        )
    assert done.returncode == 0
    assert b"Traceback" not in done.stdout
    assert b"copying" in done.stdout
    coloured = b"\x1b[3" in done.stdout or b"\x1b[38" in done.stdout
    assert coloured is not bool(no_color)


def test_names_cannot_write_on_the_terminal(source: Path, target: Path) -> None:
    os.mkfifo(os.fsencode(source) + b"/\x1b[2Jevil\xff\n")
    done = run_hostprep("stage", source, "--to", target)
    assert "\x1b" not in done.stdout + done.stderr
    assert "\\x1b[2Jevil" in done.stderr
    found = hostprep("stage", source, "--to", target)
    assert os.fsencode(found["skipped"][0]["path"]) == b"\x1b[2Jevil\xff\n"


def test_a_closed_stdin_changes_nothing(source: Path, target: Path) -> None:
    for _ in range(2):
        done = shell(f"hostprep stage {source} --to {target} --json <&-")
        assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["changed"] is False
    rewrite(source / "class-0/images/000.bin", b"new")
    assert json.loads(shell(f"hostprep stage {source} --to {target} --json <&-").stdout)["ok"]
    assert differences(source, target / "data", owners=True) == []


@pytest.mark.parametrize("where", ["--to", "--to-tmpfs"])
def test_what_cannot_be_remembered_is_not_begun_as_in_a_read_only_container(
    where: str, source: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixed = safe_dir / "fixed"
    fixed.mkdir()
    mount("-t", "tmpfs", "-o", "ro,mode=0755", "fixed", fixed)
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(fixed / "hostprep"))
    place = safe_dir / "new"
    to: tuple[str | Path, ...] = ("--to", place)
    if where == "--to-tmpfs":
        to = ("--to-tmpfs", "64M", "--at", place, "--reserve", "0")
    for more in (("--dry-run",), ()):
        told = hostprep("stage", source, *to, *more, expect=5)["error"]
        assert f"{fixed} is mounted read-only; nothing was changed." in told["message"]
        assert "HOSTPREP_STATE_DIR=DIR" in told["hint"]
        assert not place.exists()
    unmount(fixed)
    hostprep("stage", source, *to)


def test_a_dry_run_tells_root_that_may_not_mount_as_in_most_containers(
    source: Path, safe_dir: Path
) -> None:
    to = ("--to-tmpfs", "64M", "--at", safe_dir / "v", "--reserve", "0", "--dry-run")
    assert hostprep("stage", source, *to, prefix=CONTAINED)["needs_root"]
    shown = run_hostprep("stage", source, *to, prefix=CONTAINED)
    assert (shown.returncode, "root: mounting on" in shown.stdout) == (0, True)
    assert not hostprep("stage", source, *to)["needs_root"]
    assert "root:" not in run_hostprep("stage", source, *to).stdout


def test_an_ordinary_user_gets_a_hint_and_can_use_dev_shm(
    source: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = safe_dir / "home"
    home.mkdir()
    os.chown(home, 65534, 65534)
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(home / "state"))
    monkeypatch.setenv("HOSTPREP_RUN_DIR", str(home / "run"))
    found = hostprep("stage", source, "--to-tmpfs", "64M", prefix=NOBODY, expect=1)
    assert "needs root" in found["error"]["message"]
    assert "--to /dev/shm/" in found["error"]["hint"]
    planned = hostprep("stage", source, "--to-tmpfs", "64M", "--dry-run", prefix=NOBODY)
    assert planned["would_change"] and planned["copy_files"] and planned["needs_root"]
    line = ("stage", source, "--to-tmpfs", "64M", "--dry-run")
    assert "run it with sudo" in run_hostprep(*line, prefix=NOBODY).stdout
    assert "sudo" not in run_hostprep(*line).stdout
    assert os.listdir(home) == []
    closed = ("stage", source, "--to", safe_dir / "new/deep", "--dry-run")
    assert hostprep(*closed, prefix=NOBODY)["unwritable"] == str(safe_dir)
    assert hostprep(*closed)["unwritable"] is None
    assert f"may not write to {safe_dir}: run it" in run_hostprep(*closed, prefix=NOBODY).stdout
    assert "sudo" not in run_hostprep(*closed).stdout
    closed = ("stage", source, "--to", home / "copies", "--dry-run")
    assert hostprep(*closed, prefix=NOBODY)["unwritable"] is None
    for variable, what in (("HOSTPREP_STATE_DIR", "records"), ("HOSTPREP_RUN_DIR", "locks")):
        with monkeypatch.context() as elsewhere:
            elsewhere.setenv(variable, str(safe_dir / "closed/new"))
            assert hostprep(*closed, prefix=NOBODY)["unwritable"] == str(safe_dir)
            shown = run_hostprep(*closed, prefix=NOBODY)
            assert f"  {what}: this user may not write to {safe_dir}, where" in shown.stdout
            assert (shown.returncode, f"export {variable}=DIR" in shown.stdout) == (0, True)
            assert hostprep(*closed)["unwritable"] is None
    shm = Path("/dev/shm", f"hostprep-test-{os.getpid()}")
    for folder in (source, source / "class-0/images"):
        folder.chmod(0o555)  # whose copies have to be moved and emptied all the same
    try:
        staged = hostprep("stage", source, "--to", shm, prefix=NOBODY)
        assert differences(source, shm / "data", owners=False) == []
        assert (shm / "data/class-0").stat().st_uid == 65534
        again = hostprep("stage", source, "--to", shm, prefix=NOBODY)
        assert (again["changed"], again["digest"]) == (False, staged["digest"])
        shm.chmod(0o555)
        said = run_hostprep("stage", source, "--to", shm, "--dry-run", prefix=NOBODY).stdout
        assert "nothing to do" in said and "may not write" not in said
        shm.chmod(0o755)
        assert hostprep("status", prefix=NOBODY)["datasets"][0]["freshness"] == "fresh"
        hostprep("unstage", "data", prefix=NOBODY)
        assert os.listdir(shm) == []
    finally:
        shutil.rmtree(shm, ignore_errors=True)


def test_that_nothing_is_to_be_done_in_a_volume_only_root_may_find(
    source: Path, safe_dir: Path
) -> None:
    line = ("stage", source, "--to-tmpfs", "64M", "--at", safe_dir / "volume", "--reserve", "0")
    hostprep(*line)
    assert run_hostprep(*line, "--dry-run").stdout.count("\n") == 1
    planned = hostprep(*line, "--dry-run", prefix=NOBODY)
    assert (planned["would_change"], planned["needs_root"]) == (False, True)
    said = run_hostprep(*line, "--dry-run", prefix=NOBODY).stdout
    assert "nothing to do" in said and "needed for a tmpfs volume" in said


def test_what_an_ordinary_user_may_not_write_is_named_with_what_helps(
    source: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, home = safe_dir / "theirs", safe_dir / "home"
    for folder in (theirs, home):
        folder.mkdir()
    os.chown(theirs, 65534, 65534)
    for name in ("HOSTPREP_STATE_DIR", "HOSTPREP_RUN_DIR", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    line = ("stage", source, "--to", theirs)
    error = hostprep(*line, prefix=NOBODY, expect=1)["error"]
    assert str(home / "state") in error["message"]
    assert "HOSTPREP_STATE_DIR" in error["hint"]
    # Locks alone elsewhere: then it is the records.
    monkeypatch.setenv("HOSTPREP_RUN_DIR", str(theirs / "run"))
    error = hostprep(*line, prefix=NOBODY, expect=1)["error"]
    assert f"({home / 'state'})" in error["message"]
    assert "HOSTPREP_STATE_DIR" in error["hint"]
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(theirs / "state"))
    hostprep(*line, prefix=NOBODY)
    error = hostprep("stage", source, "--to", home / "new/deep", prefix=NOBODY, expect=1)["error"]
    assert error["message"] == f"{home} may not be written to; nothing was changed."
    assert "a target that you may write to" in error["hint"]


def test_a_folder_closed_to_its_owner_is_taken_up_again_once_it_is_open(
    safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = safe_dir / "theirs"
    source = make_source(home / "data")
    subprocess.run(["chown", "-R", "65534:65534", home], check=True)
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(home / "state"))
    monkeypatch.setenv("HOSTPREP_RUN_DIR", str(home / "run"))
    closed = source / "class-1"
    closed.chmod(0)
    staged = hostprep("stage", source, "--to", home / "fast", "--partial", prefix=NOBODY)
    assert [item["path"] for item in staged["skipped"]] == ["class-1"]
    closed.chmod(0o755)
    hostprep("stage", source, "--to", home / "fast", prefix=NOBODY)
    assert differences(source, home / "fast/data", owners=False) == []


# -- locks


@pytest.fixture
def held(source: Path, target: Path) -> Iterator[Callable[[], None]]:
    """Have the target's lock held by a real run; the result lets it go on."""
    (source / "large").write_bytes(os.urandom(1 << 20) * 300)
    process = subprocess.Popen(
        [*HOSTPREP, "stage", str(source), "--to", str(target), "--readers", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    lock = Path(os.environ["HOSTPREP_RUN_DIR"])
    deadline = time.monotonic() + 60
    while not any(file.stat().st_size for file in lock.glob("*.lock")):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(signal.SIGSTOP)
    assert process.poll() is None

    def go_on() -> None:
        process.send_signal(signal.SIGCONT)

    yield go_on
    go_on()
    process.wait(60)


def test_a_second_run_waits_and_says_for_whom(
    source: Path, target: Path, held: Callable[[], None]
) -> None:
    refused = run_hostprep("stage", source, "--to", target, "--no-wait")
    assert refused.returncode == 1
    assert f"hostprep stage {source}" in refused.stderr and "process" in refused.stderr
    found = hostprep("stage", source, "--to", target, "--no-wait", expect=1)
    assert found["error"]["code"] == "locked"
    second = subprocess.Popen(
        [*HOSTPREP, "stage", str(source), "--to", str(target)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert second.stderr is not None
    assert f"waiting for `hostprep stage {source}` (process " in second.stderr.readline()
    states = [item["state"] for item in hostprep("status")["datasets"]]
    assert states in ([], ["copying"])
    other = hostprep("stage", source, "--to", target, "--name", "other", "--no-wait")
    assert other["published"] is True, "another target need not wait"
    held()
    out, _ = second.communicate(timeout=60)
    assert second.returncode == 0 and str(target / "data") in out
    assert differences(source, target / "data", owners=True) == []


def test_a_stranger_holding_the_lock_file_is_no_riddle(source: Path, target: Path) -> None:
    hostprep("stage", source, "--to", target)
    (lock,) = Path(os.environ["HOSTPREP_RUN_DIR"]).glob("*.lock")
    with lock.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        found = hostprep("stage", source, "--to", target, "--no-wait", expect=1)
    assert "another hostprep" in found["error"]["message"]


def test_a_lock_holds_where_there_is_no_room_to_say_who_has_it(
    source: Path, target: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = safe_dir / "run"
    run_dir.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "none", run_dir], check=True)
    (run_dir / "other").write_bytes(b"x" * 4096)
    monkeypatch.setenv("HOSTPREP_RUN_DIR", str(run_dir))
    assert hostprep("stage", source, "--to", target)["published"] is True


def test_a_state_directory_that_cannot_be_written_is_a_sentence(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch, safe_dir: Path
) -> None:
    (safe_dir / "file").write_bytes(b"")
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(safe_dir / "file/state"))
    found = hostprep("stage", source, "--to", target, expect=2)
    assert "bug" not in (found["error"]["hint"] or "")
    assert "file/state" in found["error"]["message"]


def test_special_entries_are_listed_with_their_kind(source: Path, target: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(source / "socket"))
        os.mkfifo(source / "fifo")
        os.mknod(source / "null", 0o600 | 0o020000, os.makedev(1, 3))
        found = hostprep("stage", source, "--to", target)
    assert {item["path"]: item["reason"] for item in found["skipped"]} == {
        "socket": "a socket",
        "fifo": "a fifo",
        "null": "a character device",
    }


def test_special_entries_are_named_before_and_counted_after(source: Path, target: Path) -> None:
    for name in ("fifo", "other"):
        os.mkfifo(source / name)
    os.mknod(source / "null", 0o600 | 0o020000, os.makedev(1, 3))
    done = run_hostprep("stage", source, "--to", target)
    (named,) = [line for line in done.stderr.splitlines() if "left out:" in line]
    assert "fifo (a fifo)" in named and "other (a fifo)" in named and "null (a char" in named
    counted = "  left out: 3 entries (a character device, a fifo)\n"
    assert done.stdout.count("left out:") == 1 and counted in done.stdout


# -- what belongs to another data set


def test_nothing_is_staged_into_the_copy_of_another_data_set(
    source: Path, target: Path, safe_dir: Path
) -> None:
    hostprep("stage", source, "--to", target)
    other = make_source(safe_dir / "other", directories=1, files=2)
    before = snapshot(target)
    for where in (target / "data", target / "data/class-1"):
        assert "staged copy of data" in refused("stage", other, "--to", where)
    assert snapshot(target) == before
    hostprep("stage", other, "--to", target / "data-2")  # beside it, whatever the name
    shutil.rmtree(target / "data")
    hostprep("stage", other, "--to", target / "data")  # nothing is there any more
    # What no version can read of others is no obstacle.
    (target.parent / "third").mkdir()
    rewrite(next((safe_dir / "state/datasets").glob("data-*/dataset.json")), b"{}")
    hostprep("stage", other, "--to", target.parent / "third")


def test_gentle_is_one_reader(source: Path, target: Path) -> None:
    words = ("stage", source, "--to", target, "--gentle", "--readers")
    assert "--gentle means one reader" in refused(*words, "5", code=2)
    assert run_hostprep(*words, "1").returncode == 0


def test_a_full_check_without_hashes_is_no_check(source: Path, target: Path) -> None:
    words = ("stage", source, "--to", target, "--full-check", "--verify", "none")
    found = hostprep(*words, expect=2)
    assert "leave one of them out" in found["error"]["hint"]


def test_a_private_directory_that_is_exchanged_while_it_is_made(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, private = os.mkdir, target / ".hostprep-data"
    theirs = target / "theirs/tree"

    def exchange(name: str, *rest: int, **more: int) -> None:
        make(name, *rest, **more)
        if name == private.name:
            private.rmdir()
            theirs.parent.rename(private)

    theirs.mkdir(parents=True)
    (theirs / "planted").write_bytes(b"somebody's")
    os.chown(theirs.parent, 65534, 65534)
    monkeypatch.setattr(os, "mkdir", exchange)
    told = hostprep("stage", source, "--to", target, expect=5)["error"]["message"]
    assert "not a private directory" in told and private.stat().st_uid == 65534
    assert (private / "tree/planted").read_bytes() == b"somebody's"
    assert not (target / "data").exists()


def test_a_word_that_names_no_data_set_leaves_no_lock(
    source: Path, safe_dir: Path, own_state: Path
) -> None:
    for word in (safe_dir / "none", source / "hard"):
        hostprep("stage", word, "--to", safe_dir / "fast", expect=2)
    assert not (own_state / "run").exists() or os.listdir(own_state / "run") == []


# -- what the kernel makes up


@pytest.fixture
def made_up(source: Path) -> Path:
    """Return a folder of the source on which a proc is mounted."""
    folder = source / "class-0/proc"
    folder.mkdir()
    subprocess.run(["mount", "-t", "proc", "proc", folder], check=True)
    return folder


def is_untouched(safe_dir: Path, own_state: Path) -> bool:
    """Whether there is no lock and no record, though both stay for good once they were made."""
    locks = own_state / "run"
    records = safe_dir / "state/datasets"
    return not (locks.exists() and os.listdir(locks)) and not records.exists()


@pytest.mark.parametrize("below", ["", "sys", "sys/kernel"])
def test_what_the_kernel_makes_up_is_no_data_set(
    below: str, made_up: Path, target: Path, safe_dir: Path, own_state: Path
) -> None:
    for to in (("--to", target), ("--to-tmpfs", "8M", "--at", target, "--reserve", "0")):
        message = refused("stage", made_up / below, "--name", "data", *to)
        assert "is not a data set: the kernel generates all that is in proc" in message
    assert not target.exists() and is_untouched(safe_dir, own_state)


def test_nor_is_a_directory_in_which_it_is_mounted(
    made_up: Path, source: Path, target: Path, safe_dir: Path, own_state: Path
) -> None:
    message = refused("stage", source, "--to", target)
    assert message.startswith(f"{made_up} (proc) is mounted in the source {source}: ")
    assert not target.exists() and is_untouched(safe_dir, own_state)
    # What is out of sight is not read.
    subprocess.run(["mount", "-t", "tmpfs", "over", made_up], check=True)
    assert hostprep("stage", source, "--to", target)["published"] is True
    subprocess.run(["umount", made_up], check=True)
    refused("stage", source, "--to", target)
    subprocess.run(["mount", "-t", "tmpfs", "over", made_up.parent], check=True)
    assert hostprep("stage", source, "--to", target)["published"] is True


def test_a_source_beside_it_is_a_data_set(made_up: Path, source: Path, target: Path) -> None:
    assert hostprep("stage", source / "class-1", "--to", target)["published"] is True


@pytest.mark.parametrize("below", ["", "sys/none"])
def test_what_the_kernel_makes_up_is_no_target(
    below: str, made_up: Path, safe_dir: Path, own_state: Path
) -> None:
    other = make_source(safe_dir / "other", directories=1, files=2)
    where = made_up / below
    for to in (("--to", where), ("--to-tmpfs", "8M", "--at", where, "--reserve", "0")):
        message = refused("stage", other, *to)
        assert message.startswith(f"the target {where} is not storage: the kernel generates")
    assert is_untouched(safe_dir, own_state)
