"""*arm*: a hard disk, modelled as latency: a file over FUSE, a loop device on it, ext4 on top.

The model is a 7200 rpm disk. A request that does not begin where the last one ended moves the arm:
1 to 16 ms by the square root of the distance over the disk's size, and half a turn of 8.33 ms until
the data passes. A gap ahead that would pass under the head in less than 2 ms is read over instead
and costs that time. 160 MB/s; one request at a time, in order; writes are free.

The loop device reads its file directly and FUSE caches nothing, so the only page cache is that of
the ext4 on top, which a ``remount`` makes cold. The device says that it rotates, as such a disk
does (a loop device would say that it does not).
"""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

from benchmarks.rigs.common import Counters
from tests.kit import loops, serving

BYTES_PER_SECOND = 160e6
SHORTEST_SEEK_SECONDS = 0.001
LONGEST_SEEK_SECONDS = 0.016
HALF_TURN_SECONDS = 0.00833 / 2
READ_OVER_SECONDS = 0.002
# Otherwise a kernel thread reads all block bitmaps after a mount, and moves the arm meanwhile. A
# disk in use was mounted long ago.
_OPTIONS = ("no_prefetch_block_bitmaps",)
# ext4 spreads directories by a hash with a random seed; the rig should always have the same layout.
_SEED = "6b1f2c9e-4a7d-4e53-9c1b-8f0d2a6e7b35"
_MKFS_OPTIONS = ("-U", _SEED, "-E", f"hash_seed={_SEED},lazy_itable_init=0,lazy_journal_init=0")


@dataclass(frozen=True, slots=True)
class ArmStats:
    """What the arm did since the last reset; all seconds are the model's."""

    requests: int
    bytes: int
    seeks: int
    seek_seconds: float
    transfer_seconds: float


COUNTER_NAMES = (*(field.name for field in fields(ArmStats)), "unmetered")


def seek_seconds(distance_bytes: int, size_bytes: int) -> float:
    """Return the time to move the arm and wait for the data, on a disk of ``size_bytes``."""
    part = math.sqrt(distance_bytes / size_bytes)
    longest = LONGEST_SEEK_SECONDS - SHORTEST_SEEK_SECONDS
    return SHORTEST_SEEK_SECONDS + longest * part + HALF_TURN_SECONDS


class ArmDisk:
    """A mounted disk with an arm."""

    def __init__(self, mount: Path, file: Path, size_bytes: int, counters: Counters) -> None:
        self.mount = mount
        self.file = file  # the whole disk as a file, metered like the device
        self.size_bytes = size_bytes
        self.device: Path | None = None
        self._counters = counters
        self._mounted = ExitStack()

    def stats(self) -> ArmStats:
        """Return the counters, even while requests are being served."""
        c = self._counters
        return ArmStats(
            requests=int(c["requests"]),
            bytes=int(c["bytes"]),
            seeks=int(c["seeks"]),
            seek_seconds=c["seek_seconds"],
            transfer_seconds=c["transfer_seconds"],
        )

    def reset(self) -> None:
        """Start counting anew; the arm stays where it is."""
        for field in fields(ArmStats):
            self._counters[field.name] = 0

    @contextmanager
    def unmetered(self) -> Iterator[None]:
        """Make reads free, uncounted and without moving the arm: to prepare what is on the disk."""
        self._counters["unmetered"] = 1
        try:
            yield
        finally:
            self._counters["unmetered"] = 0

    def remount(self) -> None:
        """Unmount, write everything back, and mount again with nothing cached; mounting is free."""
        with self.unmetered():
            self._mounted.close()
            device = self._mounted.enter_context(
                loops.loop_mount(self.file, self.mount, "ext4", _OPTIONS, direct_io=True)
            )
        queue = Path("/sys/block", device.name, "queue")
        (queue / "rotational").write_text("1")
        (queue / "read_ahead_kb").write_text("128")
        self.device = device

    def close(self) -> None:
        """Unmount; the file stays."""
        with self.unmetered():
            self._mounted.close()


@contextmanager
def arm_disk(size_bytes: int, where: Path) -> Iterator[ArmDisk]:
    """Make such a disk, with an empty ext4 on it, in a sparse file of ``size_bytes`` in ``where``.

    Its mount point is below ``where``, too. Reads of the file behind it are hidden in the model's
    time, so ``where`` should be fast: a tmpfs, if the data fits. Raises ``Unavailable``.
    """
    with tempfile.TemporaryDirectory(prefix="arm-", dir=where) as name, ExitStack() as cleanup:
        home = Path(name)
        home.chmod(0o755)
        served, mount = home / "served", home / "mount"
        served.mkdir()
        mount.mkdir(mode=0o755)
        loops.make_filesystem(home / "backing", "ext4", size_bytes, _MKFS_OPTIONS)
        counters = Counters(home / "counters", COUNTER_NAMES, create=True)
        config = {"backing": str(home / "backing"), "counters": str(home / "counters")}
        cleanup.enter_context(
            serving.served("benchmarks.rigs.arm_server", config, served, on_top=(mount,))
        )
        disk = ArmDisk(mount, served / "disk", size_bytes, counters)
        cleanup.callback(disk.close)
        disk.remount()
        yield disk


def write_scattered(
    disk: ArmDisk, files: int, mean_bytes: int, folders: int, seed: int = 0
) -> tuple[int, Path]:
    """Write a data set whose order on the disk differs from that of its directories; leave it cold.

    It has ``files`` files in ``folders`` folders, with log-normal sizes around ``mean_bytes``.
    Returns the bytes written and their directory. The same seed gives the same names and contents.
    """
    dice = random.Random(seed)
    root = disk.mount / "data"
    sigma = 0.3
    noise = dice.randbytes(8 << 20)
    names = [(n % folders, f"{dice.getrandbits(64):016x}.jpg") for n in range(files)]
    dice.shuffle(names)
    total_bytes = 0
    with disk.unmetered():
        for folder in range(folders):
            (root / f"{folder:04}").mkdir(parents=True)
        for folder, name in names:
            drawn = dice.lognormvariate(math.log(mean_bytes) - sigma**2 / 2, sigma)
            size_bytes = min(max(int(drawn), 16), len(noise) // 2)
            start = dice.randrange(len(noise) - size_bytes)
            (root / f"{folder:04}" / name).write_bytes(noise[start : start + size_bytes])
            total_bytes += size_bytes
    disk.remount()
    disk.reset()
    return total_bytes, root
