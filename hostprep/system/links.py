"""Symlinks on the way to what a user named: whose they are counts where anybody may lay one."""

from __future__ import annotations

import os
import shlex
import stat

from hostprep.errors import Refused
from hostprep.host.capabilities import unknown_uid
from hostprep.system.accounts import trusted_users

_MOST_LINKS = 40  # as many as the kernel follows
_ANYBODYS = stat.S_ISVTX | stat.S_IWOTH


def real_path(path: str) -> str:
    """Return ``path`` without symlinks, absolute; what of it is missing as it is.

    Raises ``Refused`` where one of them is somebody else's, in a directory such as ``/tmp``: a name
    there that can be guessed may lead to what only root may read or write. Whose links are followed
    there: root's, this user's, those of who called sudo, and of whose directory it is. The kernel
    (``fs.protected_symlinks``) asks so of the last name of a path alone, and not where links are
    read and not followed, as here. What is returned is what was looked at: it is not looked up
    again, when it may lead elsewhere.
    """
    trusted, nobody = trusted_users(), unknown_uid()
    # Not normalized: `..` leads out of where a symlink before it led to.
    start = path if path.startswith("/") else os.path.join(os.getcwd(), path)
    pending = start.split("/")[::-1]
    here, links = "/", 0
    while pending:
        name = pending.pop()
        if name in ("", os.curdir):
            continue
        if name == os.pardir:
            here = os.path.dirname(here)
            continue
        there = os.path.join(here, name)
        try:
            around, found = os.lstat(here), os.lstat(there)
            leads_to = os.readlink(there) if stat.S_ISLNK(found.st_mode) else None
        except OSError:
            leads_to = None  # there is no way; who opens it tells why
        if leads_to is None:
            here = there
            continue
        anybodys = around.st_mode & _ANYBODYS == _ANYBODYS
        # Where not all users are known, two that are not show as the same.
        if anybodys and found.st_uid not in trusted | ({around.st_uid} - {nobody}):
            raise Refused(
                f"{there}, on the way to {path}, is a symlink of uid {found.st_uid} in a directory"
                f" where everybody may lay one; it leads to {os.path.join(here, leads_to)}. Nothing"
                " was changed.",
                f"name that, if it is what you mean; ls -ld {shlex.quote(there)} shows it",
            )
        links += 1
        if links > _MOST_LINKS:  # who opens it is told so
            return os.path.join(there, *reversed(pending))
        here = "/" if leads_to.startswith("/") else here
        pending += leads_to.split("/")[::-1]
    return here
