"""``make bench``: the whole command ``hostprep stage`` compared with whole commands of its peers.

All copy the same data in the same run, taking turns; the results are medians, and every target is a
fresh tmpfs. Needs root, and works in a mount namespace of its own. Results are kept in
``results.json``, by scenario and machine; ``README.md`` here and a table in the project's README
are written from them.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import data, peers
from benchmarks.measure import Run, compact, drop_caches, machine, measure, warm
from benchmarks.report import host_of, write_front, write_readme

if TYPE_CHECKING:
    from benchmarks.rigs.arm import ArmDisk

HERE = Path(__file__).parent
VOLUME = Path("/mnt/hostprep")
TARGET = Path("/mnt/peer")
SCRATCH = Path("/mnt/rig")
HOSTPREP = str(Path(sys.executable).with_name("hostprep"))
VERIFY = ("readback", "inflight", "none")

_TOUCHED_BYTES = 8 * 2**30  # as much as the largest set takes, a million inodes included
_ZEROS = bytes(2 * 2**20)

# Makes a source below the working directory and removes what must not stay.
Source = Callable[[Path], contextlib.AbstractContextManager[Path]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is compared. ``prepare`` is done before each run, and not timed.

    With ``between``, the second run is timed: the first has filled the target, and then ``between``
    was done to the source.
    """

    name: str
    title: str
    contenders: tuple[peers.Peer, ...]
    source: Source
    prepare: Callable[[Path], None]
    size: str = "6G"
    verify: tuple[str, ...] = ("readback",)
    between: Callable[[Path], None] | None = None


def main() -> int:
    """Run the scenarios that were asked for and write the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stage", description=__doc__)
    parser.add_argument("--only", action="append", help="run only this scenario; may be repeated")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", type=Path, default=Path("/var/tmp/hostprep-bench"))
    parser.add_argument("--keep", action="store_true", help="keep the data sets")
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("the benchmarks mount fresh tmpfs volumes and drop caches: run them as root")
        return 1
    unknown = set(options.only or ()) - {scenario.name for scenario in SCENARIOS}
    if unknown:
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    options.work.mkdir(parents=True, exist_ok=True)
    private_namespace(options.work)
    try:
        for scenario in SCENARIOS:
            if not options.only or scenario.name in options.only:
                keep(run_scenario(scenario, options.rounds, options.work))
    finally:
        if not options.keep:
            shutil.rmtree(options.work)
    return 0


def private_namespace(work: Path) -> None:
    """Leave the machine's mounts, state and fstab alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x20000) != 0:
        raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWNS) failed")
    mount("--make-rprivate", "/")
    mount("-t", "tmpfs", "-o", "mode=0755,size=90%", "bench", "/mnt")
    for directory in (TARGET, SCRATCH):
        directory.mkdir()
    # An installed hostprep has its bytecode, and so should the one that is measured.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    state = work / "state"
    os.environ.update(
        HOSTPREP_STATE_DIR=str(state),
        HOSTPREP_RUN_DIR=str(state / "run"),
        HOSTPREP_FSTAB=str(state / "fstab"),
    )


def mount(*args: str) -> None:
    subprocess.run(["mount", *args], check=True)


