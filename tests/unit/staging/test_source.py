"""Names of data sets, and sources and targets that must not lie inside each other."""

from __future__ import annotations

import dataclasses
import errno
import os
from pathlib import Path

import pytest

from hostprep.errors import HostprepError, Refused, UsageError
from hostprep.host.block import StorageClass
from hostprep.host.mounts import parse_mountinfo, read_mounts
from hostprep.spec.names import name_problem
from hostprep.staging.observer import Silent
from hostprep.staging.source import opening
from hostprep.staging.source.opening import (
    admission_warning,
    check_name,
    is_served,
    open_source,
    patience_for,
)
from hostprep.staging.target.apart import check_apart
from hostprep.staging.target.place import check_writable
from hostprep.system.bounded import ask_in_child


@pytest.mark.parametrize("name", ["data", "a.b", "with space", "na\u00efve", "\u6570", "x" * 200])
def test_names_that_are_fine(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a/b", "/", "a\nb", "\x1b[2J", "a\udcff", ".hidden", ".hostprep-x", "-rf",
     "x" * 201, "\u6570" * 67],
)  # fmt: skip
def test_names_that_are_not(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_name(name)
    problem = name_problem(name)  # which a spec says too
    assert problem is not None and f": it {problem}." in caught.value.message
    assert caught.value.hint is not None and "--name" in caught.value.hint


@pytest.mark.parametrize("user", [0, 1000])
def test_a_source_that_is_closed_says_what_helps(
    user: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*args: object, **more: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", closed)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    with pytest.raises(HostprepError, match="nothing was changed") as caught, open_source("/a"):
        pass
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("run it as a user who may read it")
    assert ("root_squash" in caught.value.hint) is (user == 0)
    assert ("in a container" in caught.value.hint) is (user == 0)


def test_of_a_source_whose_file_system_was_shut_down_the_kernel_tells_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def shut_down(*args: object, **more: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "open", shut_down)
    with pytest.raises(HostprepError, match="cannot be opened") as caught, open_source("/a"):
        pass
    assert caught.value.hint is not None and "dmesg" in caught.value.hint


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        ("/a", "/b/a", None),
        ("/a", "/ab/a", None),
        ("/ab", "/a/ab2", None),
        ("/a/b", "/a/c", None),
        ("/a", "/a", "inside the source"),
        ("/a", "/a/b/c", "inside the source"),
        ("/", "/b", "inside the source"),
        ("/a/b", "/a", "inside the target"),
        ("/a/b/c", "/a/b", "inside the target"),
    ],
)
def test_one_inside_the_other_is_refused(source: str, target: str, words: str | None) -> None:
    if words is None:
        check_apart(source, target)
        return
    with pytest.raises(Refused, match=words):
        check_apart(source, target)


def test_a_resolved_source_is_reached_through_no_symlink(tmp_path: Path) -> None:
    """A user who may write above it could make one lead to what root alone may look into."""
    (tmp_path / "secret/data").mkdir(parents=True)
    for above, below in (("theirs", "secret"), ("own/data", "../secret/data")):
        path = tmp_path / above
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(tmp_path / below if above == "theirs" else below)
    for path in (tmp_path / "theirs/data", tmp_path / "own/data"):
        with open_source(str(path)):
            pass
        with pytest.raises(Refused, match="is a symlink"), open_source(str(path), resolved=True):
            pass
    data = tmp_path / "secret/data"
    with open_source(str(data), resolved=True) as descriptor:
        assert os.path.samestat(os.fstat(descriptor), data.stat())
    (tmp_path / "file").touch()
    for path, words in ((tmp_path / "file", "is a file"), (tmp_path / "none", "does not exist")):
        with pytest.raises(UsageError, match=words), open_source(str(path), resolved=True):
            pass


def test_a_source_is_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path)
    with open_source(str(tmp_path / "link")) as descriptor:
        assert descriptor >= 0
    with pytest.raises(UsageError, match="is a file"), open_source(str(tmp_path / "file")):
        pass
    with pytest.raises(UsageError, match="does not exist"), open_source(str(tmp_path / "none")):
        pass


def test_what_may_keep_root_from_a_target_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(HostprepError, match="may not be written to") as caught:
        check_writable(str(tmp_path))
    hint = caught.value.hint or ""
    assert f"`lsattr -d {tmp_path}`" in hint and "root_squash" in hint
    assert f"`btrfs property get -ts {tmp_path} ro`" in hint  # a snapshot, on a disk that is not


