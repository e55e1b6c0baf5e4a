"""Editing the file: what is refused, what is checked first, and when systemd is told."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from hostprep.errors import HostprepError, Refused, UsageError
from hostprep.system import systemd
from hostprep.system.files import ChangedMeanwhile
from hostprep.system.flushing import NotFlushed
from hostprep.system.locks import lock
from hostprep.system.systemd import NotReloaded
from hostprep.volumes import fstab_file
from hostprep.volumes.apply import write_fstab
from hostprep.volumes.fstab_file import (
    check_edit,
    edit_fstab,
    fstab_path,
    read_fstab,
    reload_is_due,
)
from hostprep.volumes.fstab_line import remove_volume, set_volume
from tests.kit.flushing import fail_to_flush_folders

FIXTURES = sorted((Path(__file__).parents[2] / "fixtures/fstab").glob("*.fstab"))
PATH = "/mnt/hostprep"


def put(content: bytes) -> bytes:
    return set_volume(content, path=PATH, options=["nosuid", "size=1048576"])


def drop(content: bytes) -> bytes:
    return remove_volume(content, path=PATH)


@pytest.fixture
def fstab(tmp_path: Path) -> Path:
    path = tmp_path / "fstab"
    path.write_bytes(b"# mine\n")
    return path


def test_the_path_can_be_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTPREP_FSTAB", "/some/fstab")
    assert fstab_path() == Path("/some/fstab")
    monkeypatch.setenv("HOSTPREP_FSTAB", "some/fstab")
    with pytest.raises(UsageError, match="another place in each current directory"):
        fstab_path()
    monkeypatch.delenv("HOSTPREP_FSTAB")
    assert fstab_path() == Path("/etc/fstab")


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.stem)
def test_every_real_file_takes_our_line_and_gives_it_back(fixture: Path, tmp_path: Path) -> None:
    # With findmnt and the generator as judges: what was in disorder before is not held against us.
    fstab = tmp_path / "fstab"
    fstab.write_bytes(fixture.read_bytes())
    assert edit_fstab(fstab, put) is True
    assert fstab.read_bytes() == put(fixture.read_bytes())
    status = fstab.stat()
    assert edit_fstab(fstab, put) is False
    assert fstab.stat() == status
    assert edit_fstab(fstab, drop) is True
    newline = b"\n" if fixture.read_bytes().endswith(b"\r") else b""
    assert fstab.read_bytes() == fixture.read_bytes() + newline
    assert os.listdir(tmp_path) == ["fstab"]


def test_what_is_replaced_and_cannot_be_read_again_is_not_said_to_be_unedited(
    fstab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(path: Path) -> bytes:
        raise HostprepError(f"{path} cannot be read: Too many open files.", "raise `ulimit -n`")

    monkeypatch.setenv("HOSTPREP_FSTAB", str(fstab))
    monkeypatch.setattr(fstab_file, "read_fstab", failing)
    with pytest.raises(HostprepError) as caught:
        write_fstab(put, "the volume is mounted", None)
    assert caught.value.message == (
        f"{fstab} was replaced, but could not be read again: {fstab} cannot be read: Too many open"
        " files."
    )
    assert caught.value.hint == "raise `ulimit -n`"
    assert fstab.read_bytes() == put(b"# mine\n")


def test_a_missing_file_reads_as_empty_and_is_made(tmp_path: Path) -> None:
    fstab = tmp_path / "fstab"
    assert read_fstab(fstab) == b""
    assert edit_fstab(fstab, drop) is False
    assert not fstab.exists()
    assert edit_fstab(fstab, put) is True
    assert fstab.read_bytes() == put(b"")
    assert stat.S_IMODE(fstab.stat().st_mode) == 0o644


def test_a_path_with_spaces_and_percent_signs_is_checked_too(tmp_path: Path) -> None:
    fstab = tmp_path / "a b %n" / "fstab"
    fstab.parent.mkdir()
    path = "/mnt/50% of ü"
    assert edit_fstab(fstab, lambda old: set_volume(old, path=path, options=[]))


def test_a_target_behind_a_symlink_is_still_ours_to_the_generator(fstab: Path) -> None:
    (fstab.parent / "real").mkdir()
    (fstab.parent / "link").symlink_to("real")
    path = f"{fstab.parent}/link/volume"
    assert edit_fstab(fstab, lambda old: set_volume(old, path=path, options=[]))


def test_a_symlinked_fstab_is_refused_and_stays(fstab: Path) -> None:
    link = fstab.with_name("link")
    link.symlink_to(fstab)
    for action in (lambda: read_fstab(link), lambda: edit_fstab(link, put)):
        with pytest.raises(Refused, match="symlink"):
            action()
    assert link.is_symlink()
    assert fstab.read_bytes() == b"# mine\n"


def test_a_file_that_something_is_mounted_on_is_refused_by_each_who_reads_or_writes_it(
    fstab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fstab_file, "mount_at", lambda path, _: path)
    for action in (
        lambda: read_fstab(fstab),
        lambda: edit_fstab(fstab, put),
        lambda: check_edit(fstab, put),
    ):
        with pytest.raises(Refused, match="is a mount point"):
            action()
    assert fstab.read_bytes() == b"# mine\n"


def test_an_editor_that_wrote_meanwhile_keeps_its_version(fstab: Path) -> None:
    def slow_edit(content: bytes) -> bytes:
        fstab.write_bytes(b"# theirs\n")
        return put(content)

    with pytest.raises(ChangedMeanwhile, match="their version stays") as caught:
        edit_fstab(fstab, slow_edit)
    assert caught.value.exit_code == 5
    assert fstab.read_bytes() == b"# theirs\n"
    assert os.listdir(fstab.parent) == ["fstab"]
    assert edit_fstab(fstab, put) is True
    assert fstab.read_bytes() == put(b"# theirs\n")


def test_an_edit_that_touches_foreign_lines_is_not_written(fstab: Path) -> None:
    with pytest.raises(HostprepError, match="not hostprep's"):
        edit_fstab(fstab, lambda content: put(content).replace(b"mine", b"ours"))
    assert fstab.read_bytes() == b"# mine\n"


@pytest.mark.parametrize(
    "line",
    [
        b"tmpfs /mnt/x tmpfs nofail,X-hostprep.id=odd # note",
        b"tmpfs /mnt/x tmpfs nofail,X-hostprep.id=odd zero 0",
    ],
)
def test_findmnt_stops_what_libmount_cannot_parse(fstab: Path, line: bytes) -> None:
    done = edit_or_refusal(fstab, line + b"\n")
    assert "cannot parse" in done
    assert fstab.read_bytes() == b"# mine\n"


@pytest.fixture
def dying_findmnt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of util-linux 2.41: the first line that it cannot parse is named, and it dies of it."""
    script = tmp_path / "bin/findmnt"
    script.parent.mkdir()
    script.write_text(
        "#!/bin/bash\n"
        f'said=$({shutil.which("findmnt")} "$@" 2>&1 >/dev/null)\n'
        'case $said in *"parse error at"*) echo "$said" | head -n 1 >&2; kill -SEGV $$;; esac\n'
        f'exec {shutil.which("findmnt")} "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")


@pytest.mark.usefixtures("dying_findmnt")
def test_a_findmnt_that_dies_of_what_it_cannot_parse_is_asked_about_the_rest(fstab: Path) -> None:
    ours, theirs = b"tmpfs /mnt/x tmpfs nofail,X-hostprep.id=x # note\n", b"a broken line\n"
    fstab.write_bytes(theirs + ours)
    assert edit_fstab(fstab, put) is True
    assert fstab.read_bytes() == put(theirs + ours)
    assert "cannot parse" in edit_or_refusal(fstab, ours.replace(b"/x", b"/y"))
    assert edit_fstab(fstab, drop) is True
    assert fstab.read_bytes() == theirs + ours


@pytest.mark.skipif(systemd.fstab_generator() is None, reason="systemd is not installed")
@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (b"tmpfs /mnt/x tmpfs X-hostprep.id=odd 0 0\n", "boot wait"),
        (b"/dev/sdb1 /mnt/x ext4 nofail,X-hostprep.id=odd 0 0\n", "something else than a tmpfs"),
        (
            b"tmpfs /mnt/x tmpfs nofail,X-hostprep.id=a 0 0\n"
            b"tmpfs /mnt//x tmpfs nofail,X-hostprep.id=b 0 0\n",
            "fails on the new fstab",
        ),
    ],
)
def test_the_generator_stops_what_would_hurt_the_boot(fstab: Path, lines: bytes, why: str) -> None:
    assert why in edit_or_refusal(fstab, lines)
    assert fstab.read_bytes() == b"# mine\n"
    assert os.listdir(fstab.parent) == ["fstab"]


