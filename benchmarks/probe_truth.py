"""Compare ``hostprep probe`` with the truth: fio run by hand, rigs that count, limits, epochs.

    python -m benchmarks.probe_truth [--rounds 3] [--where DIR]

Needs root, works in a private mount namespace, and takes about twelve minutes. Writes
README-probe.md here; the exit status is 1 if a figure is outside its margin.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.rigs.arm import arm_disk, write_scattered
from benchmarks.rigs.far import far_source
from hostprep.host.block import locate
from hostprep.probing import fio
from hostprep.probing.judge import judge
from hostprep.probing.layout import write_file
from hostprep.probing.model import Measured, Settings
from hostprep.probing.probe import probe, target
from tests.kit import loops

MIB = 1 << 20
PASSES = (("read", MIB, 1), ("read", MIB, 32), ("randread", 4096, 1), ("randread", 4096, 32))


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison: ratios of the probe's figures to the truth, and the margin they must keep."""

    what: str
    said: float
    truth: float
    unit: str
    margin: float
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def kept(self) -> bool:
        return abs(self.ratio - 1) <= self.margin

    def markdown(self) -> str:
        kept = "yes" if self.kept else "**no**"
        spread = f"{min(self.ratios):.3f} to {max(self.ratios):.3f}"
        return (
            f"| {self.what} | {self.said:,.0f} | {self.truth:,.0f} | {self.unit} | "
            f"{self.ratio:.3f} | {spread} | {self.margin:.0%} | {kept} |"
        )


class Watch:
    """An observer that reads a rig's counters at the boundaries of all phases."""

    def __init__(self, truth: Callable[[], Any] = lambda: None) -> None:
        self.truth = truth
        self.borders: list[tuple[str, Any]] = []

    def phase(self, name: str, seconds: float) -> None:
        self.borders.append((name, self.truth()))

    def progress(self, text: str) -> None:
        pass


def row(what: str, pairs: list[tuple[float, float]], unit: str, margin: float) -> Row:
    """Return the comparison of (said, truth) pairs, one per round; shows the medians of both."""
    return Row(
        what,
        statistics.median(said for said, _ in pairs),
        statistics.median(truth for _, truth in pairs),
        unit,
        margin,
        tuple(said / truth for said, truth in pairs),
    )


def by_hand(file: str, pattern: str, block: int, depth: int, seconds: float) -> float:
    """Run fio as one would in a shell; return bytes a second."""
    line = [
        "fio", "--name=hand", f"--filename={file}", f"--rw={pattern}", f"--bs={block}",
        f"--iodepth={depth}", "--ioengine=libaio", "--direct=1",
        f"--runtime={round(seconds * 1000)}ms",  # fio takes 1.5 for one second
        "--time_based", "--readonly", "--randrepeat=0", "--norandommap", "--output-format=json",
    ]  # fmt: skip
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout)["jobs"][0]["read"]["bw_bytes"])


def against_fio(where: Path, rounds: int, seconds: float) -> list[Row]:
    """Both in turn on one file, in the order A B B A; the control is fio by hand against itself."""
    rows = []
    with tempfile.TemporaryDirectory(dir=where) as folder:
        file = write_file(Path(folder, "data"), 1024 * MIB, 30)
        by_hand(file.path, "read", MIB, 32, seconds)  # a virtual disk may burst at first
        for pattern, block, depth in PASSES:
            job = fio.Job(
                file.opened, file.path, pattern, block, depth, seconds, file.size_bytes, True
            )
            pairs, control = [], []
            for _ in range(rounds):
                first = fio.measure(job).bytes_per_s
                hand = [by_hand(file.path, pattern, block, depth, seconds) for _ in range(2)]
                said = first + fio.measure(job).bytes_per_s
                pairs.append((said / 2e3, sum(hand) / 2e3))
                control.append((hand[0] / 1e3, hand[1] / 1e3))
            what = f"{pattern}, {block} bytes, depth {depth}"
            rows.append(row(what, pairs, "kB/s", 0.05))
            rows.append(row(f"{what}: control, hand and hand", control, "kB/s", 1.0))
    return rows


