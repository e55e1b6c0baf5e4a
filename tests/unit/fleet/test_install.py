"""The role's script that installs hostprep on a host: what it takes for its own to clear."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.stagecraft import REPOSITORY, snapshot

SCRIPT = REPOSITORY / "playbooks" / "roles" / "hostprep_install" / "files" / "install.py"
BUILD = "0123456789abcdef"


def call(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, SCRIPT, home, *words]
    return subprocess.run(line, capture_output=True, text=True)


def install(home: Path) -> subprocess.CompletedProcess[str]:
    """Install a wheel that is not there: it ends when the environment is made."""
    return call(home, "/nowhere", "no-1-py3-none-any.whl", BUILD, "wheelhouse", "install")


def waits_for_the_lock(run: subprocess.Popen[bytes]) -> bool:
    """Wait until a run waits for another one's lock, as the kernel lists it; False where it ends.

    (In a list of locks a line with an arrow is one that waits: proc_locks(5).)
    """
    waiting = re.compile(rf"-> FLOCK .* {run.pid} ")
    while not waiting.search(Path("/proc/locks").read_text()):
        if run.poll() is not None:
            return False
        time.sleep(0.01)
    return True


def checkout(home: Path) -> None:
    (home / "build-notes").mkdir(parents=True)
    (home / "build-all.sh").write_text("make\n")


def a_file(home: Path) -> None:
    home.write_text("not a folder\n")


def like_usr_local(home: Path) -> None:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "hostprep").symlink_to("/opt/hostprep/bin/hostprep")


def another_venv(home: Path) -> None:
    home.mkdir()
    (home / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (home / "thesis.tex").write_text("years of work\n")


def stamp_alone(home: Path) -> None:
    home.mkdir()
    (home / f"build-{BUILD}").write_text("a folder of somebody's builds\n")


@pytest.mark.parametrize("make", [checkout, a_file, like_usr_local, another_venv, stamp_alone])
def test_what_is_not_hostpreps_is_refused_and_left_whole(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    home = tmp_path / "home"
    make(home)
    before = snapshot(tmp_path)
    for done in (call(home, "judge"), install(home)):
        assert (done.returncode, done.stderr) == (5, "")
        assert done.stdout.startswith(
            f"{home} is there and is not a virtual environment of hostprep"
        )
        assert "hostprep_install_dir" in done.stdout
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("there", [False, True])
def test_a_new_folder_is_marked_before_anything_is_in_it_and_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    """With modules of somebody else's in the current directory, which root must not run."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for name in ("venv", "ensurepip", "pip"):
        (theirs / f"{name}.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')\n")
    monkeypatch.chdir(theirs)
    home = tmp_path / "home"
    if there:
        home.mkdir()
    assert call(home, "judge").returncode == 0
    assert home.exists() == there
    assert install(home).returncode == 1
    marker, config = (home / name for name in (".hostprep", "pyvenv.cfg"))
    assert marker.stat().st_mtime_ns < config.stat().st_mtime_ns
    assert not (tmp_path / "run").exists()
    if there:
        return  # from here on it is as where it was not
    said = install(home).stderr
    assert "Traceback" not in said
    assert said.splitlines()[-1].startswith(f"hostprep could not be installed in {home}: ")
    assert " -> fix that on the host, or give another folder: hostprep_install_dir" in said
    (home / "bin" / "python3").unlink()
    config.unlink()  # as where making it was broken off
    (home / "half").write_text("of it\n")
    assert call(home, "judge").returncode == 0
    assert install(home).returncode == 1
    assert config.exists() and (home / "bin" / "python3").exists() and not (home / "half").exists()
    assert not (tmp_path / "run").exists()


