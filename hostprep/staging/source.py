"""The source and the target of a run as paths: checked before anything is looked at in depth."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from hostprep.errors import HostprepError, Refused, UsageError
from hostprep.host.mounts import read_mounts
from hostprep.staging.private import PREFIX, private_name
from hostprep.staging.tree import DIRECTORY_FLAGS


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


def real_source(path: str) -> str:
    """Return the source's absolute path without symlinks."""
    return os.path.realpath(path)


def check_name(name: str) -> str:
    """Return ``name`` if a data set may be called so, else raise ``UsageError``."""
    problem = None
    if not name or name in (".", ".."):
        problem = "is no name"
    elif "/" in name:
        problem = "holds a slash"
    elif not name.isprintable():
        problem = "holds control characters or bytes that are not UTF-8"
    elif name.startswith((PREFIX, "-", ".")):
        problem = f"begins with {name[0]!r}"
    elif len(os.fsencode(name)) > 200:
        problem = "is longer than 200 bytes"
    if problem:
        raise UsageError(
            f"{name!r} cannot name a data set: it {problem}.", "give another by --name NAME"
        )
    return name


def check_apart(source: str, target: str) -> None:
    """Raise ``Refused`` where one of two real paths lies inside the other."""
    if source == target or target.startswith(source.rstrip("/") + "/"):
        raise Refused(
            f"the target {target} lies inside the source {source}: the copy would copy itself; "
            "nothing was changed.",
            "choose a target outside the source",
        )
    if source.startswith(target.rstrip("/") + "/"):
        raise Refused(
            f"the source {source} lies inside the target {target}; nothing was changed.",
            "choose another target or --name",
        )


def check_bare(target: str) -> None:
    """Raise ``Refused`` where something is mounted on a data set, or inside it.

    What would be replaced or removed there belongs to that file system: through a bind mount, to
    the source itself.
    """
    parent, name = os.path.split(target)
    real = os.path.realpath(parent)
    places = tuple(os.path.join(real, each) for each in (name, private_name(name)))
    for mount in read_mounts():
        if any(f"{mount.target}/".startswith(f"{place}/") for place in places):
            raise Refused(
                f"{mount.source} ({mount.fstype}) is mounted on {mount.target}, where the data set"
                " is; nothing was changed.",
                "unmount that first",
            )
