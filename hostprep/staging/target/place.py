"""The directory of data sets: is it still the intended place?

A path that led to the copies may lead elsewhere by now: a user replaced a folder on the way by a
symlink, a disk is not mounted, or a bind mount is in its place. Files there may even look like the
copies, because they are the very files of the source (see ``apart``).
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
from pathlib import Path

from hostprep.errors import ROOT_KEPT_OUT, HostprepError, Refused
from hostprep.host.block import MADE_UP, locate
from hostprep.host.file_system_id import file_system_id
from hostprep.host.fscrypt import locked_out
from hostprep.host.mounts import (
    Mount,
    lies_in,
    mount_at,
    mount_of,
    mount_over,
    read_mounts,
    without_binds_in_place,
)
from hostprep.staging.record.records import Record
from hostprep.staging.target.apart import open_standing, origin_of
from hostprep.staging.target.owned import private_name
from hostprep.system.descriptors import closing_fd
from hostprep.system.files import new_file_obstacle
from hostprep.system.following import followed
from hostprep.system.trees import DIRECTORY_FLAGS
from hostprep.units import size_argument
from hostprep.volumes.records import all_records

# Others, such as FUSE, overlayfs, FAT and network file systems, may give a directory another number
# once the kernel has forgotten it, and may make its owner up.
_KEEP_NUMBERS = frozenset(
    ("tmpfs", "ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "nfs", "nfs4")
)


def open_parent(path: str, *, make: bool = False) -> int:
    """Open the directory that contains data sets; ``path`` must have no symlinks.

    With ``make``, missing directories are created. Raises ``Refused`` if the path leads elsewhere,
    FileNotFoundError if there is nothing, OSError if it cannot be opened.
    """
    try:
        descriptor = os.open(path, DIRECTORY_FLAGS & ~os.O_NOFOLLOW)
    except FileNotFoundError:
        if not make:
            raise
    else:
        # Ask about the open directory, so that nothing can be exchanged between check and use.
        real = os.readlink(f"/proc/self/fd/{descriptor}")
        if real != f"/{path.lstrip('/')}":
            os.close(descriptor)
            raise Refused(
                f"{path} leads to {real} now, where nothing of it was staged; nothing was changed.",
                "correct what leads there, or name that as the target, if it is what you mean",
            )
        return descriptor
    above, name = os.path.split(path)
    with closing_fd(open_parent(above, make=True)) as above_fd:
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=above_fd)
            return os.open(name, DIRECTORY_FLAGS, dir_fd=above_fd)
        except OSError as error:
            error.filename = path  # name the directory, instead of the last part of its path
            raise


def standing_directory(path: str) -> str:
    """Return ``path``, or its nearest existing parent directory."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def check_is_storage(parent: str) -> None:
    """Raise ``Refused`` if nothing can be stored there: the kernel makes up its contents."""
    mount = mount_below(parent)
    if mount is not None and mount.fstype in MADE_UP:
        raise Refused(
            f"the target {parent} is not storage: the kernel generates all that is in"
            f" {mount.fstype}; nothing was changed.",
            "choose a directory on a disk, or a tmpfs volume elsewhere",
        )


def check_writable(parent: str) -> None:
    """Raise ``HostprepError`` if this user cannot write there, as far as a look shows."""
    path = standing_directory(parent)
    code = new_file_obstacle(Path(path))
    if code not in (errno.EROFS, errno.EACCES, errno.EPERM):
        return
    if refusal := unmounted_refusal(parent):  # the intended file system is not there
        raise refusal
    if code == errno.EROFS:
        raise read_only_refusal(path)
    hint = "run it with sudo, or choose a target that you may write to"
    if os.geteuid() == 0:
        quoted = shlex.quote(path)
        hint = (
            f"`lsattr -d {quoted}` shows whether it is immutable (chattr -i), on Btrfs `btrfs"
            f" property get -ts {quoted} ro` whether it is a read-only snapshot; {ROOT_KEPT_OUT}"
        )
    raise HostprepError(f"{path} may not be written to; nothing was changed.", hint)


def read_only_refusal(path: str) -> Refused:
    """Refuse to write to a read-only file system, for instance ext4 after an error."""
    return Refused(
        f"the file system of {path} is mounted read-only; nothing was changed.",
        "find out why (the kernel does it after an error, see `dmesg`), then mount it for writing:"
        f" `findmnt -T {shlex.quote(path)}` shows it; in a systemd service ProtectSystem= does"
        " it, except to what ReadWritePaths= names, and in a container --read-only, or a volume"
        " that was given with :ro",
    )


def check_bare(target: str) -> None:
    """Raise ``Refused`` if something is mounted on a data set, or inside it.

    What would be replaced or removed there belongs to that file system: through a bind mount, to
    the source itself.
    """
    parent, name = os.path.split(target)
    real = followed(parent)
    places = tuple(os.path.join(real, each) for each in (name, private_name(name)))
    for mount in read_mounts():
        if any(f"{mount.target}/".startswith(f"{place}/") for place in places):
            raise _covered(mount)


def check_in_sight(record: Record) -> None:
    """Raise ``Refused`` if something else is at the path of the copies.

    For readers only: a mount inside the copies hides part of them, which a comparison will notice.
    """
    if refusal := moved_refusal(record):
        raise refusal
    with contextlib.suppress(OSError):  # gone, or this user may not read it: others report that
        os.close(open_parent(os.path.dirname(record.target)))
    if over := mount_at(record.target, read_mounts()):
        raise _covered(over)


