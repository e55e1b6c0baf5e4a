"""Files that the user named: regular or not, and links of whoever made them."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from hostprep.errors import Refused
from hostprep.system import named_files
from hostprep.system.named_files import read_named, write_named


def test_a_named_file_that_is_none_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    plain, link, pipe = tmp_path / "plain", tmp_path / "link", tmp_path / "pipe"
    plain.write_bytes(b"old")
    kept_open = plain.open("rb")
    write_named(plain, b"new", durable=False)
    assert plain.read_bytes() == b"new" and kept_open.read() == b"old"
    kept_open.close()
    link.symlink_to(plain)
    write_named(link, b"newer", durable=True)
    assert link.is_symlink() and plain.read_bytes() == b"newer"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_named(pipe, b"through", durable=False)
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    with pytest.raises(OSError, match="no program reads from it"):
        write_named(pipe, b"to nobody", durable=False)
    with pytest.raises(IsADirectoryError):
        write_named(tmp_path, b"", durable=False)


def test_a_named_file_is_read_as_far_as_asked_and_a_pipe_without_a_writer_not_waited_for(
    tmp_path: Path,
) -> None:
    assert read_named(Path("/dev/zero"), 7) == bytes(7)
    os.mkfifo(tmp_path / "pipe")
    assert read_named(tmp_path / "pipe", 7) == b""
    reader, writer = os.pipe()
    late = Timer(0.2, lambda: (os.write(writer, b"late"), os.close(writer)))
    late.start()  # as of `<(command)`, which takes its time to begin
    assert read_named(Path(f"/dev/fd/{reader}"), 7) == b"late"
    late.join()
    os.close(reader)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a device")
def test_a_disk_is_not_written_to(tmp_path: Path) -> None:
    """The node stands for no disk that is there: to open it would fail otherwise."""
    os.mknod(tmp_path / "disk", 0o600 | stat.S_IFBLK, os.makedev(240, 7))
    (tmp_path / "link").symlink_to("disk")
    for name in ("disk", "link"):
        with pytest.raises(OSError, match="it is a disk, or a part of one"):
            write_named(tmp_path / name, b"", durable=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a link away")
def test_a_link_of_somebody_else_does_not_lead_what_is_written(tmp_path: Path) -> None:
    """As in /tmp, where fs.protected_symlinks may be off: it would be any file of root's."""
    (tmp_path / "kept").write_bytes(b"as it was")
    link = tmp_path / "report.html"
    link.symlink_to("kept")
    os.chown(link, 65534, -1, follow_symlinks=False)
    with pytest.raises(PermissionError, match="symlink of uid 65534"):
        write_named(link, b"new", durable=False)
    assert (tmp_path / "kept").read_bytes() == b"as it was"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a link away")
def test_nor_does_one_on_the_way_to_it_lead_where_its_owner_may_not_write(tmp_path: Path) -> None:
    """A folder of one's own, exchanged for a link before the next report."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/report").write_bytes(b"as it was")
    reports = tmp_path / "reports"
    reports.symlink_to("etc")
    write_named(reports / "report", b"new", durable=False)  # by root's own link
    os.chown(reports, 65534, -1, follow_symlinks=False)
    with pytest.raises(Refused, match="symlink of uid 65534"):
        write_named(reports / "report", b"newer", durable=False)
    with pytest.raises(Refused, match="symlink of uid 65534"):
        write_named(reports / "other", b"newer", durable=False)
    assert os.listdir(tmp_path / "etc") == ["report"]
    assert (tmp_path / "etc/report").read_bytes() == b"new"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a link away")
def test_nor_to_what_its_owner_may_not_replace_there(tmp_path: Path) -> None:
    """Everybody may write to a directory such as /tmp, and replaces there nobody else's file."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    try:
        folder.chmod(0o1777)
        (folder / "report").write_bytes(b"as it was")
        reports = tmp_path / "reports"
        reports.symlink_to(folder)
        os.chown(reports, 65534, -1, follow_symlinks=False)
        with pytest.raises(Refused, match="/report, which that user may not write to"):
            write_named(reports / "report", b"new", durable=False)
        assert (folder / "report").read_bytes() == b"as it was"
        write_named(reports / "other", b"new", durable=False)
        assert (folder / "other").read_bytes() == b"new"
    finally:
        shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a link away")
