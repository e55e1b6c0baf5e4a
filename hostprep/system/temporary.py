"""Temporary files; that there is no place for one is the host's fault, and told as such."""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from hostprep.errors import HostprepError
from hostprep.system.trees import DIRECTORY_FLAGS

_PREFIX = "hostprep-m-"  # short, for sockets lie below it, and the path to one has 107 bytes


@contextmanager
def temporary_text(text: str) -> Iterator[str]:
    """Write ``text``, which is ASCII, to a file of its own for the body; yield its path.

    Raises ``HostprepError`` where there can be none, or no room for all of it.
    """
    try:
        # Unbuffered: what had no room is not tried once more when the file is closed.
        file = tempfile.NamedTemporaryFile(  # noqa: SIM115 - closed below, whatever is raised
            prefix="hostprep-", buffering=0
        )
    except OSError as error:
        raise _no_place(error) from None
    with file:
        data = memoryview(text.encode("ascii"))
        try:
            while data:
                data = data[file.write(data) :]
        except OSError as error:
            raise _no_place(error) from None
        yield file.name


@contextmanager
def temporary_folder() -> Iterator[str | None]:
    """Make a folder for the body, and remove it with all that came into it.

    Folders that killed runs left are removed too: nobody holds the lock on them. Yields the path of
    the new one, None where there can be none.
    """
    _remove_left()
    try:
        folder = tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True)
    except OSError:
        yield None
        return
    with folder as path, _held(path) as held:
        # Where we could not hold it in time, another run may have taken it for one that was left.
        yield path if held and os.path.isdir(path) else None


@contextmanager
def _held(path: str) -> Iterator[bool]:
    """Hold the lock on a folder, of which others hear whether it is in use; yield whether we do."""
    try:
        descriptor = os.open(path, DIRECTORY_FLAGS)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)


def _remove_left() -> None:
    """Remove this user's folders that nobody holds."""
    with suppress(OSError):
        for path in glob.glob(os.path.join(glob.escape(tempfile.gettempdir()), f"{_PREFIX}*")):
            if os.lstat(path).st_uid == os.geteuid():
                with _held(path) as left:
                    if left:
                        shutil.rmtree(path, ignore_errors=True)


def _no_place(error: OSError) -> HostprepError:
    return HostprepError(
        f"a temporary file could not be written: {error.strerror or error}; nothing was run.",
        "make room there, or name another directory: TMPDIR=DIR hostprep ...",
    )