def run_scenario(scenario: Scenario, rounds: int, work: Path) -> dict[str, object]:
    """Run all contenders in turn, ``rounds`` times, and return medians and all single times."""
    print(f"== {scenario.name}: {scenario.title}", flush=True)
    contenders = [peer for peer in scenario.contenders if peer.installed]
    missing = [peer.name for peer in scenario.contenders if not peer.installed]
    notes: dict[str, float] = {}
    with scenario.source(work) as source:
        entries: list[tuple[str, Callable[[], Run]]] = [
            (f"hostprep ({mode})", partial(run_hostprep, source, scenario, mode))
            for mode in scenario.verify
        ]
        entries += [
            (peer.name, partial(run_peer, peer, source, scenario.between)) for peer in contenders
        ]
        runs: dict[str, list[Run]] = {name: [] for name, _ in entries}
        for number in range(rounds):
            # Each round begins with another contender: the first one is at a disadvantage.
            first = number % len(entries)
            for name, run in entries[first:] + entries[:first]:
                scenario.prepare(source)
                warm_up()
                runs[name].append(run())
            line = ", ".join(f"{name} {times[-1].seconds:.2f}" for name, times in runs.items())
            print(f"   round {number + 1}: {line}", flush=True)
        extra = PURE_SECONDS.get(scenario.name)
        if extra is not None:
            notes["pure transfer seconds"] = extra(source)
    return {
        "name": scenario.name,
        "title": scenario.title,
        "machine": machine(),
        "date": time.strftime("%Y-%m-%d"),
        "memory": "compacted, and touched by a fill of 8 GiB",
        "missing": missing,
        "notes": notes,
        "runs": {name: [asdict(run) for run in found] for name, found in runs.items()},
        "medians": {
            name: {
                field: statistics.median(getattr(run, field) for run in found)
                for field in ("seconds", "cpu_seconds", "peak_bytes")
            }
            for name, found in runs.items()
        },
    }


def run_hostprep(source: Path, scenario: Scenario, verify: str) -> Run:
    """Time the whole command: mount, scan, copy, verify, publish; unstaging is not timed."""
    name = "bench"
    args = [HOSTPREP, "stage", str(source), "--to-tmpfs", scenario.size, "--name", name, "--json"]
    try:
        return run_command([*args, "--verify", verify], source, scenario.between)
    finally:
        subprocess.run([HOSTPREP, "unstage", name], check=True, capture_output=True)


def run_peer(peer: peers.Peer, source: Path, between: Callable[[Path], None] | None) -> Run:
    """Time a peer's whole command into a fresh tmpfs with default options."""
    mount("-t", "tmpfs", "-o", "size=6G,nr_inodes=2m", "bench", str(TARGET))
    try:
        target = TARGET / "copy"
        target.mkdir()
        return run_command(peer.command(source, target), source, between)
    finally:
        subprocess.run(["umount", str(TARGET)], check=True)


def run_command(args: list[str], source: Path, between: Callable[[Path], None] | None) -> Run:
    """Time a command, or with ``between`` its second run."""
    if between is not None:
        measure(args)
        between(source)
    return measure(args)


