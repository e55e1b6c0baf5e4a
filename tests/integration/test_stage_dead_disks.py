"""A target whose disk fails in mid-copy: what it did not take is never taken for copied."""

from __future__ import annotations

import errno
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostprep.errors import HostprepError
from hostprep.staging.model import StageRequest, Verify
from hostprep.staging.observer import Silent
from hostprep.staging.planning import plan_stage
from hostprep.staging.record.records import folder
from hostprep.staging.stage import carry_out
from tests.kit import loops
from tests.kit.compare import differences
from tests.kit.failing_fs import Rule, failing_fs
from tests.kit.stagecraft import hostprep, run_hostprep

pytestmark = pytest.mark.usefixtures("state")

# Sizes and times of files are on the disk before their content is, and are all that a look sees.
_OPTIONS = ("data=writeback", "nodelalloc")


@pytest.fixture
def source(safe_dir: Path) -> Path:
    root = safe_dir / "set"
    for number in range(3000):
        folder = root / f"folder-{number // 100}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}").write_bytes(random.Random(number).randbytes(9_000))
    return root


@pytest.fixture
def image(safe_dir: Path) -> Path:
    loops.make_filesystem(safe_dir / "image", "ext4", 200 << 20)
    return safe_dir / "image"


@pytest.fixture
def point(safe_dir: Path) -> Iterator[Path]:
    (safe_dir / "disk").mkdir()
    yield safe_dir / "disk"


