"""The storage that checks judge: under the spec's sources and targets, or else right here."""

from __future__ import annotations

import os
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError
from hostprep.host.block import PathStorage, StorageClass, classify, locate
from hostprep.host.block_device import Device
from hostprep.host.file_system_id import file_system_id
from hostprep.readiness.context import Context
from hostprep.readiness.model import CannotTell, Level
from hostprep.readiness.side_by_side import at_once
from hostprep.system.typed_json import from_json

# A quick check must have time for two such questions, one after the other.
_PATIENCE_SECONDS = {Level.QUICK: 1.0, Level.FULL: 10.0}


class Role(StrEnum):
    """What a path is for; without a spec, HERE is the current directory and the root."""

    SOURCE = "source"
    TARGET = "target"
    HERE = "here"


@dataclass(frozen=True, slots=True)
class Seat:
    """A path and the storage that it is on; if that is None, ``problem`` says why."""

    path: str
    role: Role
    storage: PathStorage | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk as the kernel describes it, and which of the paths are on it."""

    device: Device
    storage_class: StorageClass
    paths: tuple[str, ...]


def seats(context: Context) -> tuple[Seat, ...]:
    """Look at all paths at the same time; one that hangs gets a problem and no storage."""
    wanted: dict[str, Role] = {}
    for dataset in context.spec.datasets if context.spec else ():
        wanted.setdefault(dataset.source, Role.SOURCE)
        if dataset.to is not None:
            wanted[dataset.to] = Role.TARGET
    if not wanted:
        here = context.cwd
        wanted = {"/": Role.HERE} if here is None else {here: Role.HERE, "/": Role.HERE}
    return at_once(lambda item: _seat(context, *item), tuple(wanted.items()))


def _seat(context: Context, path: str, role: Role) -> Seat:
    try:
        return Seat(path, role, storage_of(context, path), None)
    except HostprepError as error:
        return Seat(path, role, None, error.message)


def storage_of(context: Context, path: str) -> PathStorage:
    """Return the storage under ``path``, or under the nearest existing folder above it.

    Raises ``CannotTell`` if that does not answer.
    """
    root = context.root
    found = context.ask(
        f"the storage of {path}",
        lambda: asdict(locate(_nearest(path) if root == Path("/") else path, root)),
        patience_seconds=_PATIENCE_SECONDS[context.level],
        below_root=True,
    )
    return from_json(PathStorage, found)


def file_system_of(context: Context, storage: PathStorage) -> str | None:
    """Return what identifies the file system of ``storage``, None if nothing does."""
    root = context.root
    try:
        found: str | None = context.ask(
            f"the file system of {storage.path}",
            lambda: file_system_id(storage, root),
            patience_seconds=_PATIENCE_SECONDS[context.level],
        )
    except CannotTell:
        return None
    return found


def is_there(context: Context, path: str) -> bool | None:
    """Return whether something is at ``path``, even a broken link; None if it cannot be told."""
    below = str(context.root / path.lstrip("/"))
    try:
        return bool(context.ask(f"is {path}", lambda: os.path.lexists(below), below_root=True))
    except CannotTell:
        return None


def _nearest(path: str) -> str:
    while not os.path.lexists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def disks(seats: tuple[Seat, ...]) -> tuple[Disk, ...]:
    """Return the disks under the seats, in their order, each once."""
    devices: dict[str, Device] = {}
    paths: dict[str, list[str]] = {}
    for seat in seats:
        for disk in seat.storage.disks if seat.storage else ():
            devices.setdefault(disk.name, disk)
            paths.setdefault(disk.name, []).append(seat.path)
    return tuple(
        Disk(device, classify(device)[0], tuple(paths[name])) for name, device in devices.items()
    )


def no_disk(seats: tuple[Seat, ...]) -> str:
    """Return the sentence of the SKIP if none of the seats is on a disk."""
    return f"no disk of this host can be seen under {', '.join(seat.path for seat in seats)}."
