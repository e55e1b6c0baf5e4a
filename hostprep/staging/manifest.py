"""What was staged: a record for each data set, and its manifest with a line for each directory.

``STATE/datasets/ID/dataset.json`` holds the record. ``manifest.jsonl`` beside it holds lines
``["directory", [[name, kind, size, mtime_ns, mode, uid, gid, content, group?], ...]]`` in no
particular order; a directory may have several lines. The directories themselves stand in their
parents' lines, the root as ``"."`` in ``""``. Journals of unfinished runs have the same lines.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import xxhash

from hostprep.errors import HostprepError
from hostprep.staging.model import Entry, Recorded, Skipped
from hostprep.system.files import write_atomically
from hostprep.system.state import readable_state_dirs, state_dir

FORMAT = "hostprep.manifest/1"
_RECORD = "dataset.json"

_quoted = json.encoder.encode_basestring_ascii  # in C


@dataclass(frozen=True, slots=True)
class Record:
    """A staged data set. Times are seconds since the epoch; sizes are bytes.

    ``phase`` is ``copying`` before the first publication, ``publishing`` around its rename,
    ``updating`` while an update replaces files, ``removing`` from the begin of an unstaging, and
    ``staged`` otherwise. ``left`` entries stayed of one that was removed to its end, since they
    were not as staged; None before. ``volume`` is the
    path of the tmpfs volume it lives in, None for one staged to a directory. ``verified_at`` of
    None: it was staged without verification. ``target_mount`` is where the file system is mounted
    that it lies on; None in records of versions that did not note it.
    """

    name: str
    source: str
    target: str
    volume: str | None
    files: int
    bytes: int
    entries: int
    digest: str | None
    verify: str
    verified_at: float | None
    staged_at: float
    boot_id: str
    phase: str = "staged"
    partial: bool = False
    skipped: tuple[Skipped, ...] = ()
    target_mount: str | None = None
    left: int | None = None
    format: str = FORMAT

    @property
    def id(self) -> str:
        """The name of the data set's folder in the state directory."""
        return record_id(self.name, self.target)

    @property
    def lock(self) -> str:
        """The name of the lock that all who change the data set share."""
        return lock_name(self.name, self.target)


def record_id(name: str, target: str) -> str:
    """Return a folder name that is readable and unique to the target."""
    return f"{name[:100]}-{xxhash.xxh3_64_hexdigest(os.fsencode(target))[:10]}"


def lock_name(name: str, target: str) -> str:
    """Return the name of the lock that runs for the same target share."""
    return "stage-" + record_id(name, target)


def folder_of(record: Record) -> Path:
    """Return where a record was found: one's own state directory, or the machine's."""
    for state in readable_state_dirs():
        path = state / "datasets" / record.id
        if path.is_dir():
            return path
    return folder(record.name, record.target)


def folder(name: str, target: str) -> Path:
    """Return where the record of a data set lives, whether it exists or not."""
    return state_dir() / "datasets" / record_id(name, target)


def save_record(record: Record, *, durable: bool) -> None:
    """Write a record so that a reader sees the old or the new one; see ``write_atomically``."""
    directory = folder(record.name, record.target)
    directory.mkdir(parents=True, exist_ok=True)
    fields = dataclasses.asdict(record)
    write_atomically(directory / _RECORD, [json.dumps(fields, indent=2).encode()], durable=durable)


def load_record(name: str, target: str) -> Record | None:
    """Return the record of the data set at ``target``, None where there is none.

    One's own comes before the machine's, which an ordinary user may only plan with.
    """
    for state in readable_state_dirs():
        record = _load(state / "datasets" / record_id(name, target) / _RECORD)
        if record is not None:
            return record
    return None


def all_records() -> tuple[Record, ...]:
    """Return all readable records here, by target; ``damaged_records`` has the others."""
    found: dict[str, Record] = {}
    for path in _record_files():
        try:
            record = _load(path)
        except HostprepError:
            continue  # says nothing about the other data sets; load_record names it for its own
        if record is not None:
            found.setdefault(record.target, record)
    return tuple(found[target] for target in sorted(found))


def damaged_records() -> dict[str, HostprepError]:
    """Return what is wrong with the records that cannot be read, by the names of their folders."""
    found: dict[str, HostprepError] = {}
    for path in _record_files():
        try:
            _load(path)
        except HostprepError as error:
            found[path.parent.name] = error
    return found


def forget(record: Record, done: str = "nothing was changed") -> None:
    """Remove the record and its manifest: the data set is gone.

    Raises ``HostprepError`` if that fails; ``done`` says what was changed by then. The record goes
    after all else, so that a run that is killed here is known of, and the next one goes on.
    """
    home = folder(record.name, record.target)
    try:
        for path in home.iterdir():
            if path.name != _RECORD:
                path.unlink()
        shutil.rmtree(home)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise HostprepError(
            f"the record {home} of {record.target} cannot be removed: {error.strerror}; {done}.",
            "hostprep remembers its data sets there: mend that and run the same command again",
        ) from None


def _record_files() -> Iterator[Path]:
    for state in readable_state_dirs():
        yield from sorted((state / "datasets").glob(f"*/{_RECORD}"))


