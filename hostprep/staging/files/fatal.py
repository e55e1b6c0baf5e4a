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
    """Raise ``error`` again where it concerns the whole run, not one file.

    That is also one that the source as a whole gives: no other file would come from it either, and
    each would fail only after its server's time.
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
