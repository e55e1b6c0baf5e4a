"""The links that start a boot service: at boot, and whenever its source is mounted.

After a power cut a server may come up later than its clients. Their services have failed by then,
and would stay so; but mounting the source, by whatever means, starts them again. The links are
those that `systemctl enable` makes from the template's WantedBy=; making them directly also works
where systemd does not run.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from hostprep.system.flushing import flush_directory
from hostprep.system.systemd import mount_unit

AT_BOOT = "multi-user.target"
_FOLDER = "{}.wants"
_LONGEST_NAME = 255


def wanted_by(source_mount: str, *, fed: bool) -> tuple[str, ...]:
    """Return the units that start the service of a data set with its source on ``source_mount``.

    Not the mount if the data set is ``fed`` by another one: when that is mounted, there is nothing
    to stage yet. The root file system is always there, and if the name would be too long for a
    folder, there is no such unit.
    """
    mount = mount_unit(source_mount)
    if fed or source_mount == "/" or len(_FOLDER.format(mount)) > _LONGEST_NAME:
        return (AT_BOOT,)
    return AT_BOOT, mount


def link_of(directory: Path, unit: str, wanting: str = AT_BOOT) -> Path:
    """Return the link in a unit ``directory`` by which ``wanting`` starts ``unit``."""
    return directory / _FOLDER.format(wanting) / unit


def linked_from(directory: Path, unit: str) -> frozenset[str]:
    """Return which units start ``unit``: the boot target, and mounts."""
    there = os.path.realpath(directory / unit)
    return frozenset(
        link.parent.name.removesuffix(".wants")
        for link in _links(directory, unit)
        if os.path.realpath(link) == there
    )


def left_links(directory: Path, pattern: str) -> frozenset[str]:
    """Return the units to which there are links of ours, including units that are gone."""
    return frozenset(
        link.name
        for link in _links(directory, pattern)
        if link.is_symlink() and os.readlink(link) == str(directory / link.name)
    )


def make_links(directory: Path, unit: str, wanting: Iterable[str]) -> None:
    """Make these, and no other mounts, start ``unit``; raise ``OSError`` if that fails."""
    links = [link_of(directory, unit, each) for each in wanting]
    _remove(link for link in _links(directory, unit) if link not in links)
    for link in links:
        if os.path.realpath(link) == os.path.realpath(directory / unit):
            continue
        link.parent.mkdir(parents=True, exist_ok=True)
        # In place, and not by a temporary name, which a killed run would leave for ever: the next
        # run will notice a missing link.
        link.unlink(missing_ok=True)
        with suppress(FileExistsError):  # another run has made it
            link.symlink_to(directory / unit)
        flush_directory(link.parent)


def remove_links(directory: Path, unit: str) -> None:
    """Make nothing start ``unit`` any more; raise ``OSError`` if that fails."""
    _remove(_links(directory, unit))


def _links(directory: Path, pattern: str) -> list[Path]:
    """Return the links of that name, also dangling ones, which a glob would not find."""
    found = []
    for wanting in (AT_BOOT, "*.mount"):
        for folder in directory.glob(_FOLDER.format(wanting)):
            with suppress(OSError):  # there is none, or we may not look
                found += [folder / name for name in fnmatch.filter(os.listdir(folder), pattern)]
    return sorted(found)


def _remove(links: Iterable[Path]) -> None:
    for link in links:
        link.unlink(missing_ok=True)
        if link.parent.name != _FOLDER.format(AT_BOOT):
            with suppress(OSError):  # others start something by that mount
                link.parent.rmdir()
