"""Compares an existing file with its recorded hash, or a symlink with its recorded target."""

from __future__ import annotations

import os
from stat import S_ISREG

from hostprep.staging.files import transfer
from hostprep.staging.files.leases import open_unleased
from hostprep.staging.reasons import OTHER_CONTENT
from hostprep.system.trees import FILE_FLAGS, DirCache


def difference(
    cache: DirCache,
    directory: str,
    file: tuple[str, str, int, str],
    buffer: memoryview,
    *,
    cold: bool,
) -> str | None:
    """Read a file or symlink, (kind, name, size, content); return how it differs, None if not.

    A ``cold`` file is dropped from the page cache first, so that it is really read from the disk.
    """
    kind, name, size, content = file
    try:
        if kind == "l":
            found = os.readlink(name, dir_fd=cache.fd(directory))
            return None if found == content else OTHER_CONTENT
        # Not blocking, because a fifo may have taken the file's place.
        descriptor = open_unleased(name, FILE_FLAGS, dir_fd=cache.fd(directory))
        try:
            st = os.fstat(descriptor)
            if not S_ISREG(st.st_mode):
                return "is not a file any more"
            if cold:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            if st.st_size != size:
                return "has another size"
            same = transfer.hash_file(descriptor, size, buffer) == content
            return None if same else OTHER_CONTENT
        finally:
            os.close(descriptor)
    except OSError as error:
        return error.strerror or str(error)
    except transfer.Changed:
        return "ends early"
