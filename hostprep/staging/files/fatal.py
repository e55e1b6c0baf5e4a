"""Errors that concern the whole run instead of one file, so that there is no point in going on."""

from __future__ import annotations

import errno
import os

from hostprep.errors import SERVER_GONE
from hostprep.system.trees import DirCache

FATAL = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)


def raise_if_of_all(error: OSError, source: DirCache) -> None:
    """Raise ``error`` again if it concerns the whole run and not just one file.

    That includes errors of the source as a whole: no other file could be read from it either, and
    each would only fail after the server's timeout.
    """
    if error.errno in FATAL:
        raise error
    if error.errno in SERVER_GONE:
        try:
            os.fstatvfs(source.fd(""))  # a network file system does not answer this from its cache
        except OSError as now:
            if now.errno in SERVER_GONE:
                said = f"nothing comes from the source any more: {now.strerror}"
                raise OSError(now.errno, said) from error
