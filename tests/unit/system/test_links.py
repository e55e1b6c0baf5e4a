"""Whose symlinks lead where root reads and writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hostprep.cli.main import run
from hostprep.errors import Refused
from hostprep.system import links
from hostprep.system.links import real_path


def test_a_path_is_followed_as_the_system_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep/er").mkdir(parents=True)
    (tmp_path / "way").symlink_to("deep/er")
    (tmp_path / "round").symlink_to("round")
    monkeypatch.chdir(tmp_path)
    for path in ("way", f"{tmp_path}/way/../er/", "way/..", "round/x", "way/not/there", "/", "."):
        assert real_path(path) == os.path.realpath(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a link away")
def test_a_link_of_somebody_else_where_everybody_may_lay_one_leads_nowhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in /dev/shm, under the name of a user, where fs.protected_symlinks may be off."""
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
    os.chown(shared, 65534, -1)  # whose directory it is may lead where they like
    assert real_path(str(link)) == str(secret)
    monkeypatch.setattr(links, "unknown_uid", lambda: 65534)  # nobody knows whose these are
    with pytest.raises(Refused):
        real_path(str(link))


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
