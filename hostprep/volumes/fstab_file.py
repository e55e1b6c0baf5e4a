"""The fstab as a file: read, edited by a pure function, replaced durably, and read again."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError, Refused, without_claim
from hostprep.host.mounts import mount_at, read_mounts
from hostprep.system.files import (
    FileSnapshot,
    read_snapshot,
    rehearse_replacing,
    remove_stale_temps,
    replace_file,
)
from hostprep.system.flushing import NotFlushed
from hostprep.system.locks import lock
from hostprep.system.state import boot_dir, chosen_path
from hostprep.system.systemd import daemon_reload, systemd_runs
from hostprep.volumes.fstab import foreign_lines
from hostprep.volumes.fstab_check import check_new_fstab

SYSTEM_FSTAB = Path("/etc/fstab")


def fstab_path() -> Path:
    """Return the fstab to work on: /etc/fstab, or what ``HOSTPREP_FSTAB`` names."""
    return chosen_path("HOSTPREP_FSTAB") or SYSTEM_FSTAB


def read_fstab(path: Path) -> bytes:
    """Return the file's bytes, none if there is no file.

    Raises ``Refused`` for anything that a rename could not replace: a symlink, anything but a
    regular file, a file that something is mounted on.
    """
    _refuse_mounted(path)
    snapshot = read_snapshot(path)
    return b"" if snapshot is None else snapshot.content


def read_for_boot(path: Path) -> bytes:
    """Return what a boot reads there: like ``read_fstab``, but also through a symlink.

    Such a file may have lines of ours, if somebody moved it after they were written.
    """
    return read_fstab(Path(os.path.realpath(path)))


def edit_fstab(
    path: Path,
    edit: Callable[[bytes], bytes],
    *,
    on_wait: Callable[[str], None] | None = None,
) -> bool:
    """Replace the file by what ``edit`` makes of its bytes; return whether anything changed.

    Only lines of ours may differ. findmnt and, if installed, systemd's generator check the new file
    before it replaces the old one. Afterwards systemd reads fstab again if it is running and this
    is the machine's own fstab; even without a change, if it failed to after an earlier edit. A
    missing file is created, with mode 0644. ``on_wait`` is told if another run has the lock.

    Raises ``Refused`` (``ChangedMeanwhile`` if somebody else wrote in between) and
    ``HostprepError``; the file is untouched then, except for ``NotReloaded``, ``NotFlushed`` and
    ``NotReadBack``, which say so.
    """
    with lock("fstab", purpose=f"edit {path}", on_wait=on_wait):
        draft = _draft(path, edit)
        changed, due = draft.new != draft.old, reload_is_due(path)
        unflushed = None
        if changed:
            try:
                with _reload_noted(path, due=due):
                    replace_file(path, draft.new, expected=draft.before, check=draft.judge)
            except NotFlushed as error:
                unflushed = error  # the new file is in place, and systemd has to read it
            _check_replaced(path, draft.new)
        if due or (changed and _is_systemds(path)):
            daemon_reload()
            _reload_mark().unlink(missing_ok=True)
        if unflushed is not None:
            raise unflushed
    return changed


def _check_replaced(path: Path, new: bytes) -> None:
    try:
        there = read_fstab(path)
    except HostprepError as error:
        raise NotReadBack(
            f"{path} was replaced, but could not be read again: {without_claim(error.message)}",
            error.hint,
        ) from None
    if there != new:
        raise NotReadBack(
            f"{path} was replaced, and somebody else has changed it again already.",
            "see whether their version still has hostprep's line",
        )


def check_edit(
    path: Path, edit: Callable[[bytes], bytes], on_wait: Callable[[str], None] | None = None
) -> None:
    """Raise what ``edit_fstab`` would, as far as it shows without a change; changes nothing.

    For steps before the edit that would have to be undone if it failed.
    """
    with lock("fstab", purpose=f"check {path}", on_wait=on_wait):
        draft = _draft(path, edit)
        if draft.new != draft.old:
            rehearse_replacing(path, draft.new, expected=draft.before, check=draft.judge)


def reload_is_due(path: Path) -> bool:
    """Return whether systemd did not read the file again after an earlier edit in this boot."""
    return _is_systemds(path) and _reload_mark().exists()


class NotReadBack(HostprepError):
    """fstab was replaced, and could not be read again."""


@dataclass(frozen=True, slots=True)
class _Draft:
    """An edit of the file at ``path`` before it is written; ``before`` is None without a file."""

    path: Path
    before: FileSnapshot | None
    old: bytes
    new: bytes

    def judge(self, candidate: Path) -> None:
        """Have the new file, written to ``candidate``, checked by the programs that read it."""
        old_path = None if self.before is None else self.path
        check_new_fstab(old=self.old, old_path=old_path, new=self.new, new_path=candidate)


def _draft(path: Path, edit: Callable[[bytes], bytes]) -> _Draft:
    """Read the file and edit what was read. Must be called under the lock."""
    _refuse_mounted(path)
    if path.parent.is_dir():
        remove_stale_temps(path)
    before = read_snapshot(path)
    old = b"" if before is None else before.content
    new = edit(old)
    if foreign_lines(new) != foreign_lines(old):
        raise HostprepError(
            f"an edit of {path} would have touched lines that are not hostprep's; it was not"
            " written. This is a mistake in hostprep.",
            "please report it with the file",
        )
    return _Draft(path, before, old, new)


def _is_systemds(path: Path) -> bool:
    return os.path.realpath(path) == str(SYSTEM_FSTAB) and systemd_runs()


def _reload_mark() -> Path:
    """Return the file that exists from before an edit until systemd has read its result."""
    return boot_dir() / "fstab-not-reloaded"


@contextlib.contextmanager
def _reload_noted(path: Path, *, due: bool) -> Iterator[None]:
    """Note that a reload is due before the body replaces the file, in case this run is killed.

    The note is removed if the file was refused, unless a reload was ``due`` before.
    """
    if not _is_systemds(path):
        yield
        return
    mark = _reload_mark()
    with contextlib.suppress(OSError):  # /run is full: the edit matters more
        mark.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        mark.touch()
    try:
        yield
    except HostprepError as error:
        if not (due or isinstance(error, NotFlushed)):
            mark.unlink(missing_ok=True)
        raise


def _refuse_mounted(path: Path) -> None:
    if mount_at(os.path.realpath(path), read_mounts()) is not None:
        raise Refused(
            f"{path} is a mount point (a bind-mounted file, as in containers), which cannot be"
            " replaced by a rename; nothing was changed.",
            "edit the file on the host that it comes from",
        )
