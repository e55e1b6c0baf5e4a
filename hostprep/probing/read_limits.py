"""Passes that a cgroup's read limit held back: the storage gives at least this rate."""

from __future__ import annotations

from collections.abc import Iterator

from hostprep.host.block import PathStorage
from hostprep.host.cgroups import ReadLimit, read_read_limits
from hostprep.probing.judgement import Reason
from hostprep.probing.model import FioRun, Measured, SmallRun
from hostprep.probing.rates import READ_LIMITED
from hostprep.units import format_rate

# Share of the limit: a rate this close to it may be due to it. A rate far above it is not.
_AT_LIMIT = (0.7, 1.5)


def limits_of(storage: PathStorage) -> tuple[ReadLimit, ...]:
    """Return the limits on the devices of a path: its disks, and what is built from them."""
    numbers = {device.number for device in (*storage.disks, *storage.devices)}
    return tuple(limit for limit in read_read_limits() if limit.device in numbers)


def held_to(measured: Measured, run: FioRun | SmallRun) -> Iterator[Reason]:
    """Yield that a pass read as much as a cgroup lets through. Pure."""
    seconds = run.load.seconds or run.seconds or 1
    if isinstance(run, FioRun):  # direct, and only its own
        bytes_per_s, requests_per_s = run.bytes_per_s, run.iops
    else:
        bytes_per_s = (run.load.device_bytes or 0) / seconds
        requests_per_s = (run.load.read_requests or 0) / seconds
    each_disks = 1 / max(1, len(measured.storage.disks))
    of_disks = {disk.number for disk in measured.storage.disks}
    for limit in measured.read_limits:
        share = each_disks if limit.device in of_disks else 1.0  # of what is built from them
        held = []
        if _is_at(share * bytes_per_s, limit.bytes_per_s):
            held.append(format_rate(limit.bytes_per_s or 0))
        if _is_at(share * requests_per_s, limit.requests_per_s):
            held.append(f"{limit.requests_per_s:,} requests/s")
        if held:
            text = (
                f"cgroup {limit.group} lets no more than {' and '.join(held)} be read of device"
                f" {limit.device} during {run.words}: the storage may give more"
            )
            yield Reason(READ_LIMITED, text, run.of)


def _is_at(rate: float, limit: int | None) -> bool:
    least, most = _AT_LIMIT
    return limit is not None and least * limit <= rate <= most * limit
