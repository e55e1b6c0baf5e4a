"""Who uses a path: real processes that do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hostprep.host.processes import users_of

# Python's own mmap keeps a copy of the descriptor, which would be found first.
MAPPED = "import ctypes; ctypes.CDLL(None).mmap(None, 4096, 1, 2, f.fileno(), 0); f.close()"


@contextmanager
def child(code: str, folder: Path) -> Iterator[int]:
    script = f"import os, sys; {code}; print('ready', flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stdin is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait()


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("os.chdir(sys.argv[1])", "works in {}"),
        ("f = open(sys.argv[1] + '/a file')", "has {}/a file open"),
        (f"f = open(sys.argv[1] + '/a file', 'rb'); {MAPPED}", "has {}/a file mapped"),
        (f"f = open(sys.argv[1] + '/a\\rfile', 'x+'); {MAPPED}", "has {}/a\rfile mapped"),
    ],
)
def test_a_process_is_found_by_what_it_uses(tmp_path: Path, code: str, how: str) -> None:
    (tmp_path / "a file").write_text("some data")
    with child(code, tmp_path) as pid:
        users = users_of(str(tmp_path))
        assert [(user.pid, user.how) for user in users] == [(pid, how.format(tmp_path))]
        assert f"process {pid} (python" in str(users[0])
        assert users_of(str(tmp_path)[:-1]) == ()  # a prefix of the name is another path
    assert users_of(str(tmp_path)) == ()


def test_the_search_ends_at_its_limit(tmp_path: Path) -> None:
    with child("os.chdir(sys.argv[1])", tmp_path), child("os.chdir(sys.argv[1])", tmp_path):
        assert len(users_of(str(tmp_path), limit=1)) == 1
        assert len(users_of(str(tmp_path))) == 2


def test_one_s_own_open_file_counts(tmp_path: Path) -> None:
    with (tmp_path / "x").open("w"):
        assert [user.pid for user in users_of(str(tmp_path))] == [os.getpid()]


def test_a_process_of_another_mount_namespace_does_not_count(tmp_path: Path) -> None:
    for name, namespace in (("self", "mnt:[1]"), ("7", "mnt:[1]"), ("8", "mnt:[2]")):
        (tmp_path / "proc" / name / "ns").mkdir(parents=True)
        (tmp_path / "proc" / name / "ns/mnt").symlink_to(namespace)
        (tmp_path / "proc" / name / "cwd").symlink_to("/mnt/ram/data")
    (tmp_path / "proc/9").mkdir()  # into which this user may not look
    users = users_of("/mnt/ram", root=tmp_path)
    assert [(user.pid, user.how) for user in users] == [(7, "works in /mnt/ram/data")]


def test_a_process_whose_root_is_in_it_uses_it(tmp_path: Path) -> None:
    """As after a chroot(8) into it: its working directory may be elsewhere."""
    process = tmp_path / "proc/42"
    process.mkdir(parents=True)
    (process / "root").symlink_to("/mnt/ram/jail")
    (process / "cwd").symlink_to("/")
    (user,) = users_of("/mnt/ram", tmp_path)
    assert str(user) == "process 42 (unknown) has its root in /mnt/ram/jail"
