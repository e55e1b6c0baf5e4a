"""A mounted volume as the kernel reports it, in numbers."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from hostprep.errors import HostprepError
from hostprep.host.mounts import Mount, mount_at, read_mounts
from hostprep.volumes.model import Huge, LiveVolume


def read_live(path: str, mounts: Iterable[Mount] | None = None) -> LiveVolume | None:
    """Return the tmpfs mounted exactly on ``path``, None where there is none.

    Sizes are from statvfs(2), in bytes: the texts of mountinfo are rounded and leave defaults out.
    Mode and owner are those of the root directory, for mountinfo keeps what was given at the mount.
    A tmpfs without limit (``size=0``) has a size of 0 here.
    """
    mount = mount_at(path, read_mounts() if mounts is None else mounts)
    if mount is None or mount.fstype != "tmpfs":
        return None
    descriptor = open_root(path)
    try:
        space, status = os.fstatvfs(descriptor), os.fstat(descriptor)
    finally:
        os.close(descriptor)
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
        options=(*mount.mount_options, *mount.super_options),
    )


def open_root(path: str) -> int:
    """Open the directory ``path`` without following a link; the caller closes the descriptor."""
    try:
        return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise HostprepError(f"{path} cannot be opened: {error.strerror}.") from None
