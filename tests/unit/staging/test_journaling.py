"""When a worker writes down what it has done: a kill costs what it had not."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from hostprep.staging.batches import pack_batches
from hostprep.staging.processes import copier as module
from hostprep.staging.processes.descriptors import Descriptors
from hostprep.staging.processes.job import Job
from hostprep.staging.processes.worker import Worker
from hostprep.staging.record.journal import Journal
from hostprep.staging.tree import entry_of


@pytest.mark.parametrize(("seconds_a_file", "expected"), [(0.0, [6]), (0.3, [2, 2, 2])])
def test_a_long_task_is_journaled_while_it_lasts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seconds_a_file: float,
    expected: list[int],
) -> None:
    """An arm's task has 512 files, which may be seconds of work; a quick one is one line."""
    for name in ("source", "target", "private"):
        (tmp_path / name).mkdir()
    source, target, private = (
        os.open(tmp_path / name, os.O_RDONLY) for name in ("source", "target", "private")
    )
    batches = []
    for number in range(6):
        path = tmp_path / "source" / f"f{number}"
        path.write_bytes(b"data")
        entry = entry_of(path.name, os.lstat(path))
        batches += [(batch.directory, batch.packed) for batch in pack_batches("", [entry])]
    now = 0.0
    copy_small = module.copy_small

    def copy_slowly(*args: object) -> object:
        nonlocal now
        now += seconds_a_file
        return copy_small(*args)  # type: ignore[arg-type]

    written: list[int] = []
    write = Journal.write

    def count(self: Journal, done: list[tuple[str, list[str]]]) -> None:
        written.append(sum(len(records) for _, records in done))
        write(self, done)

    monkeypatch.setattr(module, "copy_small", copy_slowly)
    monkeypatch.setattr(module, "monotonic", lambda: now)
    monkeypatch.setattr(Journal, "write", count)
    journal = Journal(private)
    worker = Worker(Job(source, target, private), journal, Descriptors())
    try:
        files = worker.do("copy", (batches, {}))[0]
    finally:
        worker.close()
        journal.close()
        for descriptor in (source, target, private):
            os.close(descriptor)

    assert files == 6
    assert [number for number in written if number] == expected
    (lines,) = (tmp_path / "private").glob("journal.*")
    assert sum(line.count(b'"f') >= 1 for line in lines.read_bytes().splitlines()) == 6


def test_a_target_that_takes_no_journal_fails_a_task_and_no_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that an error has just made read-only: its user is told so, and sees no traceback."""
    directory = os.open(tmp_path, os.O_RDONLY)

    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        journal = Journal(directory)
        journal.write([("", [])])
        with pytest.raises(OSError, match="Read-only"):
            journal.write([("", ["[]"])])
    journal.close()
    os.close(directory)
    assert list(tmp_path.iterdir()) == []
