"""*far*: a read-only passthrough where each open and each read takes 10 ms, many at a time.

It stands for a network file server: what counts is how many requests are under way. As with NFS,
data read once is not trusted at the next open (unless ``keep_cache``), while attributes are, for a
while. Attribute and directory requests are answered at once unless ``metadata_seconds`` says
otherwise: servers cache them best, and this rig's figures leave them out.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

from benchmarks.rigs.common import Counters
from tests.kit import serving


@dataclass(frozen=True, slots=True)
class FarStats:
    """The requests since the last reset, and the most that were under way at once."""

    opens: int
    reads: int
    bytes: int
    metadata: int
    most_at_once: int


COUNTER_NAMES = tuple(field.name for field in fields(FarStats))


@dataclass(frozen=True, slots=True)
class FarSource:
    """The mounted source."""

    mount: Path
    _counters: Counters

    def stats(self) -> FarStats:
        """Return the counters, even while requests are being served."""
        return FarStats(**{name: int(self._counters[name]) for name in COUNTER_NAMES})

    def reset(self) -> None:
        """Begin counting anew."""
        for name in COUNTER_NAMES:
            self._counters[name] = 0


@contextmanager
def far_source(
    source: Path,
    where: Path,
    *,
    request_seconds: float = 0.010,
    metadata_seconds: float = 0.0,
    at_once: int = 128,
    readahead_bytes: int = 1 << 20,
    keep_cache: bool = False,
    plus: bool = False,
) -> Iterator[FarSource]:
    """Show ``source`` as a distant server, at a mount point made below ``where``.

    ``at_once`` requests are served concurrently, further ones wait. The kernel asks for at most
    ``readahead_bytes`` at a time, so reading a whole file up to that size takes one request. With
    ``plus`` a listing brings the attributes of its entries, if the kernel asks for them.
    """
    with tempfile.TemporaryDirectory(prefix="far-", dir=where) as name:
        home = Path(name)
        home.chmod(0o755)
        mount = home / "mount"
        mount.mkdir(mode=0o755)
        counters = Counters(home / "counters", COUNTER_NAMES, create=True)
        config = {
            "source": str(source),
            "counters": str(home / "counters"),
            "request_seconds": request_seconds,
            "metadata_seconds": metadata_seconds,
            "at_once": at_once,
            "keep_cache": keep_cache,
            "plus": plus,
        }
        with serving.served("benchmarks.rigs.far_server", config, mount):
            device = os.stat(mount).st_dev
            bdi = Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}")
            (bdi / "read_ahead_kb").write_text(str(readahead_bytes >> 10))
            far = FarSource(mount, counters)
            far.reset()
            yield far
