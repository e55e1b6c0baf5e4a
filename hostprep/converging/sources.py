"""Sources and targets that may not answer: a plan waits for them, but not for ever."""

from __future__ import annotations

import errno
import os
import shlex
import time

from hostprep.errors import HostprepError, Refused
from hostprep.host.answering import may_hang, no_answer
from hostprep.host.boot import boot_id
from hostprep.host.fscrypt import locked_out
from hostprep.host.mounts import Mount, mount_containing, read_mounts
from hostprep.spec.model import DatasetSpec
from hostprep.staging.inspection import inspect_target
from hostprep.staging.observer import Observer
from hostprep.staging.record.records import load_record
from hostprep.staging.source.opening import MISSING_HINT
from hostprep.staging.status import dataset_status
from hostprep.system.bounded import NoAnswerInTime, QuestionFailed, ask_in_child
from hostprep.system.following import followed
from hostprep.system.forking import NoProcess
from hostprep.system.links import link_at, real_path, walk
from hostprep.units import format_seconds

LOOK_SECONDS = 10.0
# For those that have not answered in this run before.
_AGAIN_SECONDS = 1.0
# Reading a directory of a million files on a slow disk takes minutes without visible progress.
_STALL_SECONDS = 600.0

_MISSING = "does not exist"
_CURE = "take the data set out of the spec until it is back"
# Errors of a source that exists but is not a directory or is closed to this user: it is not away.
_OF_THE_SOURCE = frozenset(
    {errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG}
)


class SourceAway(Refused):
    """The source is not there now: missing, failing, locked, or a mount point without its mount.

    ``source`` and ``parent``, the target directory, are without symlinks.
    """

    def __init__(self, message: str, hint: str, *, source: str, parent: str) -> None:
        super().__init__(message, hint)
        self.source = source
        self.parent = parent


class SilentOnes:
    """What has not answered in this run: it is not waited for as long once more."""

    def __init__(self) -> None:
        self._places: set[str] = set()

    def patience_for(self, spec: DatasetSpec) -> float:
        """Return how long to wait for a data set's source and target."""
        again = self._places and self._places & _places_of(spec)
        return _AGAIN_SECONDS if again else LOOK_SECONDS

    def add(self, spec: DatasetSpec) -> None:
        """Note that a data set's source or target did not answer."""
        self._places |= _places_of(spec)


def _places_of(spec: DatasetSpec) -> set[str]:
    """Return a data set's source, and the mounts it is on, or its target, that may not answer."""
    mounts = read_mounts()
    found = {spec.source}
    for path in _led_to(spec.source, spec.parent):
        mount = mount_containing(path, mounts)
        if mount is not None and may_hang(mount):
            found.add(_answered_as_one(path, mount))
    return found


def _answered_as_one(path: str, mount: Mount) -> str:
    """Return the part of a mount with ``path`` for which one server answers.

    Of an automount of many, as of homes, each folder that is not mounted yet has its own.
    """
    if mount.fstype != "autofs" or mount.option("indirect") is None:
        return mount.target
    name = path.removeprefix(mount.target).lstrip("/").partition("/")[0]
    return os.path.join(mount.target, name)


def led_to(path: str) -> str:
    """Return where symlinks lead, as far as that can be found out without asking a server."""
    return _led_to(path)[0]


def _led_to(*paths: str) -> list[str]:
    mounts = read_mounts()

    def followed(there: str) -> str | None:
        mount = mount_containing(there, mounts)
        far = mount is not None and mount.target != "/" and may_hang(mount)
        return None if far else link_at(there)

    def ask() -> list[str]:
        return [walk(path, followed) for path in paths]

    try:  # a disk that hangs is not told from one that does not, so a child looks
        answer: list[str] = ask_in_child(ask, patience_seconds=_AGAIN_SECONDS)
    except (NoAnswerInTime, QuestionFailed, NoProcess):
        return list(paths)
    return answer


