"""What a boot service needs to know, safe from power cuts, and the result of its run.

``STATE/boot/NAME.json`` (NAME escaped as in the unit's name) is the request, flushed to the disk.
``/run/hostprep/NAME.json`` is the note of this boot: staging, failed or, written last, ready.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError
from hostprep.host.boot import boot_id
from hostprep.system.files import read_snapshot, remove_stale_temps, replace_file, writing_hint
from hostprep.system.kept import (
    check_name,
    made_of,
    parse_kept,
    read_kept,
    readable,
    unreadable,
    why_unread,
)
from hostprep.system.own_files import write_atomically
from hostprep.system.state import boot_dir, readable_state_dirs, remembered, state_dir
from hostprep.system.systemd import escape_name, unescape_name

_RECORD = "hostprep.boot-record/1"
_NOTE = "hostprep.boot-note/1"
_FOLDER = "boot"
_UNIT_PREFIX, _UNIT_SUFFIX = "hostprep-stage-", ".service"


@dataclass(frozen=True, slots=True)
class BootRecord:
    """A data set that is staged at every boot. Paths are absolute, without symlinks.

    ``parent`` is the directory in which it appears by its name, and ``volume`` the same if that is
    a tmpfs volume, which must then have at least ``volume_size_bytes``. ``source_mount`` and
    ``target_mount`` are the mount points of source and parent: nothing is staged from or into
    another file system. ``remote``: the source is on a network file system, or an automounter
    mounts it. ``digest`` is that of the data set when it was last staged, None if it is unknown.
    ``reserve_bytes`` is the memory that a target in memory, other than a volume, must leave; None
    for the default.
    """

    name: str
    source: str
    parent: str
    volume: str | None
    volume_size_bytes: int | None
    source_mount: str
    target_mount: str | None
    remote: bool
    digest: str | None = None
    verify: str = "readback"
    reserve_bytes: int | None = None

    @property
    def target(self) -> str:
        """Return the path of the data set."""
        return f"{self.parent.rstrip('/')}/{self.name}"

    @property
    def unit(self) -> str:
        """Return the name of its service."""
        return unit_name(self.name)


@dataclass(frozen=True, slots=True)
class BootNote:
    """The result of staging at boot: ``state`` is ``staging``, ``failed`` or ``ready``.

    ``pid`` is the process that staged, ``at`` the time of writing in seconds since the epoch.
    """

    state: str
    boot_id: str
    pid: int
    at: float
    reason: str = ""
    hint: str | None = None
    digest: str | None = None


def unit_name(dataset: str) -> str:
    """Return the name of the service that stages ``dataset`` at boot."""
    return f"{_UNIT_PREFIX}{escape_name(dataset)}{_UNIT_SUFFIX}"


def dataset_of(unit: str) -> str:
    """Return the name of the data set that a service of this name stages."""
    return unescape_name(unit.removeprefix(_UNIT_PREFIX).removesuffix(_UNIT_SUFFIX))


def unit_pattern() -> str:
    """Return a glob that finds the services' files."""
    return f"{_UNIT_PREFIX}*{_UNIT_SUFFIX}"


def load_boot_record(name: str) -> BootRecord | None:
    """Return the record of the data set ``name``, None if there is none.

    Raises ``HostprepError`` if it cannot be read.
    """
    for state in readable_state_dirs():
        path = _file(state / _FOLDER, name)
        try:
            return _parse(path, read_kept(path))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, TypeError) as error:
            why, hint = why_unread(error, "`hostprep apply` writes it anew")
            raise HostprepError(
                f"the boot record {path} cannot be read: {why}; nothing was changed.", hint
            ) from None
    return None


def all_boot_records(only: str | None = None) -> tuple[BootRecord, ...]:
    """Return every readable record by name, or that of the data set ``only``."""
    return readable(_record_files(only), _load, "name")


def recorded_units(only: str | None = None) -> set[str]:
    """Return the services of all records, or of ``only``, including unreadable ones."""
    stems = (path.stem for path in _record_files(only))
    named = {stem for stem in stems if escape_name(unescape_name(stem)) == stem}
    units = {f"{_UNIT_PREFIX}{stem}{_UNIT_SUFFIX}" for stem in named}
    return units | {record.unit for record in all_boot_records(only)}


def damaged_boot_records() -> dict[str, HostprepError]:
    """Return what is wrong with the records that cannot be read, by the names of their files."""
    found = unreadable(_record_files(), _load)
    return {path.stem: error for path, error in found.items()}


def save_boot_record(record: BootRecord) -> None:
    """Write ``record`` durably. Raises ``HostprepError`` if that fails."""
    path = _file(state_dir() / _FOLDER, record.name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HostprepError(
            f"{path.parent} cannot be made: {error.strerror}.", writing_hint(error)
        ) from None
    remove_stale_temps(path)
    content = json.dumps({"schema": _RECORD, **asdict(record)}, indent=2).encode() + b"\n"
    replace_file(path, content, expected=read_snapshot(path))


def forget_boot_record(name: str) -> None:
    """Remove the record and the note of the data set ``name``."""
    for folder in (state_dir() / _FOLDER, boot_dir()):
        _file(folder, name).unlink(missing_ok=True)


def load_note(name: str) -> BootNote | None:
    """Return the note of this boot about the data set ``name``, None if there is none."""
    try:
        fields: Any = parse_kept(read_kept(_file(boot_dir(), name)))
        if not isinstance(fields, dict) or fields.pop("schema") != _NOTE:
            return None
        note = made_of(BootNote, fields)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return note if note.boot_id == boot_id() else None


def save_note(name: str, note: BootNote) -> None:
    """Write the note; readers see the old or the new one. Raises ``HostprepError``."""
    path = _file(boot_dir(), name)
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        content = json.dumps({"schema": _NOTE, **asdict(note)}, indent=2).encode() + b"\n"
        write_atomically(path, [content], durable=False)
    except OSError as error:
        raise HostprepError(
            f"{path} cannot be written: {error.strerror}.", writing_hint(error)
        ) from None


def _record_files(only: str | None = None) -> Iterator[Path]:
    files = (path for path in remembered(_FOLDER) if path.suffix == ".json")
    if only is not None:
        return (path for path in files if path.stem == escape_name(only))
    return (path for path in files if not path.name.startswith("."))


def _file(folder: Path, name: str) -> Path:
    return folder / f"{escape_name(name)}.json"


def _load(path: Path) -> BootRecord:
    try:
        return _parse(path, read_kept(path))
    except (OSError, ValueError, TypeError) as error:
        cure = "`hostprep apply` writes it anew, or removes it with --prune"
        why, hint = why_unread(error, cure)
        raise HostprepError(
            f"the record {path} of what is staged at boot cannot be read: {why}.", hint
        ) from None


def _parse(path: Path, content: bytes) -> BootRecord:
    fields = parse_kept(content)
    if not isinstance(fields, dict) or fields.pop("schema", None) != _RECORD:
        raise ValueError(f"not a {_RECORD} document")
    paths = ("source", "parent", "volume", "source_mount", "target_mount")
    record = made_of(BootRecord, fields, paths=paths)
    check_name(path.stem, escape_name(record.name))
    return record
