"""What a target cannot hold is told from what is not there, and what it lacks where it is full."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace

import pytest

from hostprep.staging.files.holding import (
    HARD_LINKS,
    THIS_NAME,
    holding,
    is_full,
    is_unholdable,
    lacks_inodes,
    reason_of,
)
from hostprep.staging.model import CHANGED_TWICE, TARGET_CANNOT, Skipped
from hostprep.staging.shortfall import cure_of


@pytest.mark.parametrize(
    ("what", "path", "code", "cannot"),
    [
        (THIS_NAME, "a/odd?", errno.ENOENT, True),  # as exFAT says
        (THIS_NAME, "odd?/plain", errno.ENOENT, True),
        (THIS_NAME, "a/plain", errno.ENOENT, False),
        (HARD_LINKS, "", errno.ENOENT, False),
        (HARD_LINKS, "", errno.EPERM, True),
        (THIS_NAME, "a/plain", errno.EPERM, False),
        (THIS_NAME, "a/plain", errno.EILSEQ, True),
        (THIS_NAME, "a/odd?", errno.ENOSPC, False),
    ],
)
def test_what_a_target_cannot_hold(what: str, path: str, code: int, cannot: bool) -> None:
    with pytest.raises(OSError) as caught, holding(what, path):
        raise OSError(code, os.strerror(code))
    assert is_unholdable(caught.value) is cannot and caught.value.errno == code


@pytest.mark.parametrize(
    ("inodes", "free_inodes", "free_blocks", "lacks", "full"),
    [
        (1000, 0, 5, True, True),
        (1000, 64, 5, True, True),  # which one file may take with its attributes
        (1000, 65, 5, False, False),
        (1000, 0, 0, False, True),  # without a block more inodes are no help
        (1000, 500, 0, False, True),
        (0, 0, 5, False, False),  # it has no limit of them
    ],
)
def test_what_a_full_target_lacks(
    inodes: int,
    free_inodes: int,
    free_blocks: int,
    lacks: bool,
    full: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room = SimpleNamespace(
        f_files=inodes, f_favail=free_inodes, f_bavail=free_blocks, f_frsize=4096
    )
    monkeypatch.setattr(os, "fstatvfs", lambda descriptor: room)
    assert (lacks_inodes(0), is_full(0)) == (lacks, full)


def test_who_deletes_files_meanwhile_has_no_source_to_mend() -> None:
    gone = Skipped("a", reason_of(OSError(errno.ENOENT, os.strerror(errno.ENOENT))), failed=True)
    assert "deleted since it was listed" in gone.reason
    changing = Skipped("b", CHANGED_TWICE, failed=True)
    assert cure_of([gone, changing]) == "let nothing write to the source meanwhile"
    failing = Skipped("c", reason_of(OSError(errno.EIO, os.strerror(errno.EIO))), failed=True)
    assert (
        cure_of([gone, failing]) == "let nothing write to the source meanwhile and mend the source"
    )


def test_a_name_that_cannot_be_held_is_not_said_to_be_deleted() -> None:
    with pytest.raises(OSError) as caught, holding(THIS_NAME, "odd?"):
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    assert reason_of(caught.value).startswith(TARGET_CANNOT)
