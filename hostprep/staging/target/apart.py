"""Source and target are apart: neither lies in the other, by its name or by what it is."""

from __future__ import annotations

import contextlib
import os
import shlex

from hostprep.errors import Refused
from hostprep.host.mounts import lies_in, mount_of, read_mounts
from hostprep.staging.record.records import Record
from hostprep.system.bounded import NoAnswerInTime, ask_in_child
from hostprep.system.descriptors import closing_fd

# How long a source may take to say where it lies, which a dead network mount never does.
_PATIENCE_SECONDS = 2.0


def check_apart(source: str, target: str) -> None:
    """Raise ``Refused`` where one of two paths lies inside the other, by name or by what they are.

    Of the target, what is not there yet counts as it would be made.
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
    # Where names fold, it may be spelled in another way.
    if _holds(source, target) or _holds(target, source):
        raise Refused(
            f"the target {target} lies inside the source {source}, or that in it, by another"
            " spelling; nothing was changed.",
            "choose a target outside the source",
        )


def check_spares_source(record: Record) -> None:
    """Raise ``Refused`` where what was a copy is the source by now: what is removed would be it."""
    try:
        found = ask_in_child(lambda: origin_of(record.source), patience_seconds=_PATIENCE_SECONDS)
    except (NoAnswerInTime, ChildProcessError):
        return  # then it lies on something remote, and the target does not
    _check_origins(None if found is None else (found[0], found[1]), record.source, record.target)


def check_not_source(record: Record) -> None:
    """Do as ``check_spares_source``, but wait for a source that hangs: to be asked in a child."""
    _check_origins(origin_of(record.source), record.source, record.target)


def _check_origins(origin: tuple[str, str] | None, source: str, target: str) -> None:
    there = origin_of(target)
    if origin is None or there is None or origin[0] != there[0]:
        return
    if lies_in(there[1], origin[1]) or lies_in(origin[1], there[1]):
        place = shlex.quote(target)
        raise Refused(
            f"{target} and the source {source} are the same files by now, or one in the other: a"
            " mount or a link leads there; nothing was changed.",
            f"findmnt --target {place} and namei {place} show what leads there: undo that;"
            f" `hostprep unstage {place} --forget` forgets the copy and removes nothing",
        )


def origin_of(path: str) -> tuple[str, str] | None:
    """Return the device and the path on it that ``path`` leads to, the same by every bind mount.

    None where it cannot be told. Of a path that is not there, the rest counts by its names.
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
    """Open a path, or the nearest above it that is there, as O_PATH; return the rest of it, too.

    None in place of a descriptor where that cannot be opened.
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
    """Whether a directory is one of those on the way to ``path``, by what it is."""
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