def test_nor_on_by_a_link_of_roots(tmp_path: Path) -> None:
    """Where that leads root was asked to write by nobody but the user."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        os.chown(folder, 65534, -1)
        (folder / "report").symlink_to(tmp_path / "kept")
        (tmp_path / "kept").write_bytes(b"as it was")
        reports = tmp_path / "reports"
        reports.symlink_to(folder)
        os.chown(reports, 65534, -1, follow_symlinks=False)
        with pytest.raises(Refused, match="symlink of uid 65534"):
            write_named(reports / "report", b"new", durable=False)
        assert (tmp_path / "kept").read_bytes() == b"as it was"
        write_named(folder / "report", b"new", durable=False)
        assert (tmp_path / "kept").read_bytes() == b"new"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root writes where others own what is above")
def test_a_folder_that_is_exchanged_after_the_look_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports, others = tmp_path / "reports", tmp_path / "others"
    for folder in (reports, others):
        folder.mkdir()
        (folder / "report").write_bytes(b"as it was")

    def exchange() -> None:
        reports.rename(tmp_path / "aside")
        reports.symlink_to(others)

    with monkeypatch.context() as patch:
        after(patch, "fstat", reports / "report", exchange)
        with pytest.raises(PermissionError, match="exchanged meanwhile"):
            write_named(reports / "report", b"new", durable=False)
    reports.unlink()
    (tmp_path / "aside").rename(reports)
    after(monkeypatch, "lstat", reports / "report", exchange)  # once it is held
    write_named(reports / "report", b"new", durable=False)
    assert (others / "report").read_bytes() == b"as it was"
    assert (tmp_path / "aside/report").read_bytes() == b"new"


def test_links_of_ones_own_lead_on_over_each_other_and_to_what_is_not_there_yet(
    tmp_path: Path,
) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "first").symlink_to("deep/second")
    (tmp_path / "deep/second").symlink_to("../report")
    write_named(tmp_path / "first", b"new", durable=False)
    assert (tmp_path / "report").read_bytes() == b"new"
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        write_named(tmp_path / "round", b"", durable=False)


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_what_the_shell_opened_is_written_to(name: str, tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from hostprep.system.named_files import *"
    code += "; write_named(Path(sys.argv[1]), b'new', durable=False)"
    line = [sys.executable, "-c", code, name]
    assert subprocess.run(line, stdout=subprocess.PIPE, check=True).stdout == b"new"
    (tmp_path / "out").write_bytes(b"as it was")
    with open(tmp_path / "out", "r+b") as out:
        subprocess.run(line, stdout=out, check=True)
    assert (tmp_path / "out").read_bytes() == b"new"
    assert not (tmp_path / "out").is_symlink()


def after(
    monkeypatch: pytest.MonkeyPatch, name: str, path: Path, then: Callable[[], object]
) -> None:
    """Have ``then`` happen once, right after a function of ``os`` was asked about ``path``."""
    call, done = getattr(named_files.os, name), []

    def first(asked: Any, *words: Any, **more: Any) -> Any:
        result = call(asked, *words, **more)
        if isinstance(asked, int):
            about = os.readlink(f"/proc/self/fd/{asked}")
        else:
            about = os.path.realpath(os.path.dirname(asked)) + "/" + os.path.basename(asked)
        if not done and about == str(path):
            done.append(then())
        return result

    monkeypatch.setattr(named_files.os, name, first)


@pytest.mark.parametrize("by", [Path.symlink_to, os.link], ids=["a symlink", "a hard link"])
def test_what_is_exchanged_after_the_look_is_not_written_to(
    by: Callable[[Path, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As whoever owns the directory can: root would write over any file."""
    kept, pipe = tmp_path / "kept", tmp_path / "pipe"
    kept.write_bytes(b"as it was")
    os.mkfifo(pipe)

    def exchange() -> None:
        pipe.unlink()
        by(pipe, kept) if by is Path.symlink_to else by(kept, pipe)

    after(monkeypatch, "lstat", pipe, exchange)
    with pytest.raises(OSError):
        write_named(pipe, b"new", durable=False)
    assert kept.read_bytes() == b"as it was"


def test_a_link_that_is_exchanged_after_the_look_does_not_lead_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, link = tmp_path / "kept", tmp_path / "link"
    kept.write_bytes(b"as it was")
    link.symlink_to("report")

    def exchange() -> None:
        link.unlink()
        link.symlink_to("kept")

    after(monkeypatch, "fstat", link, exchange)
    write_named(link, b"new", durable=False)
    assert kept.read_bytes() == b"as it was"
    assert (tmp_path / "report").read_bytes() == b"new"
