"""Answers about a host: each is found once and then shared, or given for a captured host."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar, cast

from hostprep.errors import HostprepError

Answer = TypeVar("Answer")
_NOTHING = object()


class Answers:
    """The answers of readers, by name, or by name and key for readers that take a question.

    ``given`` has answers to use instead of a reader's. With ``captured``, a reader without a given
    answer raises, except for readers that read below the captured root.
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
        """Return the answer of ``reader``; asking again gives the same answer or error."""
        with self._lock:
            lock = self._locks.setdefault(name, threading.Lock())
        with lock:
            if name not in self._known:
                try:
                    self._known[name] = self._answer(name, reader, by_root), None
                except Exception as error:  # asked again, it would only fail or hang again
                    self._known[name] = None, error
            answer, failure = self._known[name]
        if failure is not None:
            raise failure
        return cast(Answer, answer)

    def each(self, name: str, key: str, reader: Callable[[], Answer]) -> Answer:
        """Return the answer about ``key``: the one given for ``name``, or that of ``reader``."""
        return self.once((name, key), reader)

    def forget(self, name: Hashable) -> None:
        """Forget an answer, so that its reader is asked again."""
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
