"""Whose symlinks lead where root reads and writes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostprep.cli.main import run
from hostprep.converging import sources
from hostprep.converging.sources import real_paths
from hostprep.errors import HostprepError, Refused
from hostprep.spec.model import DatasetSpec
from hostprep.system import links
from hostprep.system.bounded import NoAnswerInTime, QuestionFailed
from hostprep.system.links import links_to, real_path

_needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a link away")


@pytest.fixture
def entered_by_all() -> Iterator[Path]:
    """Yield a folder that every user may enter, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_a_path_is_followed_as_the_system_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep/er").mkdir(parents=True)
    (tmp_path / "way").symlink_to("deep/er")
    (tmp_path / "round").symlink_to("round")
    monkeypatch.chdir(tmp_path)
    for path in ("way", f"{tmp_path}/way/../er/", "way/..", "round/x", "way/not/there", "/", "."):
        assert real_path(path) == os.path.realpath(path)
    monkeypatch.chdir("/")
    (tmp_path / "by").symlink_to(f"{tmp_path}/deep/../way/not")
    assert links_to(f"{tmp_path}/by/there")[-2:] == [f"{tmp_path}/by", f"{tmp_path}/way"]
    assert set(links_to(f"{tmp_path}/round/x")) >= {f"{tmp_path}/round"}