def test_a_source_that_a_server_has_no_more_does_not_exist_though_it_can_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = os.fstat

    def gone(descriptor: int) -> os.stat_result:
        if os.readlink(f"/proc/self/fd/{descriptor}") == str(tmp_path):
            raise FileNotFoundError(2, "No such file or directory")
        return look(descriptor)

    before = os.listdir("/proc/self/fd")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", gone)
        with pytest.raises(UsageError, match="does not exist"), open_source(str(tmp_path)):
            pass
    assert os.listdir("/proc/self/fd") == before


def test_who_waits_for_a_source_is_told_of_it_and_may_lose_patience() -> None:
    told: list[object] = []

    class Listening(Silent):
        def note(self, message: str) -> None:
            told.append(message)

        def progress(self, files: int, size_bytes: int) -> None:
            told.append((files, size_bytes))

    waited = patience_for("/far", Listening())
    for seconds in (1.0, 6.0, 7.0):
        waited(seconds)
    assert [each for each in told if each != (0, 0)] == [
        "waiting for /far, which has not answered for 6 s: is its server gone?"
        " `findmnt --real` lists what is mounted where; Ctrl-C ends the waiting"
    ]
    assert told.count((0, 0)) == 3


@pytest.mark.parametrize(
    ("fstype", "point", "storage_class", "served"),
    [
        ("ext4", "/data", StorageClass.NVME, False),
        ("nfs4", "/data", StorageClass.NETWORK, True),
        ("fuse.sshfs", "/data/far", StorageClass.NVME, True),
        ("fuse.sshfs", "/data-2", StorageClass.NVME, False),
        ("tmpfs", "/data/near", StorageClass.NVME, False),
    ],
)
def test_what_may_cease_to_answer_is_known_by_what_is_mounted_in_it(
    fstype: str,
    point: str,
    storage_class: StorageClass,
    served: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mount = dataclasses.replace(read_mounts()[0], fstype=fstype, target=point)
    monkeypatch.setattr(opening, "read_mounts", lambda: (mount,))
    assert is_served("/data", storage_class) is served


@pytest.mark.parametrize("named", ["http:/server/data", "s3:/bucket", "server:/data"])
def test_a_url_for_a_source_is_to_be_mounted(named: str, tmp_path: Path) -> None:
    """As it is below the current directory, where the command looked for it."""
    with pytest.raises(UsageError) as caught, open_source(str(tmp_path / named)):
        pass
    assert "mount it" in (caught.value.hint or "")
    with pytest.raises(UsageError) as caught, open_source(str(tmp_path / "none")):
        pass
    assert "mount it" not in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("multiuser,nounix,file_mode=0755,dir_mode=0755", True),
        ("multiuser,nounix,file_mode=0755,dir_mode=0750", False),
        ("multiuser,nounix,file_mode=0750,dir_mode=0755", False),
        ("multiuser,cifsacl,file_mode=0755,dir_mode=0755", False),
        ("nounix,file_mode=0755,dir_mode=0755", False),
    ],
)
def test_a_share_whose_server_goes_by_who_reads_is_warned_of(
    options: str, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its modes the mount makes up, and of a copy they are all that counts."""
    mounts = parse_mountinfo(
        b"21 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        b"22 21 0:40 / /mnt/nas rw - cifs //nas/data rw,%b\n" % options.encode()
    )
    monkeypatch.setattr(opening, "read_mounts", lambda: mounts)
    for source in ("/mnt/nas", "/mnt/nas/birds", "/mnt"):
        assert ("decides for each user" in str(admission_warning(source))) is told
    assert admission_warning("/srv/birds") is None
    covered = parse_mountinfo(b"23 22 0:41 / /mnt/nas rw - tmpfs x rw\n")
    monkeypatch.setattr(opening, "read_mounts", lambda: (*mounts, *covered))
    assert admission_warning("/mnt/nas/birds") is None and admission_warning("/mnt") is None


def test_symlinks_that_lead_in_a_circle_were_not_laid_a_moment_ago(tmp_path: Path) -> None:
    (tmp_path / "there").symlink_to("back")
    (tmp_path / "back").symlink_to("there")
    for path in (tmp_path / "there", tmp_path / "back/below"):
        with pytest.raises(HostprepError) as told, open_source(str(path), resolved=True):
            pass
        assert "Too many levels of symbolic links" in told.value.message
        assert told.value.hint is not None and "in a circle" in told.value.hint


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
def test_a_symlink_that_may_not_be_read_was_not_laid_a_moment_ago() -> None:
    def question() -> tuple[int, str, str | None]:
        os.setgid(65534)
        os.setuid(65534)
        try:
            with open_source("/proc/1/root/data", resolved=True):
                pass
        except HostprepError as told:
            return told.exit_code, told.message, told.hint
        return 0, "", None

    code, message, hint = ask_in_child(question, patience_seconds=30)
    assert code == 1 and "cannot be opened: Permission denied; nothing was changed" in message
    assert hint == "run it as a user who may read it"
