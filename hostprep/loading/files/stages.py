"""What a file takes on its way into a batch, stage by stage, on one core."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from hostprep.errors import HostprepError
from hostprep.host.block import locate
from hostprep.loading.files.model import Stage, Stages
from hostprep.loading.files.samples import FileSamples, collate_arrays, read_whole
from hostprep.loading.naming import OwnLoaderWanted
from hostprep.loading.rounds import relative_standard_error
from hostprep.system import page_cache

# After this many that cannot be read, and none that can, going on is pointless.
_ENOUGH_UNREADABLE = 16


class _Watch:
    """Times one stage, once a sample."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.runs = 0
        self.seconds = 0.0
        self.cpu_seconds = 0.0

    def run(self, work: Callable[[Any], Any], on: Any) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        result = work(on)
        self.runs += 1
        self.seconds += time.perf_counter() - wall
        self.cpu_seconds += time.process_time() - cpu
        return result

    def stage(self, samples: int) -> Stage:
        return Stage(self.name, self.seconds / samples, self.cpu_seconds / samples)


class _Collating:
    """Times making batches of samples: whole ones or, if none was completed, the incomplete one."""

    def __init__(self, batch_size: int) -> None:
        self._watch = _Watch("collate")
        self._batch_size = batch_size
        self._batch: list[Any] = []
        self._samples = 0

    def add(self, sample: Any) -> None:
        self._batch.append(sample)
        if len(self._batch) == self._batch_size:
            self._collate()

    def stage(self) -> Stage:
        if not self._samples:
            self._collate()
        return self._watch.stage(self._samples)

    def _collate(self) -> None:
        self._watch.run(collate_arrays, self._batch)
        self._samples += len(self._batch)
        self._batch = []


def time_stages(samples: FileSamples, batch_size: int, seconds: float) -> Stages:
    """Time reading (cold, warm, and as it is), decoding, resizing and collating of some files.

    Takes files from the first on, for about ``seconds``, at least one. To be read cold, files are
    evicted from the page cache one by one, and nobody else's files; if one was only just written,
    it is flushed for that. Raises ``OwnLoaderWanted`` if none is readable.
    """
    begin = time.perf_counter()
    watches = {
        name: _Watch(name) for name in ("read_as_is", "read_cold", "read_warm", "decode", "resize")
    }
    collating = _Collating(batch_size)
    unreadable = read_bytes = done = 0
    each: list[float] = []  # what each sample took, in the stages that make up the model
    problem = ""
    for number in range(len(samples) // 2 + 1):
        tried = done or unreadable >= _ENOUGH_UNREADABLE
        if tried and time.perf_counter() - begin > seconds:
            break
        name = samples.names[(2 * number) % len(samples)]
        other = samples.names[(2 * number + 1) % len(samples)]
        at = other
        try:
            before = _seconds(watches)
            watches["read_as_is"].run(read_whole, other)
            at = name
            page_cache.evict(name)
            data = watches["read_cold"].run(read_whole, name)
            data = watches["read_warm"].run(read_whole, name)
            image = watches["decode"].run(samples.unpack, data)
            ready = watches["resize"].run(samples.finish, image)
            each.append(_seconds(watches) - before)
        except (OSError, ValueError) as error:
            unreadable += 1
            # The kernel's message comes with the file's name, which is there already.
            problem = f"{at}: {getattr(error, 'strerror', None) or error}"
            continue
        done += 1
        read_bytes += len(data)
        collating.add(ready)
    if not done:
        raise OwnLoaderWanted(
            f"no file could be read and decoded; the last was {problem}.",
            "if your own code can read such files, measure it with --loader",
        )
    storage, reason = _storage(samples.names[0])
    return Stages(
        kind=samples.kind,
        decoder=samples.decoder,
        samples=done,
        unreadable=unreadable,
        problem=problem,
        mean_file_bytes=round(read_bytes / done),
        sample_bytes=_size_bytes(ready),
        stages=(
            *(watch.stage(max(1, watch.runs)) for watch in watches.values()),
            collating.stage(),
        ),
        storage=storage,
        storage_reason=reason,
        relative_error=relative_standard_error(each),
    )


def _seconds(watches: dict[str, _Watch]) -> float:
    return sum(watches[name].seconds for name in ("read_as_is", "decode", "resize"))


def _size_bytes(sample: Any) -> int:
    return len(sample) if isinstance(sample, bytes) else int(sample.nbytes)


def _storage(name: str) -> tuple[str, str]:
    try:
        found = locate(name)
    except HostprepError as error:
        return "unknown", error.message
    return str(found.storage_class), found.reason
