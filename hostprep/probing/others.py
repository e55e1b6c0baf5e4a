"""What other programs read and wrote on the disks during a measurement. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hostprep.dataclass import dataclass
from hostprep.probing.judgement import Reason
from hostprep.probing.model import RANDOM_READS, Load, Measured
from hostprep.probing.rates import DISK_BUSY
from hostprep.units import KIB, format_number, format_rate

# Share of the most that the disks were seen to do: others that take less hardly matter.
_TAKEN_AT_MOST = 0.25
# On these the reads of a process are those that the disks serve. Others read whole records,
# checksums or copies in kernel threads, which look like other programs.
PLAIN = frozenset({"ext2", "ext3", "ext4", "xfs"})
_PLAIN_DEVICES = frozenset({"disk", "part", "crypt", "lvm", "multipath", "raid"})
# Programs that are loaded from the disk itself are read in at least this much.
_LOADED_IN_BYTES = 16 * KIB
# On others nobody knows whose reads they are; but nothing reads a large file, or a small one with
# its metadata, this many times over. For single blocks that is possible.
_TIMES_AT_MOST, _BESIDE_A_FILE_BYTES = 4, 64 * KIB


@dataclass(frozen=True, slots=True)
class _Pass:
    """One pass: what it read, and what the disks did meanwhile."""

    what: str
    of: str
    own_bytes: int
    own_requests: float | None
    load: Load
    seconds: float
    files: int = 0

    @property
    def bytes_per_s(self) -> float:
        """What the disks read and wrote a second, for anybody."""
        return ((self.load.device_bytes or 0) + (self.load.written_bytes or 0)) / self.seconds

    @property
    def requests_per_s(self) -> float:
        """The requests that the disks served a second, for anybody."""
        return (self.load.requests or 0) / self.seconds

    @property
    def others_bytes_per_s(self) -> float:
        """The part that was not for this pass."""
        own = max(self.own_bytes, self.load.asked_bytes or 0)
        read = max(0, (self.load.device_bytes or 0) - own)
        return (read + (self.load.written_bytes or 0)) / self.seconds

    @property
    def others_requests_per_s(self) -> float:
        """How many of the requests were not for this pass; none if nobody can tell."""
        if self.own_requests is None:
            return 0.0
        return max(0.0, (self.load.requests or 0) - self.own_requests) / self.seconds


def held_up_by_others(measured: Measured) -> Iterator[Reason]:
    """Yield for each pass what others took of the disks, if it is much of what these can do.

    Only if that can be told: with disks that count, on a file system that reads on behalf of the
    requesting process, and without a loop device, whose file the kernel reads, or a cache. On other
    file systems only if the reads are many times ours.
    """
    storage = measured.storage
    plain = storage.fstype in PLAIN and {each.kind for each in storage.devices} <= _PLAIN_DEVICES
    passes = [*_passes(measured)]
    if not plain:
        passes = [_widely(each) for each in passes if each.of != RANDOM_READS]
    most_bytes = max((each.bytes_per_s for each in passes), default=0.0)
    most_requests = max(
        (each.requests_per_s for each in passes if each.own_requests is not None), default=0.0
    )
    for each in passes:
        if each.others_bytes_per_s > _TAKEN_AT_MOST * most_bytes:
            took = format_rate(each.others_bytes_per_s)
        elif each.others_requests_per_s > _TAKEN_AT_MOST * most_requests:
            took = f"{format_number(each.others_requests_per_s)} requests a second"
        else:
            continue
        text = f"other programs read or wrote {took} on the same disks during {each.what}"
        yield Reason(DISK_BUSY, f"{text}: the storage may give more", each.of)


def _widely(one: _Pass) -> _Pass:
    """Return the pass with all reads that may have been for it, counted in bytes."""
    own_bytes = _TIMES_AT_MOST * (one.own_bytes + one.files * _BESIDE_A_FILE_BYTES)
    return replace(one, own_bytes=own_bytes, load=replace(one.load, written_bytes=0))


def _passes(measured: Measured) -> Iterator[_Pass]:
    for run in measured.fio if measured.direct else ():
        load, random = run.load, run.pattern == "randread"
        if load.device_bytes is None or not load.seconds:
            continue
        own = None
        if random:
            # One of 4 KiB is one request to the disk; larger ones are split, nobody knows how.
            loaded = max(0, (load.asked_bytes or 0) - run.read_bytes)
            own = run.read_bytes / run.block_bytes + loaded / _LOADED_IN_BYTES
        yield _Pass(run.words, run.of, run.read_bytes, own, load, load.seconds)
    for small in measured.small.cold if measured.small is not None else ():
        load = small.load
        if load.device_bytes is None or not load.seconds:
            continue
        own = small.read_bytes + small.again_bytes
        files = round(small.files * own / small.read_bytes)
        yield _Pass(small.words, small.of, own, None, load, load.seconds, files)
