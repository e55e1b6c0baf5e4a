"""Answers about a host, each found once, whoever asks first; or given, for a captured one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar, cast

from hostprep.errors import HostprepError

Answer = TypeVar("Answer")
_NOTHING = object()


class Answers:
    """What readers answered, by name, or by name and key where they are asked about something.

    ``given`` answers in their place. With ``captured``, a reader that was given nothing raises, but
    for those that read below the captured root.
    """

    def __init__(self, given: Mapping[str, Any], *, captured: bool) -> None:
        self._given = dict(given)
        self._captured = captured
        self._lock = threading.Lock()
        self._locks: dict[Hashable, threading.Lock] = {}
        self._known: dict[Hashable, tuple[Any, Exception | None]] = {}

    def once(
        self, name: Hashable, reader: Callable[[], Answer], *, by_root: bool = False
    ) -> Answer:
        """Return what ``reader`` answers; asked again, the same, or the same error."""
        with self._lock:
            lock = self._locks.setdefault(name, threading.Lock())
        with lock:
            if name not in self._known:
                try:
                    self._known[name] = self._answer(name, reader, by_root), None
                except Exception as error:  # asked again, it would only fail, or hang, again
                    self._known[name] = None, error
            answer, failure = self._known[name]
        if failure is not None:
            raise failure
        return cast(Answer, answer)

    def each(self, name: str, key: str, reader: Callable[[], Answer]) -> Answer:
        """Answer from the mapping that was given for ``name``, by the key."""
        return self.once((name, key), reader)

    def forget(self, name: Hashable) -> None:
        """Let a reader be asked again."""
        with self._lock:
            self._known.pop(name, None)

    def _answer(self, name: Hashable, reader: Callable[[], Answer], by_root: bool) -> Answer:
        reader_name, key = name if isinstance(name, tuple) else (name, None)
        given = self._given.get(reader_name, _NOTHING)
        if given is not _NOTHING:
            if key is None:
                return cast(Answer, given)
            if key in given:
                if isinstance(given[key], Exception):
                    raise given[key]
                return cast(Answer, given[key])
        if self._captured and not by_root:
            what = reader_name if key is None else f"{reader_name}[{key!r}]"
            raise HostprepError(f"the captured host does not say {what}.", "add it to given.yml")
        return reader()
