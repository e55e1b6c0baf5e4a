"""The data types of staging: entries of a tree, the request, and the result.

Names are ``str`` with undecodable bytes as surrogates (PEP 383), so every name that a file system
can hold survives. Paths inside a data set are relative to its root, with ``/`` between the parts;
the root itself is ``""``.
"""

from __future__ import annotations

import stat
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from hostprep.dataclass import dataclass
from hostprep.staging.kept_times import is_kept_time
from hostprep.units import PAGE_BYTES

if TYPE_CHECKING:
    from hostprep.staging.processor_time import ProcessorTime
    from hostprep.staging.reasons import Differing, Skipped
    from hostprep.volumes.model import LiveVolume

# Larger files are copied in ranges by several workers and hashed range by range. This is part of
# the definition of the digest (see hostprep.staging.record.digest): changing it changes digests.
RANGE_BYTES = 64 * 1024 * 1024
# The orders in which files may be read: as listed, by inode number, or by position on the disk.
ORDERS = ("listed", "inode", "physical")


class Verify(StrEnum):
    """How a copy is verified: read back from the target, hashed in flight, or not at all."""

    READBACK = "readback"
    INFLIGHT = "inflight"
    NONE = "none"


Inode = tuple[int, ...]


class Entry(NamedTuple):
    """One directory entry as ``lstat`` saw it: sizes in bytes, times in ns since the epoch.

    ``blocks`` counts the allocated 512-byte units; for the source, those that the data itself
    takes, however its file system stores it (``files.holes``). Between processes, entries travel as
    plain tuples in this order, which ``marshal`` can carry.
    """

    name: str
    mode: int
    size: int
    mtime_ns: int
    uid: int
    gid: int
    blocks: int
    nlink: int
    ino: int
    dev: int

    @property
    def inode(self) -> Inode:
        """What identifies a file behind all its names, to recognize hard links.

        The inode number alone is not enough: pools of disks (mergerfs) and other FUSE file systems
        give different files the same one, and they would all get the content of one of them.
        """
        of_file = self.nlink, self.size, self.mtime_ns, self.mode, self.uid, self.gid
        return self.dev, self.ino, *of_file

    @property
    def is_sparse(self) -> bool:
        """Whether fewer bytes are allocated than the size says."""
        return stat.S_ISREG(self.mode) and self.blocks * 512 < self.size

    @property
    def hole_bytes(self) -> int:
        """How many bytes of the size are holes."""
        return self.size - self.blocks * 512 if self.is_sparse else 0