def program(path: Path, script: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("stamp", [False, True])
def test_without_the_marker_nothing_is_cleared(tmp_path: Path, stamp: bool) -> None:
    """Whoever made that environment may have installed more in it, as the pages say: torch."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (tmp_path / "torch").touch()
    program(tmp_path / "bin" / "hostprep", "false")
    if stamp:
        (tmp_path / f"build-{BUILD}").touch()  # hostprep was installed in it before
    before = snapshot(tmp_path)
    assert call(tmp_path, "judge").returncode == 0
    done = install(tmp_path)
    assert (done.returncode, "may hold more than hostprep" in done.stdout) == (5, True)
    assert snapshot(tmp_path) == before
    program(tmp_path / "bin" / "python3", 'case "$*" in *install*) exit 1;; esac')
    assert install(tmp_path).returncode == 1
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"bin", "pyvenv.cfg", "torch"}


@pytest.mark.parametrize("works", [False, True])
def test_an_environment_is_made_anew_if_no_hostprep_in_it_can_be_lost(
    tmp_path: Path, works: bool
) -> None:
    """A full disk can leave a pip that tells its version and fails at everything else."""
    (tmp_path / ".hostprep").touch()
    (tmp_path / "half").touch()
    program(tmp_path / "bin" / "python3", 'case "$*" in *install*) exit 1;; esac')
    program(tmp_path / "bin" / "hostprep", f"echo words >&2; {str(works).lower()}")
    done = install(tmp_path)
    assert (done.returncode, "words" in done.stderr) == (1, False)
    assert (tmp_path / "half").exists() == works
    assert (tmp_path / "pyvenv.cfg").exists() != works


@pytest.mark.parametrize(
    ("source", "cure"),
    [
        ("index", "bring the wheels from the controller: hostprep_install_source: wheelhouse"),
        ("wheelhouse", "fix that on the host, or give another folder: hostprep_install_dir"),
    ],
)
def test_a_host_that_reaches_no_index_is_told_of_the_way_without(
    tmp_path: Path, source: str, cure: str
) -> None:
    (tmp_path / ".hostprep").touch()
    program(tmp_path / "bin" / "python3", 'case "$*" in *install*) exit 1;; esac')
    program(tmp_path / "bin" / "hostprep", "true")
    done = call(tmp_path, "/nowhere", "no-1-py3-none-any.whl", BUILD, source, "install")
    assert (done.returncode, done.stderr.strip().endswith(cure)) == (1, True), done.stderr


def test_two_runs_at_once_install_it_once(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    (home / ".hostprep").touch()
    (home / "half").touch()
    first = os.open(home, os.O_RDONLY)
    fcntl.flock(first, fcntl.LOCK_EX)
    words = ["/nowhere", "no-1-py3-none-any.whl", BUILD, "wheelhouse", "install"]
    second = subprocess.Popen([sys.executable, SCRIPT, home, *words])
    assert waits_for_the_lock(second)
    assert (home / "half").exists()
    (home / "bin" / "hostprep").write_text("#!/bin/sh\n")
    (home / "bin" / "hostprep").chmod(0o755)
    (home / f"build-{BUILD}").touch()
    os.close(first)
    assert second.wait(timeout=60) == 0
    assert (home / "half").exists()


@pytest.mark.parametrize("variable", ["TMPDIR", "HOME"])
def test_what_a_run_that_was_broken_off_left_is_removed_by_a_later_one(
    tmp_path: Path, variable: str
) -> None:
    """Also where nothing is to be installed, and of check mode: every run begins with this."""
    old, new, theirs, link = (
        tmp_path / f"ansible.{name}" for name in ("a.hostprep", "b.hostprep", "c", "d.hostprep")
    )
    for folder in (old, new, theirs):
        folder.mkdir()
        (folder / "a.whl").touch()
    link.symlink_to(theirs)
    two_days_ago = time.time() - 2 * 24 * 3600
    for path in (old, theirs, link):
        os.utime(path, (two_days_ago, two_days_ago), follow_symlinks=False)
    line = [sys.executable, SCRIPT.with_name("survey.py"), tmp_path / "home"]
    surroundings = {**os.environ, variable: str(tmp_path)}
    done = subprocess.run(line, capture_output=True, text=True, env=surroundings)
    assert done.returncode == 0 and json.loads(done.stdout)["build"] is None, done.stderr
    assert not old.exists()
    assert all((folder / "a.whl").exists() for folder in (new, theirs, link))


def test_a_controller_that_hangs_up_leaves_no_wheels(tmp_path: Path) -> None:
    wheels = tmp_path / "ansible.a.hostprep"
    wheels.mkdir()
    home = tmp_path / "home"
    home.mkdir()
    (home / ".hostprep").touch()
    first = os.open(home, os.O_RDONLY)
    fcntl.flock(first, fcntl.LOCK_EX)  # as where another run is at it: it waits
    words = [str(wheels), "no-1-py3-none-any.whl", BUILD, "wheelhouse", "install"]
    run = subprocess.Popen([sys.executable, SCRIPT, home, *words], stderr=subprocess.PIPE)
    assert waits_for_the_lock(run)
    run.send_signal(signal.SIGHUP)
    _, said = run.communicate(timeout=60)
    os.close(first)
    assert (run.returncode, said) == (
        1, f"hostprep was not installed in {home}: the controller hung up\n".encode()
    )  # fmt: skip
    assert not wheels.exists() and os.listdir(home) == [".hostprep"]
