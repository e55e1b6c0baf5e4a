"""The manifest of a data set: all that was staged, with a line for each directory.

``manifest.jsonl``, beside the record of the data set, holds lines
``["directory", [[name, kind, size, mtime_ns, mode, uid, gid, content, group?], ...]]`` in no
particular order; a directory may have several lines. The directories themselves stand in their
parents' lines, the root as ``"."`` in ``""``. Journals of unfinished runs have the same lines.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from stat import S_ISREG
from typing import IO

from hostprep.staging.model import Recorded
from hostprep.staging.parted import part_of, parts_for, split
from hostprep.staging.record.known import Known
from hostprep.staging.record.lines import Picked, check_kinds, decode_line, records_in
from hostprep.staging.record.readers import ROOT, Readers, as_kept
from hostprep.system.descriptors import named
from hostprep.system.kept import NO_FILE, open_kept
from hostprep.system.own_files import write_atomically

FORMAT = "hostprep.manifest/1"

_PART_BYTES = 1024 * 1024
_RECORD_BYTES = 100  # with a short name


def manifest_path(record_folder: Path) -> Path:
    """Return the manifest's path in the folder of a record."""
    return record_folder / "manifest.jsonl"


class ManifestIndex:
    """Where in manifest or journal files the lines of each directory are.

    Only directories and offsets are held in memory; a directory's records are read when asked for.
    Torn or foreign lines are ignored: their entries count as not recorded. So is anything that is
    not a regular file.
    """

    def __init__(self, paths: Iterable[Path | str]) -> None:
        self._files: list[IO[bytes]] = []
        self._paths: list[Path | str] = []
        self._lines: dict[str, list[tuple[int, int, int]]] = {}
        self._extended: tuple[int, int] | None = None  # file and offset of the update
        # The number of records in lines that could not be read, by file and offset.
        self._unreadable: dict[tuple[int, int], int] = {}
        for path in paths:
            try:
                file = open_kept(path)
            except OSError as error:
                if isinstance(error, FileNotFoundError) or error.errno in NO_FILE:
                    continue
                raise
            self._files.append(file)
            self._paths.append(path)
            with named(path):
                self._find_lines(len(self._files) - 1)

    def _find_lines(self, number: int) -> None:
        decoder = json.JSONDecoder()
        for offset, line in _lines_of(self._files[number]):
            if line == b"\n" and self._extended is None:
                self._extended = number, offset
            if line.endswith(b"]]\n"):
                with suppress(ValueError):
                    # Decode only the directory's name, at the beginning of the line.
                    directory, _ = decoder.raw_decode(line.decode("ascii"), 1)
                    self._lines.setdefault(directory, []).append((number, offset, len(line)))

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()

    def directories(self) -> Iterable[str]:
        """Return the directories that have lines."""
        return self._lines.keys()

    def known(self, directory: str) -> Known:
        """Return what is recorded in ``directory``."""
        return _known(self._read(directory))

    def records(self, directory: str) -> dict[str, Recorded]:
        """Return what is recorded in ``directory`` by name, see ``Known.records``."""
        return self.known(directory).records()

    def by_names(self, directory: str, parts: int) -> Iterator[Known]:
        """Yield the records of ``directory`` in so many ``parts`` by names, see ``parted``."""
        if parts == 1:
            yield self.known(directory)
            return
        items = ((*record, since) for since, record in self._read(directory))
        for part in split(items, parts):
            yield _known((item[-1], Recorded._make(item[:-1])) for item in part)

    def of(self, directory: str, names: Sequence[str]) -> Iterator[tuple[Sequence[str], Known]]:
        """Yield ``names``, in parts if there are very many, with the records of them.

        Records of other names may be among these.
        """
        if parts_for(len(names)) == 1:
            yield names, _known(self._read(directory, Picked(directory, names)))
            return
        parts = parts_for(max(len(names), self.entries(directory)))
        asked: list[list[str]] = [[] for _ in range(parts)]
        for name in names:
            asked[part_of(name, parts)].append(name)
        yield from zip(asked, self.by_names(directory, parts), strict=True)

    def entries(self, directory: str) -> int:
        """Return about how many entries of ``directory`` are recorded, without reading them."""
        return sum(length for *_, length in self._lines.get(directory, ())) // _RECORD_BYTES

    def parts(self, directory: str, begin: float = 0) -> Iterator[dict[str, Recorded]]:
        """Yield the records of ``directory``, a large one part by part.

        The first part is the one at ``begin``, a share of all from 0 to below 1. After an
        interrupted update there is only one part: an entry may be in several lines, of which the
        latest counts.
        """
        lines = self._lines.get(directory, [])
        if self.promises or sum(length for *_, length in lines) <= _PART_BYTES:
            yield self.records(directory)
            return
        first = int(begin * len(lines))
        part: list[tuple[int, int, int]] = []
        size_bytes = 0
        for line in lines[first:] + lines[:first]:
            part.append(line)
            size_bytes += line[2]
            if size_bytes >= _PART_BYTES:
                yield {record.name: record for _, record in self._read_lines(part)}
                part, size_bytes = [], 0
        if part:
            yield {record.name: record for _, record in self._read_lines(part)}

    def latest_first(self, directory: str) -> Iterator[Recorded]:
        """Yield the records of ``directory``, of several of a name the latest first.

        Only those of one line are in memory at a time.
        """
        for line in reversed(self._lines.get(directory, ())):
            for _, records in self._decoded([line]):
                yield from reversed(records)

    def lines(self, directory: str) -> Iterator[bytes]:
        """Yield the lines of ``directory`` unchanged."""
        for number, offset, length in self._lines.get(directory, ()):
            yield self._line(number, offset, length)

    @property
    def promises(self) -> bool:
        """Whether an interrupted update has recorded what it was to do."""
        return self._extended is not None

    def count(self) -> int:
        """Return how many entries are recorded, without those of lines that could not be read.

        Hardly any line is decoded for this, see ``records_in``.
        """
        counted = (records_in(line) for directory in self._lines for line in self.lines(directory))
        return sum(counted) - sum(self._unreadable.values())

    def __len__(self) -> int:
        return len(self._lines)

    def _read(
        self, directory: str, picked: Picked | None = None
    ) -> Iterator[tuple[bool, Recorded]]:
        """Yield the records of ``directory``, each after whether it is ``Known.since``."""
        return self._read_lines(self._lines.get(directory, ()), picked)

    def _read_lines(
        self, lines: Iterable[tuple[int, int, int]], picked: Picked | None = None
    ) -> Iterator[tuple[bool, Recorded]]:
        for since, records in self._decoded(lines, picked):
            for record in records:
                yield since, record

    def _decoded(
        self, lines: Iterable[tuple[int, int, int]], picked: Picked | None = None
    ) -> Iterator[tuple[bool, list[Recorded]]]:
        """Yield the records of each line, after whether they are ``Known.since``."""
        for number, offset, length in lines:
            data = self._line(number, offset, length)
            try:
                if picked is None:
                    records = decode_line(data)[1]
                else:
                    records = [Recorded(*item) for item in picked.split(data)[0]]
                check_kinds(records)
            except (ValueError, TypeError):
                self._unreadable[number, offset] = records_in(data)
                continue
            yield self._extended is not None and (number, offset) > self._extended, records

    def _line(self, number: int, offset: int, length: int) -> bytes:
        with named(self._paths[number]):
            return _pread(self._files[number].fileno(), length, offset)


