"""The one door to other programs: argument lists, never a shell; stdin closed; bounded in time."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from hostprep.errors import HostprepError, MissingTool

Argument = str | bytes | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Completed:
    """What a finished command left: its exit status and both outputs, decoded leniently."""

    args: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str

    def line(self) -> str:
        """Return the command as a line that one can paste into a shell."""
        return shlex.join(self.args)


class CommandFailed(HostprepError):
    """A command ended with another status than was expected, or not in time."""

    code = "command_failed"

    def __init__(self, completed: Completed, reason: str) -> None:
        said = (completed.stderr.strip() or completed.stdout.strip() or "it said nothing")[-2000:]
        super().__init__(f"`{completed.line()}` {reason}: {said}")
        self.completed = completed


def clean_environment() -> dict[str, str]:
    """Return the environment for children: the C locale, so that their output can be parsed."""
    return {**os.environ, "LC_ALL": "C.UTF-8", "LANG": "C.UTF-8"}


def run(
    args: Sequence[Argument],
    *,
    wanted_for: str,
    package: str | None = None,
    timeout_seconds: float = 60,
    ok: Sequence[int] = (0,),
    stdin: bytes | None = None,
    env: dict[str, str] | None = None,
) -> Completed:
    """Run a command to its end and return what it left.

    ``wanted_for`` completes the sentence "it is needed to ..." when the command is not installed;
    ``package`` is the Debian package that has it. A status outside ``ok`` raises ``CommandFailed``,
    as does running past ``timeout_seconds``; the process is killed then. ``env`` is added to the
    clean environment.
    """
    argv = [os.fsdecode(arg) for arg in args]
    try:
        done = subprocess.run(
            argv,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=timeout_seconds,
            env={**clean_environment(), **(env or {})},
            check=False,
        )
    except FileNotFoundError:
        raise MissingTool(argv[0], wanted_for=wanted_for, package=package) from None
    except subprocess.TimeoutExpired as error:
        partial = Completed(tuple(argv), -1, _text(error.stdout), _text(error.stderr))
        raise CommandFailed(partial, f"did not end within {timeout_seconds:g} s") from None
    completed = Completed(tuple(argv), done.returncode, _text(done.stdout), _text(done.stderr))
    if done.returncode not in ok:
        raise CommandFailed(completed, f"failed with status {done.returncode}")
    return completed


def _text(output: bytes | str | None) -> str:
    if output is None:
        return ""
    return output if isinstance(output, str) else output.decode("utf-8", "replace")
