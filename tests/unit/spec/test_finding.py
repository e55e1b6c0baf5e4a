"""Which file is the spec, and whose word root takes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from hostprep.errors import HostprepError, Refused, UsageError
from hostprep.spec.finding import MOST_BYTES, SYSTEM_SPEC, find_spec
from hostprep.spec.loading import load_spec

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files away")
STRANGER, CALLER = 54321, 54322


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory, with neither variable set."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOSTPREP_SPEC", raising=False)
    monkeypatch.delenv("SUDO_UID", raising=False)
    return tmp_path


def write_spec(path: Path, *, mode: int = 0o644, uid: int | None = None) -> Path:
    path.write_text("packages: [fio]\n")
    path.chmod(mode)
    if uid is not None:
        os.chown(path, uid, -1)
    return path


def test_the_local_file_comes_before_the_systems(here: Path) -> None:
    assert find_spec() == (SYSTEM_SPEC if SYSTEM_SPEC.exists() else None)
    write_spec(here / "hostprep.yml")
    assert find_spec() == Path("hostprep.yml")
    assert load_spec(Path("hostprep.yml")).packages == ("fio",)


def test_the_variable_moves_it(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_spec(here / "hostprep.yml")
    moved = write_spec(here / "other.yml")
    monkeypatch.setenv("HOSTPREP_SPEC", str(moved))
    assert find_spec() == moved
    monkeypatch.setenv("HOSTPREP_SPEC", "")
    assert find_spec() == Path("hostprep.yml")


def test_a_variable_that_names_nothing_is_an_error_and_no_other_file_is_taken(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_spec(here / "hostprep.yml")
    monkeypatch.setenv("HOSTPREP_SPEC", "/nowhere/h.yml")
    with pytest.raises(UsageError) as caught:
        find_spec()
    assert caught.value.message == "HOSTPREP_SPEC names /nowhere/h.yml, which does not exist."


def test_a_link_that_leads_nowhere_is_not_passed_over(here: Path) -> None:
    (here / "hostprep.yml").symlink_to("gone")
    found = find_spec()
    assert found == Path("hostprep.yml")
    with pytest.raises(UsageError, match=r"^the spec file hostprep\.yml does not exist\.$"):
        load_spec(found)


def test_what_is_no_file_is_told_so_and_a_pipe_never_hangs(here: Path) -> None:
    (here / "folder").mkdir()
    os.mkfifo(here / "pipe")
    with pytest.raises(UsageError) as folder:
        load_spec(Path("folder"))
    assert folder.value.message == "folder is a directory."
    assert folder.value.hint == "name the file: folder/hostprep.yml"
    with pytest.raises(UsageError, match=r"^pipe is not a regular file\.$"):
        load_spec(Path("pipe"))
    (here / "loop").symlink_to("loop")
    with pytest.raises(HostprepError, match="cannot be read: Too many levels of symbolic links"):
        load_spec(Path("loop"))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a device")
def test_a_device_is_not_opened(here: Path) -> None:
    """That alone starts a watchdog. The node stands for none that is there: its open would fail."""
    os.mknod(here / "watchdog", 0o600 | stat.S_IFCHR, os.makedev(240, 7))
    (here / "link").symlink_to("watchdog")
    for name in ("watchdog", "link"):
        with pytest.raises(UsageError, match=rf"^{name} is a device\.$"):
            load_spec(Path(name))


def test_a_huge_file_is_refused(here: Path) -> None:
    path = here / "h.yml"
    path.write_bytes(b"#" * MOST_BYTES)
    assert load_spec(path).packages == ()
    path.write_bytes(b"#" * (MOST_BYTES + 1))
    with pytest.raises(UsageError, match="is larger than 256 KiB; no spec is that large"):
        load_spec(path)


@needs_root
@pytest.mark.parametrize(
    ("mode", "uid", "reason", "remedy"),
    [
        (0o644, STRANGER, f"belongs to uid {STRANGER}", "chown root: hostprep.yml"),
        (0o646, 0, "is writable by everybody", "chmod go-w hostprep.yml"),
        (0o664, 0, "is writable by the group 0", "chmod g-w hostprep.yml"),
        (0o644, CALLER, f"belongs to uid {CALLER}", "chown root: hostprep.yml"),
    ],
)
def test_root_does_not_obey_a_file_that_others_can_write(
    here: Path, mode: int, uid: int, reason: str, remedy: str
) -> None:
    write_spec(here / "hostprep.yml", mode=mode, uid=uid)
    with pytest.raises(Refused) as caught:
        load_spec(Path("hostprep.yml"))
    assert caught.value.exit_code == 5
    assert caught.value.message == (
        f"hostprep.yml {reason}, who could make root mount and copy what they like; "
        "it was not read and nothing was changed."
    )
    assert caught.value.hint == f"look at what it says, then `{remedy}`"


@needs_root
def test_the_remedies_help(here: Path) -> None:
    path = write_spec(here / "has blank.yml", mode=0o666, uid=STRANGER)
    for _ in range(3):
        try:
            assert load_spec(path).packages == ("fio",)
            break
        except Refused as refused:
            assert refused.hint is not None
            command = refused.hint.split("`")[1]
            subprocess.run(["sh", "-ec", command], check=True)
    else:
        pytest.fail("two remedies did not suffice")


@needs_root
def test_root_obeys_whoever_became_root_by_sudo(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_spec(here / "hostprep.yml", uid=CALLER)
    monkeypatch.setenv("SUDO_UID", str(CALLER))
    assert load_spec(path).packages == ("fio",)
    monkeypatch.setenv("SUDO_UID", str(STRANGER))
    with pytest.raises(Refused):
        load_spec(path)
    monkeypatch.setenv("SUDO_UID", "nonsense")
    with pytest.raises(Refused):
        load_spec(path)


@needs_root
def test_root_does_not_follow_a_strangers_link_to_a_file_of_its_own(here: Path) -> None:
    write_spec(here / "roots.yml")
    link = here / "hostprep.yml"
    link.symlink_to("roots.yml")
    assert load_spec(link).packages == ("fio",)
    os.chown(link, STRANGER, -1, follow_symlinks=False)
    with pytest.raises(Refused, match=f"is a symlink of uid {STRANGER}"):
        load_spec(link)


@needs_root
def test_nor_one_that_takes_the_files_place_at_the_last_moment(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_spec(here / "roots.yml")
    path = write_spec(here / "hostprep.yml", uid=STRANGER)
    real = os.open

    def exchanged(name: Path, *how: int) -> int:
        if name == path and not path.is_symlink():
            path.unlink()
            path.symlink_to("roots.yml")
        return real(name, *how)

    monkeypatch.setattr(os, "open", exchanged)
    with pytest.raises(HostprepError, match="cannot be read: Too many levels of symbolic links"):
        load_spec(path)
    assert path.is_symlink()


@needs_root
def test_a_file_that_the_user_named_is_read_whoever_wrote_it(here: Path) -> None:
    path = write_spec(here / "h.yml", mode=0o666, uid=STRANGER)
    assert load_spec(path, named=True).packages == ("fio",)


@needs_root
def test_another_user_may_read_any_spec_but_not_what_is_closed(tmp_path: Path) -> None:
    """Carried out in a process that has given root up."""
    path = write_spec(tmp_path / "h.yml", mode=0o666, uid=CALLER)
    closed = write_spec(tmp_path / "closed.yml", mode=0o600)
    program = textwrap.dedent(f"""
        import os
        from pathlib import Path
        from hostprep.errors import HostprepError
        from hostprep.spec.loading import load_spec
        os.chdir({str(tmp_path)!r})
        load_spec(Path({path.name!r}), named=True)  # imports, perhaps from below /root
        os.setgid({STRANGER}); os.setuid({STRANGER})
        assert load_spec(Path({path.name!r})).packages == ("fio",)
        try:
            load_spec(Path({closed.name!r}))
        except HostprepError as error:
            print(error.message, error.exit_code)
    """)
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(folder.stat().st_mode | 0o055)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == (
        "the spec file closed.yml cannot be read: Permission denied; nothing was changed. 1\n"
    )
