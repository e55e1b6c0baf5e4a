"""A mounted volume as the kernel reports it, in numbers."""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Iterable, Sequence

from hostprep.errors import HostprepError, Refused, reading_hint
from hostprep.host.answering import PATIENCE_SECONDS, WHICH_MOUNT, may_hang, silent_ones
from hostprep.host.mounts import Mount, lies_in, mount_at, mount_over, read_mounts
from hostprep.system.descriptors import closing_fd
from hostprep.volumes.model import SOURCE, Huge, LiveVolume


def read_live(path: str, mounts: Iterable[Mount] | None = None) -> LiveVolume | None:
    """Return the tmpfs that is mounted exactly at ``path``, None if there is none.

    Sizes are from statvfs(2), in bytes: the texts of mountinfo are rounded and omit defaults. Mode
    and owner are those of the root directory, because mountinfo keeps those of the mount. A tmpfs
    without a limit (``size=0``) has a size of 0 here.

    Raises ``Refused`` if a later mount, at the path or above it, hides a volume there,
    ``HostprepError`` if it cannot be opened, or if a mount above it does not answer.
    """
    known = tuple(read_mounts() if mounts is None else mounts)
    mount = mount_at(path, known)
    if mount is not None and mounted_over(path, known) is mount:
        raise _hidden(mount, mount)
    if mount is None or mount.fstype != "tmpfs":
        return None
    if any(may_hang(each) and lies_in(path, each.target) for each in known):
        check_answers(path)
    with closing_fd(_open_root(mount, known)) as descriptor:
        try:
            check_visible(descriptor, mount, known)
            space, status = os.fstatvfs(descriptor), os.fstat(descriptor)
        except OSError as error:
            raise _unseen(mount, error, "looked at") from None
    return LiveVolume(
        path=path,
        size_bytes=space.f_blocks * space.f_frsize,
        used_bytes=(space.f_blocks - space.f_bfree) * space.f_frsize,
        inodes=space.f_files or None,
        used_inodes=space.f_files - space.f_ffree,
        mode=stat.S_IMODE(status.st_mode),
        uid=status.st_uid,
        gid=status.st_gid,
        huge=Huge(mount.option("huge") or "never"),
        noswap=mount.option("noswap") is not None,
        nosuid="nosuid" in mount.mount_options,
        nodev="nodev" in mount.mount_options,
        noexec="noexec" in mount.mount_options,
        options=_options(mount),
    )


def check_answers(path: str, claim: str = "") -> None:
    """Raise ``HostprepError`` if what ``path`` lies on, or leads to, does not answer in time."""
    if silent_ones([path], PATIENCE_SECONDS):
        raise HostprepError(
            f"{path} did not answer within {PATIENCE_SECONDS:g} s{claim}.",
            f"a network mount above it whose server is gone? {WHICH_MOUNT};"
            " `umount --lazy --force` detaches it",
        )


def _options(mount: Mount) -> tuple[str, ...]:
    """Return each option once: both the mount and its file system say whether it is writable."""
    both = (*mount.mount_options, *mount.super_options)
    others = [option for option in dict.fromkeys(both) if option not in ("ro", "rw")]
    return ("ro" if "ro" in both else "rw", *others)


def mounted_over(path: str, mounts: Sequence[Mount]) -> Mount | None:
    """Return what was mounted over the volume at ``path``, at the path or above it.

    If two tmpfs are at one path, only one with hostprep's own name is known to be the volume.
    """
    top = mount_at(path, mounts)
    if top is None:
        return None
    below = (mount for mount in mounts if mount.target == path and mount is not top)
    if any(each.source == SOURCE and each.device != top.device for each in below):
        return top
    return mount_over(top, mounts)


def check_visible(descriptor: int, mount: Mount, mounts: Sequence[Mount]) -> None:
    """Raise ``Refused`` if what was opened at a volume's path is not the volume.

    The kernel lists a mount as long as it exists, even under one that covers it: then what is
    written to its path goes elsewhere, and what is read there comes from elsewhere.
    """
    if not is_on(descriptor, mount):
        raise _hidden(mount, mount_over(mount, mounts))


def is_on(descriptor: int, mount: Mount) -> bool:
    """Whether an open file is on the file system of ``mount``."""
    device = os.fstat(descriptor).st_dev
    return f"{os.major(device)}:{os.minor(device)}" == mount.device


def _open_root(mount: Mount, mounts: Sequence[Mount]) -> int:
    """Open the volume's directory without following links; the caller closes the descriptor."""
    try:
        return os.open(mount.target, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        over = mount_over(mount, mounts)
        if over is not None and error.errno in (errno.ENOENT, errno.ENOTDIR):
            raise _hidden(mount, over) from None
        raise _unseen(mount, error, "opened") from None


def _unseen(mount: Mount, error: OSError, failed: str) -> HostprepError:
    said = f"{mount.target} cannot be {failed}: {error.strerror}."
    return HostprepError(said, reading_hint(error))


def _hidden(mount: Mount, over: Mount | None) -> Refused:
    if over is None:
        what, remedy = "another file system", "`findmnt` shows which; unmount that"
    else:
        what = f"{over.source} ({over.fstype}), mounted on {over.target} after it,"
        remedy = f"unmount that (umount {shlex.quote(over.target)}), or mount it before the volume"
    return Refused(f"{what} hides the volume {mount.target}; nothing was changed.", remedy)
