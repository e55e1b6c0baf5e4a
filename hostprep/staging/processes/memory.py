"""How many threads fit into a process whose address space is limited (``ulimit -v``).

Batch systems set such a limit. Mapped memory counts even if it is not used: a thread's whole stack.
"""

from __future__ import annotations

import resource

from hostprep.staging.files.transfer import BUFFER_BYTES
from hostprep.system.limits import address_space_left, keep_to_one_heap

_USUAL_STACK_BYTES = 8 * 1024 * 1024
# What a thread uses besides its buffer: whole small files, lists of directory entries.
_AT_HAND_BYTES = 4 * 1024 * 1024
# What the process uses besides its threads: messages, its journal, modules loaded later.
_PROCESS_BYTES = 16 * 1024 * 1024


def fitting_threads(wanted: int) -> int:
    """Return for how many of ``wanted`` threads there is room, at least one."""
    left = address_space_left()
    if left is None:
        return wanted
    keep_to_one_heap()
    stack = resource.getrlimit(resource.RLIMIT_STACK)[0]
    if stack == resource.RLIM_INFINITY:
        stack = _USUAL_STACK_BYTES
    each = stack + BUFFER_BYTES + _AT_HAND_BYTES
    return min(wanted, max(1, (left - _PROCESS_BYTES) // each))
