"""How many files a worker may have open, so that many readers fit under the limit of a process."""

from __future__ import annotations

import resource

from hostprep.dataclass import dataclass
from hostprep.staging.files.lookahead import WINDOW_FILES
from hostprep.system.trees import MOST_OPEN

# The source and the target of the file at hand, and what a retry opens beside them.
_AT_HAND = 4
_LEAST_DIRECTORIES = 2
# What a process has open beside its workers: pipes, roots, journals, what its parent left it.
_PROCESS = 64


@dataclass(frozen=True, slots=True)
class Descriptors:
    """What one worker may have open: ``directories`` in each of its caches, files ``ahead``."""

    directories: int = MOST_OPEN
    ahead: int = WINDOW_FILES


def share_descriptors(workers: int) -> Descriptors:
    """Return the share of each of ``workers`` in a process, whose limit is raised as is needed.

    The usual soft limit is 1024, for programs that use select(2); the hard one is far above it.
    """
    enough = _AT_HAND + 3 * MOST_OPEN + WINDOW_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _PROCESS + workers * enough
    if soft < wanted and (hard == resource.RLIM_INFINITY or soft < hard):
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    each = max(0, soft - _PROCESS) // workers - _AT_HAND
    if each >= enough - _AT_HAND:
        return Descriptors()
    # Half of it for the directories of the source, the target and the files ahead.
    directories = max(_LEAST_DIRECTORIES, each // 6)
    return Descriptors(directories, max(1, min(WINDOW_FILES, each - 3 * directories)))
