"""The inner loop of the copier on real files: content, holes, metadata, and what it refuses."""

from __future__ import annotations

import errno
import os
import resource
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import xxhash

from hostprep.staging.files import copying, ranges, transfer
from hostprep.staging.files.holding import THIS_NAME, holding
from hostprep.staging.files.metadata import CopyStyle
from hostprep.staging.files.transfer import BUFFER_BYTES, Changed, Differs, WrongSize, new_buffer
from hostprep.staging.model import RANGE_BYTES, Entry, Verify
from hostprep.staging.reasons import GONE, TARGET_CANNOT
from hostprep.staging.tree import entry_of
from hostprep.system.trees import DirCache
from tests.kit.acls import ACCESS_ACL, access_acl
from tests.kit.compare import differences

MIB = 1 << 20


@dataclass
class Pair:
    """A source and a target directory, and what copying from one to the other needs."""

    source: Path
    target: Path
    source_fd: int
    target_fd: int
    style: CopyStyle
    buffer: memoryview

    def entry(self, name: str) -> Entry:
        return entry_of(name, os.lstat(self.source / name))

    def copy(self, name: str, entry: Entry | None = None) -> tuple[Entry, str | None]:
        umask = os.umask(0)
        try:
            wanted = entry or self.entry(name)
            return copying.copy_file(
                wanted, self.source_fd, self.target_fd, self.style, self.buffer
            )
        finally:
            os.umask(umask)

    def differ(self) -> list[str]:
        at = self.source.stat()
        self.target.chmod(at.st_mode & 0o7777)
        os.utime(self.target, ns=(at.st_atime_ns, at.st_mtime_ns))
        return differences(self.source, self.target, owners=True)


@pytest.fixture(params=list(Verify))
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    descriptors = [os.open(path, os.O_RDONLY) for path in (source, target)]
    style = CopyStyle(request.param, os.geteuid(), os.getegid(), os.geteuid() == 0)
    yield Pair(source, target, descriptors[0], descriptors[1], style, new_buffer())
    for descriptor in descriptors:
        os.close(descriptor)


_SHORT = "/sys/kernel/mm/transparent_hugepage/enabled"
SIZES = [0, 1, 4096, BUFFER_BYTES - 1, BUFFER_BYTES, BUFFER_BYTES + 1, 3 * BUFFER_BYTES + 5]


@pytest.mark.parametrize("size", SIZES)
def test_content_arrives_with_its_hash(size: int, pair: Pair) -> None:
    data = os.urandom(size)
    (pair.source / "file").write_bytes(data)
    os.utime(pair.source / "file", ns=(1, 123_456_789_012_345_678))
    copied, content = pair.copy("file")
    assert copied == pair.entry("file")
    wanted = None if pair.style.verify is Verify.NONE else xxhash.xxh3_128_hexdigest(data)
    assert content == wanted
    assert pair.differ() == []