def warm_up() -> None:
    """Bring memory into the same state before each run: unfragmented, and touched a moment ago.

    Every run leaves it fragmented for the next, and in a virtual machine memory that was free for
    some seconds goes back to the host: the first fill after that is several times slower.
    """
    compact()
    mount("-t", "tmpfs", "-o", "size=9G,huge=within_size", "warm", str(TARGET))
    try:
        with (TARGET / "zeros").open("wb") as file:
            file.truncate(_TOUCHED_BYTES)
            for _ in range(_TOUCHED_BYTES // len(_ZEROS)):
                file.write(_ZEROS)
    finally:
        subprocess.run(["umount", str(TARGET)], check=True)


def keep(result: dict[str, object]) -> None:
    """Replace this machine's earlier result of a scenario; write the tables again.

    Even if that was made with another Python: the latest measurement is kept.
    """
    path = HERE / "results.json"
    results = json.loads(path.read_text()) if path.exists() else []
    same = result["name"], host_of(result)
    results = [other for other in results if (other["name"], host_of(other)) != same]
    results.append(result)
    order = [scenario.name for scenario in SCENARIOS]
    results.sort(key=lambda other: (host_of(other), order.index(other["name"])))
    path.write_text(json.dumps(results, indent=1) + "\n")
    write_readme(HERE / "README.md", results)
    write_front(HERE.parent / "README.md", results)


# -- sources


def on_disk(
    make: Callable[[Path], Path],
) -> Callable[[Path], contextlib.AbstractContextManager[Path]]:
    @contextlib.contextmanager
    def source(work: Path) -> Iterator[Path]:
        yield make(work)

    return source


@contextlib.contextmanager
def arm_source(work: Path) -> Iterator[Path]:
    """4,000 files of about 100 KB on a hard disk (the rig ``arm``)."""
    from benchmarks.rigs import arm

    with arm.arm_disk(16 * 2**30, SCRATCH) as disk:
        total, root = arm.write_scattered(disk, 4000, 100_000, 50)
        ARM[root] = (disk, total)
        yield root


@contextlib.contextmanager
def far_source(work: Path) -> Iterator[Path]:
    """4,000 files of about 100 KB; each open and each read takes 10 ms (the rig ``far``)."""
    from benchmarks.rigs import far

    files = data.make_files(work / "far", 4000, mu=11.4, sigma=0.3, folders=50)
    with far.far_source(files, SCRATCH) as source:
        yield source.mount


ARM: dict[Path, tuple[ArmDisk, int]] = {}


def remount_arm(source: Path) -> None:
    disk, _ = ARM[source]
    disk.remount()
    disk.reset()


def cold(source: Path) -> None:
    del source
    drop_caches()


def nothing(source: Path) -> None:
    del source


def rewrite_some(source: Path) -> None:
    """Give every hundredth file other content of the same size."""
    for path in sorted(path for path in source.rglob("*") if path.is_file())[::100]:
        path.write_bytes(path.read_bytes()[::-1])
    os.sync()  # or the disk would be busy with them during the timed run


PURE_SECONDS: dict[str, Callable[[Path], float]] = {"arm": lambda source: ARM[source][1] / 160e6}

SCENARIOS = (
    Scenario(
        "imagenet-warm",
        "15,000 files of about 100 KB, warm",
        peers.ALL,
        on_disk(data.make_imagenet_like),
        warm,
        verify=VERIFY,
    ),
    Scenario(
        "imagenet-cold",
        "15,000 files of about 100 KB, cold",
        (*peers.ALL, peers.READING),
        on_disk(data.make_imagenet_like),
        cold,
    ),
    Scenario(
        "tiny-warm",
        "120,000 files of about 2 KB, warm",
        peers.ALL,
        on_disk(data.make_tiny),
        warm,
        verify=VERIFY,
    ),
    Scenario(
        "tiny-cold",
        "120,000 files of about 2 KB, cold",
        (*peers.ALL, peers.READING),
        on_disk(data.make_tiny),
        cold,
    ),
    Scenario(
        "tiny-again",
        "120,000 files of about 2 KB, again: nothing has changed",
        peers.UPDATERS,
        on_disk(data.make_tiny),
        warm,
        between=nothing,
    ),
    Scenario(
        "tiny-changed",
        "120,000 files of about 2 KB, again: 1,200 have changed",
        peers.UPDATERS,
        on_disk(data.make_tiny),
        warm,
        between=rewrite_some,
    ),
    Scenario(
        "folders-warm",
        "40,000 folders of one file of about 3 KB, warm",
        (peers.CP, peers.RSYNC, peers.TAR),
        on_disk(data.make_folders),
        warm,
    ),
    Scenario(
        "medium-warm",
        "500 files of 4 MiB, warm",
        (peers.CP, peers.TAR),
        on_disk(data.make_medium),
        warm,
        verify=VERIFY,
    ),
    Scenario(
        "shards-warm",
        "3 files of 1 GiB, warm",
        (peers.CP,),
        on_disk(data.make_shards),
        warm,
        verify=VERIFY,
    ),
    Scenario(
        "arm",
        "4,000 files of about 100 KB on a disk with one arm",
        (peers.CP, peers.RSYNC),
        arm_source,
        remount_arm,
    ),
    Scenario(
        "far",
        "4,000 files of about 100 KB, 10 ms a request",
        (peers.RSYNC,),
        far_source,
        nothing,
    ),
    Scenario("ten", "10 files", (peers.CP,), on_disk(data.make_ten), warm),
    Scenario(
        "kilo-100k",
        "100,000 files of 1 KB, warm",
        (),
        on_disk(lambda work: data.make_kilobytes(work, 100_000)),
        warm,
    ),
    Scenario(
        "kilo-1m",
        "1,000,000 files of 1 KB, warm",
        (),
        on_disk(lambda work: data.make_kilobytes(work, 1_000_000)),
        warm,
    ),
)

if __name__ == "__main__":
    sys.exit(main())
