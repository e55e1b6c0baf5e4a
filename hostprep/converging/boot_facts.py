"""The facts that decide whether a data set comes back at boot, read once from the machine."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Mapping
from pathlib import Path

from hostprep.converging.boot_command import Astray, astray, hindrance
from hostprep.converging.boot_links import left_links, linked_from
from hostprep.converging.boot_record import (
    BootRecord,
    all_boot_records,
    dataset_of,
    recorded_units,
    unit_name,
    unit_pattern,
)
from hostprep.converging.boot_template import is_ours, own_command, own_environment, own_programs
from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError, Refused, reading_hint
from hostprep.host.block import IN_MEMORY, SERVED, locate
from hostprep.host.mounts import lies_in, mount_containing, read_mounts
from hostprep.spec.model import DatasetSpec
from hostprep.staging.record.records import load_record
from hostprep.staging.target.place import standing_directory
from hostprep.system.accounts import has_acl
from hostprep.system.acls import ACCESS_ACL
from hostprep.system.files import FileSnapshot, read_snapshot
from hostprep.system.following import followed
from hostprep.system.links import real_path
from hostprep.system.systemd import SYSTEM_UNIT_DIR, show_unit, systemd_runs, unit_dir
from hostprep.system.unit_commands import UnitSetting
from hostprep.volumes.live import read_live
from hostprep.volumes.paths import Folder

# The source of an automount of systemd's own, which is a unit that RequiresMountsFor= waits for.
_SYSTEMD = "systemd-1"


@dataclass(frozen=True, slots=True)
class Installed:
    """A unit file with one of our names. ``problem``: it is not one that could be replaced.

    ``wanted_by`` are the units that start it. ``writer`` says who besides root could write to it,
    and so run anything as root. ``failed``: it ran in this boot, and for systemd it has failed.
    ``astray``: why it does not stage. ``hindrance`` is a setting because of which it may not be
    started, or cannot stage.
    """

    unit: str
    snapshot: FileSnapshot | None
    wanted_by: frozenset[str] = frozenset()
    problem: Refused | None = None
    writer: str | None = None
    failed: bool = False
    astray: Astray | None = None
    hindrance: UnitSetting | None = None

    @property
    def content(self) -> bytes | None:
        """Its content, None if it is not a regular file."""
        return None if self.snapshot is None else self.snapshot.content

    @property
    def made_by_us(self) -> bool:
        """Whether hostprep wrote it."""
        return self.content is not None and is_ours(self.content)


@dataclass(frozen=True, slots=True)
class Footing:
    """Where a data set's source and target are now; None for one that does not exist.

    ``source`` and ``parent`` are without symlinks. ``remote``: the source is on a file system that
    may need the network, or that an automounter's program mounts. ``in_memory``: the target is on a
    tmpfs that is not a volume of the spec. ``automounted``: an automount of systemd's own mounts
    the source. ``fed``: the source is in the copy of another data set; ``feeders`` are the units
    that stage that one.
    """

    name: str
    source: str
    parent: str
    source_mount: str | None
    remote: bool | None
    target_mount: str | None
    volume_size_bytes: int | None
    digest: str | None
    in_memory: bool = False
    automounted: bool = False
    fed: bool = False
    feeders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BootFacts:
    """The existing units and records, and how hostprep is called.

    ``traces`` are the names of units that are gone but left a record, or a link that started them.
    ``program_writer`` says who besides root could exchange what root would run, be it the script,
    the interpreter or the modules. ``systemd``: it runs here.
    """

    unit_dir: Path
    command: tuple[str, ...]
    environment: tuple[str, ...]
    program_writer: str | None
    installed: tuple[Installed, ...]
    records: tuple[BootRecord, ...]
    footings: tuple[Footing, ...]
    traces: tuple[str, ...] = ()
    systemd: bool = True

    def footing_of(self, name: str) -> Footing:
        """Return where the data set ``name``, one of those gathered for, is."""
        return next(footing for footing in self.footings if footing.name == name)

    def installed_as(self, unit: str) -> Installed | None:
        """Return the unit file of this name."""
        return next((each for each in self.installed if each.unit == unit), None)

    def record_of(self, name: str) -> BootRecord | None:
        """Return the boot record of the data set ``name``."""
        return next((record for record in self.records if record.name == name), None)


def gather_boot(
    datasets: tuple[DatasetSpec, ...],
    feeders: Mapping[str, DatasetSpec] | None = None,
    *,
    only: str | None = None,
) -> BootFacts:
    """Read what ``plan_boot`` needs to know about those of ``datasets`` with ``at_boot``.

    ``feeders`` has, by a data set's target, the data set whose copy contains its source. With
    ``only``, the name of a unit, nothing is read of other units: each step of many would read them
    all. A source on a dead network file system makes this hang, just as it does staging. Changes
    nothing.
    """
    feeders = {} if feeders is None else feeders
    wanted = [dataset for dataset in datasets if dataset.at_boot]
    directory = unit_dir()
    command = own_command()
    names = {name for name in _units_in(directory) if only in (None, name)}
    name = None if only is None else dataset_of(only)
    records = all_boot_records(name)
    traces = recorded_units(name) | left_links(directory, only or unit_pattern())
    return BootFacts(
        unit_dir=directory,
        command=command,
        environment=own_environment(),
        program_writer=next(filter(None, map(_writer, own_programs())), None),
        installed=tuple(_installed(directory, name) for name in sorted(names)),
        records=records,
        footings=tuple(_footing(each, feeders.get(each.target)) for each in wanted),
        traces=tuple(sorted(traces - names)),
        systemd=systemd_runs(),
    )


def _units_in(directory: Path) -> set[str]:
    """Return the names of the services in a directory; none if it is not there or not for us."""
    try:
        return set(fnmatch.filter(os.listdir(directory), unit_pattern()))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return set()
    except OSError as error:
        raise HostprepError(
            f"the services in {directory} cannot be listed: {error.strerror}; nothing was changed.",
            reading_hint(error),
        ) from None


def _installed(directory: Path, unit: str) -> Installed:
    try:
        snapshot = read_snapshot(directory / unit)
    except HostprepError as error:
        problem = Refused(error.message, "`systemctl unmask` it, or move it away")
        return Installed(unit, None, problem=problem)
    writer = None
    if snapshot is not None:
        # In a unit directory of one's own, one's own files are as good as root's.
        uid = 0 if snapshot.uid == os.geteuid() else snapshot.uid
        acl = any(name == ACCESS_ACL for name, _ in snapshot.xattrs)
        writer = Folder(unit, uid, snapshot.gid, snapshot.mode, acl).others_can_write
    # systemd does not know units outside of the system's directory.
    asked = directory == SYSTEM_UNIT_DIR and systemd_runs()
    failed = asked and show_unit(unit, ("ActiveState",)).get("ActiveState") == "failed"
    return Installed(
        unit,
        snapshot,
        linked_from(directory, unit),
        writer=writer,
        failed=failed,
        astray=astray(directory / unit, dataset_of(unit)),
        hindrance=None if snapshot is None else hindrance(directory / unit),
    )


def _without_links(path: str, *, writes: bool = False) -> str:
    """Return a path without symlinks; unchanged if one is a stranger's, or cannot be checked.

    The data set's own plan reports that, and a service that was set up for such a path stages
    nothing, because it refuses one that leads elsewhere.
    """
    try:
        return real_path(path, writes=writes)
    except HostprepError:
        return path


def _footing(dataset: DatasetSpec, feeder: DatasetSpec | None) -> Footing:
    source = _without_links(dataset.source)
    parent = dataset.volume or _without_links(dataset.parent, writes=True)
    source_mount, remote = _ground(source, feeder)
    try:
        live = read_live(dataset.volume) if dataset.volume else None
    except HostprepError:  # the volume's own plan says why
        live = None
    mount = None if dataset.volume else mount_containing(parent, read_mounts())
    try:
        staged = load_record(dataset.name, f"{parent.rstrip('/')}/{dataset.name}")
    except HostprepError:  # the data set's own plan says why
        staged = None
    return Footing(
        name=dataset.name,
        source=source,
        parent=parent,
        source_mount=source_mount,
        remote=remote,
        target_mount=None if mount is None else mount.target,
        volume_size_bytes=None if live is None else live.size_bytes,
        digest=None if staged is None else staged.digest,
        in_memory=mount is not None and mount.fstype in IN_MEMORY,
        automounted=any(each == _SYSTEMD for each in _automounters(source)),
        fed=feeder is not None,
        feeders=(unit_name(feeder.name),) if feeder is not None and feeder.at_boot else (),
    )


def _ground(source: str, feeder: DatasetSpec | None) -> tuple[str | None, bool | None]:
    """Return the mount point of a source, and whether it is remote; None if it does not exist.

    Everything that an automounter's program mounts counts as remote, because that program starts
    after the network. A source in the copy of another data set, ``feeder``, is where that one is
    staged to, whether it is there yet or not.
    """
    if feeder is not None and feeder.volume is not None:
        return feeder.volume, False
    if feeder is not None and not os.path.lexists(source):
        source = standing_directory(followed(feeder.parent))
    try:
        storage = locate(source)
    except HostprepError:  # it is not there now
        return None, None
    automounted = any(each != _SYSTEMD for each in _automounters(source))
    return storage.mount.target, automounted or storage.storage_class in SERVED


def _automounters(source: str) -> list[str]:
    """Return the mount sources of the automounts on the way to a source."""
    return [
        mount.source
        for mount in read_mounts()
        if mount.fstype == "autofs" and lies_in(source, mount.target)
    ]


def _writer(program: str) -> str | None:
    """Say who besides root could exchange the program, by its given or its real path."""
    called, path = Path(os.path.abspath(program)), Path(followed(program))
    for each in dict.fromkeys((*reversed(called.parents), *reversed(path.parents), path)):
        try:
            status = each.stat()
        except OSError:
            return None
        acl = has_acl(str(each))
        folder = Folder(str(each), status.st_uid, status.st_gid, status.st_mode, acl)
        if who := folder.others_can_write:
            return f"{each} {who}"
    return None
