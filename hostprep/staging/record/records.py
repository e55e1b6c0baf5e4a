"""The record of a data set: what was staged, from where, to where, and how far a run has come.

``STATE/datasets/ID/dataset.json`` holds it and is readable for all; the manifest is next to it (see
``manifest``), and so are the names of what was left out (see ``skipped``). ``homes`` decides which
directory STATE is.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
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
from hostprep.staging.reasons import Skipped
from hostprep.staging.record.homes import (
    home_for,
    is_for_all,
    is_there,
    may_have_one,
    own_homes,
)
from hostprep.staging.record.manifest import FORMAT, ManifestIndex, manifest_path
from hostprep.staging.record.skipped import fields_of, keep_skipped, with_names, without_names
from hostprep.system.access import may_access
from hostprep.system.files import new_file_obstacle
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
from hostprep.system.state import readable_state_dirs, remembered, state_dir

_RECORD = "dataset.json"
_MOST_REMEMBERED_BYTES = 4096  # an ordinary record has a quarter of that
_REMEMBERS = "hostprep remembers its data sets there: fix that and run the same command again"


@dataclass(frozen=True, slots=True)
class Record:
    """A staged data set. Times are seconds since the epoch; sizes are bytes.

    ``phase`` is ``copying`` before the first publication, ``publishing`` around its rename,
    ``updating`` while an update replaces files, ``removing`` once an unstaging has begun, and
    ``staged`` otherwise. ``left`` is how many entries a complete unstaging left in place because
    they were not as staged; None before that. ``volume`` is the path of the tmpfs volume that
    contains it, None if it was staged to a directory. ``submounts`` are the mount points that were
    inside the source. ``needed_*`` is what a run's copies take in the end, in bytes and inodes, set
    from before the first copy until publication. ``failure`` is what ended the last run if it
    failed, without names, because everybody can read the record. ``verified_at`` is None if it was
    staged without verification. ``target_mount`` is the mount point of the target's file system,
    and ``target_place`` which file system that is and the path of the copies in it; both are None
    in records of versions that did not have them, the latter also in a volume and if it is unknown.
    ``target_identity`` tells the published directory from others that were put in its place, see
    ``strangers.identity_of``; None if nothing does, and in records of earlier versions.
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
    target_identity: str | None = None
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
        """The name of the lock that is shared by all who change the data set."""
        return lock_name(self.name, self.target, folder_of(self).parents[1])


def record_id(name: str, target: str) -> str:
    """Return a folder name that is readable and unique to the target."""
    return f"{name[:100]}-{xxhash.xxh3_64_hexdigest(os.fsencode(target))[:10]}"


def lock_name(name: str, target: str, home: Path | None = None) -> str:
    """Return the name of the lock that is shared by all runs for the same target.

    ``home`` is the state directory that has the record, None for one's own. If a home is shared, so
    are the locks, but another machine's own target is a different one.
    """
    home = home or _home(name, target)
    return "stage-" + record_id(name, target if is_for_all(home) else f"{target}\0{home.name}")


def folder_of(record: Record) -> Path:
    """Return where a record was found: in one's own state directory, or the machine's."""
    for state in readable_state_dirs():
        path = state / "datasets" / record.id
        if is_there(path / _RECORD):  # a run without room for its record leaves an empty folder
            return path
    return folder(record.name, record.target)


def manifest_of(record: Record) -> ManifestIndex:
    """Open the manifest next to a record, where the record was found."""
    try:
        return ManifestIndex([manifest_path(folder_of(record))])
    except PermissionError:
        raise ClosedManifest(record) from None


class ClosedManifest(HostprepError):
    """The entries of a data set are on record, but this user may not know them.

    ``found`` says so as part of a sentence.
    """

    def __init__(self, record: Record) -> None:
        self.found = (
            f"{record.name} has folders that not everybody may read, so this user may not read the"
            " list of what was staged"
        )
        super().__init__(f"{self.found}; nothing was changed.", "run it with sudo")


