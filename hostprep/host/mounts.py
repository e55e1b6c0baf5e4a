"""What is mounted where, from ``/proc/self/mountinfo`` (format: proc_pid_mountinfo(5))."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.host.reading import read_proc, read_text

_OCTAL = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mounted file system, as the kernel sees it now.

    ``mount_options`` belong to this mount point (``nosuid``), ``super_options`` to the file system
    (``size=1048576k``). ``root`` is the folder of the file system that is mounted here, other than
    ``/`` for bind mounts and btrfs subvolumes. ``propagation`` says whom else what is mounted
    below it comes to, and from whom (``shared:12``, ``master:3``; mount_namespaces(7)).
    """

    mount_id: int
    parent_id: int
    device: str
    root: str
    target: str
    fstype: str
    source: str
    mount_options: tuple[str, ...]
    super_options: tuple[str, ...]
    propagation: tuple[str, ...] = ()

    def option(self, name: str) -> str | None:
        """Return the value of a file system option, ``""`` for one without value, else None."""
        for item in self.super_options:
            key, _, value = item.partition("=")
            if key == name:
                return value
        return None


def unescape(field: bytes) -> str:
    r"""Undo the octal escapes (``\040``) of mountinfo and fstab; bytes survive as surrogates."""
    if b"\\" not in field:
        return os.fsdecode(field)
    return os.fsdecode(_OCTAL.sub(lambda match: bytes([int(match[1], 8) & 0xFF]), field))


@lru_cache(maxsize=1)  # it is read again before each step, and seldom another one
def parse_mountinfo(text: bytes) -> tuple[Mount, ...]:
    """Return the mounts in the kernel's order, see ``mount_at`` for which of two is visible."""
    mounts = []
    # Blanks and line feeds are escaped; a carriage return in a name stands there as it is.
    for line in text.split(b"\n"):
        fields = line.split(b" ")
        try:
            dash = fields.index(b"-", 6)
            mounts.append(
                Mount(
                    mount_id=int(fields[0]),
                    parent_id=int(fields[1]),
                    device=fields[2].decode(),
                    root=unescape(fields[3]),
                    target=unescape(fields[4]),
                    fstype=unescape(fields[dash + 1]),
                    source=unescape(fields[dash + 2]),
                    mount_options=_options(fields[5]),
                    super_options=_options(fields[dash + 3]),
                    propagation=tuple(field.decode() for field in fields[6:dash]),
                )
            )
        except (ValueError, IndexError):
            continue  # a line we do not understand is not a mount that we may reason about
    return tuple(mounts)


def _options(field: bytes) -> tuple[str, ...]:
    # A comma within an option, as in a path that overlay was given, is escaped.
    return tuple(unescape(option) for option in field.split(b","))


def read_mounts(root: Path = Path("/")) -> tuple[Mount, ...]:
    """Return the mounts of this process's namespace, read below ``root``.

    Raises ``HostprepError`` where ``/proc`` is not mounted.
    """
    return parse_mountinfo(read_proc(root, "self/mountinfo"))


def mount_of(descriptor: int, mounts: Iterable[Mount]) -> Mount | None:
    """Return the mount that an open file lies on, by the kernel's own number (proc_pid_fdinfo(5)).

    By the path alone it could be one that another covers. None where it is not among ``mounts``.
    """
    info = read_text(Path(f"/proc/self/fdinfo/{descriptor}"))
    number = re.search(r"^mnt_id:\s*(\d+)", info or "", re.M)
    if number is None:
        return None
    return next((mount for mount in mounts if mount.mount_id == int(number[1])), None)


def mount_at(target: str, mounts: Iterable[Mount]) -> Mount | None:
    """Return the visible mount whose mount point is exactly ``target`` (a real path), if any.

    What is mounted upon another has that for its parent. The order alone does not tell: one that
    was moved there (``mount --move``) may be listed before what it covers.
    """
    known = tuple(mounts)
    here = [mount for mount in known if mount.target == target]
    if here[1:] and (reached := _reached(target, known)) is not None:
        return reached
    # It is hidden as a whole, or the root of this process is no mount.
    found, below = (here[-1] if here else None), set()
    while found is not None and found.mount_id not in below:
        below.add(found.mount_id)
        upon = [mount for mount in here if mount.parent_id == found.mount_id]
        found = upon[-1] if upon else found
    return found


def _reached(target: str, mounts: Iterable[Mount]) -> Mount | None:
    """Return the mount that a lookup of ``target`` comes upon there, if it comes upon one.

    It begins at the root of the process, and at what is mounted upon that it does not look.
    """
    upon = {(mount.parent_id, mount.target): mount for mount in mounts}
    roots = [mount for mount in mounts if mount.target == "/"]
    # Old kernels list what the initramfs lay in, which nobody has for a root any more.
    here = next((mount for mount in roots if mount.fstype != "rootfs"), None)
    if here is None or target == "/":
        return here
    found = None
    for end in [*(end for end, each in enumerate(target) if each == "/" and end), len(target)]:
        place, found = target[:end], None
        while (step := upon.pop((here.mount_id, place), None)) is not None:
            here = found = step
    return found


def lies_in(path: str, folder: str) -> bool:
    """Whether ``path`` is ``folder`` or below it, by the names: both absolute, or both relative."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def mount_over(hidden: Mount, mounts: Iterable[Mount]) -> Mount | None:
    """Return the last mount on a directory above ``hidden`` that covers it.

    It came after it, or was moved there: then it lies on the same mount as what leads to
    ``hidden``. What ``hidden`` itself lies on covers nothing of it, however it is listed, nor does
    what is mounted upon the root: a lookup begins below that.
    """
    known = tuple(mounts)
    by_id = {mount.mount_id: mount for mount in known}
    way: dict[int, Mount] = {}  # by the mount that it lies on: what leads to the hidden one
    step: Mount | None = hidden
    while step is not None and step.parent_id not in way:
        way[step.parent_id] = step
        step = by_id.get(step.parent_id)
    over, later = None, False
    for mount in known:
        later = later or mount.mount_id == hidden.mount_id
        if mount.target in ("/", hidden.target) or not lies_in(hidden.target, mount.target):
            continue
        beside = way.get(mount.parent_id) if mount.parent_id in by_id else None
        moved = beside not in (None, mount) and lies_in(beside.target, mount.target)
        if mount.mount_id not in way and (later or moved):
            over = mount
    return over


def mount_containing(path: str, mounts: Iterable[Mount]) -> Mount | None:
    """Return the mount on which ``path`` (absolute, without symlinks) lies: the longest target.

    Of several on the same target it is the visible one.
    """
    known = tuple(mounts)
    targets = (mount.target for mount in known if lies_in(path, mount.target))
    longest = max(targets, key=len, default=None)
    return None if longest is None else mount_at(longest, known)


def without_binds_in_place(mount: Mount, mounts: Iterable[Mount]) -> Mount:
    """Return ``mount``, or where it only binds a directory onto itself, the one that has that.

    systemd does that with what ``ReadWritePaths=`` names: what lies there is what it was before.
    """
    by_id = {each.mount_id: each for each in mounts}
    seen = {mount.mount_id}
    while (above := by_id.get(mount.parent_id)) is not None and above.mount_id not in seen:
        if above.device != mount.device or not lies_in(mount.target, above.target):
            break
        below = mount.target[len(above.target.rstrip("/")) :]
        if f"{above.root.rstrip('/')}{below}" != mount.root.rstrip("/"):
            break
        mount = above
        seen.add(mount.mount_id)
    return mount
