"""Mounts in the mount namespaces of other processes: of containers, jobs, services."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from hostprep.errors import HostprepError, reading_hint
from hostprep.host.mounts import Mount, mount_containing, parse_mountinfo, read_mounts
from hostprep.host.processes import in_words
from hostprep.host.reading import read_link

# The machine's PID namespace, which sees all processes (PROC_PID_INIT_INO of the kernel).
_FIRST_PIDS = "pid:[4026531836]"
_MOST_PLACES = 5  # the most that are named


def namespaces(root: Path = Path("/")) -> str:
    """Return which mounts and processes are visible here: the numbers of both namespaces."""
    return " ".join(read_link(root / "proc/self/ns" / kind) for kind in ("mnt", "pid"))


def may_be_out_of_sight(there: str, root: Path = Path("/")) -> bool:
    """Whether mounts in the ``namespaces`` of ``there`` may be invisible from here.

    A container with a PID namespace sees none of the machine's, nor of other containers'.
    """
    mnt, pid = namespaces(root).split(" ")
    return pid not in ("", _FIRST_PIDS) and not {mnt, pid} & set(there.split(" "))


def stays_here(path: str, root: Path = Path("/")) -> bool:
    """Whether a mount on ``path`` exists only in this mount namespace, and ends with it.

    As in a service with PrivateTmp= or ProtectSystem=: the first process, of the machine or of a
    container, has other mounts, and gets none from here. False if that is unknown, for instance to
    an ordinary user.
    """
    first = root / "proc/1"
    if read_link(first / "ns/mnt") in ("", read_link(root / "proc/self/ns/mnt")):
        return False
    above = mount_containing(path, read_mounts(root))
    ours = [each for each in above.propagation if each.startswith("shared:")] if above else []
    try:
        theirs = parse_mountinfo((first / "mountinfo").read_bytes())
    except OSError:
        return False
    reached = {each.rpartition(":")[2] for mount in theirs for each in mount.propagation}
    return not any(each.rpartition(":")[2] in reached for each in ours)


def mounts_elsewhere(root: Path = Path("/")) -> Iterator[tuple[int, Mount]]:
    """Yield each mount of every other mount namespace, with the number of a process in it.

    ``root`` is where /proc is read. Paths are as that process sees them: if all processes of a
    namespace are in a chroot, paths are relative to one of these. What an ordinary user may not
    look into is skipped, and a namespace without processes cannot be seen. Raises
    ``HostprepError`` if /proc cannot be listed.
    """
    seen = {"", read_link(root / "proc/self/ns/mnt")}
    try:
        pids = sorted(int(name) for name in os.listdir(root / "proc") if name.isdigit())
    except OSError as error:
        raise HostprepError(
            f"/proc cannot be listed: {error.strerror}.", reading_hint(error)
        ) from None
    for see_all in (True, False):
        for pid in pids:
            process = root / "proc" / str(pid)
            namespace = read_link(process / "ns/mnt")
            if namespace in seen or (see_all and read_link(process / "root") != "/"):
                continue
            try:
                text = (process / "mountinfo").read_bytes()
            except OSError:
                continue  # it has ended: another one may be in the same namespace
            seen.add(namespace)
            for mount in parse_mountinfo(text):
                yield pid, mount


def mounted_places(unmounted: Mount, root: Path = Path("/")) -> tuple[str, ...]:
    """Return in words up to five places, here and elsewhere, where a file system is still mounted.

    Its number alone does not identify it: once free, the number goes to the next file system.
    """

    def is_it(mount: Mount) -> bool:
        return all(
            getattr(mount, name) == getattr(unmounted, name)
            for name in ("device", "fstype", "source", "super_options")
        )

    found = [mount.target for mount in read_mounts(root) if is_it(mount)]
    found += [
        f"{mount.target} as {in_words(pid, root)} sees it"
        for pid, mount in mounts_elsewhere(root)
        if is_it(mount)
    ]
    return tuple(found[:_MOST_PLACES])
