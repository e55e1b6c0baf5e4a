"""Several people on one machine: whose is what has the name, who could exchange it, who is root."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hostprep.staging import stage
from hostprep.staging.unstage_plan import find_record
from tests.kit.compare import differences
from tests.kit.converging import plan, write_spec
from tests.kit.folding import folding_fs
from tests.kit.stagecraft import NOBODY, hostprep, mount, only_dataset, rewrite, snapshot

_COLLEAGUE = 54321


@pytest.fixture
def shared(target: Path) -> Path:
    """Return a target into which everybody stages, as into /dev/shm."""
    target.mkdir()
    target.chmod(0o1777)
    return target


@pytest.fixture
def as_nobody(safe_dir: Path) -> tuple[str, ...]:
    """Return what has a command run by nobody, with a home for records."""
    home = safe_dir / "home"
    home.mkdir()
    os.chown(home, 65534, 65534)
    moved = ("HOSTPREP_STATE_DIR", "HOSTPREP_RUN_DIR")
    unset = [word for name in moved for word in ("-u", name)]
    return ("env", *unset, f"HOME={home}", *NOBODY)


def test_who_is_at_work_is_not_to_be_moved_away(
    source: Path, shared: Path, as_nobody: tuple[str, ...]
) -> None:
    """The copies of a colleague grow there: what one may not look into is not to be touched."""
    theirs = shared / ".hostprep-data"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, _COLLEAGUE, _COLLEAGUE)
    before = snapshot(shared)
    for prefix in (as_nobody, ()):
        error = hostprep("stage", source, "--to", shared, prefix=prefix, expect=5)["error"]
        assert f"belongs to uid {_COLLEAGUE}, who may be staging there now" in error["message"]
        assert "move it away" not in error["hint"]
    assert snapshot(shared) == before


def test_whose_copy_has_the_name_is_told(
    source: Path, shared: Path, as_nobody: tuple[str, ...]
) -> None:
    hostprep("stage", source, "--to", shared, prefix=as_nobody)
    error = hostprep("stage", source, "--to", shared, expect=5)["error"]
    assert f"{shared}/data, of uid 65534, exists and was not staged" in error["message"]


def test_what_root_staged_is_not_a_users_to_update(
    source: Path,
    shared: Path,
    state: Path,
    safe_dir: Path,
    as_nobody: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Copies that grew there as the user's own kept root from the data set from then on."""
    hostprep("stage", source, "--to", shared)
    unchanged, changed = snapshot(shared), source / "class-0/images/000.bin"
    with monkeypatch.context() as patched:
        patched.setattr("hostprep.system.state.SYSTEM_STATE_DIR", state)
        patched.delenv("HOSTPREP_STATE_DIR")
        patched.setenv("XDG_STATE_HOME", str(safe_dir / "home"))
        patched.setattr(os, "geteuid", lambda: 65534)
        line = ("stage", source, "--to", shared)
        assert not hostprep(*line)["changed"], "to see that it is whole needs no right"
        assert not hostprep(*line, "--dry-run")["needs_root"]
        rewrite(changed, b"new")
        (safe_dir / "home/hostprep/datasets" / find_record("data").id).mkdir(parents=True)
        assert hostprep(*line, "--dry-run")["needs_root"]
        error = hostprep(*line, expect=1)["error"]
    assert error["message"] == f"{shared}/data was staged by root; nothing was changed."
    assert error["hint"] == "run it with sudo, or choose another --name"
    assert snapshot(shared) == unchanged
    hostprep("stage", source, "--to", shared)
    assert differences(source, shared / "data", owners=True) == []


def test_copies_that_are_roots_by_now_are_not_begun_with(
    source: Path, shared: Path, as_nobody: tuple[str, ...]
) -> None:
    """As after ``sudo -E``: half-way, an update or removal would end, and be taken for a fault."""
    hostprep("stage", source, "--to", shared, prefix=as_nobody)
    subprocess.run(["chown", "-hR", "0:0", shared / "data"], check=True)
    rewrite(source / "class-0/images/000.bin", b"new")
    before = snapshot(shared)
    for words in (["stage", source, "--to", shared], ["unstage", "data"]):
        error = hostprep(*words, prefix=as_nobody, expect=1)["error"]
        assert error["message"] == f"{shared}/data was staged by root; nothing was changed."
    assert snapshot(shared) == before
    known = hostprep("status", prefix=as_nobody)["datasets"]  # the machine's own are among them
    assert [each["state"] for each in known if each["source"] == str(source)] == ["staged"]


