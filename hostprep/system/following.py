"""Where symlinks lead, of paths that are only looked up: see ``links`` for those that root uses."""

from __future__ import annotations

import errno
import os
import shlex

from hostprep.errors import Refused

_TRIES = 50
# What it is to read a link that has gone since, or was exchanged for a folder or a file.
_EXCHANGED = frozenset({errno.EINVAL, errno.ENOENT, errno.ENOTDIR})


def followed(path: str | os.PathLike[str]) -> str:
    """Return ``path`` as ``os.path.realpath`` does, also where symlinks are exchanged meanwhile.

    That raises, in some versions of Python, where a symlink is none any more when it is read; so it
    is looked up again. Raises ``Refused`` where somebody exchanges them all the time.
    """
    for _ in range(_TRIES):
        try:
            return os.path.realpath(path)
        except OSError as error:
            # Without a name it is of the current directory, which was removed.
            if error.errno not in _EXCHANGED or error.filename is None:
                raise
    raise Refused(
        f"on the way to {os.fspath(path)} somebody exchanges symlinks all the time, so where it"
        " leads is not known; nothing more was done.",
        f"namei -l {shlex.quote(os.fspath(path))} shows whose folders these are",
    )
