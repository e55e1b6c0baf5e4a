"""The fstab as a file: read, edited by a pure function, replaced durably, read again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from hostprep.errors import HostprepError, Refused
from hostprep.host.mounts import mount_at, read_mounts
from hostprep.system.files import read_snapshot, remove_stale_temps, replace_file
from hostprep.system.locks import lock
from hostprep.system.systemd import daemon_reload, systemd_runs
from hostprep.volumes.fstab import foreign_lines
from hostprep.volumes.fstab_check import check_new_fstab

SYSTEM_FSTAB = Path("/etc/fstab")


def fstab_path() -> Path:
    """Return the fstab to work on: /etc/fstab, or what ``HOSTPREP_FSTAB`` names."""
    chosen = os.environ.get("HOSTPREP_FSTAB")
    return Path(chosen).absolute() if chosen else SYSTEM_FSTAB


def read_fstab(path: Path) -> bytes:
    """Return the file's bytes, none where there is no file.

    Raises ``Refused`` for what could not be replaced by a rename: a symlink, anything but a regular
    file, a file that something is mounted on.
    """
    _refuse_mounted(path)
    snapshot = read_snapshot(path)
    return b"" if snapshot is None else snapshot.content


def edit_fstab(path: Path, edit: Callable[[bytes], bytes], *, check: bool = True) -> bool:
    """Replace the file by what ``edit`` makes of its bytes; return whether anything changed.

    Only lines of ours may differ. ``check`` has findmnt and, where it is installed, systemd's
    generator judge the new file before it takes the old one's place. systemd reads fstab again
    afterwards where it runs and this is the machine's own fstab. A file that is missing is made,
    with mode 0644.

    Raises ``Refused`` (``ChangedMeanwhile`` where somebody else wrote in between) and
    ``HostprepError``; the file is untouched then, but for a failed reload, which says so.
    """
    with lock("fstab", purpose=f"edit {path}"):
        _refuse_mounted(path)
        if path.parent.is_dir():
            remove_stale_temps(path)
        before = read_snapshot(path)
        old = b"" if before is None else before.content
        new = edit(old)
        if new == old:
            return False
        if foreign_lines(new) != foreign_lines(old):
            raise HostprepError(
                f"an edit of {path} would have touched lines that are not hostprep's; it was not"
                " written. This is a mistake in hostprep.",
                "please report it with the file",
            )

        def judge(candidate: Path) -> None:
            check_new_fstab(
                old=old, old_path=None if before is None else path, new=new, new_path=candidate
            )

        replace_file(path, new, expected=before, check=judge if check else None)
        if read_fstab(path) != new:
            raise HostprepError(
                f"{path} was replaced, and somebody else has changed it again already.",
                "see whether their version still has hostprep's line",
            )
        if os.path.realpath(path) == str(SYSTEM_FSTAB) and systemd_runs():
            daemon_reload()
    return True


def _refuse_mounted(path: Path) -> None:
    if mount_at(os.path.realpath(path), read_mounts()) is not None:
        raise Refused(
            f"{path} is a mount point (a bind-mounted file, as in containers), which cannot be"
            " replaced by a rename; nothing was changed.",
            "edit the file on the host that it comes from",
        )
