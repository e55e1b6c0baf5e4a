"""What is mounted where, from ``/proc/self/mountinfo`` (format: proc_pid_mountinfo(5))."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError
from hostprep.host.reading import NO_PROC_HINT, read_proc, read_text

_OCTAL = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mounted file system, as the kernel sees it now.

    ``mount_options`` belong to this mount point (``nosuid``), ``super_options`` to the file system
    (``size=1048576k``). ``root`` is the folder of the file system that is mounted here, other than
    ``/`` for bind mounts and btrfs subvolumes. ``propagation`` says where mounts below it propagate
    to, and from where (``shared:12``, ``master:3``; mount_namespaces(7)).
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
        """Return the value of a file system option, ``""`` for one without a value, else None."""
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


@lru_cache(maxsize=1)  # read again before each step, and rarely changed
def parse_mountinfo(text: bytes) -> tuple[Mount, ...]:
    """Return the mounts in the kernel's order; ``mount_at`` says which of two is visible."""
    mounts = []
    # Blanks and line feeds are escaped; a carriage return in a name is not.
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
            continue  # a line we do not understand is no mount to draw conclusions from
    return tuple(mounts)


def _options(field: bytes) -> tuple[str, ...]:
    # A comma within an option, as in a path given to overlay, is escaped.
    return tuple(unescape(option) for option in field.split(b","))


def read_mounts(root: Path = Path("/")) -> tuple[Mount, ...]:
    """Return the mounts of this process's namespace, read below ``root``.

    Raises ``HostprepError`` if ``/proc`` is not mounted, or lists nothing, not even itself: what is
    mounted would be taken for gone.
    """
    found = parse_mountinfo(read_proc(root, "self/mountinfo"))
    if not found and root == Path("/"):
        raise HostprepError("/proc/self/mountinfo lists no mount at all.", NO_PROC_HINT)
    return found


def mount_of(descriptor: int, mounts: Iterable[Mount]) -> Mount | None:
    """Return the mount that an open file lies on, by the kernel's own number (proc_pid_fdinfo(5)).

    The path alone could give one that is covered by another. None if it is not in ``mounts``.
    """
    info = read_text(Path(f"/proc/self/fdinfo/{descriptor}"))
    number = re.search(r"^mnt_id:\s*(\d+)", info or "", re.M)
    if number is None:
        return None
    return next((mount for mount in mounts if mount.mount_id == int(number[1])), None)


def mount_at(target: str, mounts: Iterable[Mount]) -> Mount | None:
    """Return the visible mount whose mount point is exactly ``target`` (a real path), if any.

    A mount on top of another has that as its parent. The order alone does not tell: one that was
    moved there (``mount --move``) may be listed before the one that it covers.
    """
    known = tuple(mounts)
    here = [mount for mount in known if mount.target == target]
    if here[1:] and (reached := _reached(target, known)) is not None:
        return reached
    # It is hidden as a whole, or the root of this process is not a mount.
    found, below = (here[-1] if here else None), set()
    while found is not None and found.mount_id not in below:
        below.add(found.mount_id)
        upon = [mount for mount in here if mount.parent_id == found.mount_id]
        found = upon[-1] if upon else found
    return found


def _reached(target: str, mounts: Iterable[Mount]) -> Mount | None:
    """Return the mount that a lookup of ``target`` arrives at, if it arrives at one there.

    The lookup begins at the root of the process, and ignores what is mounted on top of that.
    """
    upon = {(mount.parent_id, mount.target): mount for mount in mounts}
    roots = [mount for mount in mounts if mount.target == "/"]
    # Old kernels list the initramfs's file system, which is nobody's root any more.
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
    """Whether ``path`` is ``folder`` or below it, by name: both absolute, or both relative."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def mount_over(hidden: Mount, mounts: Iterable[Mount]) -> Mount | None:
    """Return the last mount on a directory above ``hidden`` that covers it.

    It came later, or was moved there: then it lies on the same mount as the one on the way to
    ``hidden``. What ``hidden`` itself lies on covers nothing of it, wherever it is listed, nor does
    what is mounted on top of the root: a lookup begins below that.
    """
    known = tuple(mounts)
    by_id = {mount.mount_id: mount for mount in known}
    way: dict[int, Mount] = {}  # by the mount each lies on: the way to the hidden one
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

    If several have the same target, it is the visible one.
    """
    known = tuple(mounts)
    targets = (mount.target for mount in known if lies_in(path, mount.target))
    longest = max(targets, key=len, default=None)
    return None if longest is None else mount_at(longest, known)


def without_binds_in_place(mount: Mount, mounts: Iterable[Mount]) -> Mount:
    """Return ``mount`` or, if it only binds a directory onto itself, the mount of that directory.

    systemd does that for ``ReadWritePaths=``: the contents are the same as before.
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
