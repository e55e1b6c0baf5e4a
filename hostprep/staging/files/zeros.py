"""Hashes of holes, which count as zeros; the state after leading zeros is computed only once.

A range that is all hole, or whose data starts late, then costs no more than copying an earlier
state; otherwise hashing would take time by the apparent size of a file.
"""

from __future__ import annotations

import xxhash

_STEP_BYTES = 2 * 1024 * 1024
_ZEROS = bytes(_STEP_BYTES)
# By the number of steps. Threads that compute the same one at once store equal states.
_after: dict[int, xxhash.xxh3_128] = {0: xxhash.xxh3_128()}


def hasher_after(count: int) -> xxhash.xxh3_128:
    """Return a hasher that has been fed ``count`` zeros and can continue from there."""
    steps, rest = divmod(count, _STEP_BYTES)
    for step in range(steps):
        if step + 1 not in _after:
            hasher = _after[step].copy()
            hasher.update(_ZEROS)
            _after[step + 1] = hasher
    hasher = _after[steps].copy()
    hasher.update(memoryview(_ZEROS)[:rest])
    return hasher


def add_zeros(hasher: xxhash.xxh3_128, count: int) -> None:
    """Feed ``count`` zeros to a hasher."""
    zeros = memoryview(_ZEROS)
    while count > 0:
        step = min(count, _STEP_BYTES)
        hasher.update(zeros[:step])
        count -= step
