"""How a host is asked. If it gives no answer, or not in time, ``CannotTell`` is raised."""

from __future__ import annotations

from collections.abc import Callable
from errno import EOPNOTSUPP
from pathlib import Path
from typing import Any

from hostprep.readiness.model import CannotTell, Level
from hostprep.system.bounded import NoAnswerInTime, QuestionFailed, ask_in_child


def read_file(root: Path, path: str) -> str | None:
    """Return the text of ``path`` (``proc/meminfo``) below ``root``, None if there is no such file.

    The same goes for a file that the kernel does not support (EOPNOTSUPP), such as pressure without
    psi=1. Raises ``CannotTell`` if this user may not read it or the kernel returns an error.
    """
    path = path.lstrip("/")
    try:
        return (root / path).read_text(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        raise CannotTell(f"/{path} may not be read by this user.", "run it as root") from None
    except OSError as error:
        if error.errno == EOPNOTSUPP:
            return None
        raise CannotTell(
            f"/{path} cannot be read: {error.strerror}.", "the kernel's log may say why: dmesg"
        ) from None


def ask_in_time(
    name: str, question: Callable[[], Any], patience_seconds: float, level: Level
) -> Any:
    """Return what ``question`` returns, asked in a child process, which may hang.

    ``name`` says what is asked. Raises ``CannotTell`` if there is no answer in time (a run of
    another ``level`` may wait longer), or if the question raised.
    """
    try:
        return ask_in_child(question, patience_seconds=patience_seconds)
    except NoAnswerInTime:
        hint = "a disk or server behind it does not answer: fix it, or unmount it lazily"
        if level is Level.QUICK:
            hint += "; if it is only slow, it has longer with --full (and --only this check)"
        raise CannotTell(f"{name}: no answer within {patience_seconds:g} s.", hint) from None
    except ChildProcessError as error:
        hint = "check that it is there, and readable"
        if isinstance(error, QuestionFailed) and error.hint:
            hint = error.hint
        # hostprep's own errors are sentences already.
        raise CannotTell(f"{name}: {str(error).removesuffix('.')}.", hint) from None