def _load(path: Path) -> Record | None:
    try:
        content = path.read_bytes()
        if not content:  # what a power cut may leave of a record that was not flushed
            return None
        fields: Any = json.loads(content)
        if not isinstance(fields, dict):
            raise ValueError("it holds no record")
        return _parse(path, fields)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise HostprepError(
            f"the record {path} cannot be read: {error}.",
            "nothing was changed; move the folder away to start over",
        ) from None


def _parse(path: Path, fields: dict[str, Any]) -> Record:
    """Raises ``TypeError`` or ``ValueError`` where something is missing or of another kind."""
    if fields.get("format") != FORMAT:
        raise HostprepError(
            f"the record {path} is of another version of hostprep ({fields.get('format')}).",
            "nothing was changed; unstage with that version, or move the folder away",
        )
    known = {item.name for item in dataclasses.fields(Record)}
    kept = {key: value for key, value in fields.items() if key in known}
    kept["skipped"] = tuple(Skipped(**item) for item in kept.get("skipped", ()))
    return Record(**kept)


def manifest_path(record_folder: Path) -> Path:
    """Return the manifest's path in the folder of a record."""
    return record_folder / "manifest.jsonl"


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
    """Return the JSON of a ``model.Recorded``; without json's encoder, which takes twice as long.

    Every file of a data set passes here.
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
    directory, items = json.loads(line)
    return directory, [Recorded(*item) for item in items]


class ManifestIndex:
    """Where in manifest or journal files the lines of each directory are.

    Only directories and offsets are held in memory; a directory's records are read when asked for.
    A torn or foreign line is left out: the entries it was for count as not recorded.
    """

    def __init__(self, paths: Iterable[Path | str]) -> None:
        self._files: list[IO[bytes]] = []
        self._lines: dict[str, list[tuple[int, int, int]]] = {}
        self._extended: int | None = None
        decoder = json.JSONDecoder()
        for path in paths:
            try:
                file = open(path, "rb")  # noqa: SIM115 - closed by close()
            except FileNotFoundError:
                continue
            number = len(self._files)
            self._files.append(file)
            offset = 0
            for line in file:
                try:
                    # Only the directory's name is decoded here, at the line's start.
                    directory, _ = decoder.raw_decode(line.decode("ascii"), 1)
                    if line.endswith(b"]]\n") and isinstance(directory, str):
                        self._lines.setdefault(directory, []).append((number, offset, len(line)))
                except ValueError:
                    if line == b"\n" and self._extended is None:
                        self._extended = offset
                offset += len(line)

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()

    def directories(self) -> Iterable[str]:
        """Return the directories that have lines."""
        return self._lines.keys()

    def records(
        self, directory: str, here: Mapping[str, Entry] | None = None
    ) -> dict[str, Recorded]:
        """Return what is recorded in ``directory`` by name; of two records the later one counts.

        With ``here``, what lies there, one that speaks of that counts first: an update that was cut
        short has on record what it was yet to replace, and by what.
        """
        found: dict[str, Recorded] = {}
        for _, record in self._read(directory):
            earlier = found.get(record.name)
            there = here.get(record.name) if here and earlier else None
            if not (earlier and there) or _counts(record, earlier, there):
                found[record.name] = record
        return found

    def versions(self, directory: str) -> dict[str, list[Recorded]]:
        """Return all records of each entry in ``directory`` by name, the latest last."""
        found: dict[str, list[Recorded]] = {}
        for _, record in self._read(directory):
            found.setdefault(record.name, []).append(record)
        return found

    def promised(self, directory: str) -> set[str]:
        """Return which names in ``directory`` an update was to add that was cut short.

        Nothing of ours was there before, and nothing may have been put there.
        """
        if self._extended is None:
            return set()
        before: set[str] = set()
        since: set[str] = set()
        for offset, record in self._read(directory):
            (before if offset < self._extended else since).add(record.name)
        return since - before

    def __len__(self) -> int:
        return len(self._lines)

    def _read(self, directory: str) -> Iterator[tuple[int, Recorded]]:
        """Yield the records in ``directory``, each with the offset of its line."""
        for number, offset, length in self._lines.get(directory, ()):
            data = os.pread(self._files[number].fileno(), length, offset)
            try:
                for record in decode_line(data)[1]:
                    yield offset, record
            except (ValueError, TypeError):
                continue


def _counts(later: Recorded, earlier: Recorded, there: Entry) -> bool:
    return later.present_as(there) or not earlier.present_as(there)


def write_manifest(record_folder: Path, parts: Iterable[bytes], *, durable: bool) -> None:
    """Write a manifest from encoded lines so that a reader sees the old or the new one."""
    record_folder.mkdir(parents=True, exist_ok=True)
    write_atomically(manifest_path(record_folder), parts, durable=durable)


def extend_manifest(record_folder: Path, parts: Iterable[bytes], *, durable: bool) -> None:
    """Add encoded lines to a manifest; of two records of an entry the later one counts."""
    path = manifest_path(record_folder)
    try:
        with open(path, "ab", buffering=1024 * 1024) as file:
            file.write(b"\n")  # ends what a killed run may have left of a line
            for part in parts:
                file.write(part)
            file.flush()
            if durable:
                os.fsync(file.fileno())
    except OSError as error:
        error.filename = error.filename or str(path)  # which a full disk does not tell
        raise
