"""The passes over small files: which files, first evicted, then read cold, cached and staged."""

from __future__ import annotations

import errno
import math
import os
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.host.memory import read_headroom
from hostprep.host.mounts import mount_containing, read_mounts
from hostprep.probing.counters import Meter
from hostprep.probing.evicting import evict, in_time, share_in_memory
from hostprep.probing.folder import own_folder
from hostprep.probing.model import SMALL_FILES, Fewer, SmallFiles, SmallRun
from hostprep.probing.pass_rates import Pass, line_through, percentiles
from hostprep.probing.readers import BUFFER_BYTES, read_whole_files
from hostprep.probing.timing import CAUTION, only
from hostprep.system import page_cache
from hostprep.system.descriptors import closing_fd
from hostprep.system.trees import NEW_FILE_FLAGS
from hostprep.units import KIB, MIB, format_number, format_seconds

# Half of them are for each of two passes, and a rate needs 20.
FEWEST_FILES = 40
MADE_FILES = 3000
# Like ImageNet's training images: log-normal, median 98 kB, mean 111 kB.
_MADE_MEDIAN_BYTES = 98_000
_MADE_SIGMA = 0.5
_IN_MEMORY = 0.02
_WARM_BYTES = 256 * MIB
STAGED_BYTES = 64 * MIB
_WARM_READS = 50_000
_LEAST_SECONDS = 0.2  # for each pass
# A cold pass lasts this long, or this share of its time if little time is left for others: then the
# burst that a limit lets through at once is over.
_STEADY_SECONDS, _STEADY_SHARE = 1.5, 0.5
MEMORY_FOLDER = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Budget:
    """Seconds for evicting files from memory, and for each of the passes.

    ``arrived_by`` is when all that several readers have requested should have arrived, by the
    monotonic clock.
    """

    evict: float
    one_reader: float
    several: float
    warm: float
    arrived_by: float = math.inf


def make_files(at: int, size_bytes: int, seconds: float) -> tuple[str, ...]:
    """Make up to 3,000 files with the sizes of photographs, within both budgets; shuffled names.

    ``at`` is a descriptor of their folder. Raises OSError if the file system refuses; but if it is
    full, of inodes for example, those that it took suffice, if there are enough.
    """
    chance = random.Random(1)
    deadline = time.monotonic() + seconds
    pool = os.urandom(2 * MIB)
    names: list[str] = []
    used = 0
    while len(names) < MADE_FILES and time.monotonic() < deadline:
        size = int(_MADE_MEDIAN_BYTES * math.exp(chance.gauss(0, _MADE_SIGMA)))
        size = min(max(size, 4 * KIB), MIB)
        if used + size > size_bytes:
            break
        start = chance.randrange(MIB)
        name = f"{len(names):05d}"
        try:
            with closing_fd(os.open(name, NEW_FILE_FLAGS, 0o600, dir_fd=at)) as fd:
                os.write(fd, pool[start : start + size])
                if len(names) % 64 == 0:
                    os.fdatasync(fd)  # so that on a slow disk no time is owed at the end
                # Starts writing it out, so that evicting it later need not wait.
                with suppress(OSError):
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or len(names) < FEWEST_FILES:
                raise
            break
        names.append(name)
        used += size
    chance.shuffle(names)
    return tuple(names)


def measure(
    names: Sequence[str],
    source: str,
    readers: int,
    budget: Budget,
    *,
    at: int | None = None,
    disks: Sequence[str],
    in_memory: bool,
    dropped: bool,
    tell: Callable[[str], None] = lambda _: None,
) -> SmallFiles | None:
    """Read files in the order of ``names``, cold and warm; None if none could be finished.

    ``at`` is a descriptor of the folder that the names are relative to; without it they are paths.
    ``in_memory``: the file system is memory itself, and nothing there can be cold. ``dropped``: the
    caches of the machine were just emptied.
    """
    half = len(names) // 2
    alone, together = list(names[:half]), list(names[half:])
    metadata_cold = not in_memory
    share = None if in_memory else share_in_memory(alone, at, budget.evict)
    if not in_memory and (share is None or share > _IN_MEMORY or source == "made"):
        # Then only files that were evicted may be read. Evicting reads every inode; so files that
        # are not in memory at all are left alone, and their inodes stay cold too.
        metadata_cold = dropped and source != "made"
        alone, together = evict(alone, together, at, budget.evict, on_disks=bool(disks))
        share = share_in_memory(alone, at, budget.evict)

    steady = 0.0 if in_memory else _STEADY_SECONDS
    first = _run(alone, at, 1, budget.one_reader, disks, tell, steady)
    if first is None:
        return None
    runs, passes = [first[0]], [first[1]]
    several, seconds, fewer = _several(readers, runs[0], budget)
    if several > 1 and (second := _run(together, at, several, seconds, disks, tell, steady)):
        runs.append(second[0])
        passes.append(second[1])
    read = [name for each in passes for name in each.names]
    cached, stays = _cached(read, at, readers, budget.warm, tell)
    if in_memory and cached:
        runs[-1] = cached  # the same, measured for longer than a moment
    sizes = [size for each in passes for size in each.sizes]
    staged = _staged(sizes, readers, budget.warm, tell)
    one = passes[0]
    per_file, per_byte = line_through(one.sizes, one.seconds)
    return SmallFiles(
        source=source,
        cold=tuple(runs),
        cached=cached,
        staged=staged,
        cached_share=share,
        metadata_cold=metadata_cold,
        mean_bytes=sum(one.sizes) / len(one.sizes),
        seconds_per_file=per_file,
        seconds_per_byte=per_byte,
        unreadable=sum(each.unreadable for each in passes),
        empty=sum(each.empty for each in passes),
        fewer=fewer,
        stays_in_memory=stays,
        fault=next(filter(None, (each.fault for each in passes)), None),
    )


