"""The quick way takes ordinary files whole, and leaves nothing of those that are not ordinary."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from stat import S_ISLNK

import pytest
import xxhash

from hostprep.staging.files import small
from hostprep.staging.files.metadata import CopyStyle, copy_xattrs
from hostprep.staging.files.small import SMALL_BYTES, Unusual, copy_link, copy_small
from hostprep.staging.model import Verify
from hostprep.staging.tree import entry_of
from tests.kit.acls import ACCESS_ACL, access_acl, nfs4_acl
from tests.kit.compare import differences


class Pair:
    """A source with one file, an empty target, and the quick way from one to the other."""

    def __init__(self, root: Path, verify: Verify) -> None:
        self.source, self.target = root / "source", root / "target"
        self.source.mkdir()
        self.target.mkdir()
        self.style = CopyStyle(verify, os.geteuid(), os.getegid(), os.geteuid() == 0)
        self.file = self.source / "file"

    def copy(self, meanwhile: Callable[[Path], object] = lambda path: None) -> str | None:
        """Copy the file as it is scanned now; ``meanwhile`` changes it before it is copied."""
        item = tuple(entry_of("file", os.lstat(self.file)))
        meanwhile(self.file)
        source, target = (os.open(path, os.O_RDONLY) for path in (self.source, self.target))
        umask = os.umask(0)
        way = copy_link if S_ISLNK(item[1]) else copy_small
        try:
            return way(item, source, target, self.style)
        finally:
            os.umask(umask)
            os.close(source)
            os.close(target)


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path, Verify.READBACK)


@pytest.mark.parametrize("verify", Verify)
@pytest.mark.parametrize("size", [0, 1, 4096, SMALL_BYTES])
def test_an_ordinary_file_arrives(size: int, verify: Verify, tmp_path: Path) -> None:
    pair, data = Pair(tmp_path, verify), os.urandom(size)
    pair.file.write_bytes(data)
    pair.file.chmod(0o426)
    os.utime(pair.file, ns=(1, 123_456_789_012_345_678))
    wanted = None if verify is Verify.NONE else xxhash.xxh3_128_hexdigest(data)
    assert pair.copy() == wanted
    for folder in (pair.source, pair.target):
        folder.chmod(0o755)
        os.utime(folder, ns=(5, 5))
    assert differences(pair.source, pair.target, owners=True) == []


def set_attribute(path: Path, name: str = "user.mine", value: bytes = b"kept") -> None:
    try:
        os.setxattr(path, name, value)
    except OSError as error:
        pytest.skip(f"no such attributes here: {error.strerror}")


def set_acl(path: Path) -> None:
    set_attribute(path, ACCESS_ACL, access_acl(0o640, user=7))


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_bytes(bytes(SMALL_BYTES + 1)),
        lambda path: (path.touch(), os.truncate(path, 100_000)),
        lambda path: (path.write_bytes(b"x"), path.chmod(0o4755)),
        lambda path: (path.write_bytes(b"x"), set_acl(path)),
    ],
    ids=["large", "sparse", "setuid", "ACL"],
)
def test_what_is_not_ordinary_is_left_to_others(make: Callable[[Path], object], pair: Pair) -> None:
    make(pair.file)
    with pytest.raises(Unusual):
        pair.copy()
    assert list(pair.target.iterdir()) == []


def test_attributes_arrive_with_one_look_at_the_content(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.file.write_bytes(b"x")
    set_attribute(pair.file)
    set_attribute(pair.file, "user.large", bytes(1000))
    reads = []
    read = os.read
    monkeypatch.setattr(
        small.os, "read", lambda source, size: reads.append(source) or read(source, size)
    )
    pair.copy()
    copy = pair.target / "file"
    assert len(reads) == 1
    assert sorted(os.listxattr(copy)) == ["user.large", "user.mine"]
    assert os.getxattr(copy, "user.mine") == b"kept"
    assert os.getxattr(copy, "user.large") == bytes(1000)
    assert pair.style.lost_xattrs == 0


def test_only_a_device_without_attributes_is_not_asked_for_them(pair: Pair) -> None:
    """Another file system may be mounted in a data set, and have none."""
    pair.file.write_bytes(b"x")
    set_attribute(pair.file)
    device = os.stat(pair.file).st_dev
    pair.style.without_xattrs = {device + 1}
    pair.copy()
    assert os.listxattr(pair.target / "file") == ["user.mine"]
    (pair.target / "file").unlink()
    pair.style.without_xattrs = {device}
    pair.copy()
    assert os.listxattr(pair.target / "file") == []


def test_a_target_without_attributes_is_learnt_of_with_care(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    pair.file.write_bytes(b"x")
    set_attribute(pair.file)
    monkeypatch.setattr(small.os, "setxattr", refuse)
    with pytest.raises(OSError, match="not supported"):
        pair.copy()
    assert list(pair.target.iterdir()) == []
    assert pair.style.lost_xattrs == 0
    pair.style.target_xattrs = False  # as the way with care knows by now
    pair.copy()
    assert (pair.target / "file").read_bytes() == b"x"
    assert pair.style.lost_xattrs == 1


def test_a_file_with_an_acl_is_not_read_for_nothing(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.file.write_bytes(b"x")
    set_acl(pair.file)
    monkeypatch.setattr(small.os, "read", lambda *_: pytest.fail("it was read"))
    with pytest.raises(Unusual):
        pair.copy()


def test_many_attributes_are_not_held_at_once(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of 64 KiB each, of every file that is at hand, would take all of the memory."""
    names = [f"user.{number}" for number in range(6000)]
    pair.file.write_bytes(b"x")
    monkeypatch.setattr(small.os, "listxattr", lambda _: names)
    monkeypatch.setattr(small.os, "getxattr", lambda *_: pytest.fail("it was read"))
    with pytest.raises(Unusual):
        pair.copy()


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(b"shorter"),
        lambda path: path.write_bytes(b"longer than it was before"),
        lambda path: os.utime(path, ns=(7, 7)),
        lambda path: path.chmod(0o600),
        lambda path: (path.unlink(), os.mkfifo(path)),
        lambda path: (path.unlink(), path.symlink_to("/etc/passwd")),
        lambda path: path.unlink(),
    ],
    ids=["shorter", "longer", "time", "mode", "fifo", "symlink", "gone"],
)
def test_what_is_not_as_it_was_scanned_is_left_to_others(
    change: Callable[[Path], object], pair: Pair
) -> None:
    pair.file.write_bytes(b"as it was, once")
    os.utime(pair.file, ns=(5, 5))
    with pytest.raises((Unusual, OSError)):
        pair.copy(change)
    assert list(pair.target.iterdir()) == []


