"""Temporary files; if there is no place for one, the error says that the host is at fault."""

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

_PREFIX = "hostprep-m-"  # short, because paths of sockets below it have at most 107 bytes


@contextmanager
def temporary_text(text: str) -> Iterator[str]:
    """Write ``text``, which must be ASCII, to a temporary file for the body; yield its path.

    Raises ``HostprepError`` if none can be created, or there is no room for all of it.
    """
    try:
        # Unbuffered, so that closing the file does not try again to write what had no room.
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
    """Create a folder for the body, and remove it with all its contents.

    Folders that killed runs left, whose lock nobody holds, are removed too. Yields the path of the
    new one, None if it cannot be created.
    """
    _remove_left()
    try:
        folder = tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True)
    except OSError:
        yield None
        return
    with folder as path, _held(path) as held:
        # If we did not get the lock in time, another run may have taken the folder for a leftover.
        yield path if held and os.path.isdir(path) else None


@contextmanager
def _held(path: str) -> Iterator[bool]:
    """Hold the lock on a folder, by which others see that it is in use; yield whether we do."""
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
