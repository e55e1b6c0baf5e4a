"""The lines of manifests and journals, see ``manifest``: from and to records.

Decoding a line is slow. For a few names of many, it is cut into the texts of its records, and only
those of these names are decoded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain
from typing import Any

from hostprep.staging.model import Recorded
from hostprep.system.kept import parse_kept

_BETWEEN = b'],["'
# Where ``_BETWEEN`` is not between records: it is the end of a text, up to its quotation mark.
_WITHIN = (b'],[",', b'],["]')
_END = b"]]]\n"
_KINDS = frozenset("fld")
_CONTENTS = frozenset({str, type(None)})
_quoted = json.encoder.encode_basestring_ascii  # in C


def encode_record(
    name: str,
    kind: str,
    size: int,
    mtime_ns: int,
    mode: int,
    uid: int,
    gid: int,
    content: str | None,
    group: str = "",
) -> str:
    """Return the JSON of a ``model.Recorded``, in half of the time that json's encoder takes.

    This runs once for each file of a data set.
    """
    known = "null" if content is None else _quoted(content)
    tail = f",{_quoted(group)}" if group else ""
    return f'[{_quoted(name)},"{kind}",{size},{mtime_ns},{mode},{uid},{gid},{known}{tail}]'


def join_line(directory: str, encoded: Iterable[str]) -> bytes:
    """Return one line for encoded records of ``directory``, with its newline."""
    return f"[{_quoted(directory)},[{','.join(encoded)}]]\n".encode("ascii")


def encode_line(directory: str, records: Iterable[Recorded]) -> bytes:
    """Return one line for ``records`` of ``directory``, with its newline."""
    return join_line(directory, (encode_record(*record) for record in records))


def decode_line(line: bytes) -> tuple[str, list[Recorded]]:
    """Return (directory, records) of a line."""
    directory, items = parse_kept(line)
    return directory, [Recorded(*item) for item in items]


def check_kinds(records: list[Recorded]) -> None:
    """Raise ``TypeError`` if a field is of the wrong type, as damage can leave it in valid JSON.

    ``ValueError`` for text that the system takes in no path. By columns, which takes less than half
    the time of decoding.
    """
    if not records:
        return
    names, kinds, *numbers, contents, groups = zip(*records, strict=True)
    if not (
        set(map(type, chain(names, groups))) == {str}
        and set(kinds) <= _KINDS
        and set(map(type, chain(*numbers))) == {int}
        and set(map(type, contents)) <= _CONTENTS
    ):
        raise TypeError("not records of entries")
    # One flipped bit makes half of a surrogate pair of the escape of a byte that is not UTF-8.
    texts = "".join(chain(names, groups, filter(None, contents)))
    if b"\0" in texts.encode("utf-8", "surrogateescape"):
        raise ValueError("not names of entries")


def records_in(line: bytes) -> int:
    """Return how many records a whole line has, mostly without decoding it."""
    if line.endswith(b",[]]\n"):
        return 0
    if any(each in line for each in _WITHIN):
        try:
            return len(parse_kept(line)[1])
        except (ValueError, TypeError, LookupError):
            pass  # as many as it seems to have
    return line.count(_BETWEEN) + 1


class Picked:
    """The records of some ``names`` of a directory, in its lines."""

    def __init__(self, directory: str, names: Iterable[str]) -> None:
        self._directory = directory
        self._names = frozenset(names)
        self._texts = frozenset(_quoted(name)[1:-1].encode("ascii") for name in self._names)
        self._head = f'[{_quoted(directory)},[["'.encode("ascii")

    def split(self, line: bytes) -> tuple[list[Any], bytes]:
        """Return the fields of the records of the names, and ``line`` without them.

        That is empty if it has no others. Of others not even damage shows; what is damaged in these
        raises ``ValueError`` or ``TypeError`` here or where the fields are used.
        """
        texts = self._texts_of(line)
        if texts is None:
            return self._split_decoded(line)
        # Without an escaped quotation mark, the first one ends the name.
        found = [text for text in texts if text[: text.find(b'"')] in self._texts]
        if not found:
            return [], line
        items = parse_kept(b'[["%b]]' % _BETWEEN.join(found))
        others = [text for text in texts if text[: text.find(b'"')] not in self._texts]
        return items, self._head + _BETWEEN.join(others) + _END if others else b""

    def _texts_of(self, line: bytes) -> list[bytes] | None:
        """Return the text of each record, from its name on; None if the line has to be decoded."""
        if not line.startswith(self._head) or not line.endswith(_END) or b'\\"' in line:
            return None
        if any(each in line for each in _WITHIN):
            return None
        return line[len(self._head) : -len(_END)].split(_BETWEEN)

    def _split_decoded(self, line: bytes) -> tuple[list[Any], bytes]:
        try:
            items = parse_kept(line)[1]
            found = [item for item in items if item[0] in self._names]
            if not found:
                return [], line
            others = [item for item in items if item[0] not in self._names]
            left = [encode_record(*item) for item in others]
        except LookupError as error:
            raise ValueError("not a line of records") from error
        return found, join_line(self._directory, left) if left else b""
