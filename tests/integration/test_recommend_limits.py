"""``hostprep recommend`` under real limits: a cgroup's quota, taskset, a /dev/shm of 64 MB."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kit import failing_fs
from tests.kit.failing_fs import Rule

ROOT = Path(__file__).parents[2]
CPU_V1 = Path("/sys/fs/cgroup/cpu")
PERIOD_US = 100_000


@contextmanager
def quota(cpus: float, *, above: bool = False) -> Iterator[str]:
    """Make a cgroup with a quota; yield the shell words that move a shell into it.

    ``above``: into one below it, which has none of its own.
    """
    v2 = Path("/sys/fs/cgroup/cgroup.controllers")
    if (CPU_V1 / "cpu.cfs_quota_us").exists():
        group = CPU_V1 / f"hostprep-test-{os.getpid()}"
    elif v2.exists() and "cpu" in v2.read_text().split():
        group = v2.parent / f"hostprep-test-{os.getpid()}"
    else:
        pytest.skip("no cgroup with a cpu controller here")
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error.strerror}")
    try:
        if group.parent == CPU_V1:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(int(cpus * PERIOD_US)))
        else:
            (group / "cpu.max").write_text(f"{int(cpus * PERIOD_US)} {PERIOD_US}")
        inner = group / "inner" if above else group
        inner.mkdir(exist_ok=True)
        yield f"echo $$ > {inner}/cgroup.procs"
        assert not (inner / "cgroup.procs").read_text().split()  # nothing is left in it
    finally:
        for folder in (group / "inner", group):
            if folder.exists():
                folder.rmdir()


def recommend(*arguments: str, before: str = "true") -> dict[str, Any]:
    words = shlex.join([sys.executable, "-m", "hostprep", "recommend", *arguments, "--json"])
    done = subprocess.run(
        ["sh", "-c", f"{before} && exec {words}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def follow(found: dict[str, Any], name: str, batches: int, before: str = "true") -> None:
    """Train on what was recommended, as the code to paste has it: it must not crash."""
    match = re.fullmatch(r"DataLoader\(dataset, (.*)\)", found["code"])
    assert match
    program = (
        "import itertools\n"
        "from torch.utils.data import DataLoader\n"
        f"from tests.cli.recommend_loaders import {name}\n"
        f"dataset = {name}()\n"
        f"loader = {found['code']}\n"
        f"held = None\n"
        f"for held in itertools.islice(loader, {batches}):\n"
        "    held.sum()\n"
    )
    done = subprocess.run(
        ["sh", "-c", f"{before} && exec {shlex.join([sys.executable, '-c', program])}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("cpus", "above"), [(0.5, False), (1.0, True)])
def test_a_quota_is_seen(cpus: float, above: bool) -> None:
    if (os.cpu_count() or 1) < 2:
        pytest.skip("one processor: a quota of one would not bind")
    with quota(cpus, above=above) as enter:
        host = recommend(before=enter)
    assert host["evidence"]["host"]["quota_cpus"] == cpus
    assert host["num_workers"] == 1
    assert "quota of cgroup" in " ".join(host["evidence"]["reasons"])
    assert "cpu_quota" in {hazard["code"] for hazard in host["hazards"]}


@pytest.mark.timed
def test_a_quota_is_followed() -> None:
    with quota(0.5, above=True) as enter:
        found = recommend(
            "--loader",
            "tests.cli.recommend_loaders:Working",
            "--batch-size",
            "8",
            "--seconds",
            "14",
            before=enter,
        )
        assert found["binding"] == "cpu"
        # What is throttled is not taken for waiting, and no number of workers makes it faster.
        sample = found["evidence"]["sample"]
        assert sample["waiting_seconds"] < 0.3 * sample["worker_seconds"]
        assert found["num_workers"] <= 4
        follow(found, "Working", 6, before=enter)


def on_one_processor() -> str:
    return f"taskset -p -c {min(os.sched_getaffinity(0))} $$ >/dev/null"


def test_taskset_is_seen() -> None:
    host = recommend(before=on_one_processor())
    assert host["evidence"]["host"]["affinity_cpus"] == 1
    assert host["num_workers"] == 1


@pytest.mark.timed
def test_taskset_is_followed() -> None:
    before = on_one_processor()
    found = recommend(
        "--loader", "tests.cli.recommend_loaders:Working", "--seconds", "14", before=before
    )
    assert found["binding"] in ("cpu", "transport")
    assert found["num_workers"] <= 4
    probes = [probe for probe in found["evidence"]["probes"] if probe["workers"]]
    assert probes and all(probe["worker_affinity_cpus"] == 1 for probe in probes)


@pytest.fixture
def small_shm(private_namespace: Path) -> Iterator[None]:
    """Put 64 MB over /dev/shm, in this process's private mount namespace."""
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m,mode=1777", "small-shm", "/dev/shm"], check=True
    )
    try:
        yield
    finally:
        subprocess.run(["umount", "/dev/shm"], check=True)


@pytest.mark.parametrize(("name", "most"), [("Large", 2), ("Huge", 0)])
def test_a_small_shm_bounds_the_workers_and_nothing_crashes(
    small_shm: None, name: str, most: int
) -> None:
    found = recommend("--loader", f"tests.cli.recommend_loaders:{name}", "--seconds", "10")
    assert found["num_workers"] <= most
    assert found["shm_bytes"] <= 64 << 20
    codes = {hazard["code"] for hazard in found["hazards"]}
    assert codes >= {"shm_small", "shared_memory_short"}
    assert not found["evidence"]["failed_probes"]
    bound = next(b for b in found["evidence"]["bounds"] if b["binding"] == "shared_memory")
    assert bound["workers"] == most
    follow(found, name, 20)


def test_ignoring_the_bound_is_the_crash_that_it_prevents(small_shm: None) -> None:
    with pytest.raises(AssertionError, match=r"shared memory|Bus error|No space left"):
        follow({"code": "DataLoader(dataset, batch_size=32, num_workers=4)"}, "Huge", 20)


@pytest.mark.parametrize("hanging", ["*", "*/below"])
def test_a_data_set_whose_mount_hangs_is_not_waited_for(safe_dir: Path, hanging: str) -> None:
    behind = safe_dir / "behind"
    (behind / "folder" / "below").mkdir(parents=True)
    (behind / "folder" / "a.bin").write_bytes(b"a")
    with failing_fs.failing_fs(behind, where=safe_dir) as broken:
        broken.tell(Rule(hanging, "readdir", error=None, hang_seconds=60))
        begun = time.monotonic()
        words = ["recommend", "--json", "--dataset", str(broken.mount / "folder")]
        done = subprocess.run(
            [sys.executable, "-m", "hostprep", *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        took = time.monotonic() - begun
    assert done.returncode == 4
    assert "does not answer" in json.loads(done.stdout)["error"]["message"]
    assert took < 40
