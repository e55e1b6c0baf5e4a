"""The ways out of a FAIL, the cheapest first."""

from __future__ import annotations

from hostprep.host.block import StorageClass
from hostprep.probing.judgement import Behaviour, Judged, Need, Remedy
from hostprep.probing.model import LARGE_BYTES, SMALL_FILES, Measured
from hostprep.probing.processors import others_had
from hostprep.probing.rates import PASS_SHARE
from hostprep.units import format_bytes, format_rate

_RAM_SHARE = 0.8


def remedies(
    measured: Measured, behaviour: Behaviour, need: Need, judged: Judged
) -> tuple[Remedy, ...]:
    """Return what would help, in order of cost: readers, packing, RAM, NVMe, money."""
    required = _required_bytes_per_s(measured, need, judged) * PASS_SHARE
    found: list[Remedy] = []
    if behaviour is Behaviour.LATENCY:
        why = "every request waits, and requests wait together: rates grow with the readers"
        found.append(Remedy("read with more workers", None, why))
    if judged.of == SMALL_FILES and measured.sequential is not None and not _are_shards(measured):
        gives = measured.sequential.bytes_per_s
        why = f"shards are read sequentially, at {format_rate(gives)} here"
        found.append(Remedy("pack the files into shards", gives >= required, why))
    if measured.storage.storage_class is not StorageClass.RAM:
        found.append(_to_memory(measured, required))
    if measured.storage.storage_class is not StorageClass.NVME:
        why = "run `hostprep probe` on such a drive to see what it gives"
        found.append(Remedy("stage to an NVMe drive (hostprep stage --to)", None, why))
    why = f"{format_rate(required)} is what it must deliver, in reads like these"
    found.append(Remedy("buy faster storage", None, why))
    return tuple(found)


def _are_shards(measured: Measured) -> bool:
    """Return whether the files are already so large that packing them would change nothing."""
    small = measured.small
    read_whole = small is not None and small.mean_bytes >= LARGE_BYTES
    return measured.dataset.large_files or read_whole


def _required_bytes_per_s(measured: Measured, need: Need, judged: Judged) -> float:
    """Return the requirement in bytes; samples count with the mean size of the files here."""
    if judged.unit == "bytes/s":
        return judged.required
    if measured.small is not None:
        return judged.required * measured.small.mean_bytes
    return need.bytes_per_s or 0.0


def _to_memory(measured: Measured, required: float) -> Remedy:
    action = "stage to RAM (hostprep stage --to-tmpfs)"
    room = measured.memory_bytes * _RAM_SHARE
    small, dataset = measured.small, measured.dataset
    if small is None or small.source != "dataset" or not dataset.complete:
        return Remedy(
            action,
            None,
            f"{format_bytes(room)} of memory are available; the data's size is not known",
        )
    size = dataset.size_bytes or small.mean_bytes * dataset.files
    if size > room:
        why = f"the data's {format_bytes(size)} exceed the {format_bytes(room)} that are available"
        return Remedy(action, False, why)
    if small.staged is None:
        return Remedy(action, None, f"the data's {format_bytes(size)} fit; the rate is unmeasured")
    why = f"the data's {format_bytes(size)} fit; measured {format_rate(small.staged.bytes_per_s)}"
    enough = small.staged.bytes_per_s >= required
    if not enough and (others := others_had(small.staged.load)):
        why += f", while other programs had {others:.0%} of the processors"
        return Remedy(action, None, why)
    return Remedy(action, enough, why)
