"""A file in memory to which forked processes write what they have done, for a test to count."""

from __future__ import annotations

import fcntl
import os


def appended_by_all() -> int:
    """Return a descriptor; what several processes write to it at the same moment is all kept.

    Of a memfd they would share the position without a lock, and overwrite each other.
    """
    descriptor = os.memfd_create("appended")
    fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_APPEND)
    return descriptor
