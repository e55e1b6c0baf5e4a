"""The data types of sized tmpfs volumes: the request, the actual state, the steps."""

from __future__ import annotations

from enum import StrEnum

from hostprep.dataclass import dataclass

# The first column in /proc/mounts and fstab; lines of earlier versions have "tmpfs".
SOURCE = "hostprep"
VOLUME_SOURCES = (SOURCE, "tmpfs")
# What a tmpfs inode takes apart from the size limit; it is never swapped (shmem's BOGO_INODE_SIZE).
INODE_BYTES = 1024
# Every volume is mounted with these: it is for data, not for programs.
FLAGS = ("nosuid", "nodev", "noexec")


class Huge(StrEnum):
    """The tmpfs option ``huge=`` (kernel documentation, filesystems/tmpfs)."""

    NEVER = "never"
    WITHIN_SIZE = "within_size"
    ADVISE = "advise"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class VolumeRequest:
    """A volume as somebody wants it. None means: choose, or leave as it is.

    ``inodes`` is the minimum number of inodes; ``huge`` of None means ``within_size`` for a new
    volume if the kernel supports it. ``swap`` of False asks for ``noswap`` if the kernel supports
    it. ``allow_shrink`` of False keeps a larger volume as it is (staging grows volumes, never
    shrinks them). ``of_ram``: the size is a percentage of the RAM, and a volume that is nearly as
    large stays as it is. ``keep_line``: a mode, owner and huge pages that are not asked for stay in
    the line in fstab as they are; otherwise the line follows what is mounted.
    """

    path: str
    size_bytes: int
    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    inodes: int | None = None
    huge: Huge | None = None
    swap: bool = False
    fstab: bool = False
    allow_shrink: bool = True
    of_ram: bool = False
    keep_line: bool = False
    reserve_bytes: int | None = None
    force: bool = False


@dataclass(frozen=True, slots=True)
class LiveVolume:
    """A mounted tmpfs as the kernel reports it, in bytes and counts.

    ``inodes`` is None for a tmpfs without a limit (``nr_inodes=0``).
    """

    path: str
    size_bytes: int
    used_bytes: int
    inodes: int | None
    used_inodes: int
    mode: int
    uid: int
    gid: int
    huge: Huge
    noswap: bool
    nosuid: bool
    nodev: bool
    noexec: bool
    options: tuple[str, ...]

    @property
    def flags(self) -> tuple[str, ...]:
        """Which of ``FLAGS`` it has, and ``noswap``."""
        return tuple(flag for flag in (*FLAGS, "noswap") if getattr(self, flag))

    @property
    def promised_bytes(self) -> int:
        """How much memory it may still take, inodes included."""
        inodes = max(0, (self.inodes or 0) - self.used_inodes)
        return max(0, self.size_bytes - self.used_bytes) + inodes * INODE_BYTES


@dataclass(frozen=True, slots=True)
class RamBudget:
    """The calculation for a volume and the machine's memory, all in bytes.

    ``available_bytes`` is the smaller of MemAvailable and what the cgroups still allow;
    ``growth_bytes`` is what the volume may still take: its new size less what it already holds,
    plus about 1 KiB per inode, which the kernel does not count in ``size=``. ``promised_bytes`` is
    what hostprep's other volumes may still take, and what other runs have yet to write to memory
    outside of them. With ``limits_hidden`` a cgroup may allow less. ``unlimited`` are volumes
    without a size limit, which no sum here includes.
    """

    growth_bytes: int
    available_bytes: int
    reserve_bytes: int
    available_from: str
    promised_bytes: int = 0
    limits_hidden: bool = False
    unlimited: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether all volumes, completely full, leave the reserve untouched."""
        return self.missing_bytes == 0

    @property
    def missing_bytes(self) -> int:
        """How much the machine lacks for that, 0 if it fits."""
        needed = self.growth_bytes + self.promised_bytes + self.reserve_bytes
        return max(0, needed - self.available_bytes)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a plan: what it acts on, what it does, and why."""

    subject: str
    action: str
    reason: str


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Something that is left as it is, and why.

    If ``as_wanted`` is False, it is not as was asked for, and stays that way.
    """

    subject: str
    reason: str
    as_wanted: bool = True
