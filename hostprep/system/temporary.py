"""Temporary files; that there is no place for one is the host's fault, and told as such."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from hostprep.errors import HostprepError


@contextmanager
def temporary_text(text: str, *, suffix: str) -> Iterator[str]:
    """Write ``text``, which is ASCII, to a file of its own for the body; yield its path.

    Raises ``HostprepError`` where there can be none, or no room for all of it.
    """
    try:
        # Unbuffered: what had no room is not tried once more when the file is closed.
        file = tempfile.NamedTemporaryFile(  # noqa: SIM115 - closed below, whatever is raised
            prefix="hostprep-", suffix=suffix, buffering=0
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

    Yields its path, None where there can be none.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="hostprep-", ignore_cleanup_errors=True)
    except OSError:
        yield None
        return
    with folder as path:
        yield path


def _no_place(error: OSError) -> HostprepError:
    return HostprepError(
        f"a temporary file could not be written: {error.strerror or error}; nothing was run.",
        "make room there, or name another directory: TMPDIR=DIR hostprep ...",
    )
