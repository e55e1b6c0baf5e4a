"""Which of the user's files are samples; a child looks, because a dead mount may never answer."""

from __future__ import annotations

import os
import random
import re
import stat
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError, Inconclusive, UsageError
from hostprep.host.answering import no_answer
from hostprep.host.fscrypt import locked_out
from hostprep.loading.files import decoders
from hostprep.loading.naming import OwnLoaderWanted
from hostprep.system.bounded import NoAnswerInTime, QuestionFailed, ask_in_child
from hostprep.units import MIB, format_bytes

_MOST_FILES = 200_000
_LISTING_SECONDS = 5.0
# Grace for the call under way when time is over, if the file system answers at all, and for passing
# on the names.
_PATIENCE_SECONDS = 5.0
_LARGEST_SAMPLE_BYTES = 64 * MIB
_SIZES_LOOKED_AT = 200
_SIZES_SECONDS = 1.0  # on a server each of them may be a request
# Files of many samples each, however small. TensorFlow's have no suffix, but a number out of a
# total. Not .npz, which is as often one sample.
_SHARD = re.compile(
    r"\.(tar|tar\.\w+|tgz|zip|tfrecords?|parquet|arrow|feather|mds|beton|l?mdb|h5|hdf5?)\Z"
    r"|\.(jsonl|ndjson)(\.\w+)?\Z|-\d{5}-of-\d{5}",
    re.I,
)
# A zarr array is a folder, and the files in it are its chunks; it need not be named .zarr, but then
# one of these files lies in it, or in the group that it belongs to.
_CHUNK = re.compile(r"\.zarr/", re.I)
_ZARR = frozenset({"zarr.json", ".zarray", ".zgroup"})
# Files that lie beside samples and are none.
_ASIDE = frozenset({".txt", ".json", ".csv", ".md", ".xml", ".yml", ".yaml", ".py", ".log"})


@dataclass(frozen=True, slots=True)
class Listing:
    """The files that are samples, in random order. ``kind`` is ``image``, ``npy`` or ``bytes``.

    ``whole``: the directory was listed to its end; ``mean_bytes`` is taken from some of the files.
    ``closed`` counts the folders that could not be listed, ``problem`` names one and says why.
    """

    names: tuple[str, ...]
    kind: str
    jpeg: bool
    others: int
    whole: bool
    mean_bytes: float
    closed: int = 0
    problem: str = ""


def list_samples(directory: str) -> Listing:
    """List the samples below ``directory``: the files of the kind that most files have.

    Stops at 200,000 files or five seconds. Raises ``UsageError`` if it is not a directory, and
    ``Inconclusive`` if it does not answer, if there are no files, or if a sample is plainly not a
    file.
    """
    names, whole, closed = _names_below(directory)
    problem = closed[0] if closed else ""
    by_kind: dict[str, list[str]] = {}
    for name in names:
        by_kind.setdefault(_kind(name), []).append(name)
    aside = by_kind.pop("aside", [])
    if aside and not by_kind:
        by_kind, aside = {"bytes": aside}, []
    if not by_kind and closed:
        raise Inconclusive(
            f"the files below {directory} could not be listed ({problem}); nothing was measured.",
            "run hostprep as the user who trains",
        )
    if not by_kind:
        raise Inconclusive(
            f"there are no files below {directory}; nothing was measured.",
            "name the folder that the data set lies in; is it mounted?",
        )
    kind, chosen = max(by_kind.items(), key=lambda item: len(item[1]))
    random.Random(0).shuffle(chosen)  # the same order each time
    mean_bytes = _mean_bytes(directory, chosen[:_SIZES_LOOKED_AT])
    if mean_bytes > _LARGEST_SAMPLE_BYTES:
        raise OwnLoaderWanted(
            f"the files below {directory} have {format_bytes(mean_bytes)} on average: a sample is"
            " only part of such a file, and only your loader knows which. Nothing was measured.",
            "give the loader itself: --loader package.module:name",
        )
    stores = {os.path.dirname(name) for name in aside if os.path.basename(name) in _ZARR}
    shards = sum(_is_shard(name) or _is_within(name, stores) for name in chosen)
    if kind == "bytes" and 2 * shards > len(chosen):
        raise OwnLoaderWanted(
            f"most files below {directory} are of a kind that holds many samples each, or parts of"
            f" them, such as {chosen[0]}: only your loader knows how many there are. Nothing was"
            " measured.",
            "give the loader itself: --loader package.module:name",
        )
    suffixes = Counter(_suffix(name) for name in chosen)
    jpeg = all(suffix in decoders.JPEG_SUFFIXES for suffix in suffixes)
    others = len(names) - len(chosen) - len(aside)
    return Listing(tuple(chosen), kind, jpeg, others, whole, mean_bytes, len(closed), problem)