def on_arm(where: Path, rounds: int) -> list[Row]:
    """The same on a disk whose times are a model's, with no other disturbance."""
    with arm_disk(4096 * MIB, where) as disk:
        return against_fio(disk.mount, rounds, 4)


def epoch_seconds(root: Path, readers: int) -> float:
    """Read every file once, shuffled, by several processes as a DataLoader would."""
    files = [str(file) for file in root.rglob("*") if file.is_file()]
    random.Random(7).shuffle(files)
    script = "import sys\nfor name in sys.stdin.read().split('\\0'):\n  open(name, 'rb').read()"
    begun = time.monotonic()
    children = [
        subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, text=True)
        for _ in range(readers)
    ]
    for number, child in enumerate(children):
        assert child.stdin is not None
        child.stdin.write("\0".join(files[number::readers]))
        child.stdin.close()
    for child in children:
        if child.wait():
            raise RuntimeError("a reader failed")
    return time.monotonic() - begun


def measure(path: Path, settings: Settings, watch: Watch | None = None) -> Measured:
    return probe(target(str(path)), settings, watch or Watch())


def against_arm(where: Path, rounds: int) -> list[Row]:
    rates: dict[str, list[tuple[float, float]]] = {}
    with arm_disk(4096 * MIB, where) as disk:
        _, root = write_scattered(disk, files=1500, mean_bytes=100_000, folders=50)
        for _ in range(rounds):
            disk.remount()
            watch = Watch(disk.stats)
            measured = measure(root, Settings(30, 256 * MIB, readers=4), watch)
            borders = [*watch.borders, ("end", disk.stats())]
            runs = {
                f"{'sequential' if run.pattern == 'read' else 'random'}, depth {run.depth}": (
                    run.bytes_per_s
                )
                for run in measured.fio
            }
            for (name, before), (_, after) in pairwise(borders):
                seconds = (
                    after.seek_seconds + after.transfer_seconds
                    - before.seek_seconds - before.transfer_seconds
                )  # fmt: skip
                words = name.split(" ")
                label = f"{words[0]}, depth {words[-1]}"
                if label in runs:
                    truth = (after.bytes - before.bytes) / seconds
                    rates.setdefault(label, []).append((runs[label] / 1e3, truth / 1e3))
                if name == "reading small files" and measured.small:
                    cold = measured.small.cold
                    said = sum(run.read_bytes for run in cold) / sum(run.seconds for run in cold)
                    truth = (after.bytes - before.bytes) / seconds
                    rates.setdefault("small files", []).append((said / 1e3, truth / 1e3))
            epoch = judge(measured, None).epoch
            assert epoch is not None
            disk.remount()
            real = epoch_seconds(root, epoch.readers)
            rates.setdefault("epoch", []).append((epoch.cold_seconds, real))
    return [
        row(name, pairs, "s", 0.15) if name == "epoch" else row(name, pairs, "kB/s", 0.10)
        for name, pairs in rates.items()
    ]


def against_far(where: Path, rounds: int) -> list[Row]:
    chance = random.Random(2)
    iops: list[tuple[float, float]] = []
    epochs: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory(dir=where) as name:
        source = Path(name)
        for number in range(3000):
            folder = source / f"class{number % 20}"
            folder.mkdir(exist_ok=True)
            (folder / f"{number}.jpg").write_bytes(os.urandom(chance.randrange(50_000, 150_000)))
        (source / "shard").write_bytes(os.urandom(64 * MIB))
        with far_source(source, where) as rig:
            for _ in range(rounds):
                measured = measure(rig.mount, Settings(30, readers=8))
                single = measured.run("randread", 1)
                epoch = judge(measured, None).epoch
                assert single is not None and epoch is not None
                iops.append((single.iops, 100))
                epochs.append((epoch.cold_seconds, epoch_seconds(rig.mount, epoch.readers)))
    return [
        row("random reads of 10 ms each", iops, "IOPS", 0.10),
        row("epoch, 8 readers", epochs, "s", 0.15),
    ]


