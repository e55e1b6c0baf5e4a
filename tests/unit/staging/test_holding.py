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
)


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
