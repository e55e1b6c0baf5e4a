"""Where a file system is mounted, in this mount namespace and in those of other processes."""

from __future__ import annotations

import os
from pathlib import Path

from hostprep.host.mounts import parse_mountinfo, read_mounts
from hostprep.host.processes import command_of, link_of


def mounted_places(device: str, root: Path = Path("/"), *, limit: int = 5) -> tuple[str, ...]:
    """Return up to ``limit`` places where the file system with this number is mounted, in words.

    ``root`` is where /proc is read. Of each other mount namespace, a container's for instance, one
    process is named, and the path as that process sees it. What an ordinary user may not look into
    is passed over; a namespace that no process is in cannot be seen.
    """
    found = [mount.target for mount in read_mounts(root) if mount.device == device]
    seen = {"", link_of(root / "proc/self/ns/mnt")}
    for pid in sorted(int(name) for name in os.listdir(root / "proc") if name.isdigit()):
        process = root / "proc" / str(pid)
        namespace = link_of(process / "ns/mnt")
        if namespace in seen:
            continue
        try:
            text = (process / "mountinfo").read_bytes()
        except OSError:
            continue  # it has ended: another one may be in the same namespace
        seen.add(namespace)
        if f" {device} ".encode() not in text:
            continue
        found += [
            f"{mount.target} as process {pid} ({command_of(process)}) sees it"
            for mount in parse_mountinfo(text)
            if mount.device == device
        ]
    return tuple(found[:limit])
