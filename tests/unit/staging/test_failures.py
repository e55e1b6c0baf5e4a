"""What a run says where the kernel, or a child that was asked, refused a step."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from hostprep.errors import HostprepError, limit_hint
from hostprep.staging.deciding import target_read
from hostprep.staging.execute import _explain
from hostprep.staging.failures import failed
from hostprep.staging.files.transfer import Differs
from hostprep.staging.model import StageRequest, Verify
from hostprep.staging.processes.pool import TaskFailed
from hostprep.staging.reasons import Skipped
from hostprep.staging.resuming import what_comes_of_it
from hostprep.staging.shortfall import cure_of
from hostprep.staging.target.private import PrivateDir
from hostprep.system.bounded import QuestionFailed
from hostprep.system.state import state_dir

REQUEST = StageRequest(source="/srv/data", name="data", parent="/mnt/ram", volume_size_bytes=None)
THEN = "it goes on with what was copied"
GENERAL = f"fix that and run the same command again: {THEN}"


def test_what_helps_against_a_child_that_gave_no_answer_is_said() -> None:
    error = failed(QuestionFailed("the child ended without an answer", "see dmesg"), REQUEST, THEN)
    assert error.message.startswith("staging failed: the child ended without an answer;")
    assert error.hint == "see dmesg"
    assert failed(QuestionFailed("it is closed"), REQUEST, THEN).hint == GENERAL


def test_what_the_kernel_refused_is_named_with_the_folder_it_is_below() -> None:
    error = failed(OSError(errno.ENOTDIR, "Not a directory", "a/b"), REQUEST, THEN)
    assert "Not a directory (a/b, below /mnt/ram); the source was not touched." in error.message
    assert error.hint == GENERAL


def test_what_was_opened_by_a_descriptor_is_named_by_where_it_lies() -> None:
    error = failed(
        OSError(errno.EIO, "says the kernel", "/proc/self/fd/7/journal.1"), REQUEST, THEN
    )
    assert "says the kernel (.hostprep-data/journal.1, below /mnt/ram);" in error.message


# As ext4 has it at the flush to a disk that fails, and after it, mounted for writing as before.
@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.ESHUTDOWN, errno.ENODEV])
def test_of_a_disk_that_fails_the_kernel_tells_more(number: int) -> None:
    error = failed(OSError(number, "says the kernel", ".hostprep-data"), REQUEST, THEN)
    assert error.hint is not None
    assert "`dmesg`" in error.hint
    assert error.hint.endswith(GENERAL)


@pytest.mark.parametrize(
    ("number", "word"),
    [
        (errno.EMFILE, "`ulimit -n`"),
        (errno.ENFILE, "fs.file-max"),
        (errno.ENOMEM, "free some"),
        (errno.ESTALE, "mount it anew"),
    ],
)
def test_of_a_limit_or_a_server_the_hint_says_what_helps(number: int, word: str) -> None:
    hint = failed(OSError(number, "says the kernel"), REQUEST, THEN).hint or ""
    assert word in hint and hint.count("same command") == 1 and hint.endswith(THEN)


def test_an_entry_that_a_disk_failed_is_not_called_the_sources_fault_alone() -> None:
    for number in (errno.EIO, errno.EUCLEAN, errno.ENODEV):
        cure = cure_of([Skipped("a/1", os.strerror(number), failed=True)])
        assert cure.startswith("repair the failing disk or server, of the source or of the target")
    cure = cure_of([Skipped("a/1", os.strerror(errno.ESTALE), failed=True)])
    assert cure == "mount anew the share that is gone, of the source or of the target"
    assert cure_of([Skipped("a/1", "Invalid argument", failed=True)]) == "fix the source"


@pytest.mark.parametrize(
    ("number", "cure"),
    [
        (errno.EMFILE, "raise the limit on open files (ulimit -n)"),
        (errno.ENFILE, "raise the machine's limit on open files (sysctl fs.file-max)"),
        (errno.ENOMEM, "free some memory"),
    ],
)
def test_a_limit_is_not_called_the_sources_fault_or_the_records(number: int, cure: str) -> None:
    reason = os.strerror(number)
    assert cure_of([Skipped("a/1", reason, failed=True)]) == cure
    told = limit_hint(reason)
    assert told is not None and limit_hint("Input/output error") is None
    for name in ("a/1", f"{state_dir()}/datasets/data-1/dataset.json"):
        hint = failed(OSError(number, reason, name), REQUEST, THEN).hint
        assert hint == f"{told.partition(', and run')[0]}, and run the same command again: {THEN}"
    # Of a file it says that another program keeps it for itself.
    assert failed(OSError(errno.EAGAIN, "not now", "a/1"), REQUEST, THEN).hint == GENERAL


def test_what_a_server_keeps_root_from_is_not_to_be_fixed() -> None:
    cure = cure_of([Skipped("a/1", "Permission denied", failed=True)])
    assert "let this user read it" in cure and "root_squash" in cure and "fix" not in cure
    assert "--cap-drop" in cure, "a container's root is kept out as well"


def test_a_target_that_gives_back_other_data_is_not_called_the_sources_fault() -> None:
    for reason in ("read back, it has other content, twice", Differs.twice):
        cure = cure_of([Skipped("a/1", reason, failed=True)])
        assert cure.startswith("find out what alters the data on the target")


def test_where_the_target_became_read_only_in_mid_copy_the_kernels_log_is_named(
    tmp_path: Path,
) -> None:
    """As ext4 does once its disk is gone: that the same command goes on is no help before that."""
    descriptor = os.open(tmp_path, os.O_RDONLY)
    private = PrivateDir(descriptor, descriptor, descriptor, "data", resumable=False, then=THEN)
    read_only = _explain(TaskFailed(errno.EROFS, "Read-only file system"), private)
    assert read_only.hint is not None and "`dmesg`" in read_only.hint
    other = _explain(TaskFailed(errno.EACCES, "Permission denied"), private)
    gone = _explain(TaskFailed(errno.ESTALE, "Stale file handle"), private)
    of_ours = _explain(TaskFailed(0, "ValueError: a mistake"), private)
    files, machines = (
        _explain(TaskFailed(code, os.strerror(code)), private)
        for code in (errno.EMFILE, errno.ENFILE)
    )
    os.close(descriptor)
    assert other.hint == GENERAL
    assert gone.hint is not None and gone.hint.startswith("mount it anew")
    assert of_ours.hint == f"run the same command again: {THEN}"
    assert files.spec_hint is not None and "raise `ulimit -n`" in files.spec_hint
    assert machines.spec_hint is not None and "fs.file-max" in machines.spec_hint


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.ENOSPC, errno.ENOMEM, errno.EROFS])
def test_of_a_run_whose_next_begins_anew_no_error_says_otherwise(
    number: int, tmp_path: Path
) -> None:
    request = replace(REQUEST, verify=Verify.NONE)
    then = what_comes_of_it(request, in_ram=False)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    private = PrivateDir(descriptor, descriptor, descriptor, "data", resumable=False, then=then)
    error = _explain(TaskFailed(number, os.strerror(number)), private)
    os.close(descriptor)
    assert error.hint is not None and error.hint.endswith(f"run the same command again: {then}")
    assert "kept" not in error.message and "it copies anew what was not published" in then


def test_a_plan_names_the_target_that_a_failing_disk_keeps_it_from_reading() -> None:
    with pytest.raises(HostprepError) as caught, target_read(REQUEST):
        raise OSError(errno.EIO, "Input/output error", "info.json")
    assert caught.value.message.startswith("the target /mnt/ram/data cannot be looked at: Input")
    assert caught.value.hint is not None and "dmesg" in caught.value.hint


@pytest.mark.parametrize(
    ("named", "where"),
    [
        (5, ""),
        ("/state/manifest.jsonl", " (/state/manifest.jsonl)"),
        ("/proc/self/fd/7/journal.1", " (.hostprep-data/journal.1)"),
    ],
)
def test_a_plan_names_what_it_could_not_read(named: object, where: str) -> None:
    error = OSError(errno.EIO, "says the kernel")
    error.filename = named
    with pytest.raises(HostprepError) as caught, target_read(REQUEST):
        raise error
    assert f"looked at: says the kernel{where}; nothing" in caught.value.message
