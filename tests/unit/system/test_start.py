"""Commands that run beside us."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostprep.errors import HostprepError, MissingTool
from hostprep.system.run import CommandFailed, run, run_undisturbed, start
from hostprep.system.systemd import start_unit
from tests.kit.processes import alive, gone


def test_starting_a_unit_may_take_longer_than_other_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acting = tmp_path / "systemctl"
    acting.write_text(f"#!/bin/sh\nsleep 1\ntouch {tmp_path}/started\n")
    acting.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setitem(run.__kwdefaults__, "timeout_seconds", 0.2)
    start_unit("some.service")
    assert (tmp_path / "started").exists()


def started(way: str) -> None:
    if way == "start":
        with start(["fio"], wanted_for="measure", package="fio"):
            return
    if way == "run":
        run(["fio"], wanted_for="measure", package="fio")
    else:
        run_undisturbed(["fio"], wanted_for="measure")


def test_commands_run_where_no_temporary_folder_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "full"))
    line = ["sh", "-c", "echo said; echo wrong >&2"]
    done = run_undisturbed(line, wanted_for="test")
    assert (done.stdout, done.stderr) == ("said\n", "wrong\n")
    with start(line, wanted_for="test") as running:
        assert b"".join(running.chunks(timeout_seconds=10)) == b"said\n"
        assert running.wait().stderr == "wrong\n"


@pytest.mark.parametrize("way", ["run", "run_undisturbed", "start"])
def test_a_command_that_is_there_and_cannot_be_started_is_named(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setenv("PATH", f"{tmp_path}/none:{tmp_path}")
    with pytest.raises(MissingTool):
        started(way)
    (tmp_path / "fio").write_text("#!/bin/sh\n")  # mode 0644
    with pytest.raises(HostprepError) as caught:
        started(way)
    error = caught.value
    said = f"{tmp_path}/fio could not be started: Permission denied; it is needed to measure."
    assert (error.code, error.message) == ("failed", said)
    assert error.hint is not None and f"ls -l {tmp_path}/fio" in error.hint
    (tmp_path / "fio").chmod(0o755)
    (tmp_path / "fio").write_bytes(b"\0\0 no program")
    with pytest.raises(HostprepError, match="could not be started: Exec format error"):
        started(way)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_command_that_failed_says_how_and_what_helps() -> None:
    for script, how in (("exit 3", "failed with status 3"), ("kill -9 $$", "was ended by SIGKILL")):
        with pytest.raises(CommandFailed, match=f"{how}: it said nothing") as caught:
            run(["sh", "-c", script], wanted_for="test")
        assert "dmesg" in str(caught.value.hint)


def test_a_command_that_a_limit_kept_from_starting_has_a_hint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def popen(*_: object, **__: object) -> None:
        raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))

    monkeypatch.setattr("subprocess.Popen", popen)
    with pytest.raises(HostprepError, match="Too many open files in system") as caught:
        started("run")
    assert "fs.file-max" in str(caught.value.hint)


@pytest.mark.parametrize("path", [None, "", "/usr/bin:/bin", "/sbin:/usr/bin:/bin"])
def test_system_programs_are_found_whatever_the_path_leaves_out(
    path: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cron's PATH is /usr/bin:/bin. What it has comes first, and no folder comes twice."""
    monkeypatch.delenv("PATH", raising=False)
    if path is not None:
        monkeypatch.setenv("PATH", path)
    told = run(["sh", "-c", 'echo "$PATH"'], wanted_for="test").stdout.strip().split(":")
    assert told[: len((path or os.defpath).split(":"))] == (path or os.defpath).split(":")
    assert {"/usr/sbin", "/sbin"} <= set(told) and len(told) == len(set(told))
    assert run(["ldconfig", "--version"], wanted_for="test").returncode == 0


def test_no_command_colours_what_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python does from 3.13 on what it says of an error, onto whatever its stderr is."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("PYTHON_COLORS", "1")
    done = run([sys.executable, "-Sc", "1/0"], wanted_for="test", ok=(1,))
    assert done.stderr.splitlines()[-1] == "ZeroDivisionError: division by zero"
    told = run(["env"], wanted_for="test").stdout
    assert "FORCE_COLOR=" not in told and "PYTHON_COLORS=" not in told


