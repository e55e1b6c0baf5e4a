"""What workers have copied is known before they answer."""

from __future__ import annotations

import marshal
import os
from pathlib import Path

from hostprep.staging.files import transfer
from hostprep.staging.processes.descriptors import Descriptors
from hostprep.staging.processes.effort import Effort
from hostprep.staging.processes.job import Job
from hostprep.staging.processes.worker import Worker
from hostprep.staging.tree import entry_of


def test_what_forked_processes_count_is_added_up() -> None:
    effort = Effort(3)
    for reader in range(3):
        if (child := os.fork()) == 0:
            counters = effort.of(reader)
            counters[0] += 1 + reader
            counters[1] += 100
            os._exit(0)
        os.waitpid(child, 0)
    assert effort.total() == (6, 300)


def test_each_small_file_counts_and_each_piece_of_a_large_one(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    (source / "small").write_bytes(b"x" * 1000)
    (source / "medium").write_bytes(b"y" * (transfer.BUFFER_BYTES + 1))
    effort = Effort(1)
    roots = [os.open(path, os.O_RDONLY) for path in (source, target)]
    worker = Worker(Job(roots[0], roots[1]), None, Descriptors(), counters=effort.of(0))
    for name, total in (("small", (1, 1000)), ("medium", (3, 1000 + transfer.BUFFER_BYTES + 1))):
        entry = entry_of(name, os.lstat(source / name))
        worker.do("copy", ([("", marshal.dumps([tuple(entry)]))], {}))
        assert effort.total() == total
    worker.close()
    for root in roots:
        os.close(root)
