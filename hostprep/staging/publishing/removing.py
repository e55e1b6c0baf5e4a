"""Removes what was staged, in place or after hiding it, and nothing else."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator, Set
from contextlib import closing

from hostprep.errors import Refused
from hostprep.staging.model import Recorded
from hostprep.staging.observer import Count, Observer
from hostprep.staging.record.damage import damage
from hostprep.staging.record.lines import encode_line
from hostprep.staging.record.manifest import ManifestIndex, manifest_path, write_manifest
from hostprep.staging.record.records import Record, folder
from hostprep.staging.target.owned import GONE, private_name
from hostprep.staging.target.strangers import exchanged_refusal
from hostprep.staging.tree import entry_at, entry_of
from hostprep.system.descriptors import closing_fd
from hostprep.system.flushing import flush_file_system
from hostprep.system.renaming import rename_new
from hostprep.system.trees import (
    DIRECTORY_FLAGS,
    DirCache,
    above,
    join,
    names_in,
    remove_directory,
    writable,
)


def compare(record: Record, published_fd: int, observer: Observer) -> tuple[int, tuple[str, ...]]:
    """Return how many entries are as staged and can be removed, and the paths of the others.

    Raises ``DamagedManifest`` if the manifest lacks some, because those may be hostprep's too.
    """
    ours = 0
    foreign: list[str] = []
    pending = [""]
    with closing(_index(record)) as manifest, DirCache(published_fd) as tree:
        observer.phase("compare", files=record.files)
        count = Count(observer)
        while pending:
            directory = pending.pop()
            for name, found in _looked_at(tree.fd(directory), directory, manifest):
                if found is None:
                    foreign.append(join(directory, name))
                    continue
                ours += 1
                if found.kind == "d":
                    pending.append(join(directory, name))
                else:
                    count.add()
        if damaged := damage(record, manifest, foreign):
            raise damaged
    # The directories around whatever stays must stay as well.
    around = {each for path in foreign for each in above(path)}
    return ours - len(around), tuple(foreign)


def open_hidden(parent_fd: int, name: str) -> int | None:
    """Return a descriptor of what was hidden but not yet removed, None if there is nothing.

    A run that was killed in between leaves it; others' additions may be in it.
    """
    try:
        # One after the other: of a path, only a symlink at its end would not be followed.
        with closing_fd(os.open(private_name(name), DIRECTORY_FLAGS, dir_fd=parent_fd)) as private:
            return os.open(GONE, DIRECTORY_FLAGS, dir_fd=private)
    except (FileNotFoundError, NotADirectoryError):
        return None  # whose what has its name is, who opens it to work in it asks


def cut_short_refusal(
    parent_fd: int, name: str, target: str, record: Record | None, observer: Observer
) -> Refused | None:
    """Refuse to discard what a killed removal left hidden while others' entries are in it.

    Without a ``record`` it is not known which entries are others'.
    """
    hidden_fd = open_hidden(parent_fd, name)
    if hidden_fd is None:
        return None
    with closing_fd(hidden_fd):
        foreign = names_in(hidden_fd) if record is None else compare(record, hidden_fd, observer)[1]
    if not foreign:
        return None
    where = f"{os.path.dirname(target)}/{private_name(name)}/{GONE}"
    return Refused(
        f"the removal of {target} was cut short, and what it had moved out of sight holds files"
        f" that hostprep did not stage ({where}: {foreign[0]}); nothing was changed.",
        f"`hostprep unstage {shlex.quote(target)}` puts them back where they were; if that is"
        " refused too, move them away",
    )


def hide(parent_fd: int, private_fd: int, record: Record) -> None:
    """Move the published data set into its private directory, out of everybody's sight."""
    with closing_fd(os.open(record.name, DIRECTORY_FLAGS, dir_fd=parent_fd)) as published_fd:
        _check_is_it(record, published_fd)
        mode = stat.S_IMODE(os.fstat(published_fd).st_mode)
        # Moving a directory requires write permission on it.
        os.fchmod(published_fd, mode | 0o700)
        try:
            os.rename(record.name, GONE, src_dir_fd=parent_fd, dst_dir_fd=private_fd)
        except BaseException:
            os.fchmod(published_fd, mode)  # it is still published
            raise


