"""Every kind of difference that is planted is named, and nothing else is."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.compare import differences

MIB = 1 << 20


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A small tree with one of each, and a whole copy of it."""
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "folder" / "empty").mkdir(parents=True)
    (source / "file").write_bytes(b"content")
    (source / "folder" / "large").write_bytes(os.urandom(5 * MIB))
    (source / "link").symlink_to("folder/large")
    for name in ("one", "two", "three"):
        (source / name).write_bytes(name.encode())
    os.link(source / "one", source / "folder" / "one as well")
    with (source / "sparse").open("wb") as file:
        file.truncate(8 * MIB)
        file.seek(5 * MIB + 17)
        file.write(b"island")
    subprocess.run(["cp", "-a", source, target], check=True)
    return source, target


def keeping_times(path: Path, change: Callable[[], object]) -> None:
    """Make a change that does not show in the modification times of ``path`` and its directory."""
    before = [(p, p.lstat()) for p in (path, path.parent) if os.path.lexists(p)]
    change()
    for p, found in before:
        if os.path.lexists(p):
            times = (found.st_atime_ns, found.st_mtime_ns)
            os.utime(p, ns=times, follow_symlinks=False)


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


def replace(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


def fill_holes(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(b"\1" * len(content))
    path.write_bytes(content)


def test_a_whole_copy_is_no_different(pair: tuple[Path, Path]) -> None:
    assert differences(*pair, owners=True) == []


PLANTED: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "a missing file": ("file", lambda p: p.unlink(), "'file': missing in the target"),
    "a missing empty directory": (
        "folder/empty",
        lambda p: p.rmdir(),
        "'folder/empty': missing in the target",
    ),
    "an extra file": ("more", lambda p: p.touch(), "'more': in the target only"),
    "a flipped bit": ("folder/large", lambda p: flip(p, 4 * MIB + 5), f"from byte {4 * MIB + 5}"),
    "data in a hole": ("sparse", lambda p: flip(p, 2 * MIB), f"from byte {2 * MIB}"),
    "data lost at the end": ("sparse", lambda p: flip(p, 5 * MIB + 22), f"byte {5 * MIB + 22}"),
    "a shorter file": ("folder/large", lambda p: os.truncate(p, 9), f"9 bytes, not {5 * MIB}"),
    "filled holes": ("sparse", fill_holes, "of space for"),
    "another mode": ("file", lambda p: p.chmod(0o4644), "mode 4644, not 0644"),
    "another mode of a directory": ("folder", lambda p: p.chmod(0o1755), "mode 1755, not 0755"),
    "another target of a link": (
        "link",
        lambda p: replace(p, lambda q: q.symlink_to("file")),
        "points to b'file', not b'folder/large'",
    ),
    "a link replaced by what it points to": (
        "link",
        lambda p: replace(p, lambda q: shutil.copy2(p.parent / "folder/large", q)),
        "'link': a file, not a symlink",
    ),
    "a hard link that became a copy": (
        "folder/one as well",
        lambda p: replace(p, lambda q: shutil.copy2(p.parent.parent / "one", q)),
        "no longer hard links of each other: 'folder/one as well', 'one'",
    ),
    "two files that became one": (
        "three",
        lambda p: replace(p, lambda q: os.link(p.parent / "two", q)),
        "hard links of each other in the target only: 'three', 'two'",
    ),
    "a fifo": ("fifo", lambda p: os.mkfifo(p), "'fifo': a fifo in the target"),
}


@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_difference_is_named(pair: tuple[Path, Path], what: str) -> None:
    source, target = pair
    name, plant, said = PLANTED[what]
    keeping_times(target / name, lambda: plant(target / name))
    found = differences(source, target, owners=False)
    assert any(said in line for line in found), found
    # A file that became another one has its size, and gave it its time; else one says it all.
    assert len(found) == (3 if "became one" in what else 1), found


@pytest.mark.parametrize("name", ["file", "folder", "folder/empty", "link", "."])
@pytest.mark.parametrize("nanoseconds", [1, 10**9])
def test_another_time_is_named(pair: tuple[Path, Path], name: str, nanoseconds: int) -> None:
    source, target = pair
    found = (target / name).lstat()
    moved = found.st_mtime_ns - nanoseconds
    os.utime(target / name, ns=(found.st_atime_ns, moved), follow_symlinks=False)
    (said,) = differences(source, target, owners=True)
    assert said == f"{name!r}: modified at {moved} ns, not {found.st_mtime_ns}"


def test_what_must_be_left_out_may_be_in_the_source_only(pair: tuple[Path, Path]) -> None:
    source, target = pair
    keeping_times(source / "fifo", lambda: os.mkfifo(source / "fifo"))
    os.mknod(source / "folder" / "socket", stat.S_IFSOCK | 0o600)
    shutil.copystat(source / "folder", target / "folder")
    assert differences(source, target, owners=True) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files away")
@pytest.mark.parametrize("name", ["file", "folder", "link"])
def test_another_owner_is_named_where_asked_for(pair: tuple[Path, Path], name: str) -> None:
    source, target = pair
    os.chown(target / name, 12, 34, follow_symlinks=False)
    assert differences(source, target, owners=False) == []
    assert differences(source, target, owners=True) == [f"{name!r}: owner 12:34, not 0:0"]


@pytest.mark.parametrize("name", ["file", "folder"])
@pytest.mark.parametrize("value", [b"", b"\0other"])
def test_other_attributes_are_named(pair: tuple[Path, Path], name: str, value: bytes) -> None:
    source, target = pair
    try:
        os.setxattr(source / name, "user.mark", b"\0one")
    except OSError:
        pytest.skip("no user attributes on the file system of the temporary directory")
    (said,) = differences(source, target, owners=True)
    assert said.startswith(f"{name!r}: attributes {{}}")
    os.setxattr(target / name, "user.mark", value)
    (said,) = differences(source, target, owners=True)
    assert said.startswith(f"{name!r}: attributes")
    assert differences(source, target, owners=True, xattrs=False) == []
    os.setxattr(target / name, "user.mark", b"\0one")
    assert differences(source, target, owners=True) == []


def test_a_directory_that_cannot_be_read_is_no_empty_one(pair: tuple[Path, Path]) -> None:
    source, target = pair
    shutil.rmtree(target)
    with pytest.raises(FileNotFoundError):
        differences(source, target, owners=True)
