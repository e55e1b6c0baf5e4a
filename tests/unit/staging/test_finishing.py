"""Who finishes directories: this process where that is quick, and workers where they are better."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hostprep.staging.observer import Silent
from hostprep.staging.processes.worker import Worker
from hostprep.staging.publishing.finishing import finish_directories
from hostprep.staging.tree import entry_of


@pytest.mark.parametrize("of_workers", [(), ("gentle",), ("served",)])
def test_what_only_workers_can_do_is_not_done_here(
    of_workers: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the priority of whoever started it, and hears no Ctrl-C while a server is silent."""
    source, target, pids = (tmp_path / name for name in ("source", "target", "pids"))
    for number in range(10):
        (source / f"{number}").mkdir(parents=True)
        (source / f"{number}").chmod(0o700 + number)
    target.mkdir()
    do = Worker.do

    def recorded(self: Worker, kind: str, payload: Any) -> Any:
        with pids.open("a") as file:
            file.write(f"{os.getpid()}\n")
        return do(self, kind, payload)

    monkeypatch.setattr(Worker, "do", recorded)
    directories = {name: entry_of(name, os.lstat(source / name)) for name in map(str, range(10))}
    roots = [os.open(path, os.O_RDONLY) for path in (source, target)]
    finish_directories(
        directories,
        *roots,
        processes=1,
        threads=1,
        observer=Silent(),
        **dict.fromkeys(of_workers, True),  # type: ignore[arg-type]
    )
    for root in roots:
        os.close(root)
    assert (target / "7").stat().st_mode & 0o777 == 0o707
    (pid,) = set(map(int, pids.read_text().split()))
    assert (pid != os.getpid()) is bool(of_workers)