def test_output_comes_while_the_command_runs() -> None:
    script = "echo one; sleep 0.6; echo two; echo words >&2; exit 3"
    with start(["sh", "-c", script], wanted_for="test") as running:
        chunks = list(running.chunks(timeout_seconds=10))
        done = running.wait()
    assert chunks[0] == b"one\n"
    assert b"" in chunks
    assert (done.returncode, done.stdout, done.stderr) == (3, "one\ntwo\n", "words\n")


def test_an_exception_ends_the_command_and_its_children() -> None:
    pids: list[int] = []
    with (
        pytest.raises(KeyboardInterrupt),
        start(["sh", "-c", "sleep 300 & echo $! $$; wait"], wanted_for="test") as running,
    ):
        pids += map(int, next(running.chunks(timeout_seconds=10)).split())
        raise KeyboardInterrupt
    assert len(pids) == 2
    assert all(gone(pid) for pid in pids)


@pytest.mark.parametrize(("end", "status"), [("exit 7", 7), ("kill -9 $$", -9)])
def test_what_a_command_left_running_ends_though_itself_has_ended(end: str, status: int) -> None:
    script = f"sleep 300 >/dev/null 2>&1 & echo $!; {end}"
    with start(["sh", "-c", script], wanted_for="test") as running:
        pid = int(b"".join(running.chunks(timeout_seconds=10)))
        assert running.wait().returncode == status
        assert alive(pid)
        assert running.completed().returncode == status
    assert gone(pid)


def test_a_command_that_ignores_sigterm_is_killed() -> None:
    script = "trap '' TERM; echo $$; while :; do sleep 0.1; done"
    with start(["sh", "-c", script], wanted_for="test") as running:
        pid = int(next(running.chunks(timeout_seconds=10)))
    assert gone(pid)


def test_semaphores_of_workers_that_are_killed_go_with_them(tmp_path: Path) -> None:
    """Python leaves them to a process of its own, which does not heed SIGTERM."""
    script = tmp_path / "hangs.py"
    script.write_text(
        "import multiprocessing, time\n"
        "if __name__ == '__main__':\n"
        "    lock = multiprocessing.get_context('spawn').Lock()\n"
        "    print(lock._semlock.name, flush=True)\n"
        "    time.sleep(300)\n"
    )
    with start([sys.executable, script], wanted_for="test") as running:
        name = next(filter(None, running.chunks(timeout_seconds=30))).decode().strip()
        kept = Path(f"/dev/shm/sem.{name.lstrip('/')}")
        assert kept.exists()
    assert not kept.exists()


def test_a_command_that_hangs_is_an_error_and_does_not_stay() -> None:
    with (
        pytest.raises(CommandFailed, match="did not end in 1 s"),
        start(["sh", "-c", "echo $$; exec sleep 300"], wanted_for="test") as running,
    ):
        for chunk in running.chunks(timeout_seconds=1):
            if chunk:
                pid = int(chunk)
    assert gone(pid)


def test_a_missing_command_says_what_it_is_for() -> None:
    with pytest.raises(MissingTool, match="needed to test"), start(["no-such"], wanted_for="test"):
        pass


def in_a_body() -> None:
    with start(["sleep", "300"], wanted_for="test"):
        raise AssertionError("the body must not run")


def to_its_end() -> None:
    run(["sleep", "300"], wanted_for="test")


@pytest.mark.parametrize("use", [in_a_body, to_its_end])
def test_an_interruption_while_the_command_starts_does_not_orphan_it(
    use: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, pids = subprocess.Popen, []

    def slow(*args: Any, **kwargs: Any) -> Any:
        process = real(*args, **kwargs)
        pids.append(process.pid)
        signal.raise_signal(signal.SIGINT)
        return process

    monkeypatch.setattr(subprocess, "Popen", slow)
    # Started in the background, the tests may have inherited that Ctrl-C is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        use()
    assert gone(pids[0])
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


def test_a_script_without_its_interpreter_is_not_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "fio"
    script.write_text("#!/none/such\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostprepError, match="its interpreter") as caught:
        run(["fio"], wanted_for="measure", package="fio")
    assert not isinstance(caught.value, MissingTool)
    assert caught.value.message.startswith(f"{script} could not be started: ")
    assert str(script) in str(caught.value.hint)
    script.unlink()
    with pytest.raises(MissingTool):
        run(["fio-that-is-nowhere"], wanted_for="measure", package="fio")
