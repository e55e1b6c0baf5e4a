"""How many threads have room in a process whose address space is limited (``ulimit -v``).

Schedulers of clusters set such a limit. What is mapped counts, used or not: of a thread its stack.
"""

from __future__ import annotations

import resource

from hostprep.staging.files.transfer import BUFFER_BYTES
from hostprep.system.limits import address_space_left, keep_to_one_heap

_USUAL_STACK_BYTES = 8 * 1024 * 1024
# What a thread has at hand beside its buffer: small files whole, lists of what is in directories.
_AT_HAND_BYTES = 4 * 1024 * 1024
# What the process takes beside its threads: messages, its journal, modules that are loaded late.
_PROCESS_BYTES = 16 * 1024 * 1024


def fitting_threads(wanted: int) -> int:
    """Return how many of ``wanted`` threads there is room for, at least one."""
    left = address_space_left()
    if left is None:
        return wanted
    keep_to_one_heap()
    stack = resource.getrlimit(resource.RLIMIT_STACK)[0]
    if stack == resource.RLIM_INFINITY:
        stack = _USUAL_STACK_BYTES
    each = stack + BUFFER_BYTES + _AT_HAND_BYTES
    return min(wanted, max(1, (left - _PROCESS_BYTES) // each))
