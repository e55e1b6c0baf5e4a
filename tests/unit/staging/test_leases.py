"""A file that a server has a lease on: asked for and waited for, and nothing else is."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostprep.staging.files import leases
from hostprep.staging.files.copying import open_source
from hostprep.staging.files.metadata import CopyStyle
from hostprep.staging.files.rereading import difference
from hostprep.staging.model import Verify
from hostprep.staging.reasons import OTHER_CONTENT
from hostprep.system.trees import FILE_FLAGS, DirCache


@pytest.fixture
def leased(tmp_path: Path) -> Iterator[int]:
    """Yield the folder of a file ``f`` whose lease is given up as soon as it is asked for."""
    (tmp_path / "f").write_bytes(b"content")
    holder = os.open(tmp_path / "f", os.O_RDWR)
    folder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    before = signal.signal(
        signal.SIGIO, lambda *_: fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    )
    try:
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        pytest.skip("there are no leases on this file system")
    yield folder
    os.close(holder)
    os.close(folder)
    signal.signal(signal.SIGIO, before)


def test_a_copy_waits_for_a_lease(leased: int) -> None:
    style = CopyStyle(Verify.READBACK, os.getuid(), os.getgid(), may_chown=False)
    os.close(open_source("f", leased, style))


def test_a_comparison_waits_for_a_lease(leased: int) -> None:
    cache = DirCache(leased)
    found = difference(cache, "", ("f", "f", 7, "0" * 32), memoryview(bytearray(64)), cold=False)
    assert found == OTHER_CONTENT
    cache.close()


def test_what_is_barred_for_longer_than_a_lease_lasts_is_waited_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as the files of an archive, which are not on its disk: each would take a minute."""
    tries = []

    def barred(*words: Any, **_: Any) -> int:
        tries.append(words)
        raise BlockingIOError

    monkeypatch.setattr(leases, "_left_seconds", 180.0)
    monkeypatch.setattr(leases, "_longest_seconds", lambda: 0.0)
    monkeypatch.setattr(os, "open", barred)
    for expected in (2, 3):
        with pytest.raises(BlockingIOError):
            leases.open_unleased("f", FILE_FLAGS, dir_fd=3)
        assert len(tries) == expected


def test_who_gives_up_no_lease_holds_up_the_whole_run_only_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel takes each away after 45 s, and of files there may be any number."""
    now, asked = 0.0, -1.0

    def leased(*_: Any, **__: Any) -> int:
        nonlocal asked
        asked = now if asked < 0 else asked
        if now - asked < 45:
            raise BlockingIOError
        asked = -1.0
        return 3

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(leases, "_left_seconds", 180.0)
    monkeypatch.setattr(leases, "_counted_until", 0.0)
    monkeypatch.setattr(leases, "_POLL_SECONDS", 1.0)
    monkeypatch.setattr(leases, "_longest_seconds", lambda: 50.0)
    monkeypatch.setattr("time.sleep", sleep)
    monkeypatch.setattr("time.monotonic", lambda: now)
    monkeypatch.setattr(os, "open", leased)
    opened = 0
    for _ in range(1000):
        with contextlib.suppress(BlockingIOError):
            opened += bool(leases.open_unleased("f", FILE_FLAGS, dir_fd=3))
    assert opened == 4 and now < 250


def test_who_gives_leases_up_is_waited_for_as_often_as_there_are_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client of Samba writes out first; and what many threads wait at once is waited once."""
    monkeypatch.setattr(leases, "_left_seconds", 180.0)
    monkeypatch.setattr(leases, "_counted_until", 0.0)
    monkeypatch.setattr(leases, "_POLL_SECONDS", 0.0)
    monkeypatch.setattr(leases, "_longest_seconds", lambda: 50.0)
    monkeypatch.setattr(os, "open", lambda *_, **__: answers.pop(0)())
    monkeypatch.setattr("time.monotonic", lambda: times.pop(0))

    def not_yet() -> int:
        raise BlockingIOError

    for begin, end in [(each, each + 2.0) for each in range(1000)] + [(2000.0, 2045.0)] * 8:
        answers, times = [not_yet, not_yet, lambda: 3], [begin, begin, end]
        assert leases.open_unleased("f", FILE_FLAGS, dir_fd=3) == 3
    assert leases._left_seconds == 180.0 - 40.0