@_needs_root
def test_a_link_of_somebody_else_where_everybody_may_lay_one_leads_nowhere(
    entered_by_all: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in /dev/shm, under the name of a user, where fs.protected_symlinks may be off."""
    tmp_path = entered_by_all
    shared, secret, target = (tmp_path / name for name in ("shm", "secret", "fast"))
    for folder in (shared, secret):
        folder.mkdir()
    (secret / "key").write_bytes(b"root's alone")
    link = shared / "data"
    link.symlink_to(secret)
    (tmp_path / "way").symlink_to("shm/data")
    os.chown(link, 65534, -1, follow_symlinks=False)
    assert real_path(str(link)) == str(secret)  # nobody but root may lay one there
    shared.chmod(0o1777)
    with pytest.raises(Refused, match=r"data, on the way to .*way/\., is a symlink of uid 65534"):
        real_path(f"{tmp_path}/way/.")
    for source, parent in ((link, target), (tmp_path, link)):
        assert run(["stage", str(source), "--to", str(parent)]) == 5
        assert "symlink of uid 65534" in capsys.readouterr().err
    assert os.listdir(secret) == ["key"] and not target.exists()
    os.chown(shared, 65534, -1)  # whose directory it is may lead where they may go themselves
    assert real_path(str(link)) == str(secret)
    monkeypatch.setattr(links, "unknown_uid", lambda: 65534)  # nobody knows whose these are
    with pytest.raises(Refused):
        real_path(str(link))


@_needs_root
def test_a_users_link_leads_root_nowhere_that_user_may_not_go(
    entered_by_all: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the next run a user can put one in the place of a folder in their own home."""
    home, closed, others = (entered_by_all / name for name in ("home", "closed", "others"))
    for folder in (home, closed / "data", others):
        folder.mkdir(parents=True)
    os.chown(home, 65534, -1)
    (closed / "data/key").write_bytes(b"not for all")
    closed.chmod(0o700)
    source, target = home / "data", home / "fast"
    source.symlink_to(closed / "data")
    target.symlink_to(others)
    for link in (source, target):
        os.chown(link, 65534, -1, follow_symlinks=False)

    assert run(["stage", str(source), "--to", str(entered_by_all)]) == 5
    assert "which that user may not read. Nothing was changed" in capsys.readouterr().err
    assert run(["stage", str(closed / "data"), "--to", str(target / "new/er")]) == 5
    assert "which that user may not write to. Nothing was changed" in capsys.readouterr().err
    for spec in (
        DatasetSpec("data", str(source), to=str(entered_by_all)),
        DatasetSpec("data", str(entered_by_all), to=str(target)),
    ):
        with pytest.raises(Refused, match="which that user may not"):
            real_paths(spec)
    assert not (entered_by_all / "data").exists() and os.listdir(others) == []

    closed.chmod(0o711)
    assert real_path(str(source)) == str(closed / "data")
    os.chown(others, 65534, -1)
    assert real_path(str(target / "new/er"), writes=True) == str(others / "new/er")
    assert real_path(str(target / "not/there")) == str(others / "not/there")  # who opens it tells
    target.unlink()
    target.symlink_to(closed / "data/key")
    os.chown(target, 65534, -1, follow_symlinks=False)
    assert real_path(str(target)) == str(
        closed / "data/key"
    )  # who opens it tells that it is a file
    closed.chmod(0o700)
    with pytest.raises(Refused, match="may not read"):  # nor is it told what is there
        real_path(str(source / "nothing"))
    os.chown(source, 0, -1, follow_symlinks=False)  # what root has laid leads where it is meant to
    assert real_path(str(source)) == str(closed / "data")


@_needs_root
@pytest.mark.parametrize(
    "error", [QuestionFailed("the child ended without an answer"), NoAnswerInTime()]
)
def test_who_kills_or_stops_the_one_that_asks_in_their_name_gains_nothing(
    error: Exception, entered_by_all: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = entered_by_all / "data"
    link.symlink_to("/root")
    os.chown(link, 65534, -1, follow_symlinks=False)

    def killed(*asked: object, **how: object) -> bool:
        raise error

    monkeypatch.setattr(links, "ask_in_child", killed)
    with pytest.raises(HostprepError, match=r"found out: t\w+ .*; nothing was changed"):
        real_path(str(link))


@_needs_root
def test_one_that_is_stopped_is_not_left_behind(
    entered_by_all: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where all of it is asked by a child that itself is waited for no longer than so."""
    assert 1.5 * links._PATIENCE_SECONDS < sources.LOOK_SECONDS
    link, told = entered_by_all / "data", entered_by_all / "told"
    link.symlink_to("/root")
    os.chown(link, 65534, -1, follow_symlinks=False)
    told.write_text("")
    told.chmod(0o666)

    def stopped(*asked: object) -> bool:
        told.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)
        return True

    monkeypatch.setattr(os, "access", stopped)
    monkeypatch.setattr(links, "_PATIENCE_SECONDS", 0.5)
    with pytest.raises(HostprepError, match=r"could not be looked at: .*no answer in time"):
        real_paths(DatasetSpec("data", str(link), to=str(entered_by_all)))
    with pytest.raises(ProcessLookupError):
        os.kill(int(told.read_text()), 0)


@_needs_root
def test_whose_link_it_is_and_where_it_leads_are_asked_of_one_and_the_same(
    entered_by_all: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who owns the folder around it can exchange that for a link to one with a link of root's."""
    home, closed, roots = (entered_by_all / name for name in ("home", "closed", "roots"))
    for folder in (home / "mine", closed, roots):
        folder.mkdir(parents=True)
    closed.chmod(0o700)
    link = home / "mine/data"
    link.symlink_to(closed)
    os.chown(link, 65534, -1, follow_symlinks=False)
    (roots / "data").symlink_to("elsewhere")
    lstat = os.lstat

    def look(path: str) -> os.stat_result:
        if str(path) != str(link):
            return lstat(path)
        (home / "mine").rename(home / "aside")
        (home / "mine").symlink_to(roots)
        found = lstat(path)
        (home / "mine").unlink()
        (home / "aside").rename(home / "mine")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", look)
        with pytest.raises(Refused, match="symlink of uid 65534"):
            real_path(str(link))


@_needs_root
def test_a_users_links_lead_nowhere_by_being_many(entered_by_all: Path) -> None:
    closed = entered_by_all / "closed"
    closed.mkdir(mode=0o700)
    before = closed
    for number in range(41):
        link = entered_by_all / f"link{number}"
        link.symlink_to(before)
        os.chown(link, 65534, -1, follow_symlinks=False)
        before = link
    with pytest.raises(Refused, match="which that user may not read"):
        real_path(str(before))


@_needs_root
@pytest.mark.parametrize("without", ["-setuid", "-setgid"])
def test_where_root_may_not_ask_in_a_users_name_their_link_leads_nowhere(
    without: str, entered_by_all: Path
) -> None:
    """As in a container with few capabilities, where root reads all the same."""
    (entered_by_all / "closed").mkdir(mode=0o700)
    link = entered_by_all / "link"
    link.symlink_to("closed")
    os.chown(link, 65534, -1, follow_symlinks=False)
    asking = "import sys; from hostprep.system.links import real_path; real_path(sys.argv[1])"
    command = ["setpriv", "--bounding-set", without, sys.executable, "-c", asking, str(link)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "hostprep may not ask in their name (without CAP_SETUID, CAP_SETGID)" in done.stderr


def test_what_was_looked_at_is_what_is_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who exchanges a folder for a symlink meanwhile leads nobody anywhere."""
    (tmp_path / "data").mkdir()
    lstat = os.lstat

    def look(path: str) -> os.stat_result:
        found = lstat(path)
        if path == str(tmp_path / "data"):
            (tmp_path / "data").rmdir()
            (tmp_path / "data").symlink_to("/root")
        return found

    monkeypatch.setattr(os, "lstat", look)
    assert real_path(str(tmp_path / "data")) == str(tmp_path / "data")
