"""How storage answered, and which class it belongs to by that. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hostprep.host.block import StorageClass
from hostprep.probing.judgement import Behaviour, Reason
from hostprep.probing.model import RANDOM_READS, FioRun, Measured
from hostprep.probing.rates import SPED_UP

# 7200 rpm and short strokes give some 200 reads a second; no hard disk gives 1,000.
_ARM_IOPS_AT_MOST = 250
FLASH_IOPS_AT_LEAST = 1000
# A hard disk gains two or three times from a queue (NCQ); a distant server nearly its depth.
_ARM_GAIN_AT_MOST = 5
_LATENCY_GAIN_AT_LEAST = 8
_LATENCY_GAIN_A_READER_AT_LEAST = 0.75
_ARM_SEQUENTIAL_AT_LEAST = 10
# Share of the time at depth 1 that the median read accounts for: most of it on a hard disk. If it
# is less, a few reads took nearly all of it, for instance because a limit lets some through at once
# and makes the others wait.
_EXPLAINED_AT_LEAST = 0.25
# These mean that something else than the storage answered, or not the same for many at a time.
_NOT_THE_STORAGE = frozenset({"holes", "in_memory", "not_delivered", SPED_UP})


class Classified(NamedTuple):
    """The class of a storage, whether kernel and measurement agree on it, and the reason."""

    storage_class: StorageClass
    agrees: bool
    reason: str


def what_it_is(measured: Measured, invalid: Sequence[Reason]) -> tuple[Behaviour, Classified]:
    """Return how the storage answered, and its class.

    If random reads are ``invalid`` because something else answered them, only the kernel tells.
    """
    behaviour = behave(measured)
    if behaviour is Behaviour.MEMORY or not _answered_by_another(invalid):
        return behaviour, _classify(measured, behaviour)
    storage = measured.storage
    return Behaviour.UNCLEAR, Classified(storage.storage_class, True, storage.reason)


def _answered_by_another(invalid: Sequence[Reason]) -> bool:
    """Return whether something other than the storage answered random reads."""
    return any(
        reason.code in _NOT_THE_STORAGE and reason.of in (None, RANDOM_READS) for reason in invalid
    )


def behave(measured: Measured) -> Behaviour:
    """Return how the storage answered single and queued random reads."""
    if measured.storage.storage_class is StorageClass.RAM:
        return Behaviour.MEMORY
    single, queued = measured.run("randread", 1), measured.run("randread", 32)
    if single is None or queued is None:
        return Behaviour.UNCLEAR
    if single.iops >= FLASH_IOPS_AT_LEAST:
        return Behaviour.FLASH
    gain = queued.iops / single.iops
    if gain >= _LATENCY_GAIN_AT_LEAST or _readers_gain(measured):
        return Behaviour.LATENCY
    sequential = measured.sequential
    if (
        single.iops < _ARM_IOPS_AT_MOST
        and not _held_up(single)
        and gain < _ARM_GAIN_AT_MOST
        and sequential is not None
        and sequential.bytes_per_s >= _ARM_SEQUENTIAL_AT_LEAST * single.bytes_per_s
    ):
        return Behaviour.ARM
    return Behaviour.UNCLEAR


def _held_up(single: FioRun) -> bool:
    """Return whether a few of the reads at depth 1 took nearly all of the time."""
    return single.latency is not None and single.iops * single.latency.p50 < _EXPLAINED_AT_LEAST


def _readers_gain(measured: Measured) -> bool:
    """Return whether readers of small files gained nearly their number, unlike on a hard disk.

    FUSE without asynchronous direct reads (libfuse 2, also 9p) sends one program's queue one
    request after the other, but the requests of several programs all at once.
    """
    if measured.small is None or len(measured.small.cold) < 2:
        return False
    one, several = measured.small.cold
    # By Little's law, and by the median, which a shard among the files does not shift.
    gain = several.readers * one.latency.p50 / several.latency.p50
    return gain > max(_ARM_GAIN_AT_MOST, _LATENCY_GAIN_A_READER_AT_LEAST * several.readers)


def _classify(measured: Measured, behaviour: Behaviour) -> Classified:
    storage = measured.storage
    word = storage.storage_class
    single = measured.run("randread", 1)
    if single is None:
        return Classified(word, True, storage.reason)
    shown = f"{single.iops:,.0f} random reads a second, one at a time"
    rotates = any(disk.rotational_says_kernel for disk in storage.disks)
    if behaviour is Behaviour.ARM and word is not StorageClass.ARM:
        said = f"{storage.reason}; measured: {shown}, as of a hard disk, or storage behind a limit"
        if word in (StorageClass.VIRTUAL, StorageClass.UNKNOWN) and storage.devices:
            return Classified(StorageClass.ARM, False, said)
        return Classified(word, word not in (StorageClass.NVME, StorageClass.SATA_FLASH), said)
    if behaviour is Behaviour.UNCLEAR and _held_up(single) and word is not StorageClass.ARM:
        assert single.latency is not None
        said = (
            f"{storage.reason}; measured: {shown}, though half of them took no longer than"
            f" {1000 * single.latency.p50:.2g} ms: a limit or other programs held up the rest, or"
            " a cache answered some"
        )
        return Classified(word, True, said)
    if behaviour is Behaviour.FLASH and rotates:
        said = f"{storage.reason}; measured: {shown}, which no rotating disk can do"
        return Classified(word, False, said)
    return Classified(word, True, storage.reason)
