"""The only way to run other programs: argument lists, no shell, stdin closed, a time limit."""

from __future__ import annotations

import errno
import os
import selectors
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

from hostprep.dataclass import dataclass
from hostprep.errors import MEND_HINT, HostprepError, MissingTool, reading_hint
from hostprep.system.ending import ended_within, has_members, how_it_ended, status_of
from hostprep.system.held_signals import HeldSignals

_ENDING_SECONDS = 2.0
# Time for a command's children to clean up after it; those that ignore us get no more.
_TIDYING_SECONDS = 0.5
# How often the listener of a silent command is called.
_SILENT_SECONDS = 0.25

_MOST_SAID = 2000
_SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")
_COLOURING = ("FORCE_COLOR", "PYTHON_COLORS")

Argument = str | bytes | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Completed:
    """What a finished command left: its exit status and both outputs, decoded leniently."""

    args: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str

    @property
    def complaint(self) -> str:
        """The end of what it said on stderr: as much as a message has room for."""
        return self.stderr.strip()[-_MOST_SAID:]

    def line(self) -> str:
        """Return the command as a line to paste into a shell."""
        return shlex.join(self.args)


class CommandFailed(HostprepError):
    """A command ended with an unexpected status, or not in time."""

    code = "command_failed"

    def __init__(self, completed: Completed, reason: str) -> None:
        said = completed.complaint or completed.stdout.strip()[-_MOST_SAID:] or "it said nothing"
        super().__init__(f"`{completed.line()}` {reason}: {said}", MEND_HINT)
        self.completed = completed


def _clean_environment() -> dict[str, str]:
    """Return the environment for children: the C locale, so that their output can be parsed.

    Without variables that make programs colour their output, as Python's own errors from 3.13 on,
    because nobody looks at it. With the folders of system programs at the end of PATH, because
    cron's and ordinary users' PATH lacks them, and with them smartctl, and what dpkg itself needs.
    """
    folders = (os.environ.get("PATH") or os.defpath).split(os.pathsep)
    folders += [folder for folder in _SYSTEM_FOLDERS if folder not in folders]
    path = os.pathsep.join(folders)
    given = {name: each for name, each in os.environ.items() if name not in _COLOURING}
    return {**given, "PATH": path, "LC_ALL": "C.UTF-8", "LANG": "C.UTF-8"}


def run(
    args: Sequence[Argument],
    *,
    wanted_for: str,
    package: str | None = None,
    timeout_seconds: float | None = 60,
    ok: Sequence[int] = (0,),
    env: dict[str, str] | None = None,
    hands_on: Sequence[int] = (),
) -> Completed:
    """Run a command to its end and return what it left.

    ``wanted_for`` completes the sentence "it is needed to ..." if the command is not installed;
    ``package`` is the Debian package that has it. If it exists but cannot be started,
    ``HostprepError`` is raised. A status outside ``ok`` raises ``CommandFailed``, and so does
    running past ``timeout_seconds`` (None: no limit), when the process is killed. ``env`` is added
    to the clean environment. The command inherits the descriptors ``hands_on``.
    """
    argv = [os.fsdecode(arg) for arg in args]
    held = HeldSignals()  # an interruption between its start and our try would orphan it
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = _begin(argv, held, wanted_for, package, env, **streams, pass_fds=hands_on)
    try:
        held.release()
        stdout, stderr = process.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired as error:
        partial = Completed(tuple(argv), -1, _text(error.stdout), _text(error.stderr))
        raise CommandFailed(partial, f"did not end within {timeout_seconds:g} s") from None
    finally:
        if process.returncode is None:
            _kill(process)
    return _checked(Completed(tuple(argv), process.returncode, _text(stdout), _text(stderr)), ok)


def run_undisturbed(
    args: Sequence[Argument],
    *,
    wanted_for: str,
    env: dict[str, str] | None = None,
    on_interrupt: Callable[[], None] = lambda: None,
) -> Completed:
    """Run a command that must not be stopped half-way, however long it takes.

    Ctrl-C and SIGTERM are held back until it has ended; ``on_interrupt`` is called for the first.
    If we are killed, it continues: it has a session of its own, and writes into files. Everything
    else is as in ``run``.
    """
    argv = [os.fsdecode(arg) for arg in args]
    with _scratch() as output, _scratch() as errors:
        held = HeldSignals(on_interrupt)
        streams = {"stdout": output, "stderr": errors}
        process = _begin(argv, held, wanted_for, None, env, **streams, start_new_session=True)
        try:
            process.wait()
        finally:
            held.release()
        output.seek(0)
        errors.seek(0)
        completed = Completed(
            tuple(argv), process.returncode, _text(output.read()), _text(errors.read())
        )
    return _checked(completed, (0,))


def _begin(
    argv: list[str],
    held: HeldSignals,
    wanted_for: str,
    package: str | None,
    env: Mapping[str, str | None] | None,
    **how: Any,
) -> subprocess.Popen[bytes]:
    """Start a command; if that fails, release ``held`` and raise ``HostprepError``."""
    try:
        surroundings = {**_clean_environment(), **(env or {})}
        given = {name: each for name, each in surroundings.items() if each is not None}
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, env=given, **how)
    except BaseException as error:
        held.release()
        if isinstance(error, OSError):
            raise _not_started(error, argv[0], wanted_for, package) from None
        raise


