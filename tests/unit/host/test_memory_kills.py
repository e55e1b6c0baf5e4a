"""What the kernel counts of processes that it killed for want of memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from hostprep.host.memory_kills import read_memory_kills, what_ran_out

_MOUNT = "31 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"


def _host(root: Path, *, kills: int, parent: int, own: int) -> Path:
    """A job in a slice, in the format of Linux 6.1."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text("0::/jobs.slice/job.scope\n")
    (root / "proc/self/mountinfo").write_text(_MOUNT)
    (root / "proc/vmstat").write_text(f"nr_free_pages 700000\noom_kill {kills}\n")
    group = root / "sys/fs/cgroup"
    for name, times in (("jobs.slice", parent), ("job.scope", own)):
        group = group / name
        group.mkdir(parents=True)
        text = (
            f"low 0\nhigh 0\nmax 63\noom {times}\noom_kill {kills if name == 'job.scope' else 0}\n"
        )
        (group / "memory.events.local").write_text(text)
    return root


@pytest.mark.parametrize(
    ("now", "words"),
    [
        ({"kills": 4, "parent": 1, "own": 0}, None),
        ({"kills": 5, "parent": 1, "own": 1}, "cgroup /sys/fs/cgroup/jobs.slice/job.scope was"),
        ({"kills": 5, "parent": 2, "own": 0}, "cgroup /sys/fs/cgroup/jobs.slice was reached"),
        ({"kills": 5, "parent": 1, "own": 0}, "memory ran out"),
    ],
)
def test_whose_limit_it_was(tmp_path: Path, now: dict[str, int], words: str | None) -> None:
    before = read_memory_kills(_host(tmp_path / "before", kills=4, parent=1, own=0))
    found = what_ran_out(before, read_memory_kills(_host(tmp_path / "now", **now)))
    assert found is None if words is None else words in (found or "")


def test_a_kernel_that_does_not_count_them_tells_of_none(tmp_path: Path) -> None:
    root = _host(tmp_path, kills=0, parent=0, own=0)
    (root / "proc/vmstat").write_text("nr_free_pages 700000\n")
    assert read_memory_kills(root).killed == 0


def test_what_was_killed_elsewhere_on_the_machine_is_not_ours(tmp_path: Path) -> None:
    before = read_memory_kills(_host(tmp_path / "before", kills=4, parent=1, own=0))
    now = _host(tmp_path / "now", kills=4, parent=2, own=0)
    (now / "proc/vmstat").write_text("oom_kill 9\n")
    assert what_ran_out(before, read_memory_kills(now)) is None