def remove_hidden(
    parent_fd: int, private_fd: int, record: Record, observer: Observer
) -> tuple[str, ...]:
    """Remove what is hidden, and return what stays: what somebody added before it was hidden.

    That is put back in its place. Each entry is checked right before it is removed, so nothing is
    lost if a run is killed here or earlier, and the next one continues. Raises ``Refused`` if it is
    not the directory that was staged, which is put back as well.
    """
    try:
        left = _remove(private_fd, GONE, record, observer)
    except Refused:  # it was exchanged right before it was hidden
        rename_new(GONE, record.name, src_dir_fd=private_fd, dst_dir_fd=parent_fd)
        raise
    if left:
        rename_new(GONE, record.name, src_dir_fd=private_fd, dst_dir_fd=parent_fd)
    return left


def remove_ours(parent_fd: int, record: Record, observer: Observer) -> tuple[str, ...]:
    """Remove what is as staged, and return what stays, except directories around it.

    Afterwards the manifest lists only the latter: whatever somebody puts in the places of removed
    copies is theirs.
    """
    return _remove(parent_fd, record.name, record, observer)


def _remove(parent_fd: int, name: str, record: Record, observer: Observer) -> tuple[str, ...]:
    left: list[str] = []
    ours: list[str] = []
    count = Count(observer)
    pending = [""]
    with (
        closing_fd(os.open(name, DIRECTORY_FLAGS, dir_fd=parent_fd)) as root_fd,
        closing(_index(record)) as manifest,
    ):
        _check_is_it(record, root_fd)
        with DirCache(root_fd) as tree:
            while pending:
                directory = pending.pop()
                descriptor = tree.fd(directory)
                for last, found in _looked_at(descriptor, directory, manifest):
                    if found is None:
                        left.append(join(directory, last))
                    elif found.kind == "d":
                        ours.append(join(directory, last))
                        pending.append(ours[-1])
                    else:
                        os.unlink(last, dir_fd=writable(descriptor))
                        count.add()
            staying = {each for path in left for each in above(path)}
            for path in reversed(ours):  # children before their parents
                if path not in staying:
                    parent, _, last = path.rpartition("/")
                    os.rmdir(last, dir_fd=writable(tree.fd(parent)))
                    count.add()
        around = _lines_of(staying, manifest)
        if not left:
            remove_directory(parent_fd, name, root_fd)
    if left:
        durable = record.volume is None
        if durable:
            # After a power cut, nothing may come back that the manifest no longer lists.
            flush_file_system(parent_fd)
        write_manifest(folder(record.name, record.target), around, durable=durable)
    return tuple(left)


def _lines_of(directories: Set[str], manifest: ManifestIndex) -> list[bytes]:
    """Return lines of a manifest with the records of these directories alone."""
    lines = []
    for parent in {path.rpartition("/")[0] for path in directories}:
        found: dict[str, Recorded] = {}
        for record in manifest.latest_first(parent):
            if record.kind == "d" and join(parent, record.name) in directories:
                found.setdefault(record.name, record)
        lines.append(encode_line(parent, found.values()))
    return lines


def _check_is_it(record: Record, directory_fd: int) -> None:
    """Raise ``Refused`` if the copies were exchanged since they were compared."""
    if refusal := exchanged_refusal(record, directory_fd):
        raise refusal


def _looked_at(
    descriptor: int, directory: str, manifest: ManifestIndex
) -> Iterator[tuple[str, Recorded | None]]:
    """Yield a directory's contents: name and record, None if it is not as staged.

    All names are read before the first is yielded, and each entry is checked when its turn comes:
    so changes made while earlier ones were removed are noticed. The turns are the manifest's: a
    directory's records are never in memory all at once, and each is decoded once.
    """
    left = set(names_in(descriptor))
    # An interrupted update has both on record: what was there, and what was to come.
    for record in manifest.latest_first(directory):
        if record.name in left and _is_as(record, descriptor):
            left.remove(record.name)
            yield record.name, record
    for name in sorted(left):  # a set's own order would be another in each run
        if entry_at(name, descriptor) is not None:
            yield name, None


def _is_as(record: Recorded, descriptor: int) -> bool:
    """Return whether what is in an open directory under a record's name is as it was staged.

    This runs once for each file of a data set: in most, time and size are the very same.
    """
    name, kind, size, mtime_ns, *_ = record
    try:
        status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    except FileNotFoundError:
        return False
    if kind == "f" and status.st_mtime_ns == mtime_ns and status.st_size == size:
        return stat.S_ISREG(status.st_mode)
    return record.present_as(entry_of(name, status))


def _index(record: Record) -> ManifestIndex:
    return ManifestIndex([manifest_path(folder(record.name, record.target))])
