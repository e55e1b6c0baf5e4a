"""The phases of a probe, in order, within its budgets of time and of space."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from hostprep.host.block import PathStorage, StorageClass
from hostprep.host.block_device import Transport
from hostprep.host.block_health import Health, disks_with_health, read_health
from hostprep.host.block_link import PcieLink, nvme_link
from hostprep.host.memory import read_headroom
from hostprep.host.mounts import read_mounts
from hostprep.probing import small_files
from hostprep.probing.compression import kept_compressed
from hostprep.probing.counters import counted_disks
from hostprep.probing.dataset import Found, largest, measure_size, scan
from hostprep.probing.folder import OwnFolder, own_folder
from hostprep.probing.layout import (
    SMALLEST_BYTES,
    Layout,
    open_existing,
    reads_directly,
    write_file,
)
from hostprep.probing.model import (
    DEPTHS,
    LARGE_BYTES,
    SEQUENTIAL_BLOCK_BYTES,
    Measured,
    Settings,
    SmallFiles,
    Target,
    no_folder,
)
from hostprep.probing.observer import Observer
from hostprep.probing.others import PLAIN
from hostprep.probing.passes import LEAST_SECONDS, START_SECONDS, WANTED, Passes, Read
from hostprep.probing.read_limits import limits_of
from hostprep.probing.readers import refusal
from hostprep.probing.timing import Clock
from hostprep.system import page_cache
from hostprep.units import MIB, format_bytes, format_rate

_FREE_SHARE = 0.5
_MEMORY_SHARE = 0.25
MADE_SHARE = 0.25
# Shares of the time; what a phase leaves is not passed on, so that a fast disk is done early.
_SCAN, _MAKE, _EVICT, _ONE, _SEVERAL, _WARM, _LAYOUT, _SIZES, _FIO = (
    0.08, 0.07, 0.05, 0.12, 0.12, 0.015, 0.14, 0.03, 0.10,
)  # fmt: skip
_WARM_STEPS = 4  # each of which takes that long
# Starting fio, and reading with it for a moment, takes a fixed time: if there is little time in
# all, the phases before it get less. The rest is for what is in no phase, such as removing files.
_FIO_SECONDS = len(WANTED) * (START_SECONDS + LEAST_SECONDS)
_FIO_LEAST_SECONDS = _FIO_SECONDS / len(DEPTHS)  # without the passes that ask for many at a time
_FIXED_SECONDS = _FIO_SECONDS + 0.6
_ELASTIC = _ONE + _SEVERAL + _WARM_STEPS * _WARM + _LAYOUT
_LEAST_HEALTH_SECONDS, _MOST_HEALTH_SECONDS = 0.5, 5.0
_ASKED_FILES = 64  # of the data set: whether they are compressed, whether they can be read


class _Small(NamedTuple):
    """What reading small files gave, or why nothing; and why the data set's could not be read."""

    files: SmallFiles | None
    note: str | None = None
    dataset_note: str | None = None


class _Large(NamedTuple):
    """A file for fio; ``source`` is ``made`` or ``existing``, ``note`` says why none was made."""

    file: Layout | None
    source: str | None
    note: str | None


