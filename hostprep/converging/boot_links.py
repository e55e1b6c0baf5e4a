"""The links that start a boot service: at boot, and when its source is mounted, by whomever.

After a power cut a server may be up later than its clients. Their services have failed by then, and
would stay so: whoever mounts the source starts them by that. The links are those that `systemctl
enable` makes of the template's WantedBy=, which works where systemd does not run.
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
    """Return the units that start the service of a data set whose source lies on ``source_mount``.

    Not the mount of one that is ``fed``, by another data set: there is nothing to stage when that
    is mounted. The root file system is there in any case, and where the name would be too long for
    a folder there is no such unit.
    """
    mount = mount_unit(source_mount)
    if fed or source_mount == "/" or len(_FOLDER.format(mount)) > _LONGEST_NAME:
        return (AT_BOOT,)
    return AT_BOOT, mount


def link_of(directory: Path, unit: str, wanting: str = AT_BOOT) -> Path:
    """Return the link to ``unit`` in a unit ``directory`` by which ``wanting`` starts it."""
    return directory / _FOLDER.format(wanting) / unit


def linked_from(directory: Path, unit: str) -> frozenset[str]:
    """Return which units start ``unit``: the boot, and mounts."""
    there = os.path.realpath(directory / unit)
    return frozenset(
        link.parent.name.removesuffix(".wants")
        for link in _links(directory, unit)
        if os.path.realpath(link) == there
    )


def left_links(directory: Path, pattern: str) -> frozenset[str]:
    """Return to which units there are links of ours, those that are gone too."""
    return frozenset(
        link.name
        for link in _links(directory, pattern)
        if link.is_symlink() and os.readlink(link) == str(directory / link.name)
    )


def make_links(directory: Path, unit: str, wanting: Iterable[str]) -> None:
    """Have these start ``unit``, and no other mount; raise ``OSError`` where that fails."""
    links = [link_of(directory, unit, each) for each in wanting]
    _remove(link for link in _links(directory, unit) if link not in links)
    for link in links:
        if os.path.realpath(link) == os.path.realpath(directory / unit):
            continue
        link.parent.mkdir(parents=True, exist_ok=True)
        # In place, and not by another name beside it, which a killed run would leave for ever: what
        # is not there is seen by the next one.
        link.unlink(missing_ok=True)
        with suppress(FileExistsError):  # of a run beside this one
            link.symlink_to(directory / unit)
        flush_directory(link.parent)


def remove_links(directory: Path, unit: str) -> None:
    """Have nothing start ``unit`` any more; raise ``OSError`` where that fails."""
    _remove(_links(directory, unit))


def _links(directory: Path, pattern: str) -> list[Path]:
    """Return the links of that name, also those that lead nowhere any more: no glob finds these."""
    found = []
    for wanting in (AT_BOOT, "*.mount"):
        for folder in directory.glob(_FOLDER.format(wanting)):
            with suppress(OSError):  # none, or not for us to see
                found += [folder / name for name in fnmatch.filter(os.listdir(folder), pattern)]
    return sorted(found)


def _remove(links: Iterable[Path]) -> None:
    for link in links:
        link.unlink(missing_ok=True)
        if link.parent.name != _FOLDER.format(AT_BOOT):
            with suppress(OSError):  # others start something by that mount
                link.parent.rmdir()
