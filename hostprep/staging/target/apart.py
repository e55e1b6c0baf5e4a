"""Source and target must be apart: neither inside the other, by name or by what it is."""

from __future__ import annotations

import contextlib
import os
import shlex

from hostprep.errors import Refused
from hostprep.host.mounts import lies_in, mount_of, read_mounts
from hostprep.staging.record.records import Record
from hostprep.system.bounded import NoAnswerInTime, ask_in_child
from hostprep.system.descriptors import closing_fd

# How long a source may take to say where it is; a dead network mount never does.
_PATIENCE_SECONDS = 2.0


def check_apart(source: str, target: str) -> None:
    """Raise ``Refused`` if one of two paths is inside the other, by name or by what they are.

    Parts of the target that do not exist yet count as they would be made.
    """
    if lies_in(target, source):
        raise Refused(
            f"the target {target} lies inside the source {source}: the copy would copy itself; "
            "nothing was changed.",
            "choose a target outside the source",
        )
    if lies_in(source, target):
        raise Refused(
            f"the source {source} lies inside the target {target}; nothing was changed.",
            "choose another target or --name",
            spec_hint="choose another target or `name`",
        )
    _check_origins(origin_of(source), source, target)
    # If the file system folds names, the path may be spelled differently.
    if _holds(source, target) or _holds(target, source):
        raise Refused(
            f"the target {target} lies inside the source {source}, or the other way round, under"
            " another spelling; nothing was changed.",
            "choose a target outside the source",
        )


def check_spares_source(record: Record) -> None:
    """Raise ``Refused`` if the path of the copy is now the source: that would be removed."""
    try:
        found = ask_in_child(lambda: origin_of(record.source), patience_seconds=_PATIENCE_SECONDS)
    except (NoAnswerInTime, ChildProcessError):
        return  # then the source is remote, and the target is not
    _check_origins(None if found is None else (found[0], found[1]), record.source, record.target)


def check_not_source(record: Record) -> None:
    """Do the same as ``check_spares_source``, but wait if the source hangs; for a child process."""
    _check_origins(origin_of(record.source), record.source, record.target)


def _check_origins(origin: tuple[str, str] | None, source: str, target: str) -> None:
    there = origin_of(target)
    if origin is None or there is None or origin[0] != there[0]:
        return
    if lies_in(there[1], origin[1]) or lies_in(origin[1], there[1]):
        place = shlex.quote(target)
        raise Refused(
            f"{target} and the source {source} are now the same files, or one lies in the other: a"
            " mount or a link leads there; nothing was changed.",
            f"findmnt --target {place} and namei {place} show what leads there: undo that;"
            f" `hostprep unstage {place} --forget` forgets the copy and removes nothing",
        )


def origin_of(path: str) -> tuple[str, str] | None:
    """Return the device of ``path`` and the path on it, which are the same by every bind mount.

    None if that is unknown. Parts of the path that do not exist count by their names.
    """
    descriptor, rest = open_standing(path)
    if descriptor is None:
        return None
    with closing_fd(descriptor):
        mount = mount_of(descriptor, read_mounts())
        real = os.readlink(f"/proc/self/fd/{descriptor}")
    if mount is None or not lies_in(real, mount.target):
        return None
    below = real[len(mount.target.rstrip("/")) :].rstrip("/")
    return mount.device, f"{mount.root.rstrip('/')}{below}{rest}" or "/"


def open_standing(path: str) -> tuple[int | None, str]:
    """Open a path, or its nearest existing parent, as O_PATH; return the rest of the path too.

    None in place of a descriptor if that cannot be opened.
    """
    rest = ""
    while True:
        try:
            return os.open(path, os.O_PATH | os.O_CLOEXEC), rest
        except FileNotFoundError:
            path, name = os.path.split(path)
            rest = f"/{name}{rest}"
        except OSError:
            return None, rest


def _holds(folder: str, path: str) -> bool:
    """Whether a directory is one of those on the way to ``path``, by identity."""
    try:
        wanted = os.stat(folder)
    except OSError:
        return False
    while path != "/":
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(path), wanted):
                return True
        path = os.path.dirname(path)
    return False