def _covered(mount: Mount) -> Refused:
    return Refused(
        f"{mount.source} ({mount.fstype}) is mounted on {mount.target}, where the data set is;"
        " nothing was changed.",
        f"unmount that first: umount {shlex.quote(mount.target)}",
    )


def moved_refusal(record: Record) -> Refused | None:
    """Refuse to touch a data set on a disk while another file system is in that disk's place.

    Or while its folder is locked, see ``locked_refusal``. Never for a volume, because nothing in it
    survives an unmount.
    """
    if record.volume is not None:
        return None
    parent = os.path.dirname(record.target)
    now = mount_below(parent)
    if now is None or record.target_mount in (None, now.target):
        return locked_refusal(parent)
    if record.target_place is not None and record.target_place == place_on_disk(parent):
        return locked_refusal(parent)
    # Earlier versions, in a service with ReadWritePaths=, recorded the bind mount made for that.
    bound = mount_at(record.target_mount, mounts := read_mounts())
    if bound and lies_in(parent, bound.target) and without_binds_in_place(bound, mounts) == now:
        return locked_refusal(parent)
    cure = "mount it as it was"
    if lies_in(now.target, record.target_mount):
        cure = f"if that only hides the copies, unmount it (umount {shlex.quote(now.target)})"
    return Refused(
        f"{record.target} lies on the file system at {record.target_mount}, and that is not what"
        f" is there now ({now.target}, {now.fstype}); nothing was changed.",
        f"{cure} and run the same command again; if the copies are gone for good:"
        f" hostprep unstage {shlex.quote(record.target)} --forget",
    )


class KeyAway(Refused):
    """What is there cannot be looked at while its encryption is locked."""


def locked_refusal(parent: str) -> KeyAway | None:
    """Refuse to look for copies while names are encrypted: none is found, but all are there."""
    locked = locked_out(parent)
    if locked is None:
        return None
    said, cure = locked
    return KeyAway(
        f"{parent} {said}; nothing was changed.", f"{cure} and run the same command again"
    )


def place_on_disk(directory: str) -> str | None:
    """Return a directory's file system, and its path on it; None if unknown.

    It is the same by every mount, for instance in a container that was given one folder of a disk.
    """
    with contextlib.suppress(HostprepError):
        file_system, origin = file_system_id(locate(directory)), origin_of(directory)
        if file_system is not None and origin is not None:
            return f"{file_system} {origin[1]}"
    return None


def unmounted_refusal(parent: str) -> Refused | None:
    """Refuse to copy below an unmounted volume's mount point, onto the disk there."""
    # Imported only after the source is scanned, not for every command that looks at a target.
    from hostprep.volumes.status import volume_statuses

    mounts = read_mounts()
    sizes = {record.path: record.size_bytes for record in all_records()}
    for volume in volume_statuses():
        if lies_in(parent, volume.path) and mount_at(volume.path, mounts) is None:
            place = shlex.quote(volume.path)
            cure = f"mount it: mount {place}; or give it up: hostprep unmount {place} --fstab"
            if volume.in_fstab is False and (size := sizes.get(volume.path)):
                mount = f"hostprep mount {place} --size {size_argument(size)}"
                cure = f"mount it: {mount}; or give it up: hostprep unmount {place}"
            return Refused(
                f"{volume.path} is a volume of hostprep that is not mounted: the copies would lie"
                " on the disk below its mount point; nothing was changed.",
                cure,
            )
    return None


def check_in_volume(parent_fd: int, volume: str, *, published: bool = False) -> None:
    """Raise ``HostprepError`` if what was opened at a volume's path is not, or not visibly, it.

    ``published`` says whether the data set is published. Between mount and use, somebody or systemd
    may have unmounted the volume: what is staged would then be below the mount point, on the disk,
    and hidden by the next mount.
    """
    # Imported late, as above.
    from hostprep.volumes.facts import is_volume

    mounts = read_mounts()
    mount = mount_of(parent_fd, mounts)
    if mount is None or mount.target != volume or not is_volume(mount):
        done = "what was published is gone with it" if published else "nothing was published"
        raise HostprepError(
            f"the volume {volume} is not mounted any more, or something else is mounted there;"
            f" {done}. Its directory stays, and so does its line in fstab, if it has one.",
            "see what unmounts it (`journalctl -b -t systemd` shows what systemd did) and run the"
            " same command again",
        )
    last = mount_at(volume, mounts)
    if last is None or last.device == mount.device:  # bound over itself, it is as good as before
        over = mount_over(last or mount, mounts)
    else:
        over = last
    if over is not None:
        done = "what was published lies below that" if published else "nothing was published"
        raise HostprepError(
            f"{over.source} ({over.fstype}) is mounted on {over.target} by now and hides the volume"
            f" {volume}; {done}.",
            f"unmount that (umount {shlex.quote(over.target)}) and run the same command again",
        )


def keeps_numbers(mount: Mount | None) -> bool:
    """Whether a directory keeps its inode number as long as it exists."""
    return mount is not None and mount.fstype in _KEEP_NUMBERS


def mount_below(path: str) -> Mount | None:
    """Return the mount that contains ``path``, or its nearest existing parent directory.

    In a service with ReadWritePaths= it is the same as outside of the service.
    """
    descriptor, _ = open_standing(path)
    if descriptor is None:
        return None
    with closing_fd(descriptor):
        mounts = read_mounts()
        mount = mount_of(descriptor, mounts)
        return None if mount is None else without_binds_in_place(mount, mounts)