@pytest.fixture
def little_address_space() -> Iterator[None]:
    """Leave this process 32 MiB to map, as ``ulimit -v`` would."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 32 * MIB, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.mark.parametrize("damaged", [False, True])
def test_what_cannot_be_mapped_is_read_back(
    damaged: bool, pair: Pair, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    (pair.source / "file").write_bytes(b"x" * (64 * MIB))
    request.getfixturevalue("little_address_space")
    if damaged and pair.style.verify is Verify.READBACK:
        write = transfer._write_fully
        monkeypatch.setattr(
            transfer, "_write_fully", lambda to, data, at: write(to, bytes(len(data)), at)
        )
        with pytest.raises(transfer.Differs):
            pair.copy("file")
        return
    pair.copy("file")
    assert not pair.differ()


@pytest.mark.parametrize("mode", [0o000, 0o400, 0o666, 0o755, 0o4755, 0o2711, 0o1777])
def test_modes_arrive_whatever_the_owner(mode: int, pair: Pair) -> None:
    if mode & 0o6000 and os.statvfs(pair.source).f_flag & os.ST_NOSUID:
        pytest.skip("the folder for temporary files is mounted nosuid")
    for name, size in (("small", 10), ("buffer", BUFFER_BYTES + 1)):
        (pair.source / name).write_bytes(bytes(size))
        if os.geteuid() == 0:
            os.chown(pair.source / name, 1234, 4321)
        (pair.source / name).chmod(mode)
        if os.geteuid() != 0 and not mode & 0o400:
            pytest.skip("needs root, to read files that are closed to their owner")
        pair.copy(name)
    assert pair.differ() == []


def test_a_program_of_somebody_else_does_not_come_to_run_as_an_ordinary_user(pair: Pair) -> None:
    theirs, own = pair.source / "theirs", pair.source / "own"
    for path in (theirs, own):
        path.write_bytes(b"#!")
    if os.geteuid() == 0:
        os.chown(theirs, 1234, 4321)
    theirs.chmod(0o6755)
    own.chmod(0o6755)
    pair.style.may_chown = False
    if os.geteuid() != 0:
        pair.style.own_uid = pair.style.own_gid = 4321  # as if it were another's
        own.unlink()
    for path in pair.source.iterdir():
        pair.copy(path.name)
    assert stat.S_IMODE((pair.target / "theirs").stat().st_mode) == 0o755
    assert not own.exists() or stat.S_IMODE((pair.target / "own").stat().st_mode) == 0o6755


LAYOUTS: dict[str, tuple[int, list[tuple[int, int]]]] = {
    "all hole": (5 * MIB, []),
    "a hole at the end": (5 * MIB + 3, [(0, 5000)]),
    "a hole at the beginning": (5 * MIB + 3, [(5 * MIB - 10, 13)]),
    "islands": (9 * MIB, [(MIB - 1, 2), (3 * MIB, 4096), (8 * MIB, 70_000)]),
    "across a range": (2 * RANGE_BYTES + 7, [(RANGE_BYTES - 1, 2), (2 * RANGE_BYTES, 7)]),
    "a whole range of hole": (3 * RANGE_BYTES, [(0, 1), (3 * RANGE_BYTES - 1, 1)]),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_holes_stay_holes_and_hash_as_zeros(layout: str, pair: Pair) -> None:
    size, islands = LAYOUTS[layout]
    with (pair.source / "file").open("wb", buffering=0) as file:
        file.truncate(size)
        for start, length in islands:
            os.pwrite(file.fileno(), os.urandom(length), start)
    assert pair.entry("file").is_sparse
    _, content = pair.copy("file")
    assert pair.differ() == [], "content or holes"
    if pair.style.verify is not Verify.NONE:
        with (pair.source / "file").open("rb") as file:
            parts = [file.read(RANGE_BYTES) for _ in range(0, size, RANGE_BYTES)]
        digests = [xxhash.xxh3_128_digest(part) for part in parts]
        joined = xxhash.xxh3_128_hexdigest(b"".join(digests))
        assert content == (joined if len(digests) > 1 else digests[0].hex())


@pytest.mark.parametrize("name", ["size", "time", "mode", "shorter"])
@pytest.mark.parametrize("size", [100, BUFFER_BYTES + 100])
def test_another_file_than_planned_is_not_copied(name: str, size: int, pair: Pair) -> None:
    path = pair.source / "file"
    path.write_bytes(bytes(size))
    planned = pair.entry("file")
    if name == "time":
        os.utime(path, ns=(0, 1))
    elif name == "mode":
        path.chmod(0o600)
    else:
        os.truncate(path, size + 1 if name == "size" else size - 1)
    with pytest.raises(Changed):
        pair.copy("file", planned)
    assert os.listdir(pair.target) == [], "what was written of it stays"
    copied, _ = copying.copy_again(planned, pair.source_fd, pair.target_fd, pair.style, pair.buffer)
    assert copied == pair.entry("file") != planned
    assert (pair.target / "file").stat().st_size == path.stat().st_size


@pytest.mark.parametrize("in_ranges", [False, True])
def test_a_file_that_goes_on_behind_its_size_is_no_whole_one(in_ranges: bool, pair: Pair) -> None:
    """As of what a FUSE file system serves without knowing its size; files of /proc have 0."""
    source = os.open("/proc", os.O_RDONLY)
    entry = entry_of("version", os.lstat("version", dir_fd=source))
    try:
        if in_ranges:
            os.close(ranges.open_target(entry, pair.target_fd))
            with DirCache(source) as proc, DirCache(pair.target_fd) as target:
                assert ranges.finish("", entry, proc, target, pair.style) == "wrong size"
        else:
            with pytest.raises(WrongSize):
                copying.copy_file(entry, source, pair.target_fd, pair.style, pair.buffer)
            assert os.listdir(pair.target) == []
    finally:
        os.close(source)


@pytest.mark.skipif(not os.path.exists(_SHORT), reason="no file of a wrong size in /sys here")
def test_a_file_that_ends_before_its_size_is_not_said_to_have_changed(pair: Pair) -> None:
    """Files of /sys have a page, whatever they hold."""
    entry = entry_of(os.path.basename(_SHORT), os.lstat(_SHORT))
    source = os.open(os.path.dirname(_SHORT), os.O_RDONLY)
    try:
        with pytest.raises(WrongSize, check=lambda error: "changed" not in error.twice):
            copying.copy_file(entry, source, pair.target_fd, pair.style, pair.buffer)
        with DirCache(source) as sys, DirCache(pair.target_fd) as target:
            found = ranges.copy(
                "", tuple(entry), 0, entry.size, sys, target, pair.style, pair.buffer
            )
        assert found == (b"", "wrong size")
    finally:
        os.close(source)


def test_what_took_its_place_is_not_opened_or_waited_for(pair: Pair) -> None:
    (pair.source / "file").write_bytes(b"x")
    planned = pair.entry("file")
    (pair.source / "file").unlink()
    (pair.source / "file").symlink_to("/etc/passwd")
    with pytest.raises(OSError) as caught:
        pair.copy("file", planned)
    assert caught.value.errno == errno.ELOOP
    (pair.source / "file").unlink()
    os.mkfifo(pair.source / "file")
    with pytest.raises((OSError, Changed)):
        pair.copy("file", planned)
    with pytest.raises(Changed):
        copying.copy_again(planned, pair.source_fd, pair.target_fd, pair.style, pair.buffer)
    assert os.listdir(pair.target) == []


@pytest.mark.parametrize("there", ["file", "read-only", "symlink", "hard link"])
def test_what_an_interrupted_run_left_is_replaced_not_written_through(
    there: str, pair: Pair, tmp_path: Path
) -> None:
    (pair.source / "file").write_bytes(b"wanted")
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    path = pair.target / "file"
    if there == "symlink":
        path.symlink_to(precious)
    elif there == "hard link":
        os.link(precious, path)
    else:
        path.write_bytes(b"old and longer than the new")
        path.chmod(0o400 if there == "read-only" else 0o644)
    pair.copy("file")
    assert pair.differ() == [] and precious.read_bytes() == b"precious"


def test_symlinks_are_copied_as_they_are(pair: Pair) -> None:
    for target in ("/etc/passwd", "dangling", "x" * 1000, os.fsdecode(b"\xff\n")):
        link = pair.source / "link"
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        os.utime(link, ns=(5, 1_000_000_007), follow_symlinks=False)
        if os.geteuid() == 0:
            os.chown(link, 12, 34, follow_symlinks=False)
        entry = pair.entry("link")
        copied = copying.copy_symlink(entry, pair.source_fd, pair.target_fd, pair.style)
        assert copied == (entry, target)
        assert pair.differ() == []


@pytest.mark.parametrize("sparse", [False, True])
def test_what_is_written_differently_is_found_by_reading_it_back(
    sparse: bool, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(pair.source / "file", "wb") as file:
        file.write(b"x" * 8192)
        file.truncate(MIB if sparse else 8192)
    assert pair.entry("file").is_sparse is sparse
    write = transfer._write_fully
    monkeypatch.setattr(
        transfer,
        "_write_fully",
        lambda target, data, offset: write(target, memoryview(bytes(len(data))), offset),
    )
    if pair.style.verify is not Verify.READBACK:
        pair.copy("file")
        return
    with pytest.raises(Differs):
        pair.copy("file")
    assert not list(pair.target.iterdir())


def test_short_writes_are_written_on(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    (pair.source / "file").write_bytes(os.urandom(5000))
    write = os.pwrite
    monkeypatch.setattr(
        transfer.os, "pwrite", lambda target, data, at: write(target, data[:999], at)
    )
    pair.copy("file")
    assert pair.differ() == []


@pytest.mark.parametrize(
    ("directory", "content", "out"),
    [
        ("", "/etc", True),
        ("", "..", True),
        ("a", "..", False),
        ("a", "../..", True),
        ("a", "../../c", True),
        ("a/b", "../../c", False),
        ("", "a/../../c", True),
        ("", "..c", False),
    ],
)
def test_which_symlinks_lead_out(directory: str, content: str, out: bool) -> None:
    assert copying.leads_out(directory, content) is out


def test_what_became_something_else_is_not_tried_again(pair: Pair) -> None:
    file = pair.source / "file"
    file.write_bytes(b"was a file")
    entry = pair.entry("file")
    file.unlink()
    file.symlink_to("elsewhere")
    with pytest.raises(Changed):
        copying.copy_again(entry, pair.source_fd, pair.target_fd, pair.style, pair.buffer)
    assert not list(pair.target.iterdir())


def test_what_is_written_until_it_is_tried_again_is_copied_as_it_is_then(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = pair.source / "file"
    file.write_bytes(b"one")
    entry = pair.entry("file")

    def settle(times_ns: tuple[int, ...]) -> bool:
        assert times_ns == (entry.mtime_ns,)
        file.write_bytes(b"another")
        return True

    monkeypatch.setattr(copying, "settle", settle)
    now, _ = copying.copy_again(entry, pair.source_fd, pair.target_fd, pair.style, pair.buffer)
    assert now == pair.entry("file") and (pair.target / "file").read_bytes() == b"another"


def test_a_symlink_that_changed_meanwhile_leaves_nothing(pair: Pair) -> None:
    (pair.source / "link").symlink_to("first")
    entry = pair.entry("link")._replace(mtime_ns=1)
    with pytest.raises(Changed):
        copying.copy_symlink(entry, pair.source_fd, pair.target_fd, pair.style)
    assert os.listdir(pair.target) == []


@pytest.mark.parametrize(("refusal", "others"), [(errno.EOPNOTSUPP, True), (errno.EPERM, False)])
def test_a_source_that_names_no_attributes_speaks_for_its_file_system_alone(
    pair: Pair, refusal: int, others: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (pair.source / "file").write_bytes(b"x")

    def refused(*_: object) -> None:
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(os, "listxattr", refused)
    pair.copy("file")
    device = os.stat(pair.source / "file").st_dev
    assert pair.style.without_xattrs == ({device} if others else set())


def test_attributes_arrive_and_lost_ones_are_counted(pair: Pair) -> None:
    (pair.source / "file").write_bytes(b"x")
    try:
        os.setxattr(pair.source / "file", "user.note", b"\0\xff")
    except OSError:
        pytest.skip("this file system has no user attributes")
    pair.copy("file")
    assert os.getxattr(pair.target / "file", "user.note") == b"\0\xff"
    pair.style.target_xattrs = False  # as a target leaves it that has refused one
    pair.copy("file")
    assert os.listxattr(pair.target / "file") == [] and pair.style.lost_xattrs == 1


def set_acl(path: Path, mode: int, permissions: int) -> bytes:
    acl = access_acl(mode, user=7, permissions=permissions)
    try:
        os.setxattr(path, ACCESS_ACL, acl)
    except OSError:
        pytest.skip("this file system has no ACLs")
    return acl


def test_an_acl_arrives(pair: Pair) -> None:
    (pair.source / "file").write_bytes(b"x")
    acl = set_acl(pair.source / "file", 0o640, 0o6)
    pair.copy("file")
    assert os.getxattr(pair.target / "file", ACCESS_ACL) == acl
    assert pair.style.lost_xattrs == 0


@pytest.mark.parametrize(
    ("mode", "permissions", "expected"),
    [
        (0o644, 0o7, 0o644),
        (0o604, 0o6, 0o604),  # the mask would have let the group in
        (0o666, 0o0, 0o600),  # whom the ACL keeps out is in the group or one of the others now
        (0o600, 0o7, 0o600),
    ],
)
def test_without_its_acl_a_copy_lets_nobody_in_whom_the_source_keeps_out(
    pair: Pair, mode: int, permissions: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (pair.source / "file").write_bytes(b"x")
    set_acl(pair.source / "file", mode, permissions)

    def refused(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "setxattr", refused)
    pair.copy("file")
    assert stat.S_IMODE((pair.target / "file").stat().st_mode) == expected
    assert pair.style.lost_xattrs == 1


@pytest.mark.parametrize("of_target", [False, True])
def test_deleted_is_said_of_the_source_alone(of_target: bool, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    root = os.open(tmp_path, os.O_RDONLY)
    with DirCache(root) as source:
        told = copying.reason_below(missing, "", "a" if of_target else "b", source)
        other = copying.reason_below(OSError(errno.EIO, os.strerror(errno.EIO)), "", "b", source)
    os.close(root)
    assert told == ("No such file or directory" if of_target else GONE)
    assert other == "Input/output error"


def test_a_name_that_cannot_be_held_is_not_said_to_be_deleted(tmp_path: Path) -> None:
    root = os.open(tmp_path, os.O_RDONLY)
    with DirCache(root) as source:
        with pytest.raises(OSError) as caught, holding(THIS_NAME, "odd?"):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        told = copying.reason_below(caught.value, "", "odd?", source)
    os.close(root)
    assert told.startswith(TARGET_CANNOT)