@contextmanager
def limited(number: str, file: str, limit: int) -> Iterator[Path]:
    """Make a cgroup (version 1) with a limit on the disk ``number``; yield its folder."""
    group = Path(f"/sys/fs/cgroup/blkio/hostprep-bench-{os.getpid()}")
    group.mkdir()
    try:
        (group / f"blkio.throttle.{file}").write_text(f"{number} {limit}")
        yield group
    finally:
        time.sleep(0.2)
        group.rmdir()


def against_limits(where: Path, rounds: int) -> list[Row]:
    disks = locate(str(where)).disks
    if len(disks) != 1 or not Path("/sys/fs/cgroup/blkio").is_dir():
        return []
    rows = []
    for file, limit, unit, read in (
        ("read_iops_device", 150, "IOPS", lambda fields: fields["random_4k"]["depth_1"]["iops"]),
        ("read_iops_device", 2000, "IOPS", lambda fields: fields["random_4k"]["iops"]),
        ("read_bps_device", 40_000_000, "B/s", lambda fields: fields["sequential"]["bytes_per_s"]),
    ):
        pairs = []
        for _ in range(rounds):
            with (
                tempfile.TemporaryDirectory(dir=where) as folder,
                limited(disks[0].number, file, limit) as group,
            ):
                script = f'echo $$ > "{group}/cgroup.procs"; exec "$@"'
                line = [sys.executable, "-m", "hostprep", "probe", folder, "--json"]
                line += ["--seconds", "20", "--size", "256M"]
                done = subprocess.run(
                    ["sh", "-c", script, "sh", *line], capture_output=True, text=True, check=False
                )
                pairs.append((read(json.loads(done.stdout)), float(limit)))
        rows.append(row(f"{file} {limit:,}", pairs, unit, 0.10))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--where", type=Path, default=Path("/var/tmp"))
    parser.add_argument(
        "--only", help="run only the section whose title contains this; the other sections are kept"
    )
    options = parser.parse_args()
    os.environ["HOSTPREP_STATE_DIR"] = tempfile.mkdtemp(prefix="hostprep-bench-")
    loops.private_mounts()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8g", "bench", "/mnt"], check=True)
    where, rounds = options.where, options.rounds
    sections: dict[str, Callable[[], list[Row]]] = {
        "fio by hand, in turn, on a disk with an arm": lambda: on_arm(Path("/mnt"), rounds),
        "fio by hand, in turn, on this machine's disk": lambda: against_fio(where, 2 * rounds, 2),
        "a disk with an arm, by its own clock": lambda: against_arm(Path("/mnt"), rounds),
        "a source 10 ms away": lambda: against_far(Path("/mnt"), rounds),
        "limits of a cgroup": lambda: against_limits(where, rounds),
    }
    page = Path(__file__).with_name("README-probe.md")
    kept = dict(zip(sections, page.read_text().split("\n## Against ")[1:], strict=False))
    failed = False
    for title, measure in sections.items():
        if options.only is None or options.only in title:
            rows = measure()
            failed = failed or not all(each.kept for each in rows)
            kept[title] = section(title, rows, rounds)
    text = "\n## Against ".join([introduction(), *(kept[title] for title in sections)])
    page.write_text(text)
    print(text)
    return int(failed)


def introduction() -> str:
    """Return the head of the page."""
    return (
        "# `hostprep probe` against the truth\n\n"
        f"Written by `python -m benchmarks.probe_truth`: {os.cpu_count()} cores, Linux"
        f" {platform.release()}, {fio.version()}. Figures are medians; the ratio is the median of"
        " the rounds' own. A control shows how much the same command differs from itself.\n"
    )


def section(title: str, rows: list[Row], rounds: int) -> str:
    """Return one section of the page, below its ``## Against``."""
    lines = [
        title,
        "",
        f"{time.strftime('%Y-%m-%d')}, `--rounds {rounds}`.",
        "",
        "| what | probe | truth | unit | ratio | all rounds | margin | kept |",
        "|---|---|---|---|---|---|---|---|",
        *(each.markdown() for each in rows),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
