"""Where this process's cgroups are mounted: versions 1 and 2, and both at once ("hybrid").

Formats: cgroups(7).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.host.mounts import Mount, read_mounts
from hostprep.host.reading import read_lines


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One mounted hierarchy and the folders of this process in it, its own first."""

    version: int
    controllers: frozenset[str]
    folders: tuple[Path, ...]


def folders_of(root: Path, controller: str) -> Iterator[tuple[int, Path]]:
    """Yield the version and each folder of this process in which ``controller`` may set limits."""
    for hierarchy in hierarchies(root):
        if hierarchy.version == 2 or controller in hierarchy.controllers:
            for folder in hierarchy.folders:
                yield hierarchy.version, folder


def hierarchies(root: Path) -> list[Hierarchy]:
    """Return the mounted hierarchies, in the order of ``/proc/self/cgroup``."""
    mounts = _mounts(root)
    found = []
    for controllers, group in _groups(root):
        version = 1 if controllers else 2
        mount = _mount_of(controllers, mounts)
        if mount is not None:
            folders = tuple(_chain(root, mount, group))
            found.append(Hierarchy(version, controllers, folders))
    return found


def limits_are_hidden(controller: str, root: Path = Path("/")) -> bool:
    """Return whether this process is in a control group of ``controller`` that cannot be seen here.

    For instance in a sandbox without /sys, or with another one mounted over it; or if a container
    has the host's /sys/fs/cgroup, and a namespace in which its own group is ``/``: then nothing
    tells where that is below the mount.
    """
    groups = dict(_groups(root))
    mine = next((controllers for controllers in groups if controller in controllers), frozenset())
    if mine not in groups:
        return False
    mount = _mount_of(mine, _mounts(root))
    if mount is None or ".." in Path(mount.root).parts:
        return True
    return next(_chain(root, mount, groups[mine]), None) is None


def _groups(root: Path) -> Iterator[tuple[frozenset[str], str]]:
    """Yield each hierarchy's controllers (none for version 2), and this process's group in it."""
    for line in read_lines(root / "proc/self/cgroup"):
        fields = line.split(":", 2)
        if len(fields) == 3:
            yield frozenset(fields[1].split(",")) - {""}, fields[2]


def _mounts(root: Path) -> list[Mount]:
    return [mount for mount in read_mounts(root) if mount.fstype in ("cgroup", "cgroup2")]


def _mount_of(controllers: frozenset[str], mounts: list[Mount]) -> Mount | None:
    for mount in mounts:
        if not controllers and mount.fstype == "cgroup2":
            return mount
        if controllers and mount.fstype == "cgroup" and controllers <= {*mount.super_options}:
            return mount
    return None


def _chain(root: Path, mount: Mount, group: str) -> Iterator[Path]:
    """Yield the folders from the process's own group up to the mount point.

    Both ``group`` and ``mount.root`` are relative to the cgroup namespace. In a container without
    one, the mount shows a subtree (``/docker/ID``) that contains the group; in others the group may
    lie outside what is mounted (``/..``), and only the mount point can be seen.
    """
    top = root / mount.target.lstrip("/")
    parts = Path(group).parts[1:]
    base = Path(mount.root).parts[1:]
    inside = parts[len(base) :] if parts[: len(base)] == base else ()
    if ".." in inside:
        inside = ()
    for depth in range(len(inside), -1, -1):
        folder = top.joinpath(*inside[:depth])
        if os.path.isdir(folder):
            yield folder


def shown(folder: Path, root: Path) -> str:
    """Return the path of a folder as this process sees it."""
    return "/" + str(folder.relative_to(root))
