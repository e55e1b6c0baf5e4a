"""Paths on mounts that may not answer are asked by a child, where there may be one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from hostprep.host import answering


def test_without_a_further_process_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> int:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(answering, "is_remote", lambda _: True)
    monkeypatch.setattr(os, "fork", refused)
    told: list[str] = []
    answering.wait_for_answers([str(tmp_path)], told.append)
    assert told == []
