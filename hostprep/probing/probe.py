"""One probe of one path, in a child process that can be left behind if the storage hangs."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hostprep.errors import SERVER_GONE, HostprepError, Inconclusive, UsageError, reading_hint
from hostprep.host.answering import NoAnswer
from hostprep.host.block import MADE_UP, locate
from hostprep.probing import fio
from hostprep.probing.alive import check_listable
from hostprep.probing.folder import remove_left
from hostprep.probing.model import Measured, Settings, Target
from hostprep.probing.observer import Observer
from hostprep.probing.phases import Phases
from hostprep.probing.small_files import MEMORY_FOLDER
from hostprep.system.apart import WorkHalted, WorkKilled, work_apart
from hostprep.system.bounded import NoAnswerInTime, ask_in_child
from hostprep.system.forking import NoProcess
from hostprep.system.page_cache import drop_caches

LEAST_SECONDS = 5.0
MOST_SECONDS = 3600.0
# The longest time that a step without progress reports may take, besides a tenth of the whole time:
# a file that was just written may first have to reach a slow disk.
_SILENCE_SECONDS = 60.0
# The parent, which only waits, gets its turn sooner than this, however busy the machine is: a
# longer gap means that it was stopped.
_HALT_SECONDS = 2.0
# For removing what a killed run left behind: on storage that hangs it stays.
_TIDYING_SECONDS = 10.0


def target(path: str, seconds: float | None = None) -> Target:
    """Check ``path`` and fio. Raises what is wrong with either; nothing hangs.

    ``seconds`` is the time that the probe is given: at least half of the minimum must be left of it
    for measuring, otherwise ``FioNotLoaded`` is raised.
    """
    absolute = os.path.abspath(path)
    began = time.monotonic()
    check_listable(absolute)
    patience = fio.LOADING_SECONDS
    if seconds is not None and math.isfinite(seconds):
        patience = min(patience, max(seconds, LEAST_SECONDS) - LEAST_SECONDS / 2)
    version = fio.version(patience)
    storage = locate(absolute)
    if storage.fstype in MADE_UP:
        raise UsageError(
            f"{storage.path} is not storage: the kernel generates all that is in {storage.fstype}. "
            "Nothing was measured.",
            "name a folder on the storage in question",
        )
    return Target(storage, version, time.monotonic() - began)


def refuse_odd(settings: Settings) -> None:
    """Raise ``UsageError`` if nobody can measure for that long."""
    if not math.isfinite(settings.seconds):
        raise UsageError(
            f"--seconds {settings.seconds:g} is not a number of seconds.",
            "give it seconds, such as 30",
        )
    if settings.seconds < LEAST_SECONDS:
        raise UsageError(
            f"--seconds {settings.seconds:g} is too short.", f"give it {LEAST_SECONDS:g} at least"
        )
    if settings.seconds > MOST_SECONDS:
        raise UsageError(
            f"--seconds {settings.seconds:g} is too long.", f"give it {MOST_SECONDS:g} at most"
        )


def probe(to: Target, settings: Settings, observer: Observer) -> Measured:
    """Measure. Nothing that exists is written to, and nothing of ours remains.

    Raises ``HostprepError`` if fio or a reader fails, ``NoAnswer`` if the storage stops answering:
    a child process does the work.
    """
    refuse_odd(settings)
    if settings.drop_caches:
        drop_caches()
    try:
        return work_apart(
            lambda tell: _measured(to, settings, _Relay(tell)),
            lambda told: _pass_on(told, observer),
            silence_seconds=_SILENCE_SECONDS + settings.seconds / 10,
            halt_seconds=_HALT_SECONDS,
        )
    except NoAnswerInTime:
        raise NoAnswer(
            f"{to.storage.path} stopped answering while it was measured: there are no figures."
            " A hidden folder with test data may still be there.",
            "is the device still there? see `dmesg`; if much is still to be written to it: "
            "`sync`, then probe again, which also removes that folder",
        ) from None
    except WorkHalted as error:
        raise Inconclusive(
            f"the probe was held up (a frozen cgroup, as by `docker pause`, SIGSTOP, a machine that"
            f" slept): {error.message.rstrip('.')}, and there are no figures.",
            "probe again, and let it run",
        ) from None
    except WorkKilled:
        raise _killed(to.storage.path) from None
    except OSError as error:
        raise _broken_off(to.storage.path, error) from None


def _killed(path: str) -> HostprepError:
    """Remove what the measuring process has left, and return the error for its end."""

    def tidy() -> list[str]:
        return [str(each) for each in (Path(path), MEMORY_FOLDER) if not remove_left(each)]

    try:
        left = ask_in_child(tidy, patience_seconds=_TIDYING_SECONDS)
    except (NoAnswerInTime, NoProcess, OSError):
        left = [path]
    words = "the process that measured was killed: there are no figures."
    hint = "if memory was short, the kernel did it: see `dmesg`"
    if left:
        words += f" Its hidden folder with test data may still be in {' and '.join(left)}."
        hint += "; the next probe removes that folder"
    return HostprepError(words, hint)


def _measured(to: Target, settings: Settings, relay: _Relay) -> Measured:
    """Go through the phases; raise ``Inconclusive`` if the path leads elsewhere at the end.

    Then some of them measured another file system, or none. The same if the probe was stopped
    meanwhile, because time went on.
    """
    signal.signal(signal.SIGCONT, relay.note_stop)
    path = to.storage.path
    before = os.stat(path).st_dev
    try:
        measured = Phases(to, settings, relay).run()
    except (HostprepError, OSError):
        _refuse_another(path, before)
        raise
    _refuse_another(path, before)
    relay.refuse_stopped()
    return measured


def _refuse_another(path: str, device: int) -> None:
    try:
        same = os.stat(path).st_dev == device
    except OSError:
        same = False
    if not same:
        raise Inconclusive(
            f"{path} was removed, moved, unmounted or mounted over while it was measured:"
            " there are no figures.",
            "probe it again once it is there; that also removes the hidden folder with test data"
            " that may be left there",
        )


def _broken_off(path: str, error: OSError) -> HostprepError:
    """Return the error for a probe that the storage, or a limit, broke off half-way."""
    words = f"{path} could not be measured to the end: {error.strerror or error}."
    if error.errno in SERVER_GONE:
        return NoAnswer(words, "is the device, or the server, still there? see `dmesg`")
    return HostprepError(words, reading_hint(error))


class _Relay:
    """An observer in the measuring process: sends on what it is told.

    It also notes that this process was stopped, and then ends the probe at the next report.
    """

    def __init__(self, tell: Callable[[Any], None]) -> None:
        self._tell = tell
        self._stopped = False

    def note_stop(self, *_: object) -> None:
        self._stopped = True

    def refuse_stopped(self) -> None:
        if self._stopped:
            raise Inconclusive(
                "the probe was stopped (Ctrl-Z, SIGSTOP) while it measured: there are no figures.",
                "probe again, and let it run",
            )

    def phase(self, name: str, seconds: float) -> None:
        self.refuse_stopped()
        self._tell((name, seconds))

    def progress(self, text: str) -> None:
        self.refuse_stopped()
        self._tell(text)


def _pass_on(told: tuple[str, float] | str, observer: Observer) -> None:
    if isinstance(told, str):
        observer.progress(told)
    else:
        observer.phase(*told)