@pytest.mark.parametrize(("mode", "warned"), [(0o777, True), (0o1777, False), (0o755, False)])
def test_a_directory_in_which_everybody_may_rename_is_warned_of(
    mode: int, warned: bool, source: Path, target: Path
) -> None:
    target.mkdir()
    target.chmod(mode)
    told = " ".join(hostprep("stage", source, "--to", target)["warnings"])
    assert (f"everybody can write to {target}" in told) is warned


def test_root_of_a_container_that_knows_no_other_user_owns_all(source: Path, target: Path) -> None:
    """There is no number there to give a file to, as there is no right to for an ordinary user."""
    prefix = ("unshare", "--user", "--map-root-user", "--")
    if subprocess.run([*prefix, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no user namespaces here")
    program = source / "class-1/program"
    program.write_bytes(b"#!")
    large = source / "large"
    large.write_bytes(os.urandom(1 << 20))
    for path in (program, large, source / "link", source / "class-1"):
        os.chown(path, _COLLEAGUE, _COLLEAGUE, follow_symlinks=False)
    program.chmod(0o6755)
    told = hostprep("stage", source, "--to", target, prefix=prefix)
    assert told["skipped"] == []
    copy = target / "data/class-1/program"
    assert (copy.stat().st_uid, copy.stat().st_mode & 0o7777) == (0, 0o755)
    program.chmod(0o755)
    assert differences(source, target / "data", owners=False) == []
    program.chmod(0o6755)
    again = hostprep("stage", source, "--to", target, prefix=prefix)
    assert not again["changed"]
    (target / "data/class-1/added").write_bytes(b"root's, and to nobody else can it be given")
    program.write_bytes(b"#!changed")
    assert hostprep("stage", source, "--to", target, prefix=prefix)["changed"]


@pytest.mark.parametrize("place", ["class-0/images", "", "new"])
@pytest.mark.parametrize("group", [False, True])
def test_what_others_keep_to_themselves_is_not_given_away(
    source: Path, target: Path, place: str, group: bool
) -> None:
    """Who owns what is around it can move it to where the data set, or a folder of it, was."""
    for folder in (source, *(path for path in source.rglob("*") if path.is_dir())):
        os.chown(folder, 0, 0) if group else os.chown(folder, 65534, 65534)
        folder.chmod(0o750 if group else 0o700)
    hostprep("stage", source, "--to", target)
    closed = target / "data" / place
    if place == "new":
        (source / "new").mkdir(mode=0o755)
    else:
        closed.rename(target / "moved")
    closed.mkdir(mode=0o700)
    (closed / "key").write_bytes(b"root's")
    before = snapshot(target)
    (source / "class-1/images/000.bin").write_bytes(b"changed")
    error = hostprep("stage", source, "--to", target, expect=5)["error"]
    assert "is closed to others, though it was not staged so, and holds what" in error["message"]
    assert "key" in error["message"]
    assert snapshot(target) == before

    (closed / "key").rename(target / "key")
    hostprep("stage", source, "--to", target)
    assert differences(source, target / "data", owners=True) == []


@pytest.mark.parametrize("place", ["class-0", ""])
def test_nor_is_what_a_closed_folder_keeps_from_others_further_down(
    place: str, source: Path, target: Path
) -> None:
    hostprep("stage", source, "--to", target)
    closed = target / "data" / place
    closed.rename(target / "moved")
    closed.mkdir(mode=0o700)
    key = target / "data/class-0/images/key"
    key.parent.mkdir(mode=0o755, parents=True)
    key.write_bytes(b"root's")
    before = snapshot(target)
    error = hostprep("stage", source, "--to", target, expect=5)["error"]
    words = (
        "is closed to others, though it was not staged so, and holds what hostprep did not stage"
    )
    assert f"{place or 'the data set'} on the target {words}" in error["message"]
    assert "(class-0/images/key), which would be open to them" in error["message"]
    assert snapshot(target) == before

    key.rename(target / "key")
    hostprep("stage", source, "--to", target)
    assert differences(source, target / "data", owners=True) == []


def test_what_others_add_on_a_file_system_without_owners_stops_no_update(
    source: Path, safe_dir: Path
) -> None:
    """All of FAT, or of a share, has the owner and mode that its mount says."""
    made_up = {"uid": "1000", "gid": "1000", "umask": "077"}
    with folding_fs(safe_dir / "root", safe_dir / "mount", "plain", **made_up) as target:
        hostprep("stage", source, "--to", target)
        (target / "data/class-0/added").write_bytes(b"somebody's")
        assert (target / "data/class-0").stat().st_mode & 0o777 == 0o700
        rewrite(source / "class-1/images/000.bin", b"new")
        hostprep("stage", source, "--to", target)
        assert (target / "data/class-1/images/000.bin").read_bytes() == b"new"


@pytest.mark.parametrize("place", ["class-0/images", ""])
@pytest.mark.parametrize("wide", [False, True])
def test_nor_is_what_all_may_read_given_to_who_could_then_remove_it(
    source: Path, target: Path, place: str, wide: bool
) -> None:
    folder = source / place
    folder.chmod(0o777) if wide else os.chown(folder, 65534, 65534)
    hostprep("stage", source, "--to", target)
    theirs = target / "data" / place
    theirs.rename(target / "moved")
    theirs.mkdir(mode=0o755)
    (theirs / "key").write_bytes(b"root's")
    before = snapshot(target)
    error = hostprep("stage", source, "--to", target, expect=5)["error"]
    assert "has another owner or mode than it was staged with, and holds what" in error["message"]
    assert "key), which others could remove once it has those" in error["message"]
    assert snapshot(target) == before

    theirs.chmod(0o777) if wide else os.chown(theirs, 65534, 65534)
    hostprep("stage", source, "--to", target)
    assert (theirs / "key").read_bytes() == b"root's"
    (theirs / "key").unlink()
    hostprep("stage", source, "--to", target)
    assert differences(source, target / "data", owners=True) == []


def test_whose_a_folder_is_matters_not_where_nothing_is_to_be_done(
    source: Path, target: Path
) -> None:
    """A run that changes nothing gives nothing away either."""
    folder = source / "class-0/images"
    os.chown(folder, 65534, 65534)
    hostprep("stage", source, "--to", target)
    theirs = target / "data/class-0/images"
    (theirs / "added").write_bytes(b"root's")
    hostprep("stage", source, "--to", target)
    os.chown(theirs, 0, 0)
    before = snapshot(target)
    assert not hostprep("stage", source, "--to", target)["changed"]
    assert only_dataset()["freshness"] == "fresh"
    assert snapshot(target) == before

    rewrite(source / "class-1/images/000.bin", b"new")
    error = hostprep("stage", source, "--to", target, expect=5)["error"]
    assert "class-0/images/added), which others could remove once it has those" in error["message"]


@pytest.mark.parametrize("place", ["", "class-0"])
def test_nor_where_an_update_was_cut_short_that_was_to_widen_its_mode(
    place: str, source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both modes are on record then, and it has the one that it was staged with."""
    folder = source / place
    folder.chmod(0o755)
    hostprep("stage", source, "--to", target)
    (target / "data" / place / "added").write_bytes(b"root's")
    folder.chmod(0o775)
    with monkeypatch.context() as patched:
        patched.delattr("hostprep.staging.stage.publish_update")
        hostprep("stage", source, "--to", target, expect=1)
    hostprep("stage", source, "--to", target)
    assert (target / "data" / place).stat().st_mode & 0o777 == 0o775


def test_a_folder_is_opened_as_in_the_source_whatever_others_put_there(
    source: Path, target: Path
) -> None:
    folder = source / "class-0/images"
    folder.chmod(0o700)
    hostprep("stage", source, "--to", target)
    added = target / "data/class-0/images/added"
    added.write_bytes(b"somebody's")
    folder.chmod(0o755)
    assert hostprep("stage", source, "--to", target)["changed"]
    assert added.parent.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("step", ["close_directories", "publish_update", "finish_directories"])
@pytest.mark.parametrize("place", ["images", "new"])
@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_what_is_moved_to_the_place_of_a_folder_while_it_is_updated_is_left_alone(
    mode: int, step: str, place: str, source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose the folder around both is has all the time of a run for it."""
    hostprep("stage", source, "--to", target)
    changed = source / "class-0" / place
    changed.mkdir(exist_ok=True)
    (changed / "added").write_bytes(b"added")
    changed.chmod(0o755)
    os.chown(changed, 65534, 65534)
    copies = target / "data/class-0"
    theirs = copies / "theirs"
    theirs.mkdir(mode=mode)
    (theirs / "key").write_bytes(b"a colleague's")
    os.chown(theirs, _COLLEAGUE, _COLLEAGUE)
    carry_on = getattr(stage, step)

    def move(*given: Any, **more: Any) -> Any:
        if (copies / place).exists():
            (copies / place).rename(copies / "moved")
        theirs.rename(copies / place)
        return carry_on(*given, **more)

    monkeypatch.setattr(stage, step, move)
    error = hostprep("stage", source, "--to", target, expect=1)["error"]
    made = place == "images" or step == "finish_directories"
    words = "was meanwhile replaced by another folder" if made else "appeared on the target"
    assert words in error["message"]
    assert [path.name for path in (copies / place).iterdir()] == ["key"]
    left = (copies / place).stat()
    assert (left.st_mode & 0o777, left.st_uid) == (mode, _COLLEAGUE)


def test_a_dry_run_is_refused_as_the_run_would_be_with_records_that_others_can_write(
    source: Path, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, state = safe_dir / "theirs", safe_dir / "theirs/state"
    state.mkdir(parents=True)
    for folder in (home, state):
        os.chown(folder, 65534, 65534)
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(state))
    monkeypatch.setenv("HOSTPREP_RUN_DIR", str(home / "run"))
    stage = ("stage", source, "--to", home / "fast")
    hostprep(*stage, prefix=NOBODY)
    state.chmod(0o777)
    for line in (stage, ("unstage", "data")):
        for words in (("--dry-run",), ()):
            error = hostprep(*line, *words, prefix=NOBODY, expect=5)["error"]
            assert "is writable by everybody" in error["message"]


@pytest.fixture
def shm(safe_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a /dev/shm that is this test's, where logind clears what a colleague owns."""
    program = safe_dir / "loginctl"
    program.write_text(
        '#!/bin/sh\n[ "$*" = "show-user --property=RemoveIPC" ] && echo RemoveIPC=yes\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{safe_dir}:{os.environ['PATH']}")
    real = pwd.getpwuid

    def account(uid: int) -> Any:
        return SimpleNamespace(pw_name="colleague") if uid == _COLLEAGUE else real(uid)

    monkeypatch.setattr(pwd, "getpwuid", account)
    path = Path("/dev/shm")
    mount("-t", "tmpfs", "-o", "mode=1777", "shm", path)
    yield path
    subprocess.run(["umount", path], check=True)


def test_each_document_warns_of_copies_that_go_with_their_owners_session(
    source: Path, shm: Path, safe_dir: Path
) -> None:
    spec = write_spec(safe_dir / "hostprep.yml", datasets=[{"source": source, "to": shm / "all"}])
    stage_it = ("stage", source, "--to", shm / "all", "--reserve", "0")
    assert hostprep(*stage_it, "--dry-run")["warnings"] == plan(spec)["warnings"] == []
    deep = source / "class-1/theirs"
    deep.write_bytes(b"theirs")
    os.chown(deep, _COLLEAGUE, _COLLEAGUE)
    dry, planned = hostprep(*stage_it, "--dry-run"), plan(spec)
    done = hostprep(*stage_it)
    assert (shm / "all/data" / deep.relative_to(source)).stat().st_uid == _COLLEAGUE
    for document in (dry, planned, done):
        (warning,) = document["warnings"]
        assert "files that belong to colleague keep their owner in the copy" in warning
