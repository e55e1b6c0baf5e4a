"""The space of a file system, as plain data, because it is read in a child that may hang."""

from __future__ import annotations

import os
from dataclasses import asdict

from hostprep.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Space:
    """A file system by statvfs(2), in bytes and counts.

    ``size_bytes`` or ``inodes`` is 0 if there is no such limit, as in a tmpfs with size=0 or
    nr_inodes=0.
    """

    size_bytes: int
    free_bytes: int
    inodes: int
    free_inodes: int


def space_of(path: str) -> dict[str, int]:
    """Return the fields of ``Space`` for the file system of ``path``; OSError if it is gone."""
    found = os.statvfs(path)
    return asdict(
        Space(
            size_bytes=found.f_blocks * found.f_frsize,
            free_bytes=found.f_bavail * found.f_frsize,
            inodes=found.f_files,
            free_inodes=found.f_favail,
        )
    )