def is_roots(record: Record) -> bool:
    """Whether only root can change the data set: the record is the machine's, or the copies root's.

    A user who may not change the record can neither update it nor share its lock. Copies of a user
    can be root's after a run by ``sudo`` with that user's records.
    """
    if folder_of(record) != folder(record.name, record.target):
        return True
    if os.geteuid() == 0 or silent_ones([record.target], PATIENCE_SECONDS):
        return False
    try:
        owner = os.lstat(record.target).st_uid
    except OSError:
        return False  # they do not exist, or whoever needs them reports the error
    return owner == 0 and not may_access(record.target, os.W_OK)


def check_own(record: Record, otherwise: str = "") -> None:
    """Raise ``HostprepError`` if only root can change it; ``otherwise`` ends the hint."""
    if is_roots(record):
        raise HostprepError(
            f"{record.target} was staged by root; nothing was changed.",
            f"run it with sudo{otherwise}",
        )


def check_forgettable(record: Record) -> None:
    """Raise ``Refused``, before anything is removed, if the record could not be removed.

    A full disk is no reason: it does not prevent the record's removal, and must not prevent that of
    the files either.
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
    """Return where the record of a data set is kept, whether it exists or not."""
    return _home(name, target) / "datasets" / record_id(name, target)


def is_shared(name: str, target: str) -> bool:
    """Whether the record is shared by all machines with this home."""
    return is_for_all(_home(name, target))


def other_hosts(name: str, target: str) -> tuple[Path, ...]:
    """Return where machines with other names, but this home, have a record of such a data set."""
    here, place = folder(name, target), Path("datasets", record_id(name, target))
    found = (each / place for each in sorted(state_dir().glob("on-*")))
    return tuple(each for each in found if each != here and is_there(each / _RECORD))


def _home(name: str, target: str) -> Path:
    """Return the state directory that has one's own record, or would have a new one.

    An existing record stays where it is: versions that did not distinguish machines left some.
    """
    place = Path("datasets", record_id(name, target), _RECORD)
    found = (home for home in own_homes() if is_there(home / place))
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
    """Return the record of the data set at ``target``, None if there is none.

    One's own takes precedence over the machine's, with which ordinary users can only plan.
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
    """Return the targets of the data sets that are directly in a directory."""
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

    Raises ``HostprepError`` if that fails; ``done`` says what was changed by then. The record is
    removed last, so that a run that is killed here remains known and the next one continues. Its
    empty folder does no harm.
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
    return (path / _RECORD for path in remembered("datasets") if may_have_one(path))


def _load(path: Path) -> Record | None:
    try:
        content = read_kept(path)
        if not content:  # a power cut can leave this of an unflushed record
            return None
        parse = _parse if len(content) <= _MOST_REMEMBERED_BYTES else _parse.__wrapped__
        record, left_out = parse(path, content)
        if left_out in ((), []):
            return record
        # `without_names` checks each kind of entry once; checking millions one by one takes long.
        skipped = with_names(path.parent, without_names(left_out))
        return dataclasses.replace(record, skipped=skipped)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        why, hint = why_unread(error, "nothing was changed; move the folder away to start over")
        raise HostprepError(f"the record {path} cannot be read: {why}.", hint) from None


# With many data sets, each is compared with all others again and again, and most do not change.
@functools.lru_cache(maxsize=1024)
def _parse(path: Path, content: bytes) -> tuple[Record, Any]:
    """Return a record without what was left out, and the field that says what was.

    Raises ``TypeError`` or ``ValueError`` if something is missing or of the wrong type.
    """
    fields: Any = parse_kept(content)
    if not isinstance(fields, dict):
        raise ValueError("it holds no record")
    if fields.get("format") != FORMAT:
        raise HostprepError(
            f"the record {path} is of another version of hostprep ({fields.get('format')}).",
            "nothing was changed; unstage with that version, or move the folder away",
        )
    kept = {**fields, "skipped": (), "submounts": tuple(fields.get("submounts", ()))}
    record = made_of(Record, kept, paths=("source", "target", "volume", "target_mount"))
    check_name(path.parent.name, record.id)
    return record, fields.get("skipped", ())
