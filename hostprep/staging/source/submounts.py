"""File systems that are mounted below a source, and which of them have gone missing since.

The mount point of an unmounted one is an empty directory. An update would take everything that was
staged of it for deleted, and remove it; a first run after a reboot would publish without it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable

from hostprep.errors import Refused
from hostprep.host.mounts import Mount, lies_in
from hostprep.staging.model import StageRequest
from hostprep.staging.record.records import Record
from hostprep.staging.source.scan import Scan


def submounts(source: str, scan: Scan, mounts: Iterable[Mount]) -> tuple[str, ...]:
    """Return the non-empty mount points below ``source``."""
    below = {
        os.path.relpath(mount.target, source)
        for mount in mounts
        if mount.target != source and lies_in(mount.target, source)
    }
    return tuple(sorted(path for path in below if _holds_something(scan, path)))


def missing(record: Record, scan: Scan, mounts: Iterable[Mount]) -> str | None:
    """Return a mount point that existed when the data set was staged and is empty now.

    None if all is there. If a mount point itself is gone, or has files of its own now, that is
    taken as intended.
    """
    for path in sorted(set(record.submounts) - set(submounts(record.source, scan, mounts))):
        if path in scan.directories and not _holds_something(scan, path):
            return os.path.join(record.source, path)
    return None


def missing_refusal(
    request: StageRequest, scan: Scan, previous: Record | None, mounts: Iterable[Mount]
) -> Refused | None:
    """Refuse to take for deleted what is just not mounted."""
    if previous is None or previous.source != request.source:
        return None
    if (place := missing(previous, scan, mounts)) is None:
        return None
    return Refused(
        f"{place} is empty, and a file system was mounted there when {request.target} was staged:"
        " what is from there would be missing in it; nothing was changed.",
        f"mount it again; if it is meant to be empty: rmdir {shlex.quote(place)}",
    )


def _holds_something(scan: Scan, path: str) -> bool:
    listed = (each for each in scan.listings if lies_in(each.directory, path))
    return any(each.files for each in listed) or any(
        each != path and lies_in(each, path) for each in scan.directories
    )
