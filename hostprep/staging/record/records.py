"""The record of a data set: what was staged, from where, to where, and how far a run has come.

``STATE/datasets/ID/dataset.json`` holds it, for all to read; the manifest lies beside it (see
``manifest``), and the names of what was left out (see ``skipped``). Which STATE that is,
``homes`` has.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import xxhash

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError, Refused
from hostprep.host.answering import PATIENCE_SECONDS, silent_ones
from hostprep.staging.model import Skipped
from hostprep.staging.record.homes import home_for, is_for_all, own_homes
from hostprep.staging.record.manifest import FORMAT, ManifestIndex, manifest_path
from hostprep.staging.record.skipped import fields_of, keep_skipped, with_names, without_names
from hostprep.system.access import may_access
from hostprep.system.files import new_file_obstacle
from hostprep.system.kept import made_of, parse_kept, read_kept, readable, unreadable, why_unread
from hostprep.system.own_files import write_atomically
from hostprep.system.state import readable_state_dirs, remembered, state_dir

_RECORD = "dataset.json"
_REMEMBERS = "hostprep remembers its data sets there: mend that and run the same command again"


@dataclass(frozen=True, slots=True)
class Record:
    """A staged data set. Times are seconds since the epoch; sizes are bytes.

    ``phase`` is ``copying`` before the first publication, ``publishing`` around its rename,
    ``updating`` while an update replaces files, ``removing`` from the begin of an unstaging, and
    ``staged`` otherwise. ``left`` entries stayed of one that was removed to its end, since they
    were not as staged; None before. ``volume`` is the
    path of the tmpfs volume it lives in, None for one staged to a directory. ``submounts`` are
    where in the source file systems were mounted. ``needed_*`` is what the copies of a
    run take in the end, in bytes and inodes, from before the first of them to their publication.
    ``failure`` is what ended the last run, where that failed, without names, which are not for all
    to read. ``verified_at`` of None: it was staged without verification. ``target_mount`` is where
    the file system is mounted that it lies on; None in records of versions that did not note it.
    ``target_place`` is which file system that is, and where in it the copies lie; None in a volume,
    where it cannot be told, and in records of versions that did not note it.
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
    target_place: str | None = None
    left: int | None = None
    submounts: tuple[str, ...] = ()
    needed_bytes: int = 0
    needed_inodes: int = 0
    failure: str | None = None
    format: str = FORMAT

    @property
    def id(self) -> str:
        """The name of the data set's folder in the state directory."""
        return record_id(self.name, self.target)

    @property
    def lock(self) -> str:
        """The name of the lock that all who change the data set share."""
        return lock_name(self.name, self.target, folder_of(self).parents[1])


def record_id(name: str, target: str) -> str:
    """Return a folder name that is readable and unique to the target."""
    return f"{name[:100]}-{xxhash.xxh3_64_hexdigest(os.fsencode(target))[:10]}"


def lock_name(name: str, target: str, home: Path | None = None) -> str:
    """Return the name of the lock that runs for the same target share.

    ``home`` is the state directory that has the record, None for one's own. Where a home is shared
    the locks are, and another machine's own target is not the same one.
    """
    home = home or _home(name, target)
    return "stage-" + record_id(name, target if is_for_all(home) else f"{target}\0{home.name}")


def folder_of(record: Record) -> Path:
    """Return where a record was found: one's own state directory, or the machine's."""
    for state in readable_state_dirs():
        path = state / "datasets" / record.id
        if (path / _RECORD).is_file():  # a run without room for one leaves an empty folder
            return path
    return folder(record.name, record.target)


def manifest_of(record: Record) -> ManifestIndex:
    """Open the manifest beside a record, where that was found."""
    try:
        return ManifestIndex([manifest_path(folder_of(record))])
    except PermissionError:
        raise ClosedManifest(record) from None


class ClosedManifest(HostprepError):
    """Which entries a data set has is on record, and not for this user to know.

    ``found`` says so as part of a sentence.
    """

    def __init__(self, record: Record) -> None:
        self.found = (
            f"{record.name} has folders that are closed to some, and the list of what was staged is"
            " not for this user"
        )
        super().__init__(f"{self.found}; nothing was changed.", "run it with sudo")


def is_roots(record: Record) -> bool:
    """Whether only root can change the data set: the record is the machine's, or the copies root's.

    Who may not change the record can neither tell it what became of the data set, nor share its
    lock. Copies of a user's own are root's after a run by ``sudo`` with that user's records.
    """
    if folder_of(record) != folder(record.name, record.target):
        return True
    if os.geteuid() == 0 or silent_ones([record.target], PATIENCE_SECONDS):
        return False
    try:
        owner = os.lstat(record.target).st_uid
    except OSError:
        return False  # they are not there, or whoever needs them tells of the reason
    return owner == 0 and not may_access(record.target, os.W_OK)


def check_own(record: Record, otherwise: str = "") -> None:
    """Raise ``HostprepError`` where only root can change it; ``otherwise`` ends the hint."""
    if is_roots(record):
        raise HostprepError(
            f"{record.target} was staged by root; nothing was changed.",
            f"run it with sudo{otherwise}",
        )


