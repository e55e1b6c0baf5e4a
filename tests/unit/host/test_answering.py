"""Paths on mounts that may not answer are asked by a child, where there may be one."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from hostprep.host import answering
from hostprep.host.answering import Standstill
from hostprep.host.mounts import parse_mountinfo


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


_BINFMT = b"31 24 0:29 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw,fd=29\n"
_AUTOMOUNT = b"67 1 0:44 / /n/auto rw,relatime - autofs systemd-1 rw,fd=57,timeout=30,direct\n"


@pytest.mark.parametrize(("mounted", "asked"), [(_BINFMT, False), (_BINFMT + _AUTOMOUNT, True)])
def test_an_automount_is_asked_before_its_server_has_mounted_anything(
    mounted: bytes, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "read_mounts", lambda: parse_mountinfo(mounted))
    monkeypatch.setattr(answering, "_touch", lambda path: time.sleep(60))
    assert answering.silent_ones(["/n/auto/data"], 0.2) == ({"/n/auto/data"} if asked else set())


def test_of_what_is_not_there_the_folder_is_asked_which_no_cache_answers_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(path: str) -> None:
        if path == str(tmp_path):
            time.sleep(60)

    monkeypatch.setattr(answering, "is_remote", lambda _: True)
    monkeypatch.setattr(os, "statvfs", ask)
    path = str(tmp_path / "not/there")
    assert answering.silent_ones([path], 0.2) == {path}


@pytest.mark.parametrize("path", ["not/there", "not-there", "not-there/", ""])
def test_so_is_the_current_folder_of_a_name_that_is_not_there(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`hostprep stage SOURCE --to new` was waited for without end."""
    asked: list[str] = []
    monkeypatch.chdir(tmp_path)
    looked, real = iter(range(5)), os.stat
    with monkeypatch.context() as patched:
        patched.setattr(os, "statvfs", asked.append)
        patched.setattr(os, "stat", lambda path: (next(looked), real(path)))
        answering._touch(path)
    assert asked == ["."]


def test_work_that_comes_to_a_halt_is_told_of_until_it_goes_on() -> None:
    told: list[str] = []
    standstill = Standstill("/srv/data", told.append)
    for second in range(100, 110):
        standstill.seen((second, 0), second)
    assert told == []
    for second in range(110, 120):
        standstill.seen((109, 0), second)
    assert [line.split(", which ")[0] for line in told] == ["waiting for /srv/data"]
    for second in range(120, 125):
        standstill.seen((110, 0), second)
    assert len(told) == 1
    standstill.seen((110, 0), 4000)  # stopped for an hour
    standstill.seen((110, 0), 4001)
    assert len(told) == 1
    for second in range(4002, 4007):
        standstill.seen((110, 0), second)
    assert len(told) == 2


def test_a_halt_that_may_be_the_targets_is_told_of_only_if_the_source_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    asked: list[str] = []
    silent: set[str] = set()

    def silent_ones(paths: list[str], _: float) -> set[str]:
        asked.extend(paths)
        return silent

    monkeypatch.setattr(answering, "silent_ones", silent_ones)
    standstill = Standstill("/srv/data", told.append, doubted=True)
    for second in range(100, 112):
        standstill.seen(0, second)
    assert (told, asked) == ([], ["/srv/data"] * 2)
    silent.add("/srv/data")
    for second in range(112, 130):
        standstill.seen(0, second)
    assert (len(told), len(asked)) == (1, 3)
    # It did at 110 s.
    assert told[0].startswith("waiting for /srv/data, which has not answered for 5 s")


_SHARES = b"""\
24 1 8:1 / / rw - ext4 /dev/sda1 rw
70 24 0:50 / /srv/data/images rw - nfs4 server:/images rw
71 24 0:51 / /srv/other rw - nfs4 server:/other rw
"""


@pytest.mark.parametrize(("dead", "named"), [("/srv/data/images", True), ("/srv/other", False)])
def test_a_halt_may_be_that_of_a_share_that_is_mounted_in_the_source(
    dead: str, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "read_mounts", lambda: parse_mountinfo(_SHARES))
    monkeypatch.setattr(answering, "_ASKED_SECONDS", 0.2)
    monkeypatch.setattr(answering, "_touch", lambda path: time.sleep(60 if path == dead else 0))
    told: list[str] = []
    standstill = Standstill("/srv/data", told.append, doubted=True)
    for second in range(100, 106):
        standstill.seen(0, second)
    assert bool(told) is named
