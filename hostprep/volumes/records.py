"""What hostprep mounted, where and for whom: a JSON file per volume below the state directory.

A tmpfs without a record, and without a line of ours in fstab, is somebody else's: it is never
changed or unmounted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError
from hostprep.system.kept import (
    check_name,
    made_of,
    parse_kept,
    read_kept,
    readable,
    unreadable,
    why_unread,
)
from hostprep.system.own_files import remove_unwritten, write_atomically
from hostprep.system.state import readable_state_dirs, remembered, state_dir
from hostprep.volumes.fstab import volume_id_for

_SCHEMA = "hostprep.volume-record/1"
_FOLDER = "volumes"
_LONGEST_NAME = 240  # the kernel's 255, less what a temporary name adds


class _OfAnotherVersion(ValueError):
    """A record in a format that this version does not read."""


@dataclass(frozen=True, slots=True)
class VolumeRecord:
    """A volume that hostprep mounted, or was about to mount.

    ``volume_id`` follows from ``path``; earlier versions do not read records without it.
    ``device`` is the tmpfs's ``major:minor``, None from before the mount until it is known, and
    ``source`` its name in /proc/mounts; both, because the kernel reuses device numbers.
    ``made_dirs`` are the directories that hostprep made to mount on, outermost first: they are
    removed with the volume if they are empty. ``requested_by`` is the user behind sudo, if any.
    ``namespaces`` are those in which it was mounted (``host.elsewhere``); None in records of
    versions that did not have them.
    """

    path: str
    volume_id: str
    boot_id: str
    device: str | None
    source: str
    size_bytes: int
    inodes: int
    made_dirs: tuple[str, ...]
    requested_by: str
    created_unix_seconds: float
    namespaces: str | None = None

    def to_json(self) -> bytes:
        """Return the record as it is stored."""
        return (json.dumps({"schema": _SCHEMA, **asdict(self)}, indent=2) + "\n").encode()

    @classmethod
    def from_json(cls, content: bytes) -> VolumeRecord:
        """Parse a stored record; raise ``ValueError`` or ``TypeError`` if it is not one."""
        fields: Any = parse_kept(content)
        schema = fields.get("schema") if isinstance(fields, dict) else None
        if schema != _SCHEMA:
            if str(schema).startswith(_SCHEMA.rpartition("/")[0] + "/"):
                raise _OfAnotherVersion(f"it is of another version of hostprep ({schema})")
            raise ValueError(f"not a {_SCHEMA} document")
        if isinstance(fields.get("made_dirs"), list):
            fields["made_dirs"] = tuple(fields["made_dirs"])
        return made_of(cls, fields, paths=("path",))


def read_record(path: str) -> VolumeRecord | None:
    """Return the record of the volume at ``path``, None if there is none.

    Raises ``HostprepError`` if the file cannot be understood: it may say that the volume is ours,
    so nothing may be decided without it.
    """
    for directory in readable_state_dirs():
        record = _load(
            _file(path, directory),
            f"the volume {path}",
            cure="remove the file if the volume is not hostprep's",
            claim="; nothing was changed",
        )
        if record is not None:
            return record
    return None


def all_records() -> tuple[VolumeRecord, ...]:
    """Return every readable record, by path: an ordinary user's and the machine's."""
    return readable(_record_files(), _load, "path")


def damaged_records() -> dict[str, HostprepError]:
    """Return what is wrong with the records that cannot be read, by their ``record_name``."""
    found = unreadable(_record_files(), _load)
    return {file.stem: error for file, error in found.items()}


def write_record(record: VolumeRecord, done: str = "nothing else was changed") -> None:
    """Store ``record`` in place of the earlier one.

    Raises ``HostprepError`` if it fails; ``done`` says what was changed by then ("nothing was
    mounted"). The caller holds the lock of the volumes.
    """
    file = _file(record.path, state_dir())
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        remove_unwritten(file.parent)
        # Not flushed, because a power cut also removes the tmpfs that it describes.
        write_atomically(file, [record.to_json()], durable=False)
    except OSError as error:
        raise HostprepError(
            f"the record {file} cannot be written: {error.strerror}; {done}.",
            "hostprep remembers its volumes there: fix that and run the same command again, or"
            " move it with HOSTPREP_STATE_DIR",
        ) from None


def delete_record(path: str, done: str = "nothing else was changed") -> None:
    """Forget the volume at ``path``; nothing happens if there is no record.

    Raises ``HostprepError`` if it fails; ``done`` says what was changed by then.
    """
    file = _file(path, state_dir())
    try:
        # No fsync: a record that a power cut brings back is of another boot, and means nothing.
        file.unlink(missing_ok=True)
    except OSError as error:
        raise HostprepError(
            f"the record {file} cannot be removed: {error.strerror}; {done}.",
            "hostprep remembers its volumes there: fix that and run the same command again",
        ) from None


def requester() -> str:
    """Return who asked: the user behind sudo, or the user id of this process."""
    return os.environ.get("SUDO_USER") or f"uid {os.getuid()}"


def _record_files() -> Iterator[Path]:
    return (path for path in remembered(_FOLDER) if path.suffix == ".json")


def _load(
    file: Path,
    of: str = "a volume",
    cure: str = "remove the file if nothing of hostprep's is mounted",
    claim: str = "",
) -> VolumeRecord | None:
    try:
        content = read_kept(file)
        if not content:  # a power cut may leave this of a file that was not flushed
            return None
        record = VolumeRecord.from_json(content)
        check_name(file.stem, record_name(record.path))
        return record
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        if isinstance(error, _OfAnotherVersion):
            cure = f"unmount it with that version; {cure}"
        why, hint = why_unread(error, cure)
        raise HostprepError(
            f"the record {file} of {of} cannot be read: {why}{claim}.", hint
        ) from None


def record_name(path: str) -> str:
    """Return the name of the record of the volume at ``path``: its id, unless that is too long.

    An id has up to three characters per byte of the path, and a file name has at most 255 bytes.
    """
    volume_id = volume_id_for(path)
    if len(volume_id) <= _LONGEST_NAME:
        return volume_id
    import xxhash  # only needed for such a path

    return f"{volume_id[:100]}-{xxhash.xxh3_128_hexdigest(volume_id.encode())}"


def _file(path: str, directory: Path) -> Path:
    return directory / _FOLDER / f"{record_name(path)}.json"
