"""Sources and targets that may not answer: a plan waits for them, but not for ever."""

from __future__ import annotations

import os
import shlex
import time

from hostprep.errors import HostprepError, Refused
from hostprep.probing.alive import NoAnswer
from hostprep.spec import DatasetSpec
from hostprep.staging.observer import Observer
from hostprep.system.bounded import NoAnswerInTime, ask_in_child
from hostprep.units import format_seconds

LOOK_SECONDS = 10.0
# One directory of a million files on a slow disk takes minutes and is no progress until it is read.
STALL_SECONDS = 600.0

_HINT = (
    "a network mount whose server is gone? `findmnt -T PATH` shows it; take the data set out of the"
    " spec until it is back"
)


def real_paths(spec: DatasetSpec) -> tuple[str, str]:
    """Return source and target directory without symlinks, asked of a child that may hang.

    Raises ``NoAnswer`` after ten seconds, ``HostprepError`` where it cannot be asked, ``Refused``
    for an empty source: a mount point without its file system, which would empty the copy.
    """

    def ask() -> tuple[str, str, bool]:
        source = os.path.realpath(spec.source)
        parent = spec.volume or os.path.realpath(spec.parent)
        empty = []
        for path in (source, parent):
            try:
                with os.scandir(path) as entries:
                    if next(entries, None) is None:
                        empty.append(path)
                os.statvfs(path)  # what a network file system does not answer from its cache
            except OSError:
                pass  # the planner says what is wrong, and whether that matters
        return source, parent, source in empty

    try:
        source, parent, empty = ask_in_child(ask, patience_seconds=LOOK_SECONDS)
    except NoAnswerInTime:
        raise NoAnswer(
            f"{spec.source} or {spec.parent} did not answer within {LOOK_SECONDS:g} s, so what"
            f" {spec.name} needs is not known; nothing was changed.",
            _HINT,
        ) from None
    except ChildProcessError as error:
        raise HostprepError(f"{spec.source} could not be looked at: {error}.") from None
    if empty:
        raise Refused(
            f"the source of {spec.name}, {source}, is empty; nothing was changed.",
            f"is its file system mounted? `findmnt -T {shlex.quote(source)}` shows it",
        )
    return source, parent


class Patient:
    """An observer that ends a look at ``source`` in which nothing has moved for ten minutes."""

    def __init__(self, observer: Observer, source: str) -> None:
        self._observer = observer
        self._source = source
        self._seen = (0, 0)
        self._since = time.monotonic()

    def phase(self, name: str, *, files: int | None = None, size_bytes: int | None = None) -> None:
        """Begin to wait anew."""
        self._seen, self._since = (0, 0), time.monotonic()
        self._observer.phase(name, files=files, size_bytes=size_bytes)

    def progress(self, files: int, size_bytes: int) -> None:
        """Raise ``NoAnswer`` where this is what it was, for too long."""
        now = time.monotonic()
        if (files, size_bytes) != self._seen:
            self._seen, self._since = (files, size_bytes), now
        elif now - self._since > STALL_SECONDS:
            raise NoAnswer(
                f"{self._source} stopped answering: for {format_seconds(STALL_SECONDS)} nothing"
                f" more was read of it; nothing was changed.",
                _HINT,
            )
        self._observer.progress(files, size_bytes)

    def note(self, message: str) -> None:
        """Pass it on."""
        self._observer.note(message)