@pytest.mark.parametrize(
    "make",
    [lambda path: path.write_bytes(b"new"), lambda path: path.symlink_to("elsewhere")],
    ids=["file", "symlink"],
)
def test_what_is_in_the_way_stays(make: Callable[[Path], object], pair: Pair) -> None:
    make(pair.file)
    (pair.target / "file").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        pair.copy()
    assert (pair.target / "file").read_bytes() == b"old"


def test_what_comes_back_differently_is_taken_away(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.file.write_bytes(b"written")
    monkeypatch.setattr(small.os, "pread", lambda *_: b"wrItten")
    with pytest.raises(Unusual):
        pair.copy()
    assert list(pair.target.iterdir()) == []


@pytest.mark.parametrize("verify", Verify)
def test_what_is_not_written_in_one_go_is_left_to_others(
    verify: Verify, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a target that is nearly full: nothing else tells of it where it is not read back."""
    pair, write = Pair(tmp_path, verify), os.write
    pair.file.write_bytes(b"written")
    monkeypatch.setattr(small.os, "write", lambda target, data: write(target, data[:-1]))
    with pytest.raises(Unusual):
        pair.copy()
    assert list(pair.target.iterdir()) == []


def test_what_grows_after_it_was_read_is_left_to_others(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two writes of one tick of the kernel's clock leave the same time."""
    pair.file.write_bytes(b"as it was")
    moment, read = pair.file.stat().st_mtime_ns, os.read

    def then_grow(source: int, size: int) -> bytes:
        data = read(source, size)
        with pair.file.open("ab") as file:
            file.write(b", and more")
        os.utime(pair.file, ns=(moment, moment))
        return data

    monkeypatch.setattr(small.os, "read", then_grow)
    with pytest.raises(Unusual):
        pair.copy()
    assert list(pair.target.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, which may give files away")
def test_the_owner_is_kept(pair: Pair) -> None:
    pair.file.write_bytes(b"x")
    os.chown(pair.file, 1234, 4321)
    pair.copy()
    st = (pair.target / "file").stat()
    assert (st.st_uid, st.st_gid) == (1234, 4321)


def test_content_beyond_the_size_wants_more_care(tmp_path: Path) -> None:
    """As of what a FUSE file system serves without knowing its size; files of /proc have 0."""
    item = tuple(entry_of("version", os.lstat("/proc/version")))
    style = CopyStyle(Verify.READBACK, os.geteuid(), os.getegid(), os.geteuid() == 0)
    source, target = (os.open(path, os.O_RDONLY) for path in ("/proc", tmp_path))
    try:
        with pytest.raises(Unusual):
            copy_small(item, source, target, style)
    finally:
        os.close(source)
        os.close(target)
    assert not list(tmp_path.iterdir())


def test_a_symlink_arrives_with_its_times(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are looked at once: a target that dates one link dates them all."""
    looks = []
    lstat = os.lstat
    monkeypatch.setattr(
        small.os, "lstat", lambda *given, **how: looks.append(given) or lstat(*given, **how)
    )
    for content in ("elsewhere", "../out"):
        for folder in (pair.source, pair.target):
            (folder / "file").unlink(missing_ok=True)
        pair.file.symlink_to(content)
        os.utime(pair.file, ns=(1, 123_456_789_012_345_678), follow_symlinks=False)
        assert pair.copy() == content
        copy = lstat(pair.target / "file")
        assert os.readlink(pair.target / "file") == content
        assert copy.st_mtime_ns == 123_456_789_012_345_678
    looked_at = [str(name) for name, *_ in looks]
    # By the scan's stand-in, at the source after its content was read, and once at the target.
    assert looked_at.count("file") == 3


@pytest.mark.parametrize("content", ["somewhere else", "ELSEWHERE"])
def test_a_symlink_that_changed_is_left_to_others(content: str, pair: Pair) -> None:
    pair.file.symlink_to("elsewhere")
    os.utime(pair.file, ns=(5, 5), follow_symlinks=False)

    def other(path: Path) -> None:
        path.unlink()
        path.symlink_to(content)

    with pytest.raises(Unusual):
        pair.copy(meanwhile=other)
    assert list(pair.target.iterdir()) == []


def test_a_target_that_dates_no_symlinks_is_left_to_others(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.file.symlink_to("elsewhere")
    os.utime(pair.file, ns=(1, 1), follow_symlinks=False)
    monkeypatch.setattr(small.os, "utime", lambda *given, **how: None)
    with pytest.raises(Unusual):
        pair.copy()
    assert list(pair.target.iterdir()) == []


@pytest.mark.parametrize(("shown", "left"), [(0o640, 0o600), (0o644, 0o644), (0o600, 0o600)])
def test_over_nfs_4_the_owning_group_gets_what_it_has_there(
    shown: int, left: int, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ACL is asked for where it may keep the group from what the mode shows."""
    asked = []

    def getxattr(descriptor: int, name: str) -> bytes:
        asked.append(name)
        return nfs4_acl((0, 0, 0x1, b"1001"))

    monkeypatch.setattr(os, "listxattr", lambda descriptor: ["system.nfs4_acl"])
    monkeypatch.setattr(os, "getxattr", getxattr)
    pair.file.write_bytes(b"x")
    pair.file.chmod(shown)
    if shown == 0o640:
        with pytest.raises(Unusual):
            pair.copy()
    else:
        pair.copy()
    descriptor = os.open(pair.file, os.O_RDONLY)
    try:
        assert copy_xattrs(descriptor, descriptor, shown, pair.style) == left
    finally:
        os.close(descriptor)
    assert pair.style.lost_xattrs == (shown == 0o640)
    assert bool(asked) == (shown == 0o640)
