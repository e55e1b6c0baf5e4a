"""What a probe is asked for and what it measures; frozen, and free of side effects."""

from __future__ import annotations

import errno

from hostprep.dataclass import dataclass
from hostprep.host.block import PathStorage
from hostprep.host.block_health import Health
from hostprep.host.block_link import PcieLink
from hostprep.host.cgroups import ReadLimit
from hostprep.units import GIB, MIB

SEQUENTIAL_BLOCK_BYTES = MIB
RANDOM_BLOCK_BYTES = 4096
DEPTHS = (1, 32)
ENGINE = "libaio"
# From this size on, opening a file costs nothing compared with reading it.
LARGE_BYTES = 16 * MIB
# Why no files could be made: elsewhere on the storage they can, or wherever there is room.
NOT_WRITABLE = "nothing can be written here"
_NO_ROOM = "there is no room to write here"
# Storage slower than this is assumed to hang: what is under way has to arrive in time.
SLOWEST_BYTES_PER_S = 1_000_000
# The rates that a requirement, or a doubt, may be about.
SMALL_FILES = "small files"
SEQUENTIAL_READS = "sequential reads"
RANDOM_READS = "random reads"


@dataclass(frozen=True, slots=True)
class Target:
    """A path that answers, and what is known of it before anything is measured.

    ``fio_seconds`` is what it took to find that out, and to start fio, which may come from a slow
    disk. It counts as part of the probe's time.
    """

    storage: PathStorage
    fio_version: str
    fio_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What a probe may use: its budgets of time and of space, and its readers.

    ``drop_caches`` first empties the caches of the whole machine, which only root can do.
    """

    seconds: float = 30
    size_bytes: int = GIB
    readers: int = 8
    drop_caches: bool = False


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of the time that one request, or one whole file, took, in seconds."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Load:
    """What the machine did meanwhile; None means that it cannot be seen.

    ``cpu_busy`` is the busy share of its processors (0 to 1), ``device_bytes`` what its disks
    really delivered, and ``throttled`` the share of periods in which a cgroup's processor quota
    held us up (0 to 1). ``written_bytes`` went to the disks, and these served ``requests`` of reads
    (``read_requests``) and writes, in the ``seconds`` that were counted. ``asked_bytes`` is what
    our own processes, as far as they have ended, requested from storage, including the kernel's
    read-ahead for them and inodes. ``cpu_own`` is their part of ``cpu_busy``.
    """

    cpu_busy: float | None
    device_bytes: int | None
    throttled: float | None = None
    written_bytes: int | None = None
    requests: int | None = None
    asked_bytes: int | None = None
    seconds: float | None = None
    cpu_own: float | None = None
    read_requests: int | None = None


@dataclass(frozen=True, slots=True)
class FioRun:
    """One pass of fio: ``pattern`` is read or randread, ``late_bytes_per_s`` is of its 2nd half."""

    pattern: str
    block_bytes: int
    depth: int
    read_bytes: int
    seconds: float
    bytes_per_s: float
    iops: float
    latency: Latency | None
    load: Load
    late_bytes_per_s: float | None = None

    @property
    def words(self) -> str:
        """Return the name of the pass."""
        return f"fio ({self.pattern}, depth {self.depth})"

    @property
    def of(self) -> str:
        """Return the rate that the pass is about."""
        return SEQUENTIAL_READS if self.pattern == "read" else RANDOM_READS


@dataclass(frozen=True, slots=True)
class Fewer:
    """A pass with fewer reads at a time than were wanted, or none, because time would not suffice.

    ``of`` is the rate that it is about, ``used`` how many there were in the end, None if the pass
    was left out, ``message`` a sentence without its end.
    """

    of: str
    wanted: int
    used: int | None
    message: str


@dataclass(frozen=True, slots=True)
class SmallRun:
    """One pass over whole files: opened, read to the end and closed, in shuffled order.

    ``read_bytes`` include those of large files that were only begun, ``again_bytes`` were read once
    more, to see whether the rate lasts. ``early_files_per_s`` is the rate of the first files if
    later ones came more slowly; then the rates and the latency are those of the later ones.
    ``line`` are the seconds per file and per byte of single files, of up to ``largest_bytes``.
    """

    readers: int
    files: int
    read_bytes: int
    seconds: float
    files_per_s: float
    bytes_per_s: float
    latency: Latency
    load: Load
    again_bytes: int = 0
    early_files_per_s: float | None = None
    line: tuple[float, float] | None = None
    largest_bytes: int | None = None

    @property
    def words(self) -> str:
        """Return the name of the pass."""
        return f"small files ({self.readers} at a time)"

    @property
    def of(self) -> str:
        """Return the rate that the pass is about."""
        return SMALL_FILES


@dataclass(frozen=True, slots=True)
class SmallFiles:
    """Whole files, cold by one and by several readers, cached, and staged in memory.

    ``source`` is dataset or made. ``cached_share`` is the share of their pages that was in memory
    when the cold passes began, ``metadata_cold`` whether their inodes may have been read from the
    device; None means that it cannot be seen. ``seconds_per_file`` and ``seconds_per_byte`` are the
    line through the times of single files of the cold pass by one reader. ``unreadable`` and
    ``empty`` files are in none of the figures; ``fault`` is the error of failing storage for one of
    them. ``fewer`` is about the pass by several readers. ``stays_in_memory`` says whether files
    that were just read were found in the page cache; None if nobody looked.
    """

    source: str
    cold: tuple[SmallRun, ...]
    cached: SmallRun | None
    staged: SmallRun | None
    cached_share: float | None
    metadata_cold: bool
    mean_bytes: float
    seconds_per_file: float
    seconds_per_byte: float
    unreadable: int
    empty: int
    fewer: Fewer | None = None
    stays_in_memory: bool | None = None
    fault: str | None = None

    @property
    def best(self) -> SmallRun:
        """Return the faster of the cold passes."""
        return max(self.cold, key=lambda run: run.files_per_s)


@dataclass(frozen=True, slots=True)
class DataSet:
    """The files under the path; ``complete`` if all were counted within the time limit.

    ``size_bytes`` is None if not all sizes were read; then the mean of those read is used.
    ``hole_bytes`` of it are holes, as far as the file system tells. Symbolic ``links`` were not
    followed; folders in which something else is mounted (``mounts``), and those that could not be
    listed (``closed``), were not looked into.
    """

    files: int
    complete: bool
    size_bytes: int | None
    links: int = 0
    mounts: int = 0
    closed: int = 0
    hole_bytes: int = 0

    @property
    def hole_share(self) -> float:
        """Return the share of its bytes that are holes."""
        return self.hole_bytes / self.size_bytes if self.size_bytes else 0.0

    @property
    def large_files(self) -> bool:
        """Return whether its files are known to be far larger than any small file: shards."""
        if not self.files or self.size_bytes is None:
            return False
        return self.size_bytes / self.files >= LARGE_BYTES


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything that was read and measured; pure code draws the verdict from it.

    ``file_source`` is made, or existing if no test file could be made; ``file_note`` says why.
    ``folder_note`` says that the folder with the test files could not be removed, or that somebody
    moved it; None if neither happened. ``file_cached_share`` is the share of the file that stayed
    in memory, None if nobody looked. ``fio_note`` says that a pass did not end, None if all did;
    ``fio_fewer`` which passes were made in part or not at all. ``dataset_note`` says why the data
    set itself could not be read, None if it could. ``compressed``: some of the files that were here
    before are stored compressed, or may be. ``read_limits`` are those of cgroups on the devices of
    the path.
    """

    storage: PathStorage
    settings: Settings
    fio_version: str
    direct: bool
    file_source: str | None
    file_bytes: int
    file_note: str | None
    folder_note: str | None
    layout_holes: bool
    file_cached_share: float | None
    fio: tuple[FioRun, ...]
    fio_note: str | None
    small: SmallFiles | None
    small_note: str | None
    dataset: DataSet
    dataset_note: str | None
    compressed: bool
    memory_bytes: int
    link: PcieLink | None
    health: tuple[tuple[str, Health], ...]
    seconds: float
    fio_fewer: tuple[Fewer, ...] = ()
    read_limits: tuple[ReadLimit, ...] = ()

    @property
    def fewer(self) -> tuple[Fewer, ...]:
        """Return all passes that were made in part or not at all."""
        small = self.small.fewer if self.small is not None else None
        return self.fio_fewer if small is None else (*self.fio_fewer, small)

    def run(self, pattern: str, depth: int) -> FioRun | None:
        """Return fio's pass of this kind, None if it was not made."""
        for run in self.fio:
            if (run.pattern, run.depth) == (pattern, depth):
                return run
        return None

    @property
    def sequential(self) -> FioRun | None:
        """Return the faster sequential pass."""
        runs = [run for run in self.fio if run.pattern == "read"]
        return max(runs, key=lambda run: run.bytes_per_s, default=None)

    @property
    def random(self) -> FioRun | None:
        """Return the faster random pass."""
        runs = [run for run in self.fio if run.pattern == "randread"]
        return max(runs, key=lambda run: run.iops, default=None)


def no_folder(error: OSError) -> str:
    """Return why nothing is written below the path, by the error of making a folder there."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return f"{_NO_ROOM if full else NOT_WRITABLE} ({error.strerror})"
