"""The hostile set has what it says, on whatever file system the temporary directory lies."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.kit.compare import differences
from tests.kit.hostile import HostileSet, make_hostile


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> HostileSet:
    return make_hostile(tmp_path_factory.mktemp("hostile") / "set", big=False)


def found(hostile: HostileSet) -> dict[bytes, os.stat_result]:
    root = os.fsencode(hostile.root)
    return {name: os.lstat(os.path.join(root, name)) for name in hostile.copied | hostile.left_out}


def test_every_kind_is_there(hostile: HostileSet) -> None:
    entries = found(hostile)
    kinds = {stat.S_IFMT(entries[name].st_mode) for name in hostile.copied}
    assert kinds == {stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK}
    assert {b"special/socket", b"special/fifo", b"special/\xfffifo"} <= hostile.left_out
    if os.geteuid() == 0 and not hostile.not_made:
        assert {b"special/null", b"special/loop"} <= hostile.left_out


def test_names_are_as_bad_as_promised(hostile: HostileSet) -> None:
    names = {os.path.basename(name) for name in hostile.copied}
    assert {b"\xff" * 255, b"\n" * 255, b"n" * 255, b"two\nlines", b"-rf", b" ", b"\\"} <= names
    assert max(name.count(b"/") for name in hostile.copied) >= 100
    with pytest.raises(UnicodeDecodeError):
        b"\n".join(sorted(names)).decode()


def test_holes_links_times_and_owners(hostile: HostileSet) -> None:
    entries = found(hostile)
    large = entries[b"sparse/3 GiB, data at the end"]
    assert large.st_size == 3 << 30
    assert large.st_blocks * 512 < 1 << 20
    assert entries[b"hard/here/five-0"].st_nlink == 5
    assert entries[b"times/link at -1"].st_mtime_ns == -1
    assert len({e.st_mtime_ns % 1000 for e in entries.values()}) > 200, "times to the nanosecond"
    if os.geteuid() == 0:
        assert len({(e.st_uid, e.st_gid) for e in entries.values()}) >= 5
        assert stat.S_IMODE(entries[b"owners/suid"].st_mode) == 0o6755
    assert hostile.data_bytes < 20 << 20


def test_two_sets_are_alike_and_a_careless_copy_is_not(hostile: HostileSet, tmp_path: Path) -> None:
    twin = make_hostile(tmp_path / "twin", big=False)
    assert twin.copied == hostile.copied
    said = differences(hostile.root, twin.root, owners=True)
    absolute = [line for line in said if "points to" in line]  # the absolute link names its root
    leftovers = [line for line in said if "special/" in line]
    assert len(absolute) == 1
    assert len(leftovers) == len(hostile.left_out)
    assert len(said) == len(absolute) + len(leftovers)

    names = ("all hole", "many islands", "data, hole, data")
    (careful := tmp_path / "careful").mkdir()
    (careless := tmp_path / "careless").mkdir()
    for into, manner in ((careful, ("-a",)), (careless, ("-r", "--sparse=never"))):
        paths = [hostile.root / "sparse" / name for name in names]
        subprocess.run(["cp", *manner, *paths, into], check=True)
    said = differences(careful, careless, owners=True)
    assert sum("of space for" in line for line in said) == len(names)
    assert sum("modified at" in line for line in said) == len(names) + 1
