"""Documents as a host in the hands of others may send them: an odd value at each place in turn."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def with_oddities(
    sound: Mapping[str, Any], odd: Iterable[Any]
) -> Iterator[tuple[tuple[Any, ...], Any, dict[str, Any]]]:
    """Yield (path, value, document) for each value of ``odd`` at each path; of lists at the first.

    The document is ``sound``, copied, but for the value at that path.
    """
    values = tuple(odd)
    for path in _paths(sound):
        for value in values:
            document = copy.deepcopy(dict(sound))
            holder: Any = document
            for key in path[:-1]:
                holder = holder[key]
            holder[path[-1]] = value
            yield path, value, document


def _paths(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = part.items() if isinstance(part, Mapping) else enumerate(part[:1])
    for key, value in inner:
        yield (*path, key)
        if isinstance(value, Mapping | list):
            yield from _paths(value, (*path, key))
