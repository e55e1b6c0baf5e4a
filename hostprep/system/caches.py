"""Emptying the kernel's caches of the whole machine: it slows everybody, so only if asked."""

from __future__ import annotations

import os
from pathlib import Path

from hostprep.errors import HostprepError

_DROP_CACHES = Path("/proc/sys/vm/drop_caches")


def drop_caches() -> None:
    """Write dirty data out, then drop page cache, dentries and inodes; needs root."""
    os.sync()  # dirty pages would not be dropped
    try:
        _DROP_CACHES.write_text("3\n")
    except OSError as error:
        raise HostprepError(
            f"the machine's caches could not be dropped: {error.strerror}; nothing was measured.",
            "it needs root on the host itself; without it, files are taken out one by one",
        ) from None