class Failure(Silent):
    """Takes the disk away once a third is copied, all of whose journals, and no more, it has.

    ``ends`` is with what the run is ended then, None where it is to find that out by itself.
    """

    def __init__(self, point: Path, ends: BaseException | None = None) -> None:
        self.point = point
        self.ends = ends
        self.is_over = False

    def progress(self, files: int, size_bytes: int) -> None:
        if files < 1000 or self.is_over:
            return
        for journal in self.point.glob(".hostprep-set/journal.*"):
            descriptor = os.open(journal, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
        loops.cut_off(self.point)
        self.is_over = True
        if self.ends is not None:
            raise self.ends


def fail_in_mid_copy(source: Path, point: Path, verify: str) -> HostprepError:
    request = StageRequest(str(source), "set", str(point), None, verify=Verify(verify))
    with plan_stage(request, Silent()) as plan, pytest.raises(HostprepError) as caught:
        carry_out(plan, Failure(point))
    return caught.value


def interrupt_beside_a_failure(source: Path, point: Path, verify: str) -> None:
    request = StageRequest(str(source), "set", str(point), None, verify=Verify(verify))
    with plan_stage(request, Silent()) as plan, pytest.raises(KeyboardInterrupt):
        carry_out(plan, Failure(point, KeyboardInterrupt()))


def status() -> dict[str, Any]:
    (dataset,) = hostprep("status")["datasets"]
    return dict(dataset)


@pytest.mark.parametrize("verify", ["none", "inflight", "readback"])
def test_copies_of_a_run_whose_disk_failed_are_not_taken_up_unread(
    verify: str, source: Path, image: Path, point: Path
) -> None:
    with loops.loop_mount(image, point, "ext4", _OPTIONS):
        failed = fail_in_mid_copy(source, point, verify)
        assert "nothing was published" in failed.message
        assert failed.hint is not None and "dmesg" in failed.hint
        assert ("goes on with what was copied" in failed.hint) is (verify != "none")
        assert ("copies anew" in failed.hint) is (verify == "none")
    with loops.loop_mount(image, point, "ext4", _OPTIONS):
        words = status()
        assert words["state"] == "interrupted" and words["reason"].startswith("a run failed (")
        # Which of the two the kernel gives hangs on what was asked first after the disk had gone.
        assert any(os.strerror(code) in words["reason"] for code in (errno.EIO, errno.EROFS))
        assert "dmesg" in words["hint"]
        assert words["reason"].endswith("copies all anew" if verify == "none" else "goes on")
    _stage_again(source, image, point, verify)


@pytest.mark.parametrize("verify", ["none", "inflight"])
def test_nor_are_those_of_one_that_was_stopped_meanwhile(
    verify: str, source: Path, image: Path, point: Path
) -> None:
    """It did not come to hear of it, and the kernel may have told it alone."""
    with loops.loop_mount(image, point, "ext4", _OPTIONS):
        interrupt_beside_a_failure(source, point, verify)
    _stage_again(source, image, point, verify)


def _stage_again(source: Path, image: Path, point: Path, verify: str) -> None:
    anew = verify == "none"  # by what would it be seen
    with loops.loop_mount(image, point, "ext4", _OPTIONS):
        line = ("stage", source, "--to", point, "--verify", verify)
        assert (hostprep(*line, "--dry-run")["copy_files"] == 3000) is anew
        found = hostprep(*line)
        assert found["resumed_files"] + found["copied_files"] == found["files"] == 3000
    # From the disk, without what the kernel remembers of it.
    with loops.loop_mount(image, point, "ext4", _OPTIONS):
        assert differences(source, point / "set", owners=True) == []
        assert status()["state"] == "staged"
        assert hostprep(*line)["changed"] is False


def test_copies_of_a_run_that_failed_for_another_reason_are_taken_up(
    source: Path, safe_dir: Path, point: Path
) -> None:
    with failing_fs(point, where=safe_dir) as fs:
        fs.tell(Rule("*/2999", "create", errno.ENOSPC))
        line = ("stage", source, "--to", fs.mount, "--verify", "inflight", "--readers", "1")
        assert "is full" in hostprep(*line, expect=1)["error"]["message"]
        words = status()
        assert words["state"] == "interrupted"
        expected = f"a run failed ({os.strerror(errno.ENOSPC)}); the same `hostprep stage` goes on"
        assert words["reason"] == expected
        fs.tell()
        assert hostprep(*line)["resumed_files"] > 0
        assert differences(source, fs.mount / "set", owners=True) == []


def test_of_an_update_that_failed_the_status_says_so_until_one_succeeds(
    source: Path, safe_dir: Path, point: Path
) -> None:
    with failing_fs(point, where=safe_dir) as fs:
        hostprep("stage", source, "--to", fs.mount)
        (source / "folder-0/7").write_bytes(b"new")
        fs.tell(Rule("*/7", "create", errno.ENOSPC))
        hostprep("stage", source, "--to", fs.mount, expect=1)
        stale = status()
        assert (stale["state"], stale["freshness"]) == ("staged", "stale")
        assert stale["reason"].endswith(f"; a run since failed ({os.strerror(errno.ENOSPC)})")
        fs.tell()
        hostprep("stage", source, "--to", fs.mount)
        assert status()["freshness"] == "fresh"
        (source / "folder-0/7").write_bytes(b"newer")
        assert "failed" not in status()["reason"]


def test_nor_after_a_run_that_had_nothing_to_do_any_more(
    source: Path, safe_dir: Path, point: Path
) -> None:
    with failing_fs(point, where=safe_dir) as fs:
        hostprep("stage", source, "--to", fs.mount)
        before = os.stat(source / "folder-0")
        (source / "folder-0/new").write_bytes(b"new")
        fs.tell(Rule("*/new", "create", errno.ENOSPC))
        hostprep("stage", source, "--to", fs.mount, expect=1)
        fs.tell()
        (source / "folder-0/new").unlink()
        os.utime(source / "folder-0", ns=(before.st_atime_ns, before.st_mtime_ns))
        assert hostprep("stage", source, "--to", fs.mount)["changed"] is False
        (source / "folder-0/new").write_bytes(b"new")
        stale = status()
        assert stale["freshness"] == "stale" and "failed" not in stale["reason"]


@pytest.mark.parametrize("where", ["open", "unlink"])
def test_a_journal_that_its_disk_does_not_give_back_is_done_without(
    where: str, source: Path, safe_dir: Path, point: Path
) -> None:
    with failing_fs(point, where=safe_dir) as fs:
        fs.tell(Rule("*/2999", "create", errno.ENOSPC))
        line = ("stage", source, "--to", fs.mount)
        hostprep(*line, expect=1)
        fs.tell(*(Rule("*/journal.*", each, errno.EBADMSG, times=1) for each in ("open", where)))
        if where == "unlink":  # as where the file system was not checked since
            error = hostprep(*line, expect=1)["error"]
            assert "Bad message (.hostprep-set/journal." in error["message"]
            assert f", below {fs.mount})" in error["message"] and "dmesg" in error["hint"]
            fs.tell(Rule("*/journal.*", "open", errno.EBADMSG, times=1))
        done = run_hostprep(*line)
        assert done.returncode == 0, done.stderr
        assert f"in {fs.mount}/.hostprep-set cannot be read (Bad message)" in done.stderr
        assert differences(source, fs.mount / "set", owners=True) == []
        assert hostprep(*line)["changed"] is False


def test_what_of_a_failed_run_cannot_be_read_for_want_of_a_server_is_named(
    source: Path, safe_dir: Path, point: Path
) -> None:
    with failing_fs(point, where=safe_dir) as fs:
        fs.tell(Rule("*/2999", "create", errno.ENOSPC))
        hostprep("stage", source, "--to", fs.mount, expect=1)
        fs.tell(Rule("*/journal.*", "open", errno.ENOTCONN))
        error = hostprep("stage", source, "--to", fs.mount, expect=1)["error"]
        assert f"({fs.mount}/.hostprep-set)" in error["message"]
        fs.tell()
        assert hostprep("stage", source, "--to", fs.mount)["resumed_files"] > 0


def test_of_a_run_without_verification_that_left_something_out_nothing_is_kept_and_that_is_said(
    source: Path, image: Path, safe_dir: Path, point: Path
) -> None:
    with (
        loops.loop_mount(image, point, "ext4"),
        failing_fs(source, [Rule("*/7", "read", errno.EIO)], where=safe_dir) as fs,
    ):
        line = ("stage", fs.mount, "--name", "set", "--to", point, "--verify", "none")
        failed = hostprep(*line, expect=1)["error"]
        assert "with --verify none the next run copies all of that anew" in failed["message"]
        assert "--partial" in failed["hint"] and "--verify inflight" in failed["hint"]
        anew = "; with --verify none the same `hostprep stage` copies all anew"
        assert status()["reason"].endswith(anew)
        assert hostprep(*line, "--dry-run")["resume_files"] == 0
        assert hostprep(*line, "--partial", expect=0)["copied_files"] == 2999
        assert hostprep(*line, "--partial")["copied_files"] == 0


def test_why_a_run_failed_is_told_without_names_which_are_not_for_all(
    source: Path, safe_dir: Path, point: Path
) -> None:
    with failing_fs(point, [Rule("*/folder-29", "mkdir", errno.EIO)], where=safe_dir) as fs:
        done = run_hostprep("stage", source, "--to", fs.mount)
        assert done.returncode == 1 and "folder-29" in done.stderr
        record = (folder("set", str(fs.mount / "set")) / "dataset.json").read_text()
        assert json.loads(record)["failure"] == os.strerror(errno.EIO)
        assert "folder-29" not in record


def test_a_run_that_could_not_stage_all_says_so_in_the_status(
    source: Path, safe_dir: Path, target: Path
) -> None:
    with failing_fs(source, [Rule("*/7", "read", errno.EIO)], where=safe_dir) as fs:
        failed = hostprep("stage", fs.mount, "--name", "set", "--to", target, expect=1)["error"]
        assert failed["code"] == "incomplete"
        words = status()
        assert words["state"] == "interrupted"
        assert words["reason"].startswith("a run failed (1 of the source's entries could not be")


@pytest.mark.parametrize(("operation", "named"), [("getattr", " (folder-1)"), ("readdir", "")])
def test_who_waits_for_copies_whose_disk_fails_is_told_in_a_sentence(
    operation: str, named: str, source: Path, safe_dir: Path, point: Path
) -> None:
    with failing_fs(point, where=safe_dir) as fs:
        hostprep("stage", source, "--to", fs.mount)
        fs.tell(Rule("/set/folder-1", operation, errno.EIO))
        error = hostprep("wait", "set", expect=1)["error"]
        why = f"{fs.mount}/set cannot be looked at: {os.strerror(errno.EIO)}{named}"
        assert error["message"] == f"set is not ready: {why}"
        assert "dmesg" in error["hint"]


@pytest.mark.parametrize("operation", ["getattr", "readdir"])
def test_who_stages_over_copies_that_a_disk_does_not_show_is_told_that_it_is_the_targets(
    operation: str, source: Path, safe_dir: Path, point: Path
) -> None:
    with failing_fs(point, where=safe_dir) as fs:
        hostprep("stage", source, "--to", fs.mount)
        fs.tell(
            Rule(
                "/set/folder-1/*" if operation == "getattr" else "/set/folder-1",
                operation,
                errno.EIO,
            )
        )
        error = hostprep("stage", source, "--to", fs.mount, expect=1)["error"]
    assert error["message"].startswith(f"the target {fs.mount}/set cannot be looked at: ")
    assert error["message"].endswith(" (folder-1 on the target); nothing was changed.")
    assert "dmesg" in error["hint"] and "HOSTPREP_DEBUG" not in error["hint"]


@pytest.mark.parametrize("verify", ["inflight", "readback"])
def test_of_what_is_taken_up_the_wrong_is_copied_again_and_counted_once(
    verify: str, safe_dir: Path, point: Path
) -> None:
    """Of symlinks too, which lead elsewhere, and of a file with several names."""
    source = safe_dir / "set"
    source.mkdir()
    for number in range(300):
        (source / f"{number}").write_bytes(b"%05d" % number)
        (source / f"{number}.link").symlink_to(f"../{number:05}")
    (source / "one").write_bytes(b"linked")
    os.link(source / "one", source / "two")

    class Ends(Silent):
        def progress(self, files: int, size_bytes: int) -> None:
            if files >= 601:
                raise KeyboardInterrupt

    class Looks(Silent):
        def __init__(self) -> None:
            self.read: list[int | None] = []

        def phase(
            self, name: str, *, files: int | None = None, size_bytes: int | None = None
        ) -> None:
            if name == "verify":
                self.read.append(files)

    loops.make_filesystem(safe_dir / "image", "ext4", 64 << 20)
    with loops.loop_mount(safe_dir / "image", point, "ext4"):
        request = StageRequest(str(source), "set", str(point), None, verify=Verify(verify))
        with plan_stage(request, Silent()) as plan, pytest.raises(KeyboardInterrupt):
            carry_out(plan, Ends())
        private = point / ".hostprep-set/tree"
        there = sorted(path.name for path in private.iterdir())
        file = private / next(name for name in there if name.isdigit())
        link = private / next(name for name in there if name.endswith(".link"))
        linked = private / ("one" if "one" in there else "two")
        for path in (file, link, linked):
            before = path.lstat()
            if path.is_symlink():
                wrong = "../x" + os.readlink(path)[4:]
                path.unlink()
                path.symlink_to(wrong)
            else:
                path.write_bytes(b"x" * before.st_size)
            times = (before.st_atime_ns, before.st_mtime_ns)
            os.utime(path, ns=times, follow_symlinks=False)
        (source / "later").write_bytes(b"later")
        looks = Looks()
        with plan_stage(request, Silent()) as plan:
            taken_up = plan.files.resumed.files
            assert taken_up == 601
            result = carry_out(plan, looks)
        assert looks.read == [taken_up + (verify == "readback"), 3]
        assert result.resumed_files == taken_up - 3
        # Beside these what is new: a file, and the second name.
        assert result.copied_files == 3 + 2
        assert result.files == 603 and result.bytes == sum(
            path.lstat().st_size for path in source.iterdir()
        )
        assert result.outward_links == 300
        assert differences(source, point / "set", owners=True) == []
        whole = hostprep("stage", source, "--to", point / "other")
        assert result.digest == whole["digest"]
        assert hostprep("stage", source, "--to", point, "--full-check")["changed"] is False


def test_who_waits_for_a_target_that_fails_is_told_which(
    source: Path, safe_dir: Path, point: Path
) -> None:
    with failing_fs(point, where=safe_dir) as fs:
        hostprep("stage", source, "--to", fs.mount)
        fs.tell(Rule("*", "getattr", errno.EIO))
        error = hostprep("wait", "set", expect=1)["error"]
        assert os.strerror(errno.EIO) in error["message"]
        assert f"{fs.mount}/set" in error["message"] and "dmesg" in error["hint"]


def test_after_a_reboot_a_copy_that_was_cut_short_begins_anew_and_the_status_says_so(
    source: Path, image: Path, point: Path
) -> None:
    with loops.loop_mount(image, point, "ext4"):
        fail_in_mid_copy(source, point, "readback")
    with loops.loop_mount(image, point, "ext4"):
        path = folder("set", str(point / "set")) / "dataset.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "boot_id": "another"}))
        assert status()["reason"].endswith("copies all anew, as the machine was rebooted since")
