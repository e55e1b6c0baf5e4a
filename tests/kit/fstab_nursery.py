"""Kill edits of an fstab at random moments, many times, and tell what each left behind.

    python -m tests.kit.fstab_nursery FSTAB KILLS checked|unchecked

This process imports hostprep once and forks writers, which set and remove a volume's line for ever;
each is killed with SIGKILL after a random delay of up to two such rounds. Prints one JSON document:
how often which content (hex) was found after a kill, which modes the file had, and how many other
files lay beside it.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NoReturn

from hostprep.volumes import fstab_file
from hostprep.volumes.fstab_line import remove_volume, set_volume

PATH = "/mnt/hostprep"
_PR_SET_CHILD_SUBREAPER = 36


def with_volume(content: bytes) -> bytes:
    options = ["nosuid", "size=1048576"]
    return set_volume(content, path=PATH, options=options)


def without_volume(content: bytes) -> bytes:
    return remove_volume(content, path=PATH)


def unchecked() -> None:
    """Have no judge look at a new fstab: most of an edit's time goes to those."""
    fstab_file.check_new_fstab = lambda **files: None


def one_round(fstab: Path) -> None:
    fstab_file.edit_fstab(fstab, with_volume)
    fstab_file.edit_fstab(fstab, without_volume)


def write_for_ever(fstab: Path) -> NoReturn:
    while True:
        one_round(fstab)


def main(fstab: Path, kills: int) -> None:
    # What a killed writer had started (findmnt, the generator) becomes ours to wait for.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    contents, modes, litter = Counter[str](), Counter[int](), Counter[int]()
    started = time.monotonic()
    one_round(fstab)
    round_seconds = time.monotonic() - started
    for _ in range(kills):
        child = os.fork()
        if child == 0:
            try:
                write_for_ever(fstab)
            finally:
                os._exit(3)  # an error: the parent sees that it was not the kill
        time.sleep(random.uniform(0, 2 * round_seconds))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            sys.exit("a writer failed by itself")
        contents[fstab.read_bytes().hex()] += 1
        modes[fstab.stat().st_mode & 0o7777] += 1
        litter[len(os.listdir(fstab.parent)) - 1] += 1
        reap_orphans()
    print(json.dumps({"contents": contents, "modes": modes, "litter": litter}))


def reap_orphans() -> None:
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        pass


if __name__ == "__main__":
    if sys.argv[3] == "unchecked":
        unchecked()
    main(Path(sys.argv[1]), int(sys.argv[2]))
