"""What the user as whom this runs may do with a file, asked of the kernel."""

from __future__ import annotations

import os
from pathlib import Path


def may_access(path: str | Path, mode: int) -> bool:
    """Return what ``os.access`` says of the effective user.

    Old container runtimes refuse faccessat2, which that takes, with another error than the C
    library waits for: everything would be forbidden there. Where both users are the same one the
    old system call tells as well.
    """
    if os.access(path, mode, effective_ids=True):
        return True
    return os.getuid() == os.geteuid() and os.access(path, mode)