class Phases:
    """What the phases of one probe share."""

    def __init__(self, to: Target, settings: Settings, observer: Observer) -> None:
        self.storage = to.storage
        self.path = to.storage.path
        self.fio_version = to.fio_version
        # What makes the files cold also evicts programs from the cache: fio is loaded anew each
        # time, together with its engine.
        self.fio_seconds = 2 * to.fio_seconds
        self.settings = settings
        self.observer = observer
        self.clock = Clock(settings.seconds, to.fio_seconds, fixed=_FIXED_SECONDS, elastic=_ELASTIC)
        # Over a RAM disk there is still a page cache, and compressed data comes slowly there.
        self.in_memory = to.storage.storage_class is StorageClass.RAM and not to.storage.devices
        self.disks = counted_disks(to.storage)
        self.mount_points = [mount.target for mount in read_mounts()]
        self.link: PcieLink | None = None

    def run(self) -> Measured:
        """Go through the phases."""
        self.observer.phase("counting files", self.clock.part(_SCAN))
        found = self.count(self.clock.part(_SCAN))
        with ExitStack() as stack:
            folder, note = None, None
            try:
                folder = stack.enter_context(own_folder(Path(self.path)))
            except OSError as error:
                note = no_folder(error)
            small = self.measure_small(found, folder, note)
            large = self.find_large(found, folder, note)
            file = large.file
            if file is not None:
                stack.callback(os.close, file.fd)
            direct = file is not None and reads_directly(file.opened)
            file_share = self.stays_in_memory(file.opened) if file else None
            read = self.read_file(file, direct) if file else Read((), None, ())
        here = [file.path] if file is not None and large.source == "existing" else []
        here += found.sample[:_ASKED_FILES]
        # Checked only if disks count what they deliver: it matters only in comparison with that.
        compressed = bool(self.disks) and kept_compressed(
            self.storage.fstype, here, self.clock.part(_SIZES)
        )
        found = self.count_on(found)
        self.observer.phase("adding up sizes", self.clock.part(_SIZES))
        tells_holes = self.storage.fstype in PLAIN
        dataset = measure_size(found, self.clock.part(_SIZES), tells_holes=tells_holes)
        return Measured(
            storage=self.storage,
            settings=self.settings,
            fio_version=self.fio_version,
            direct=direct,
            file_source=large.source,
            file_bytes=file.size_bytes if file else 0,
            file_note=large.note,
            folder_note=None if folder is None else folder.note(),
            layout_holes=file is not None and file.holes,
            file_cached_share=file_share,
            fio=read.runs,
            fio_note=read.note,
            fio_fewer=read.fewer,
            small=small.files,
            small_note=small.note,
            dataset=dataset,
            dataset_note=small.dataset_note,
            compressed=compressed,
            memory_bytes=read_headroom().cache_bytes,
            link=self.link,
            health=_health_of(self.storage, self.clock),
            seconds=self.clock.passed(),
            read_limits=limits_of(self.storage),
        )

    def measure_small(self, found: Found, folder: OwnFolder | None, note: str | None) -> _Small:
        """Read the data set's small files or, if it has few that can be read, some that are made.

        ``note`` says why there is no ``folder`` to make some in.
        """
        has_data = found.files >= small_files.FEWEST_FILES
        small, dataset_note = None, None
        why = f"fewer than {small_files.FEWEST_FILES} files are here"
        if has_data:
            small = self.read_small(found.sample, "dataset")
            why = "the files here are too large to finish many of them"
            if not _too_few(small):
                return _Small(small)
            dataset_note = refusal(found.sample[:_ASKED_FILES], self.clock.part(_EVICT))
        shards = small is not None and small.mean_bytes >= LARGE_BYTES
        if folder is not None:
            made, made_note = self.make_and_read_small(folder)
            # Few of either: then the storage is slow, and not the files too large.
            if small is None or shards or not _too_few(made):
                return _Small(made, made_note, dataset_note)
            return _Small(small, None, dataset_note)
        if dataset_note:
            why = "the files here cannot be read"
        # For a few shards sequential reads say more.
        return _Small(None if shards else small, f"{why}, and {note}", dataset_note)

    def find_large(self, found: Found, folder: OwnFolder | None, note: str | None) -> _Large:
        """Return a file for fio, made here or existing."""
        if folder is not None:
            file, note = self.lay_out(folder)
            if file is not None:
                return _Large(file, "made", note)
        file = self.existing(found)
        if file is None:
            note = f"{note}, and no file of {SMALLEST_BYTES // MIB} MiB is here to be read"
            return _Large(None, None, note)
        return _Large(file, "existing", note)

    def count_on(self, found: Found) -> Found:
        """Count again with the time that is left, if it did not suffice at first."""
        left = self.clock.left(self.clock.part(_SIZES))
        if found.complete or left <= self.clock.part(_SCAN):
            return found
        self.observer.phase("counting files again", left)
        return self.count(left)

    def count(self, seconds: float) -> Found:
        """Count the files for at most ``seconds``, with progress: that may be all of the time."""
        return scan(
            self.path,
            seconds,
            mount_points=self.mount_points,
            tell=lambda files: self.observer.progress(f"{files:,} files"),
        )

    def make_and_read_small(self, folder: OwnFolder) -> tuple[SmallFiles | None, str | None]:
        """Make small files and read them; None with the reason if that is impossible."""
        seconds = self.clock.part(_MAKE, keep=self.for_large())
        self.observer.phase("making small files", seconds)
        # Removed at once: they may have used the last inodes, and the large file needs their room.
        with ExitStack() as stack:
            try:
                place = stack.enter_context(folder.inner("small"))
                allowed = room(self.storage, self.settings, MADE_SHARE)
                names = small_files.make_files(place, allowed, seconds)
            except OSError as error:
                return None, f"none could be made here ({error.strerror})"
            if len(names) < small_files.FEWEST_FILES:
                return None, "there is no room, or no time, to make some"
            return self.read_small(names, "made", place), None

    def read_small(
        self, names: Sequence[str], source: str, at: int | None = None
    ) -> SmallFiles | None:
        """Read small files, cold and warm; ``at`` is the open folder that has them."""
        warm = self.clock.part(_WARM, elastic=True)
        after = self.for_large() + _WARM_STEPS * warm
        budget = small_files.Budget(
            evict=self.clock.part(_EVICT, keep=after),
            one_reader=self.clock.part(_ONE, elastic=True, keep=after),
            several=self.clock.part(_SEVERAL, elastic=True, keep=after),
            warm=warm,
            arrived_by=self.clock.by(after),
        )
        about = budget.evict + budget.one_reader + budget.several + _WARM_STEPS * warm
        self.observer.phase("reading small files", about)
        return small_files.measure(
            names,
            source,
            self.settings.readers,
            budget,
            at=at,
            disks=self.disks,
            in_memory=self.in_memory,
            dropped=self.settings.drop_caches,
            tell=self.observer.progress,
        )

    def for_large(self) -> float:
        """Return the seconds reserved for the large file, and for what comes after it."""
        return self.clock.part(_LAYOUT, elastic=True) + _FIO_SECONDS + self.clock.part(_SIZES)

    def lay_out(self, folder: OwnFolder) -> tuple[Layout | None, str | None]:
        """Write the test file; None with the reason if that is impossible."""
        after = _FIO_LEAST_SECONDS + self.clock.part(_SIZES)
        seconds = self.clock.part(_LAYOUT, elastic=True, keep=after)
        allowed = room(self.storage, self.settings)
        if allowed < SMALLEST_BYTES:
            return None, f"only {format_bytes(allowed)} may be used here"
        self.observer.phase("writing a test file", seconds)
        begun = time.monotonic()
        try:
            path = folder.path / "data"
            file = write_file(
                path,
                allowed,
                seconds,
                lambda size_bytes: self.observer.progress(format_bytes(size_bytes)),
                at=folder.fd,
                at_most_seconds=self.clock.left(after),
            )
        except OSError as error:
            return None, f"a test file could not be written here ({error.strerror})"
        if file.size_bytes < SMALLEST_BYTES:
            took = time.monotonic() - begun
            os.close(file.fd)
            return None, f"only {format_bytes(file.size_bytes)} were written in {took:.1f} s"
        return file, None

    def stays_in_memory(self, path: str) -> float | None:
        """Return the share of an overlay's file that cannot be evicted from memory.

        If the layer that holds the file is a tmpfs, direct reads come from memory, too. If disks
        count what they deliver, and on a server, residency says nothing about direct reads.
        """
        if self.storage.storage_class is not StorageClass.OVERLAY:
            return None
        page_cache.evict(path)
        return page_cache.resident_share([path])

    def existing(self, found: Found) -> Layout | None:
        """Return the largest existing file, only to be read; None if all are small."""
        name = largest(found, self.clock.part(_SIZES), at_least_bytes=SMALLEST_BYTES)
        if name is None:
            return None
        try:
            return open_existing(name, SEQUENTIAL_BLOCK_BYTES)
        except OSError:
            return None

    def read_file(self, file: Layout, direct: bool) -> Read:
        """Let fio read, in large and small pieces, one and many at a time."""
        passes = Passes(
            file,
            direct=direct,
            left=lambda: self.clock.left(self.clock.part(_SIZES)),
            most_seconds=max(LEAST_SECONDS, self.settings.seconds * _FIO),
            disks=self.disks,
            loading_seconds=self.fio_seconds,
            observer=self.observer,
            tell=self.tell_rate,
        )
        return passes.read()

    def tell_rate(self, bytes_per_s: float) -> None:
        """Show the rate, and look at the link while it is in use."""
        self.observer.progress(format_rate(bytes_per_s) if bytes_per_s else "")
        for disk in self.storage.disks:
            link = nvme_link(disk.name) if disk.transport is Transport.NVME else None
            if link and (self.link is None or link.bytes_per_s > self.link.bytes_per_s):
                self.link = link


def _too_few(small: SmallFiles | None) -> bool:
    """Return whether too few files were read for a rate."""
    return small is None or small.best.files < small_files.FEWEST_FILES // 2


def room(storage: PathStorage, settings: Settings, share: float = 1) -> int:
    """Return a share of the bytes that may be used: of the budget, or of what is free."""
    free = os.statvfs(storage.path)
    allowed = settings.size_bytes
    if free.f_blocks:  # else the file system does not say: ramfs, some FUSE
        allowed = min(allowed, int(free.f_bavail * free.f_frsize * _FREE_SHARE))
    if storage.storage_class is StorageClass.RAM:
        allowed = min(allowed, int(read_headroom().available_bytes * _MEMORY_SHARE))
    return int(allowed * share)


def _health_of(storage: PathStorage, clock: Clock) -> tuple[tuple[str, Health], ...]:
    """Return the SMART data of the disks that let it be read, in the time that is left."""
    read = []
    for name in disks_with_health(storage.disks):
        seconds = min(_MOST_HEALTH_SECONDS, max(_LEAST_HEALTH_SECONDS, clock.left()))
        if (health := read_health(name, timeout_seconds=seconds)) is not None:
            read.append((name, health))
    return tuple(read)
