"""Symlinks on the way to what a user named: whose they are counts where anybody may lay one."""

from __future__ import annotations

import os
import shlex
import stat

from hostprep.errors import Refused
from hostprep.system.accounts import trusted_users

_MOST_LINKS = 40  # as many as the kernel follows
_ANYBODYS = stat.S_ISVTX | stat.S_IWOTH


def real_path(path: str) -> str:
    """Return ``path`` without symlinks, absolute.

    Raises ``Refused`` where one of them is somebody else's, in a directory such as ``/tmp``: a name
    there that can be guessed may lead to what only root may read or write. The kernel keeps to the
    same rule (``fs.protected_symlinks``), but not where links are read and not followed, as here.
    """
    if (found := _strangers(path)) is not None:
        link, owner = found
        raise Refused(
            f"{link}, on the way to {path}, is a symlink of uid {owner} in a directory where"
            f" everybody may lay one; it leads to {os.path.realpath(link)}. Nothing was changed.",
            f"name that, if it is what you mean; ls -ld {shlex.quote(link)} shows it",
        )
    return os.path.realpath(path)


def _strangers(path: str) -> tuple[str, int] | None:
    """Return the first such symlink, and whose it is."""
    trusted = trusted_users()
    # Not normalized: `..` leads out of where a symlink before it led to.
    start = path if path.startswith("/") else os.path.join(os.getcwd(), path)
    pending = start.split("/")[::-1]
    here, links = "/", 0
    while pending and links < _MOST_LINKS:
        name = pending.pop()
        if name in ("", os.curdir):
            continue
        if name == os.pardir:
            here = os.path.dirname(here)
            continue
        there = os.path.join(here, name)
        try:
            around, found = os.lstat(here), os.lstat(there)
            if not stat.S_ISLNK(found.st_mode):
                here = there
                continue
            leads_to = os.readlink(there)
        except OSError:
            return None  # there is no way; who opens it tells why
        anybodys = around.st_mode & _ANYBODYS == _ANYBODYS
        if anybodys and found.st_uid not in {*trusted, around.st_uid}:
            return there, found.st_uid
        links += 1
        here = "/" if leads_to.startswith("/") else here
        pending += leads_to.split("/")[::-1]
    return None