def check_forgettable(record: Record) -> None:
    """Raise ``Refused``, before anything is removed, where the record could not be.

    Not for a full disk, which must not keep the files of the data set: it does not keep the record
    from being removed either.
    """
    home = folder(record.name, record.target)
    code = new_file_obstacle(home)
    if code in (errno.EROFS, errno.EACCES, errno.EPERM):
        raise Refused(
            f"the record {home} of {record.target} could not be removed: {os.strerror(code)};"
            " nothing was changed.",
            _REMEMBERS,
        )


def folder(name: str, target: str) -> Path:
    """Return where the record of a data set lives, whether it exists or not."""
    return _home(name, target) / "datasets" / record_id(name, target)


def is_shared(name: str, target: str) -> bool:
    """Whether the record is one that all machines with this home have."""
    return is_for_all(_home(name, target))


def other_hosts(name: str, target: str) -> tuple[Path, ...]:
    """Return where machines of other names, with this home, have a record of such a data set."""
    here, place = folder(name, target), Path("datasets", record_id(name, target))
    found = (each / place for each in sorted(state_dir().glob("on-*")))
    return tuple(each for each in found if each != here and (each / _RECORD).is_file())


def _home(name: str, target: str) -> Path:
    """Return the state directory that has the record of one's own, or that would have a new one.

    Where there is one already it stays: versions that did not tell machines apart left some.
    """
    place = Path("datasets", record_id(name, target), _RECORD)
    found = (home for home in own_homes() if (home / place).is_file())
    return next(found, None) or home_for(target)


def save_record(record: Record, *, durable: bool) -> None:
    """Write a record so that a reader sees the old or the new one; see ``write_atomically``."""
    directory = folder(record.name, record.target)
    directory.mkdir(parents=True, exist_ok=True)
    keep_skipped(directory, record.skipped, durable=durable, done=record.phase == "staged")
    fields = dataclasses.asdict(dataclasses.replace(record, skipped=()))
    fields["skipped"] = fields_of(record.skipped)
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
    return readable(_record_files(), _load, "target")


def staged_in(directory: str) -> tuple[str, ...]:
    """Return the targets of the data sets that lie in a directory, and not deeper."""
    targets = (record.target for record in all_records() if record.phase != "copying")
    return tuple(
        target
        for target in targets
        if os.path.dirname(target) == directory and os.path.lexists(target)
    )


def damaged_records() -> dict[str, HostprepError]:
    """Return what is wrong with the records that cannot be read, by the names of their folders."""
    found = unreadable(_record_files(), _load)
    return {path.parent.name: error for path, error in found.items()}


def check_record(word: str, path: str) -> None:
    """Raise what is wrong with the record of a data set called ``word``, or at ``path``, if any."""
    at_path = record_id(os.path.basename(path), path)
    for folder_name, error in damaged_records().items():
        if folder_name == at_path or folder_name.rpartition("-")[0] == word[:100]:
            raise error


def forget(record: Record, done: str = "nothing was changed") -> None:
    """Remove the record and its manifest: the data set is gone.

    Raises ``HostprepError`` if that fails; ``done`` says what was changed by then. The record goes
    after all else, so that a run that is killed here is known of, and the next one goes on. Its
    empty folder is in nobody's way.
    """
    home = folder(record.name, record.target)
    try:
        for path in home.iterdir():
            if path.name != _RECORD:
                path.unlink()
        (home / _RECORD).unlink()
        with suppress(OSError):
            home.rmdir()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise HostprepError(
            f"the record {home} of {record.target} cannot be removed: {error.strerror}; {done}.",
            _REMEMBERS,
        ) from None


def _record_files() -> Iterator[Path]:
    return (path / _RECORD for path in remembered("datasets") if path.is_dir())


def _load(path: Path) -> Record | None:
    try:
        content = read_kept(path)
        if not content:  # what a power cut may leave of a record that was not flushed
            return None
        fields: Any = parse_kept(content)
        if not isinstance(fields, dict):
            raise ValueError("it holds no record")
        return _parse(path, fields)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        why, hint = why_unread(error, "nothing was changed; move the folder away to start over")
        raise HostprepError(f"the record {path} cannot be read: {why}.", hint) from None


def _parse(path: Path, fields: dict[str, Any]) -> Record:
    """Raises ``TypeError`` or ``ValueError`` where something is missing or of another kind."""
    if fields.get("format") != FORMAT:
        raise HostprepError(
            f"the record {path} is of another version of hostprep ({fields.get('format')}).",
            "nothing was changed; unstage with that version, or move the folder away",
        )
    kept = {**fields, "skipped": (), "submounts": tuple(fields.get("submounts", ()))}
    record = made_of(Record, kept, paths=("source", "target", "volume", "target_mount"))
    # Each kind of them is looked at there; once more each of what may be millions takes long.
    skipped = with_names(path.parent, without_names(fields.get("skipped", ())))
    return dataclasses.replace(record, skipped=skipped)
