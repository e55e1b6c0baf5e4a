"""Words of the messages about a spec's keys: which one was likely meant, and which there are."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from itertools import islice

from hostprep.spec.document import shown_key


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return which of ``known`` was likely meant."""
    # The matcher is slow, and the words may be long and many.
    few = list(islice(known, 200))
    return next(iter(difflib.get_close_matches(word[:80].lower(), few, n=1)), None)


def or_near(word: str, known: Iterable[str]) -> str:
    """Return the end of a message that names it."""
    near = nearest(word, known)
    return f"; did you mean {near}?" if near else ""


def unknown(key: str, known: Collection[str]) -> str:
    """Return what to say of a key that is none."""
    near = nearest(key, known)
    if near:
        return f"unknown key; did you mean `{near}`?"
    return f"unknown key; known here: {', '.join(known)}"


def listed(words: Collection[str], last: str = "or") -> str:
    """Return the keys as one reads them out."""
    quoted = [f"`{shown_key(word)}`" for word in words]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} {last} {quoted[-1]}"