def space_on_target(entry: Entry) -> int:
    """Return the bytes that an entry's content takes in memory: its data in whole pages."""
    if not stat.S_ISREG(entry.mode):
        return PAGE_BYTES if stat.S_ISLNK(entry.mode) and entry.size > 100 else 0
    size = min(entry.size, entry.blocks * 512) if entry.is_sparse else entry.size
    return -(-size // PAGE_BYTES) * PAGE_BYTES


class Recorded(NamedTuple):
    """One entry as the manifest keeps it.

    ``kind`` is ``f`` (file), ``l`` (symlink) or ``d`` (directory). ``content`` is a file's hash in
    hex (None with ``--verify none``), a symlink's target, and for a directory ``""`` or, in octal,
    the mode that the target turned ``mode`` into. ``group`` names the first path of a file's group
    of hard links, ``""`` for a file with a single name.
    """

    name: str
    kind: str
    size: int
    mtime_ns: int
    mode: int
    uid: int
    gid: int
    content: str | None
    group: str = ""

    def same_as(self, entry: Entry) -> bool:
        """Whether ``entry`` of the source is still what was recorded, as far as lstat shows."""
        return (
            self.kind == kind_of(entry.mode)
            and self.mtime_ns == entry.mtime_ns
            and (self.size == entry.size or self.kind == "d")
            and self.mode == stat.S_IMODE(entry.mode)
            and self.uid == entry.uid
            and self.gid == entry.gid
        )

    def present_as(self, entry: Entry) -> bool:
        """Whether ``entry`` of the target is what was put there, as far as lstat shows.

        Differences due to a file system's coarser or limited times do not count. For a directory
        only the kind counts, because work in it changes its time.
        """
        if self.kind == "d":
            return kind_of(entry.mode) == "d"
        if self.kind != kind_of(entry.mode) or (self.kind == "f" and self.size != entry.size):
            return False
        return is_kept_time(entry.mtime_ns, self.mtime_ns)


def kind_of(mode: int) -> str:
    """Return ``f``, ``l`` or ``d``, or ``?`` for what is never staged (sockets, fifos, devices)."""
    if stat.S_ISREG(mode):
        return "f"
    if stat.S_ISDIR(mode):
        return "d"
    return "l" if stat.S_ISLNK(mode) else "?"


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over a set of entries.

    ``space_bytes`` is what they take on the target, in whole pages; ``hole_bytes`` are those of
    ``bytes`` that are holes of sparse files.
    """

    files: int = 0
    bytes: int = 0
    space_bytes: int = 0
    entries: int = 0
    hole_bytes: int = 0

    @classmethod
    def of(cls, entry: Entry) -> Totals:
        """Return the totals of a single entry."""
        return cls(1, entry.size, space_on_target(entry), 1, entry.hole_bytes)

    @property
    def data_bytes(self) -> int:
        """What has to be read and written of ``bytes``: all but holes."""
        return self.bytes - self.hole_bytes

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.files + other.files,
            self.bytes + other.bytes,
            self.space_bytes + other.space_bytes,
            self.entries + other.entries,
            self.hole_bytes + other.hole_bytes,
        )


@dataclass(frozen=True, slots=True)
class StageRequest:
    """What ``hostprep stage`` was asked to do.

    ``volume_size_bytes`` is None when staging to an existing directory (``--to``);
    ``volume_of_ram``: it is a percentage of the RAM. If ``readers`` and ``order`` are None, they
    follow from the source's storage class.
    """

    source: str
    name: str
    parent: str
    volume_size_bytes: int | None
    verify: Verify = Verify.READBACK
    fstab: bool = False
    partial: bool = False
    full_check: bool = False
    reserve_bytes: int | None = None
    force: bool = False
    readers: int | None = None
    order: str | None = None
    gentle: bool = False
    volume_of_ram: bool = False

    @property
    def target(self) -> str:
        """The path of the data set."""
        return f"{self.parent.rstrip('/')}/{self.name}"


@dataclass(frozen=True, slots=True)
class StageResult:
    """What a ``stage`` run achieved; the fields that scripts rely on are in the contract.

    ``seconds`` is the whole run from the first look at the source on, without waiting for another
    run on the same target; ``phases`` are parts of it, and ``total`` is all of it.
    ``verify`` is how everything there is verified, at least; ``copied_verify`` is how this run
    verified its copies. ``lost_attributes`` counts entries whose ACL or ``user.*`` attributes the
    target could not hold, whose ACL is an NFS 4 one, or whose setgid bit root could not set.
    ``outward_links`` counts the symlinks of the data set, whenever they were copied, that lead out
    of it, to things that are not in it; ``outward_named`` are some of these.
    ``full_check``: all that was published before was read again, and ``differing`` is what that
    found. ``readers`` is how many files were read at once in the end, ``planned_readers`` in the
    beginning; None if nothing was copied. ``copied_hole_bytes`` are those of ``copied_bytes`` that
    are holes in the source's files. ``begins_anew`` is the option that keeps the next run from
    taking over what this one did not publish; None if it can.
    """

    dataset: str
    source: str
    target: str
    files: int
    bytes: int
    copied_files: int
    copied_bytes: int
    kept_files: int
    resumed_files: int
    deleted_files: int
    skipped: tuple[Skipped, ...]
    left: tuple[str, ...]
    digest: str | None
    verified: bool
    verify: Verify
    copied_verify: Verify
    published: bool
    changed: bool
    seconds: float
    phases: dict[str, float] = field(default_factory=dict)
    lost_attributes: int = 0
    outward_links: int = 0
    outward_named: tuple[str, ...] = ()
    processors: ProcessorTime | None = None
    readers: int | None = None
    planned_readers: int | None = None
    volume: LiveVolume | None = None
    full_check: bool = False
    differing: tuple[Differing, ...] = ()
    copied_hole_bytes: int = 0
    begins_anew: str | None = None

    @property
    def copied_data_bytes(self) -> int:
        """What was read and written of ``copied_bytes``: all but the holes of sparse files."""
        return self.copied_bytes - self.copied_hole_bytes
