"""Opening the source of a run, and its name as that of a data set."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from hostprep.errors import HostprepError, UsageError
from hostprep.spec.names import name_problem
from hostprep.system.trees import DIRECTORY_FLAGS


@contextmanager
def open_source(path: str) -> Iterator[int]:
    """Open the source directory; ``path`` itself may be a symlink, since the user named it."""
    try:
        descriptor = os.open(path, DIRECTORY_FLAGS & ~os.O_NOFOLLOW)
    except FileNotFoundError:
        raise UsageError(f"the source {path} does not exist.", "name a directory") from None
    except NotADirectoryError:
        raise UsageError(
            f"the source {path} is a file; a data set is a directory.",
            "name the directory that holds it",
        ) from None
    except OSError as error:
        raise HostprepError(
            f"the source {path} cannot be opened: {error.strerror}; nothing was changed."
        ) from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def check_name(name: str) -> str:
    """Return ``name`` if a data set may be called so, else raise ``UsageError``."""
    problem = name_problem(name)
    if problem:
        raise UsageError(
            f"{name!r} cannot name a data set: it {problem}.", "give another by --name NAME"
        )
    return name
