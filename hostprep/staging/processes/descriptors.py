"""How many files a worker may have open, so that many readers fit under the limit of a process."""

from __future__ import annotations

from hostprep.dataclass import dataclass
from hostprep.errors import Refused
from hostprep.staging.files.lookahead import WINDOW_FILES
from hostprep.system.limits import raise_open_files
from hostprep.system.trees import LEAST_OPEN, MOST_OPEN

# The source and the target of the file at hand, and what a retry opens beside them.
_AT_HAND = 4
# What a process has open beside its workers: pipes, roots, journals, what its parent left it.
_PROCESS = 64
# With less than this two workers and what is beside them do not get along.
_LEAST_FILES = 64
_A_CHILD = 2  # pipes, which its parent has open


@dataclass(frozen=True, slots=True)
class Descriptors:
    """What one worker may have open: ``directories`` in each of its caches, files ``ahead``.

    ``workers`` is how many of them that is for, which may be fewer than were asked for.
    """

    directories: int = MOST_OPEN
    ahead: int = WINDOW_FILES
    workers: int = 1


def check_descriptors() -> None:
    """Refuse to begin what would end for want of descriptors, or miss files for it."""
    allowed = raise_open_files(_LEAST_FILES)
    if allowed < _LEAST_FILES:
        raise Refused(
            f"no more than {allowed} open files are allowed here, and staging takes at least"
            f" {_LEAST_FILES}; nothing was changed.",
            "raise the limit (`ulimit -n 1024`; of a service: LimitNOFILE=) and run the same"
            " command again",
        )


def share_descriptors(workers: int) -> Descriptors:
    """Return the share of each of ``workers`` in a process, whose limit is raised as is needed.

    There are fewer of them where the limit is too low for the least that each has to have.
    """
    enough = _AT_HAND + 3 * MOST_OPEN + WINDOW_FILES
    left = _left_beside(raise_open_files(_PROCESS + workers * enough))
    workers = max(1, min(workers, left // (_AT_HAND + 3 * LEAST_OPEN + 1)))
    each = left // workers - _AT_HAND
    if each >= enough - _AT_HAND:
        return Descriptors(workers=workers)
    # Half of it for the directories of the source, the target and the files ahead.
    directories = max(LEAST_OPEN, each // 6)
    return Descriptors(directories, max(1, min(WINDOW_FILES, each - 3 * directories)), workers)


def fitting_processes(wanted: int) -> int:
    """Return of how many worker processes this one can hold the pipes, at least one of them."""
    left = _left_beside(raise_open_files(_PROCESS + wanted * 2 * _A_CHILD))
    return min(wanted, max(1, left // 2 // _A_CHILD))  # the other half is for what it does itself


def _left_beside(allowed: int) -> int:
    """Return what is for the workers; under a low limit less is put by for everything else."""
    return max(0, allowed - min(_PROCESS, allowed // 2))
