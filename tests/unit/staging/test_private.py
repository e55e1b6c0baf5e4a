"""The private directory: whose work is taken up, and whose is begun."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostprep.errors import Refused
from hostprep.staging.target import held
from hostprep.staging.target import private as private_module
from hostprep.staging.target.owned import not_private
from hostprep.staging.target.private import (
    footprint,
    is_there,
    open_or_make,
    open_resumable,
    prepare,
    sweep,
)
from hostprep.system.locks import Locked
from tests.kit.acls import access_acl
from tests.kit.processes import open_files

DEFAULT_ACL = "system.posix_acl_default"


@pytest.fixture
def parent_fd(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    before = open_files()
    yield descriptor
    assert open_files() == before, "descriptors were left open"
    os.close(descriptor)


def resumable(parent_fd: int, purpose: dict[str, str]) -> bool:
    """Prepare, leave a copy in it as a run does that is killed, and say what was told."""
    private = prepare(parent_fd, purpose)
    os.close(os.open("copy", os.O_CREAT | os.O_WRONLY, dir_fd=private.tree_fd))
    private.close()
    return private.resumable


def test_only_what_an_earlier_run_left_for_the_same_is_taken_up(
    tmp_path: Path, parent_fd: int
) -> None:
    purpose = {"target": str(tmp_path / "data"), "verify": "readback"}
    copy = tmp_path / ".hostprep-data/tree/copy"
    assert resumable(parent_fd, purpose) is False  # what is new holds nothing to be looked through
    assert resumable(parent_fd, purpose) is True and copy.exists()
    private = prepare(parent_fd, {**purpose, "verify": "none"})
    private.close()
    assert private.resumable is False and not copy.exists()


def test_while_it_is_open_nobody_else_works_in_it(
    tmp_path: Path, parent_fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held, "_PATIENCE_SECONDS", 0.05)
    purpose = {"target": str(tmp_path / "data"), "verify": "readback"}
    private = prepare(parent_fd, purpose)
    for work in (
        lambda: prepare(parent_fd, purpose),
        lambda: open_or_make(parent_fd, str(tmp_path / "data")),
    ):
        with pytest.raises(Locked, match="is at work on"):
            work()
    sweep(parent_fd, purpose["target"])
    assert (tmp_path / ".hostprep-data/tree").is_dir(), "what another run needs is left to it"
    stuck = os.dup(private.fd)  # as in a killed worker that does not end
    private.close()
    prepare(parent_fd, purpose).close()
    os.close(stuck)


def test_of_two_that_begin_at_once_one_makes_it(
    tmp_path: Path, parent_fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    purpose = {"target": str(tmp_path / "data"), "verify": "readback"}
    prepare(parent_fd, purpose).close()
    monkeypatch.setattr(private_module, "open_held", lambda *_: None)
    for work in (
        lambda: prepare(parent_fd, purpose),
        lambda: open_or_make(parent_fd, str(tmp_path / "data")),
    ):
        with pytest.raises(Locked, match="is at work on"):
            work()
    assert (tmp_path / ".hostprep-data/tree").is_dir()


def test_what_was_removed_meanwhile_is_not_worked_in(
    tmp_path: Path, parent_fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other run publishes and ends between the moments of opening and of holding."""
    purpose = {"target": str(tmp_path / "data"), "verify": "readback"}
    private = prepare(parent_fd, purpose)

    def ends(_: float) -> None:
        private.remove()
        private.close()

    monkeypatch.setattr("time.sleep", ends)
    with pytest.raises(Locked, match="was at work on"):
        prepare(parent_fd, purpose)
    assert os.listdir(tmp_path) == []