def _known(read: Iterable[tuple[bool, Recorded]]) -> Known:
    known = Known([], [])
    for since, record in read:
        (known.since if since else known.before).append(record)
    return known


def _lines_of(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that begin as ours do, and empty ones, each with its offset.

    Nothing is kept of others, however long they are, such as zeros that a power cut has left.
    """
    offset = 0
    while part := file.readline(_PART_BYTES):
        parts, length = [part], len(part)
        ours = part.startswith(b'["') or part == b"\n"
        while not part.endswith(b"\n") and (part := file.readline(_PART_BYTES)):
            length += len(part)
            parts += [part] if ours else []
        if ours:
            yield offset, b"".join(parts)
        offset += length


def _pread(descriptor: int, length: int, offset: int) -> bytes:
    """Read a whole line: from 2 GiB on, and on some file systems, one call returns a part."""
    data = os.pread(descriptor, length, offset)
    while len(data) < length:
        more = os.pread(descriptor, length - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data


def write_manifest(
    record_folder: Path, parts: Iterable[bytes], *, durable: bool, readers: Readers = ROOT
) -> None:
    """Write a manifest from encoded lines so that a reader sees the old or the new one.

    ``readers`` apply to root's records.
    """
    record_folder.mkdir(parents=True, exist_ok=True)
    mode, gid, uid = as_kept(record_folder, readers)
    path = manifest_path(record_folder)
    write_atomically(path, parts, durable=durable, mode=mode, gid=gid, uid=uid)


def _open_to_append(path: str, flags: int, mode: int) -> int:
    """Open or create a manifest; raise ``OSError`` if it is not a regular file.

    Opening a pipe normally would wait for a reader for ever.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY, mode)
    if not S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "Not a regular file", path)
    return descriptor


def extend_manifest(record_folder: Path, parts: Iterable[bytes], *, durable: bool) -> None:
    """Add encoded lines to a manifest; of two records of an entry, the later one counts.

    Root's manifest can then be read by root only: what is added may be in folders that are now
    closed.
    """
    path = manifest_path(record_folder)
    mode = as_kept(record_folder, ROOT).mode
    with named(path):  # the error of a full disk names nothing
        if mode == ROOT.mode:
            _close(path, durable=durable)
        opener = partial(_open_to_append, mode=mode)
        with open(path, "ab", buffering=1024 * 1024, opener=opener) as file:
            file.write(b"\n")  # ends a line that a killed run may have left incomplete
            for part in parts:
                file.write(part)
            file.flush()
            if durable:
                os.fsync(file.fileno())


def _close(path: Path, *, durable: bool) -> None:
    """Replace a manifest that others may read by a copy that only root can read.

    Anybody who has the old one open can read that, but not what is added.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return
    if S_ISREG(status.st_mode) and status.st_mode & 0o077:
        with open_kept(path) as old:
            parts = iter(partial(old.read, _PART_BYTES), b"")
            write_atomically(path, parts, durable=durable, mode=ROOT.mode)