def real_paths(spec: DatasetSpec, patience_seconds: float | None = None) -> tuple[str, str]:
    """Return source and target directory without symlinks, found by a child that may hang.

    Raises ``NoAnswer`` after ``patience_seconds``, ten if not given, ``HostprepError`` if they
    cannot be found, ``Refused`` if a stranger's symlink leads there, and ``SourceAway``, also for
    an empty source, because staging from it would empty the copy.
    """
    seconds = LOOK_SECONDS if patience_seconds is None else patience_seconds
    try:
        seen = ask_in_child(lambda: _look(spec), patience_seconds=seconds)
    except NoAnswerInTime:
        raise no_answer(
            f"{spec.source} or {spec.parent} did not answer within {seconds:g} s, so what"
            f" {spec.name} needs is not known; nothing was changed.",
            _CURE,
        ) from None
    except QuestionFailed as error:
        why = str(error).removesuffix(".")
        raise HostprepError(f"{spec.source} could not be looked at: {why}.", error.hint) from None
    if "refused" in seen:
        raise Refused(seen["refused"], seen["hint"])
    source, parent, away = seen["source"], seen["parent"], seen["away"]
    if away:
        there = f"is its file system mounted? `findmnt -T {shlex.quote(source)}` shows it"
        raise SourceAway(
            f"the source {source} {away}; nothing was changed.",
            seen["cure"] or (MISSING_HINT if away == _MISSING else there),
            source=source,
            parent=parent,
        )
    return source, parent


def _look(spec: DatasetSpec) -> dict[str, str | None]:
    """In a child: return where source and target directory are, and why the source is away."""
    try:
        source = real_path(spec.source)
        parent = spec.volume or real_path(spec.parent, writes=True)
    except Refused as refusal:
        return {"refused": refusal.message, "hint": refusal.hint}
    wrong: dict[str, str] = {}
    for path in (source, parent):
        try:
            with os.scandir(path) as entries:
                if next(entries, None) is None:
                    wrong[path] = "is empty"
            os.statvfs(path)  # a network file system does not answer this from its cache
        except OSError as error:
            # The planner reports other errors, and decides whether they matter.
            if error.errno not in _OF_THE_SOURCE:
                missing = error.errno == errno.ENOENT
                wrong[path] = _MISSING if missing else f"fails: {error.strerror}"
    away, cure = wrong.get(source), None
    if away in (None, _MISSING) and (locked := locked_out(source)):
        away, cure = locked
    return {"source": source, "parent": parent, "away": away, "cure": cure}


def kept_target(spec: DatasetSpec, source: str) -> str | None:
    """Return where the data set is if it is complete by its manifest and of this boot, else None.

    For a data set whose ``source``, without symlinks as far as known, is away; it is not looked at.
    """

    def ask() -> str | None:
        parent = spec.volume or followed(spec.parent)
        target = f"{parent.rstrip('/')}/{spec.name}"
        record = load_record(spec.name, target)
        if record is None or dataset_status(record).state != "staged":
            return None
        same = record.source == source
        of_this_boot = record.volume is None or record.boot_id == boot_id()
        return target if same and of_this_boot else None

    try:
        target: str | None = ask_in_child(ask, patience_seconds=LOOK_SECONDS)
        record = None if target is None else load_record(spec.name, target)
        seen = None if record is None else inspect_target(record, seconds=_STALL_SECONDS)
    except (NoAnswerInTime, HostprepError, OSError):
        return None
    if seen is None or not seen.whole or seen.changed or seen.missing:
        return None
    return target


class Patient:
    """An observer that gives up on ``source`` if nothing moves for ten minutes."""

    def __init__(self, observer: Observer, source: str) -> None:
        self._observer = observer
        self._source = source
        self._seen = (0, 0)
        self._since = time.monotonic()

    def phase(self, name: str, *, files: int | None = None, size_bytes: int | None = None) -> None:
        """Start waiting anew."""
        self._seen, self._since = (0, 0), time.monotonic()
        self._observer.phase(name, files=files, size_bytes=size_bytes)

    def progress(self, files: int, size_bytes: int) -> None:
        """Raise ``NoAnswer`` if this has been the same for too long."""
        now = time.monotonic()
        if (files, size_bytes) != self._seen:
            self._seen, self._since = (files, size_bytes), now
        elif now - self._since > _STALL_SECONDS:
            raise no_answer(
                f"{self._source} stopped answering: for {format_seconds(_STALL_SECONDS)} nothing"
                f" more was read of it; nothing was changed.",
                _CURE,
            )
        self._observer.progress(files, size_bytes)

    def note(self, message: str) -> None:
        """Pass it on."""
        self._observer.note(message)