def test_where_others_may_write_everything_it_is_not_begun(
    tmp_path: Path, parent_fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on exFAT or a share that is mounted with umask=0: the second run would have refused it."""
    make = os.mkdir

    def made_for_all(name: str, mode: int, *, dir_fd: int) -> None:
        make(name, dir_fd=dir_fd)
        os.chmod(name, 0o777, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", made_for_all)
    with pytest.raises(Refused, match="lets others write to every directory"):
        prepare(parent_fd, {"target": str(tmp_path / "data")})
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_made_private_is_named(
    tmp_path: Path, parent_fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(descriptor: int, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchmod", refused)
    with pytest.raises(PermissionError) as caught:
        prepare(parent_fd, {"target": str(tmp_path / "data")})
    assert caught.value.filename == ".hostprep-data"
    assert not list(tmp_path.iterdir())


def test_what_another_version_left_is_said_to_be_that_and_stays(
    tmp_path: Path, parent_fd: int
) -> None:
    purpose = {"target": str(tmp_path / "data")}
    resumable(parent_fd, purpose)
    info = tmp_path / ".hostprep-data/info.json"
    info.write_text(info.read_text().replace("hostprep.manifest/1", "hostprep.manifest/7"))
    with pytest.raises(Refused, match=r"of another version of hostprep \(hostprep.manifest/7\)"):
        prepare(parent_fd, purpose)
    assert (tmp_path / ".hostprep-data/tree/copy").exists()


def test_what_others_can_write_or_another_owns_is_refused_and_stays(
    tmp_path: Path, parent_fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    purpose = {"target": str(tmp_path / "data")}
    resumable(parent_fd, purpose)
    private = tmp_path / ".hostprep-data"
    for mode in (0o720, 0o702):
        private.chmod(mode)
        with pytest.raises(Refused, match="others can write it"):
            prepare(parent_fd, purpose)
    private.chmod(0o755)  # as on exFAT, which has one mode for all
    assert resumable(parent_fd, purpose) is True
    assert private.stat().st_mode & 0o777 == 0o700, "where there are modes it is closed again"
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(Refused, match="not a private directory of this user"):
        prepare(parent_fd, purpose)
    assert (private / "tree/copy").exists()


def test_it_is_looked_for_by_what_it_is_for(tmp_path: Path, parent_fd: int) -> None:
    purpose = {"target": str(tmp_path / "data"), "verify": "readback"}
    private = tmp_path / ".hostprep-data"
    assert open_resumable(parent_fd, purpose) is None and not is_there(parent_fd, purpose["target"])
    assert not private.exists()
    os.close(open_or_make(parent_fd, purpose["target"]))
    assert is_there(parent_fd, purpose["target"]) and open_resumable(parent_fd, purpose) is None
    resumable(parent_fd, purpose)
    found = open_resumable(parent_fd, purpose)
    assert found is not None and os.path.samestat(os.fstat(found), private.stat())
    os.close(found)
    assert open_resumable(parent_fd, {**purpose, "verify": "none"}) is None
    os.close(open_or_make(parent_fd, purpose["target"]))
    assert (private / "tree/copy").exists(), "it is only opened"
    sweep(parent_fd, purpose["target"])
    assert not list(tmp_path.iterdir())
    sweep(parent_fd, purpose["target"])


def test_what_a_run_left_that_was_killed_as_it_made_it_is_begun_anew(
    tmp_path: Path, parent_fd: int
) -> None:
    target, private = str(tmp_path / "data"), tmp_path / ".hostprep-data"
    private.mkdir(mode=0o700)
    (private / "info.json").touch()
    os.close(open_or_make(parent_fd, target))
    assert target in (private / "info.json").read_text()


def test_what_was_not_made_for_it_is_refused_and_stays(tmp_path: Path, parent_fd: int) -> None:
    purpose, private = {"target": str(tmp_path / "data")}, tmp_path / ".hostprep-data"

    def refused() -> None:
        for ask in (
            lambda: open_resumable(parent_fd, purpose),
            lambda: is_there(parent_fd, purpose["target"]),
            lambda: open_or_make(parent_fd, purpose["target"]),
            lambda: prepare(parent_fd, purpose),
            lambda: sweep(parent_fd, purpose["target"]),
        ):
            with pytest.raises(Refused, match=r"\.hostprep-data on the target"):
                ask()

    other = tmp_path / "other"
    (other / "tree").mkdir(parents=True, mode=0o700)
    private.symlink_to(other)
    refused()
    private.unlink()
    private.touch()
    refused()
    private.unlink()
    other.rename(private)
    refused()
    (private / "info.json").write_text('{"target": "/elsewhere", "format": "hostprep.manifest/1"}')
    refused()
    (private / "info.json").unlink()
    (private / "info.json").symlink_to("tree")
    refused()
    (private / "info.json").unlink()
    (private / "tree").rmdir()
    os.mkfifo(private / "info.json")  # which has no size, either, as what a killed run left
    refused()
    (private / "info.json").unlink()
    for damaged in ("[somebody's", "[" * 99_999):
        (private / "info.json").write_text(damaged)
        refused()
    (private / "tree").mkdir()
    assert sorted(os.listdir(private)) == ["info.json", "tree"]


def test_what_an_early_version_left_of_an_unstaging_is_said_to_be_that(
    tmp_path: Path, parent_fd: int
) -> None:
    """It has no description, so it may be anybody's."""
    left = tmp_path / ".hostprep-data"
    (left / "removing/folder").mkdir(parents=True)
    left.chmod(0o700)
    with pytest.raises(Refused, match="was not made by hostprep for") as caught:
        is_there(parent_fd, str(tmp_path / "data"))
    assert caught.value.hint is not None and "early versions leave" in caught.value.hint
    assert caught.value.spec_hint == caught.value.hint
    assert (left / "removing/folder").exists()
    (left / "others").touch()
    with pytest.raises(Refused) as caught:
        is_there(parent_fd, str(tmp_path / "data"))
    assert caught.value.hint is not None and "early versions" not in caught.value.hint


def test_what_cannot_be_opened_as_it_was_made_is_not_left(tmp_path: Path, parent_fd: int) -> None:
    """As where a default ACL of the target closes to its owner what is made there."""
    is_root = os.geteuid() == 0
    before = os.umask(0o777)
    try:
        if is_root:
            os.chown(tmp_path, 65534, -1)
            os.seteuid(65534)
        with pytest.raises(PermissionError):
            prepare(parent_fd, {"target": str(tmp_path / "data")})
    finally:
        if is_root:
            os.seteuid(0)
        os.umask(before)
    assert not list(tmp_path.iterdir())


def test_what_is_exchanged_as_it_is_made_is_refused_and_stays(
    tmp_path: Path, parent_fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever owns the target can put another directory in its place."""
    full = tmp_path / "full"
    (full / "precious").mkdir(parents=True)
    make = os.mkdir

    def exchanging(name: str, mode: int, *, dir_fd: int) -> None:
        make(name, mode, dir_fd=dir_fd)
        (tmp_path / name).rename(tmp_path / "moved")
        full.rename(tmp_path / name)

    monkeypatch.setattr(os, "mkdir", exchanging)
    with pytest.raises(Refused, match="is not a private directory of this user"):
        prepare(parent_fd, {"target": str(tmp_path / "data")})
    assert os.listdir(tmp_path / ".hostprep-data") == ["precious"]


def test_what_is_put_into_it_as_it_is_claimed_is_not_published(
    tmp_path: Path, parent_fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by whoever had it open while others could write to it."""
    chown, tree = os.fchown, tmp_path / ".hostprep-data/tree"

    def meanwhile(descriptor: int, uid: int, gid: int) -> None:
        tree.mkdir()
        (tree / "theirs").write_bytes(b"somebody's")
        chown(descriptor, uid, gid)

    monkeypatch.setattr(os, "fchown", meanwhile)
    with pytest.raises(Refused, match="is not a private directory of this user"):
        prepare(parent_fd, {"target": str(tmp_path / "data")})
    assert (tree / "theirs").read_bytes() == b"somebody's"


@pytest.mark.parametrize(
    ("owner", "whose"),
    [(None, "user; nothing"), (os.geteuid(), "user; nothing"), (1234, "belongs to uid 1234")],
)
def test_whose_it_is_is_said_if_it_is_known_and_not_ones_own(owner: int | None, whose: str) -> None:
    refusal = not_private(".hostprep-data", owner)
    assert whose in refusal.message
    assert ("for them to remove" in (refusal.hint or "")) is (owner == 1234)


def test_what_it_is_for_is_on_disk_before_anything_is_in_it(
    tmp_path: Path, parent_fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an empty file, as a power cut may leave it, the next run would not know it."""
    private, fsync, seen = tmp_path / ".hostprep-data", os.fsync, []

    def noting(descriptor: int) -> None:
        seen.append((os.listdir(private), str(tmp_path) in (private / "info.json").read_text()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    prepare(parent_fd, {"target": str(tmp_path / "data")}).close()
    assert seen == [(["info.json"], True)]


def test_its_journals_are_replaced_and_nothing_else(tmp_path: Path, parent_fd: int) -> None:
    private = prepare(parent_fd, {"target": str(tmp_path / "data")})
    try:
        for number in range(2):
            (tmp_path / private.name / f"journal.{number}").write_bytes(b"old")
        private.replace_journals([b"one", b"two"])
        (journal,) = private.journals()
        assert Path(journal).read_bytes() == b"onetwo"
        assert len(os.listdir(private.fd)) == 3, "info.json and the tree stay"
        (tmp_path / private.name).rename(tmp_path / "moved")
        assert private.remove() is False, "its name is nobody's, and it is not gone"
        assert list((tmp_path / "moved").iterdir()) == []
    finally:
        private.close()


def test_it_takes_no_access_from_the_target(tmp_path: Path, parent_fd: int) -> None:
    """A default ACL, or the group of a directory with setgid, would go on to all copies."""
    os.setxattr(tmp_path, DEFAULT_ACL, access_acl(0o700, user=54321, permissions=0o7))
    if os.geteuid() == 0:
        os.chown(tmp_path, -1, 54321)
    tmp_path.chmod(0o2770)
    private = prepare(parent_fd, {"target": str(tmp_path / "data")})
    try:
        for descriptor in (private.fd, private.tree_fd):
            status = os.fstat(descriptor)
            assert (status.st_mode & 0o7777, status.st_gid) == (0o700, os.getegid())
            assert DEFAULT_ACL not in os.listxattr(descriptor)
    finally:
        private.close()


def test_what_it_takes_is_told(tmp_path: Path, parent_fd: int) -> None:
    assert footprint(parent_fd, "data") == (0, 0)
    private = prepare(parent_fd, {"target": str(tmp_path / "data")})
    try:
        before_bytes, before_inodes = footprint(parent_fd, "data")
        one, other = (tmp_path / private.name / "tree" / name for name in "ab")
        one.write_bytes(b"x" * 8192)
        os.link(one, other)
        size_bytes, inodes = footprint(parent_fd, "data")
        assert size_bytes - before_bytes == one.stat().st_blocks * 512 > 0, "of two names once"
        assert inodes - before_inodes == 2 and before_inodes == 2
    finally:
        private.close()


def test_what_counts_no_names_takes_what_it_takes(
    tmp_path: Path, parent_fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".hostprep-data").mkdir()
    of_fuse = ("copy", 0o100644, 4096, 0, 0, 0, 8, 0, 1, 1)
    listed = [("", iter([of_fuse]))]
    monkeypatch.setattr("hostprep.staging.target.private.walk", lambda _: listed)
    assert footprint(parent_fd, "data") == (4096, 1)


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN])
def test_what_a_disk_or_server_does_not_tell_is_not_taken_for_somebody_elses(
    number: int, tmp_path: Path, parent_fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(parent_fd, {"target": str(tmp_path / "data")}).close()
    opening = os.open

    def gone(path: str, *args: Any, **kwargs: Any) -> int:
        if path == "info.json":
            raise OSError(number, os.strerror(number))
        return opening(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", gone)
    with pytest.raises(OSError, match=os.strerror(number)):
        prepare(parent_fd, {"target": str(tmp_path / "data")})
    assert sorted(os.listdir(tmp_path / ".hostprep-data")) == ["info.json", "tree"]