def _scratch() -> IO[bytes]:
    """Return an empty file without a name, in memory if there is no writable temporary folder."""
    import tempfile  # imports `random`, which most commands do not need: 1.2 ms

    try:
        return tempfile.TemporaryFile()
    except OSError:
        return os.fdopen(os.memfd_create("hostprep"), "w+b")


def _not_started(error: OSError, tool: str, wanted_for: str, package: str | None) -> HostprepError:
    """Return the error for a command that does not exist, or exists but cannot be started."""
    # The kernel does not name the file, and the PATH may have several of that name.
    path = os.get_exec_path(_clean_environment())
    places = [os.path.join(folder, tool) for folder in path]
    file = next((place for place in places if os.path.isfile(place)), None)
    if file is None and isinstance(error, FileNotFoundError):
        return MissingTool(tool, wanted_for=wanted_for, package=package)
    file, hint = file or tool, reading_hint(error)
    why = error.strerror or str(error)
    if isinstance(error, FileNotFoundError):
        why = "the program that runs it (its interpreter, or its loader) is not there"
        hint = f"`head -n 1 {shlex.quote(file)}` names the interpreter of a script"
    if error.errno in (errno.EACCES, errno.ENOEXEC, errno.EPERM):
        hint = (
            f"`ls -l {shlex.quote(file)}` and `findmnt -T {shlex.quote(file)}` show its mode and"
            " whether its file system is mounted noexec"
        )
        if package is not None:
            hint += f"; or reinstall it: apt-get install --reinstall {package}"
    return HostprepError(
        f"{file} could not be started: {why}; it is needed to {wanted_for}.",
        hint,
    )


def _checked(completed: Completed, ok: Sequence[int]) -> Completed:
    if completed.returncode not in ok:
        how = "was ended" if completed.returncode < 0 else "failed"
        raise CommandFailed(completed, f"{how} {how_it_ended(completed.returncode)}")
    return completed


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a command, and abandon it if it is stuck in the kernel, for instance on a dead share."""
    process.kill()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(2)
    except subprocess.TimeoutExpired:
        pass  # it ends when the share answers


class Running:
    """A command that runs in parallel and whose output is read meanwhile; made by ``start``."""

    def __init__(self, process: subprocess.Popen[bytes], argv: Sequence[str], errors: IO[bytes]):
        self._process = process
        self._argv = tuple(argv)
        self._errors = errors
        self._output: list[bytes] = []

    @property
    def pid(self) -> int:
        """Return the number of its process."""
        return self._process.pid

    def chunks(self, *, timeout_seconds: float) -> Iterator[bytes]:
        """Yield the output as it comes, and ``b""`` several times a second if there is none.

        Ends when the command has closed its output. Raises ``CommandFailed`` if that takes longer
        than ``timeout_seconds``.
        """
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + timeout_seconds
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while True:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise CommandFailed(self.completed(), f"did not end in {timeout_seconds:.0f} s")
                if not selector.select(min(left, _SILENT_SECONDS)):
                    yield b""
                    continue
                chunk = os.read(descriptor, 1 << 16)
                if not chunk:
                    return
                self._output.append(chunk)
                yield chunk

    def wait(self, *, timeout_seconds: float = 5) -> Completed:
        """Wait for its end and return what the command left, whatever its exit status."""
        if not ended_within(self._process.pid, timeout_seconds):
            raise CommandFailed(self.completed(), "closed its output and did not end")
        return self.completed()

    def completed(self) -> Completed:
        """Return what has come so far; the status is -1 while the command runs."""
        self._errors.seek(0)
        status = status_of(self._process.pid)
        return Completed(
            self._argv,
            -1 if status is None else status,
            _text(b"".join(self._output)),
            _text(self._errors.read()),
        )


@contextmanager
def start(
    args: Sequence[Argument],
    *,
    wanted_for: str,
    package: str | None = None,
    env: Mapping[str, str | None] | None = None,
) -> Iterator[Running]:
    """Run a command in parallel to the body; whatever ends the body ends it and its children.

    ``env`` is added to the clean environment; variables that are None there are removed from it.

    The command has a process group of its own, so that Ctrl-C reaches it through us only: it is
    asked to stop, and killed if it does not within two seconds.
    """
    argv = [os.fsdecode(arg) for arg in args]
    with _scratch() as errors:
        held = HeldSignals()  # an interruption between its start and our try would orphan it
        streams = {"stdout": subprocess.PIPE, "stderr": errors}
        process = _begin(argv, held, wanted_for, package, env, **streams, start_new_session=True)
        try:
            held.release()
            yield Running(process, argv, errors)
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    process.stdout.close()
    # Its number cannot go to another process until it is reaped, so only until then may we kill. If
    # it has ended by itself, programs that it started may still be running.
    os.killpg(process.pid, signal.SIGTERM)
    ended_within(process.pid, _ENDING_SECONDS)
    # Python's resource tracker removes semaphores once all their users are gone.
    deadline = time.monotonic() + _TIDYING_SECONDS
    while has_members(process.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(2)
    except subprocess.TimeoutExpired:
        pass  # stuck in the kernel on a dead device; it ends when the device answers


def _text(output: bytes | str | None) -> str:
    if output is None:
        return ""
    return output if isinstance(output, str) else output.decode("utf-8", "replace")