@pytest.mark.parametrize(
    "changed",
    [(b"hostprep /mnt", b"none /mnt"), (b" 0 0", b" 0 2"), (b" 0 0", b"")],
)
def test_what_somebody_changed_beside_the_options_of_our_line_is_mended(
    fstab: Path, changed: tuple[bytes, bytes]
) -> None:
    right = put(b"# mine\n")
    fstab.write_bytes(right.replace(*changed, 1))
    edit_fstab(fstab, put)
    assert put(fstab.read_bytes()) == fstab.read_bytes()


def edit_or_refusal(fstab: Path, lines: bytes) -> str:
    with pytest.raises(Refused) as caught:
        edit_fstab(fstab, lambda content: content + lines)
    return caught.value.message


@pytest.mark.parametrize("run", [edit_fstab, check_edit])
def test_nobody_edits_it_beside_another_run(run: Callable[..., object], fstab: Path) -> None:
    class Waits(BaseException):
        pass

    def on_wait(words: str) -> None:
        assert "`another edit`" in words
        raise Waits

    with lock("fstab", purpose="another edit"), pytest.raises(Waits):
        run(fstab, put, on_wait=on_wait)
    assert fstab.read_bytes() == b"# mine\n"


def test_litter_of_a_killed_run_goes_with_the_next_even_where_nothing_changes(
    fstab: Path, own_state: Path
) -> None:
    litter = fstab.with_name(".fstab.hostprep-0123456789abcdef")
    litter.write_bytes(b"x")
    assert edit_fstab(fstab, drop) is False
    assert os.listdir(fstab.parent) == ["fstab"]
    scratch = own_state / "state" / "fstab-check-killed"
    (scratch / "old").mkdir(parents=True)
    edit_fstab(fstab, put)
    if systemd.fstab_generator() is not None:
        assert os.listdir(own_state / "state") == []


