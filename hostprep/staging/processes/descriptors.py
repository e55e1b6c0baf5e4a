"""How many files a worker may have open, so that many readers fit within a process's limit."""

from __future__ import annotations

from hostprep.dataclass import dataclass
from hostprep.errors import Refused
from hostprep.staging.files.lookahead import WINDOW_FILES
from hostprep.system.limits import raise_open_files
from hostprep.system.trees import LEAST_OPEN, MOST_OPEN

# The source and the target of the current file, and what a retry opens as well.
_AT_HAND = 4
# What a process has open apart from its workers: pipes, roots, journals, inherited files.
_PROCESS = 64
# With less than this, two workers and everything else do not fit.
_LEAST_FILES = 64
_A_CHILD = 2  # pipes that its parent has open


@dataclass(frozen=True, slots=True)
class Descriptors:
    """What one worker may have open: ``directories`` in each of its caches, files ``ahead``.

    ``workers`` is for how many workers this is, which may be fewer than were asked for.
    """

    directories: int = MOST_OPEN
    ahead: int = WINDOW_FILES
    workers: int = 1


def check_descriptors() -> None:
    """Refuse a run that would fail, or leave out files, for lack of file descriptors."""
    allowed = raise_open_files(_LEAST_FILES)
    if allowed < _LEAST_FILES:
        raise Refused(
            f"no more than {allowed} open files are allowed here, and staging takes at least"
            f" {_LEAST_FILES}; nothing was changed.",
            "raise the limit (`ulimit -n 1024`; of a service: LimitNOFILE=) and run the same"
            " command again",
        )


def share_descriptors(workers: int) -> Descriptors:
    """Return the share of each of ``workers`` in a process, after raising its limit as needed.

    There are fewer workers if the limit is too low for the minimum that each needs.
    """
    enough = _AT_HAND + 3 * MOST_OPEN + WINDOW_FILES
    left = _left_beside(raise_open_files(_PROCESS + workers * enough))
    workers = max(1, min(workers, left // (_AT_HAND + 3 * LEAST_OPEN + 1)))
    each = left // workers - _AT_HAND
    if each >= enough - _AT_HAND:
        return Descriptors(workers=workers)
    # Half of it is for the directories of source and target and for the files ahead.
    directories = max(LEAST_OPEN, each // 6)
    return Descriptors(directories, max(1, min(WINDOW_FILES, each - 3 * directories)), workers)


def fitting_processes(wanted: int) -> int:
    """Return for how many worker processes this one can hold the pipes, at least one."""
    left = _left_beside(raise_open_files(_PROCESS + wanted * 2 * _A_CHILD))
    return min(wanted, max(1, left // 2 // _A_CHILD))  # the other half is for its own work


def _left_beside(allowed: int) -> int:
    """Return what is left for the workers; a low limit reserves less for everything else."""
    return max(0, allowed - min(_PROCESS, allowed // 2))