def _several(readers: int, one: SmallRun, budget: Budget) -> tuple[int, float, Fewer | None]:
    """Return how many are to read at a time, for how long, and a note if they are fewer.

    At the end each of them waits for what it has requested. If storage answers only a few requests
    a second, however many ask, each also waits for the requests of all others.
    """
    left = budget.arrived_by - time.monotonic()
    in_flight = min(one.read_bytes / one.files, BUFFER_BYTES)
    each = CAUTION * in_flight / one.bytes_per_s
    least = min(budget.several, _LEAST_SECONDS)
    several = int(min(readers, max(0.0, left - least) / each))
    if several >= readers:
        return readers, min(budget.several, max(least, left - readers * each)), None
    what = f"by {several} readers at a time"
    if several < 2:
        several, what = 1, "by one reader at a time"
    message = (
        f"small files were only read {what}: with {readers}, each would wait"
        f" {format_seconds(readers * each)} for its last file, going by the"
        f" {format_number(one.files_per_s)} files/s of one alone, and {only(left)}"
    )
    fewer = Fewer(SMALL_FILES, readers, several if several > 1 else None, message)
    return several, min(budget.several, max(least, left - several * each)), fewer


def _cached(
    names: Sequence[str],
    at: int | None,
    readers: int,
    seconds: float,
    tell: Callable[[str], None],
) -> tuple[SmallRun | None, bool | None]:
    """Read files again that were just read; return the rates, and whether they stay in memory.

    None for either if it was not seen.
    """
    warm = _fitting(names, at, min(_WARM_BYTES, read_headroom().cache_bytes // 4))
    if not warm:
        return None, None
    read_whole_files(warm, readers, seconds, at=at)
    # The kernel may have evicted pages again: for large pages, or by a cgroup's limit. And FUSE
    # drops those of a file that is opened again, unless its server wants them kept.
    warm = [
        name
        for name in in_time(warm, seconds)
        if page_cache.resident_share([name], at=at) in (None, 1)
    ]
    result = _run(_again(warm), at, readers, seconds, (), tell)
    return result[0] if result else None, bool(warm)


def _run(
    names: Sequence[str],
    at: int | None,
    readers: int,
    seconds: float,
    disks: Sequence[str],
    tell: Callable[[str], None],
    steady_seconds: float = 0.0,
) -> tuple[SmallRun, Pass] | None:
    """Read ``names``, for so long at least, and sum up; None if no file was finished."""
    if not names:
        return None
    meter = Meter(disks)
    readers = min(readers, len(names))
    done = read_whole_files(
        names,
        readers,
        seconds,
        lambda: tell(f"{readers} at a time"),
        at=at,
        at_least_seconds=min(_STEADY_SHARE * seconds, steady_seconds),
    )
    load = meter.load()
    if not done.names or done.wall_seconds <= 0:
        return None
    tell(f"{readers} at a time: {done.files_per_s:,.0f} files/s")
    run = SmallRun(
        readers=readers,
        files=len(done.names),
        read_bytes=sum(done.sizes) + done.cut_bytes,
        seconds=done.wall_seconds,
        files_per_s=done.files_per_s,
        bytes_per_s=done.bytes_per_s,
        latency=percentiles(done.later_seconds or done.seconds),
        load=load,
        again_bytes=done.again_bytes,
        early_files_per_s=done.early_files_per_s,
        line=line_through(done.sizes, done.seconds),
        largest_bytes=max(done.sizes),
    )
    return run, done


def _fitting(names: Sequence[str], at: int | None, size_bytes: int) -> list[str]:
    """Return as many of the first names as fit into ``size_bytes``."""
    fitting: list[str] = []
    used = 0
    for name in names:
        try:
            used += os.stat(name, dir_fd=at).st_size
        except OSError:
            continue
        if used > size_bytes:
            break
        fitting.append(name)
    return fitting


def _again(names: list[str]) -> list[str]:
    """Return the names repeated: memory is so fast that one pass over them is over at once."""
    return names * max(1, _WARM_READS // len(names)) if names else names


def _staged(
    sizes: Sequence[int], readers: int, seconds: float, tell: Callable[[str], None]
) -> SmallRun | None:
    """Read files of these sizes from memory, None if there is no folder in memory.

    They are made, because their content does not matter there, and reading the data set's again may
    take long.
    """
    mount = mount_containing(str(MEMORY_FOLDER), read_mounts())
    if mount is None or mount.fstype != "tmpfs":
        return None
    try:
        room = os.statvfs(MEMORY_FOLDER)
        allowed = min(
            STAGED_BYTES,
            room.f_bavail * room.f_frsize // 4,
            read_headroom().available_bytes // 8,
        )
        with own_folder(MEMORY_FOLDER) as folder:
            made = []
            deadline = time.monotonic() + seconds
            for number, size in enumerate(sizes):
                allowed -= size
                if allowed < 0 or time.monotonic() > deadline:
                    break
                made.append(f"{number:05d}")
                _fill(made[-1], size, folder.fd)
            result = _run(_again(made), folder.fd, readers, seconds, (), tell)
    except OSError:
        return None  # no room or no permission there: the cached pass is the next best
    return result[0] if result else None


def _fill(name: str, size_bytes: int, at: int) -> None:
    with open(os.open(name, NEW_FILE_FLAGS, 0o600, dir_fd=at), "wb") as target:
        for start in range(0, size_bytes, MIB):
            target.write(bytes(min(MIB, size_bytes - start)))
