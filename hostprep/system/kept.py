"""Files that hostprep keeps for later runs, read safely whatever is in their place."""

from __future__ import annotations

import dataclasses
import errno
import functools
import json
import os
import stat
import types
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from hostprep.errors import HostprepError, reading_hint
from hostprep.kinds import is_amount, is_count
from hostprep.system.trees import NAMED_FILE_FLAGS

# Far more than any record has, and little enough to be read at once.
_MOST_BYTES = 256 * 1024 * 1024
# Fields of type float are times in seconds; larger ones cannot be shown as a date.
_MOST_SECONDS = 2**38
# Errors of opening something that is in the place of a file but is not one.
NO_FILE = frozenset({errno.EINVAL, errno.EISDIR, errno.ELOOP})

Record = TypeVar("Record")


def open_kept(path: Path | str) -> IO[bytes]:
    """Open a file for reading; raise ``OSError`` also if it is not a regular one.

    A plain open of a pipe would wait for a writer, and a device may have no end.
    """
    descriptor = os.open(path, NAMED_FILE_FLAGS)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return open(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "Not a regular file", str(path))


def read_kept(path: Path | str, most_bytes: int = _MOST_BYTES) -> bytes:
    """Return a file's content; raise ``OSError`` as ``open_kept``, and if it is larger."""
    try:
        return _read(path, most_bytes)
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
        return _read(path, most_bytes)  # on NFS, another machine has just replaced the file


def _read(path: Path | str, most_bytes: int) -> bytes:
    with open_kept(path) as file:
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        return file.read()  # with a size given, that much memory would be allocated first


def why_unread(error: Exception, damaged_hint: str) -> tuple[str, str]:
    """Return why a file could not be read, and what helps: ``damaged_hint`` if it is damaged.

    What a disk, a share or a limit keeps from us may be intact, and must not be thrown away.
    """
    if not isinstance(error, OSError):
        return str(error), damaged_hint
    is_damaged = error.errno in NO_FILE or error.errno == errno.EFBIG
    return error.strerror or str(error), damaged_hint if is_damaged else reading_hint(error)


def parse_kept(content: bytes | str) -> Any:
    """Parse JSON; raise ``ValueError`` if it is not JSON, or is nested too deeply."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def readable(
    files: Iterable[Path], load: Callable[[Path], Record | None], key: str
) -> tuple[Record, ...]:
    """Return what ``load`` reads from each, ordered by the field ``key``; the first for each key.

    ``load`` returns None if there is nothing, and raises ``HostprepError`` if a file cannot be
    read: that says nothing about the others, and ``unreadable`` returns it.
    """
    found: dict[str, Record] = {}
    for file in files:
        with suppress(HostprepError):
            if (record := load(file)) is not None:
                found.setdefault(getattr(record, key), record)
    return tuple(found[each] for each in sorted(found))


def unreadable(files: Iterable[Path], load: Callable[[Path], object]) -> dict[Path, HostprepError]:
    """Return what is wrong with the files that ``load`` cannot read."""
    found: dict[Path, HostprepError] = {}
    for file in files:
        try:
            load(file)
        except HostprepError as error:
            found[file] = error
    return found


def check_name(found: str, wanted: str) -> None:
    """Raise ``ValueError`` if a record's file is not called as the record's content says.

    What names a record is in its content too: if one of them is damaged, it would be taken for the
    record of something else, about which everything else in it is wrong.
    """
    if found != wanted:
        raise ValueError(f"what it says belongs into {wanted}")


def this_host() -> str:
    """Return the host's name in kept results, because several hosts may share a home."""
    return os.uname().nodename


def of_this_host(result: dict[str, Any]) -> bool:
    """Whether a kept result is not another host's; those of earlier versions do not say."""
    return result.get("host") in (None, this_host())


def made_of(kind: type[Record], fields: dict[str, Any], *, paths: Iterable[str] = ()) -> Record:
    """Return a dataclass made from JSON; raise ``TypeError`` as ``as_declared``.

    Unknown fields are ignored: a later version wrote them, before somebody went back to this one. A
    version in which the other fields mean something else gives its format another name.
    """
    if not isinstance(fields, dict):
        raise TypeError("what should be an object is not one")
    known: dict[str, Any] = {each.name: each for each in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name, field in known.items():
        defaults = (field.default, field.default_factory)
        if name not in fields and defaults == (dataclasses.MISSING, dataclasses.MISSING):
            raise TypeError(f"its {name} is missing")
    made = kind(**{name: value for name, value in fields.items() if name in known})
    return as_declared(made, paths=paths)


def as_declared(record: Record, *, paths: Iterable[str] = ()) -> Record:
    """Check a dataclass made from JSON; raise ``TypeError`` if a field is of the wrong type.

    Whole numbers must be counts, others seconds, texts such as a path may be, and the fields
    ``paths`` absolute paths or None. Otherwise damage, or another version, would show only where
    something fails on it, or never: going up from a relative path never ends.
    """
    for name, kind in _kinds(type(record)).items():  # type: ignore[arg-type]
        if not _is_a(getattr(record, name), kind):
            raise TypeError(f"its {name} is of another kind")
    for name in paths:
        if (path := getattr(record, name)) is not None and not os.path.isabs(path):
            raise TypeError(f"its {name} is not an absolute path")
    return record


@functools.cache
def _kinds(of: type) -> dict[str, Any]:
    """Return the types of a dataclass's fields; working them out takes a millisecond."""
    return get_type_hints(of)


def _can_be_in_a_path(text: str) -> bool:
    """Whether the system takes the text in a path: every call raises ``ValueError`` if not."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape in JSON can make
        return False


def _is_a(value: Any, kind: Any) -> bool:
    if get_origin(kind) in (Union, types.UnionType):
        return any(_is_a(value, part) for part in get_args(kind))
    if get_origin(kind) is tuple:  # of any length
        return isinstance(value, tuple) and all(_is_a(item, get_args(kind)[0]) for item in value)
    if kind is int:
        return is_count(value)
    if kind is float:
        return is_amount(value) and bool(value < _MOST_SECONDS)
    if kind is str:
        return isinstance(value, str) and _can_be_in_a_path(value)
    if not isinstance(value, kind):
        return False
    return not dataclasses.is_dataclass(kind) or as_declared(value) is value