@pytest.fixture
def systemctl(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a systemctl on the PATH that only notes its arguments; return its notes."""
    folder = tmp_path_factory.mktemp("bin")
    notes = folder / "notes"
    notes.touch()
    script = folder / "systemctl"
    script.write_text(f'#!/bin/sh\necho "$@" >>"{notes}"\n[ ! -e "{folder}/fail" ]\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return notes


def test_systemd_reads_the_machines_fstab_again_once(
    fstab: Path, systemctl: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fstab_file, "SYSTEM_FSTAB", Path(os.path.realpath(fstab)))
    monkeypatch.setattr(fstab_file, "systemd_runs", lambda: True)
    edit_fstab(fstab, put)
    edit_fstab(fstab, put)
    assert systemctl.read_text() == "daemon-reload\n"


def test_a_run_that_is_killed_before_systemd_is_told_has_the_next_one_tell_it(
    fstab: Path, systemctl: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed() -> None:
        raise Killed

    monkeypatch.setattr(fstab_file, "SYSTEM_FSTAB", Path(os.path.realpath(fstab)))
    monkeypatch.setattr(fstab_file, "systemd_runs", lambda: True)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(fstab_file, "read_fstab", lambda _: killed())
        edit_fstab(fstab, put)
    assert reload_is_due(fstab) and edit_fstab(fstab, put) is False
    assert systemctl.read_text() == "daemon-reload\n" and not reload_is_due(fstab)


def others_write(*_: object, **__: object) -> None:
    raise ChangedMeanwhile("somebody else wrote to it")


def test_nothing_is_to_be_read_again_where_the_file_was_not_replaced(
    fstab: Path, systemctl: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fstab_file, "SYSTEM_FSTAB", Path(os.path.realpath(fstab)))
    monkeypatch.setattr(fstab_file, "systemd_runs", lambda: True)
    monkeypatch.setattr(fstab_file, "replace_file", others_write)
    with pytest.raises(ChangedMeanwhile):
        edit_fstab(fstab, put)
    assert not reload_is_due(fstab) and systemctl.read_text() == ""


def test_what_was_due_stays_so_where_the_file_was_not_replaced(
    fstab: Path, systemctl: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fstab_file, "SYSTEM_FSTAB", Path(os.path.realpath(fstab)))
    monkeypatch.setattr(fstab_file, "systemd_runs", lambda: True)
    systemctl.with_name("fail").touch()
    with pytest.raises(NotReloaded):
        edit_fstab(fstab, put)
    with monkeypatch.context() as patch, pytest.raises(ChangedMeanwhile):
        patch.setattr(fstab_file, "replace_file", others_write)
        edit_fstab(fstab, drop)
    assert reload_is_due(fstab)


def test_what_was_neither_flushed_nor_read_again_is_due(
    fstab: Path, systemctl: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fstab_file, "SYSTEM_FSTAB", Path(os.path.realpath(fstab)))
    monkeypatch.setattr(fstab_file, "systemd_runs", lambda: True)
    fail_to_flush_folders(monkeypatch)
    systemctl.with_name("fail").touch()
    with pytest.raises(NotReloaded):
        edit_fstab(fstab, put)
    assert reload_is_due(fstab)


def test_systemd_is_not_told_about_another_fstab_nor_where_it_does_not_run(
    fstab: Path, systemctl: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fstab_file, "systemd_runs", lambda: True)
    edit_fstab(fstab, put)
    monkeypatch.setattr(fstab_file, "SYSTEM_FSTAB", Path(os.path.realpath(fstab)))
    monkeypatch.setattr(fstab_file, "systemd_runs", lambda: False)
    edit_fstab(fstab, drop)
    assert systemctl.read_text() == ""


def test_systemd_reads_an_fstab_whose_folder_was_not_flushed(
    fstab: Path, systemctl: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is what counts by now, and the next run would find nothing to do."""
    monkeypatch.setattr(fstab_file, "SYSTEM_FSTAB", Path(os.path.realpath(fstab)))
    monkeypatch.setattr(fstab_file, "systemd_runs", lambda: True)
    fail_to_flush_folders(monkeypatch)
    with pytest.raises(NotFlushed, match="was replaced"):
        edit_fstab(fstab, put)
    assert fstab.read_bytes() == put(fstab.read_bytes())
    assert systemctl.read_text() == "daemon-reload\n"


def test_a_reload_that_fails_says_that_the_file_is_written(systemctl: Path) -> None:
    systemctl.with_name("fail").touch()
    with pytest.raises(HostprepError, match="fstab is written") as caught:
        systemd.daemon_reload()
    assert "daemon-reload" in str(caught.value.hint)


def test_systemd_runs_where_sd_booted_says_so(tmp_path: Path) -> None:
    assert systemd.systemd_runs(tmp_path) is False
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    assert systemd.systemd_runs(tmp_path) is True
