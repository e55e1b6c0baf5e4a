"""Where symlinks lead, for paths that are only looked up; see ``links`` for those root uses."""

from __future__ import annotations

import errno
import os
import shlex

from hostprep.errors import Refused

_TRIES = 50
# Errors of reading a link that is gone by now, or was replaced by a folder or file.
_EXCHANGED = frozenset({errno.EINVAL, errno.ENOENT, errno.ENOTDIR})


def followed(path: str | os.PathLike[str]) -> str:
    """Return ``path`` as ``os.path.realpath`` does, even if symlinks are exchanged meanwhile.

    Some versions of Python raise an error if a symlink is no longer one when it is read; so it is
    looked up again. Raises ``Refused`` if somebody exchanges symlinks all the time.
    """
    for _ in range(_TRIES):
        try:
            return os.path.realpath(path)
        except OSError as error:
            # Without a name, the error is about the current directory, which was removed.
            if error.errno not in _EXCHANGED or error.filename is None:
                raise
    raise Refused(
        f"on the way to {os.fspath(path)} somebody exchanges symlinks all the time, so where it"
        " leads is not known; nothing more was done.",
        f"namei -l {shlex.quote(os.fspath(path))} shows whose folders these are",
    )