def _is_shard(name: str) -> bool:
    return bool(_SHARD.search(os.path.basename(name)) or _CHUNK.search(name))


def _is_within(name: str, folders: set[str]) -> bool:
    """Return whether a file lies below one of ``folders``."""
    while folders and (folder := os.path.dirname(name)) != name:
        if folder in folders:
            return True
        name = folder
    return False


class _Below(NamedTuple):
    """The files below a directory, whether these are all, and the folders that were not listed."""

    names: list[str]
    whole: bool
    closed: list[str]


def _names_below(directory: str) -> _Below:
    """Return the files below ``directory``.

    A call on a dead network mount may never return, and such a mount may lie anywhere below: a
    child looks, and can be left behind.
    """

    def look() -> _Below | str:
        is_folder = None
        try:
            is_folder = stat.S_ISDIR(os.stat(directory).st_mode)
        except FileNotFoundError:
            pass  # or locked
        except OSError as error:
            return f"cannot be looked at: {error.strerror}"
        if locked := locked_out(directory):
            said, cure = locked
            raise HostprepError(f"it {said}", cure)
        if is_folder is None:
            return "does not exist"
        return _walk(directory) if is_folder else "is not a directory"

    found = _answer(directory, look, _LISTING_SECONDS)
    if isinstance(found, str):
        raise UsageError(f"{directory} {found}.", "--dataset DIR: the directory with the files")
    return _Below(*found)


def _answer(directory: str, look: Callable[[], Any], seconds: float) -> Any:
    """Return what a child sees below ``directory``; it may look for ``seconds``."""
    patience_seconds = seconds + _PATIENCE_SECONDS
    try:
        return ask_in_child(look, patience_seconds=patience_seconds)
    except NoAnswerInTime:
        raise no_answer(
            f"{directory} does not answer: listing it took more than {patience_seconds:g} s. "
            "Nothing was measured."
        ) from None
    except QuestionFailed as error:
        raise Inconclusive(
            f"{directory} could not be listed: {error}. Nothing was measured.", error.hint
        ) from None


def _walk(directory: str) -> _Below:
    deadline = time.monotonic() + _LISTING_SECONDS
    names: list[str] = []
    closed: list[str] = []
    waiting = [directory]
    visited: set[tuple[int, int]] = set()  # links to folders are followed, even in a cycle

    def enough() -> bool:
        return len(names) >= _MOST_FILES or time.monotonic() > deadline

    while waiting:
        if enough():
            return _Below(names, False, closed)
        folder = waiting.pop()
        try:
            state = os.stat(folder)
            if (state.st_dev, state.st_ino) in visited:
                continue
            visited.add((state.st_dev, state.st_ino))
            with os.scandir(folder) as entries:
                for entry in entries:
                    if enough():  # one flat folder may hold millions
                        return _Below(names, False, closed)
                    _sort_in(entry, names, waiting)
        except OSError as error:
            closed.append(f"{folder}: {error.strerror}")  # the loader would not read it either
    return _Below(names, True, closed)


def _sort_in(entry: os.DirEntry[str], names: list[str], folders: list[str]) -> None:
    """Add an entry to the names or to the folders; to neither if it is hidden or unreadable."""
    if entry.name.startswith(".") and entry.name not in _ZARR:
        return
    try:
        if entry.is_dir():
            folders.append(entry.path)
        elif entry.is_file():
            names.append(entry.path)
    except OSError:
        pass  # a link that leads nowhere, or in a cycle


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def _kind(name: str) -> str:
    if os.path.basename(name) in _ZARR:
        return "aside"
    suffix = _suffix(name)
    if suffix in decoders.IMAGE_SUFFIXES:
        return "image"
    if suffix == ".npy":
        return "npy"
    return "aside" if suffix in _ASIDE else "bytes"


def _mean_bytes(directory: str, names: Sequence[str]) -> float:
    """Return the mean size of those files that answer in time."""

    def look() -> list[int]:
        deadline = time.monotonic() + _SIZES_SECONDS
        sizes = []
        for name in names:
            try:
                sizes.append(os.stat(name).st_size)
            except OSError:
                continue
            if time.monotonic() > deadline:
                break
        return sizes

    sizes = _answer(directory, look, _SIZES_SECONDS)
    return sum(sizes) / len(sizes) if sizes else 0.0
