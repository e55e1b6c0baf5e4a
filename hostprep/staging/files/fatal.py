"""Errors that concern the whole run, not one file: nothing is to be gained by going on."""

from __future__ import annotations

import errno
import os

from hostprep.errors import SERVER_GONE
from hostprep.system.trees import DirCache

FATAL = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)


def raise_if_of_all(error: OSError, source: DirCache) -> None:
    """Raise an error again that concerns the whole run, not one file.

    So it does where the source as a whole gives such a one: of all files that are left none would
    come, each of them after its server's time.
    """
    if error.errno in FATAL:
        raise error
    if error.errno in SERVER_GONE:
        try:
            os.fstatvfs(source.fd(""))  # what a network file system does not answer from its cache
        except OSError as now:
            if now.errno in SERVER_GONE:
                said = f"nothing comes from the source any more: {now.strerror}"
                raise OSError(now.errno, said) from error
