"""How busy a GPU is during a training, with the usual settings and with those of hostprep.

    python -m benchmarks.training                   on the current GPU, about two minutes, as root
    python -m benchmarks.training --rounds 1        shorter
    python -m benchmarks.training --out DIR         results and page there, not beside this file

Trains a ResNet-18 in bfloat16 on JPEG files that are on a disk and not in the page cache. The
settings take turns: torch's defaults; workers by common rules; the data staged; and what hostprep
gives in all: `stage`, `recommend --loader` and the prefetcher that `verify` tests. Needs CUDA, root
(the page cache is dropped) and Pillow. Results are kept in ``results.json``, by device, and
``README.md`` is written from them alone.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from benchmarks.kept import keep
from benchmarks.measure import drop_caches, machine
from benchmarks.training import images
from benchmarks.training.model import Step, make_step
from benchmarks.training.report import render
from hostprep.cuda import CudaPrefetcher
from hostprep.cuda.torch_backend import why_no_cuda

HERE = Path(__file__).parent
FILES = 60_000
OFTEN_TYPED = 4
WARM_STEPS = 20
LOOK_SECONDS = 0.05
Batches = Iterable[Any]


@dataclass(frozen=True, slots=True)
class Way:
    """A way to feed the GPU: where the files are, and what loads them."""

    name: str
    root: Path
    batches: Callable[[Path], Batches]


def main(args: Sequence[str] | None = None) -> int:
    """Measure on the current device and write the results; return 1 if that is not possible."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="about how long each pass takes")
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument(
        "--out", type=Path, default=HERE, help="the folder to write results and page to"
    )
    parser.add_argument(
        "--work", type=Path, default=Path("/var/tmp"), help="a folder on a disk, for the data"
    )
    options = parser.parse_args(args)
    reason = why_no_cuda()
    if reason is not None:
        print(f"This looks at a GPU during a training, and there is none to use: {reason}.")
        return 1
    if os.geteuid() != 0:
        print("The page cache is dropped before each pass: run this as root.")
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    device = torch.device("cuda", torch.cuda.current_device())
    with tempfile.TemporaryDirectory(prefix="hostprep-training-", dir=options.work) as work:
        found = measure(Path(work), device, options.rounds, options.seconds, options.files)
    keep(found, options.out, ("device", "machine"), render)
    return 0


def measure(
    work: Path, device: torch.device, rounds: int, seconds: float, files: int
) -> dict[str, Any]:
    """Return what each way gives on ``device``: samples/s and the GPU's utilisation, by round."""
    say(f"writing {files:,} files")
    disk = work / "images"
    size = images.write(disk, files)
    os.sync()
    step = make_step(device)
    alone = resident(device)
    timed(alone, step, device, seconds)  # one-time work is done in this pass
    peak = timed(alone, step, device, seconds)
    say(f"the step alone: {peak['rate']:,.0f} samples/s")
    own = {"HOSTPREP_STATE_DIR": str(work / "state"), "HOSTPREP_RUN_DIR": str(work / "run")}
    environment = {**os.environ, images.ROOT: str(disk), **own}
    began = time.monotonic()
    staged, undo = stage(disk, environment)
    stage_seconds = time.monotonic() - began
    try:
        environment[images.ROOT] = str(staged)
        began = time.monotonic()
        advice = recommend(peak["rate"], environment)
        recommend_seconds = time.monotonic() - began
        say(f"recommended: {json.dumps(advice)}")
        passes = {each.name: each for each in ways(disk, staged, advice, device)}
        found: dict[str, list[dict[str, float]]] = {name: [] for name in ("alone", *passes)}
        for number in range(rounds):
            found["alone"].append(timed(alone, step, device, seconds))
            names = list(passes)
            first = number % len(names)
            for name in names[first:] + names[:first]:
                drop_caches()
                batches = passes[name].batches(passes[name].root)
                found[name].append(timed(batches, step, device, seconds))
                say(f"round {number + 1}, {name}: {json.dumps(found[name][-1])}")
    finally:
        undo()
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "none",
        "machine": machine(),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "files": files,
        "bytes": size,
        "batch": images.BATCH,
        "pass_seconds": seconds,
        "stage_seconds": stage_seconds,
        "recommend_seconds": recommend_seconds,
        "advice": advice,
        "runs": found,
    }


def ways(disk: Path, staged: Path, advice: dict[str, Any], device: torch.device) -> list[Way]:
    """Return the ways to compare, from torch's defaults to hostprep's advice."""

    def loader(root: Path, workers: int, pinned: bool, **more: Any) -> Batches:
        return DataLoader(
            images.Images(root),
            batch_size=images.BATCH,
            shuffle=True,
            drop_last=True,
            num_workers=workers,
            pin_memory=pinned,
            **more,
        )

    def moved(workers: int, root: Path) -> Batches:
        pinned = workers > 0
        for parts in loader(root, workers, pinned):
            yield tuple(part.to(device, non_blocking=pinned) for part in parts)

    def advised(root: Path) -> Batches:
        fields = ("prefetch_factor", "persistent_workers") if advice["num_workers"] else ()
        more = {field: advice[field] for field in fields}
        drawn = loader(root, advice["num_workers"], advice["pin_memory"], **more)
        return CudaPrefetcher(drawn, device)

    cores = len(os.sched_getaffinity(0))
    return [
        Way("torch's defaults: no workers, from the disk", disk, partial(moved, 0)),
        Way(f"{OFTEN_TYPED} workers, from the disk", disk, partial(moved, OFTEN_TYPED)),
        Way(f"{cores} workers, one a core, from the disk", disk, partial(moved, cores)),
        Way("staged in RAM, no workers", staged, partial(moved, 0)),
        Way(f"hostprep: staged, {advice['num_workers']} workers, CudaPrefetcher", staged, advised),
    ]


def resident(device: torch.device) -> Batches:
    """Return a batch that is already on the device, repeated: nothing is waited for."""
    pixels = torch.randint(0, 255, (images.BATCH, 3, images.CROP, images.CROP), dtype=torch.uint8)
    batch = pixels.to(device), (torch.arange(images.BATCH) % images.CLASSES).to(device)

    class Forever:
        def __iter__(self) -> Iterator[Any]:
            while True:
                yield batch

    return Forever()


def timed(batches: Batches, step: Step, device: torch.device, seconds: float) -> dict[str, float]:
    """Train for about ``seconds`` after the first steps; samples/s and utilisation in percent.

    The time of the first batch, with the start of the workers, is separate: an epoch has it once.
    """
    began = time.perf_counter()
    drawn = iter(batches)

    def train(until: float, most: float) -> int:
        count = 0
        while count < most and time.perf_counter() < until:
            batch = next(drawn, None)
            if batch is None:
                break
            step(*batch)
            count += 1
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return count

    train(began + 600, 1)
    first = time.perf_counter() - began
    train(time.perf_counter() + seconds / 2, WARM_STEPS)
    start = time.perf_counter()
    with utilisation(device) as looks:
        count = train(start + seconds, float("inf"))
        taken = time.perf_counter() - start
    seen = sorted(looks)
    found = {"rate": count * images.BATCH / taken, "first_batch_seconds": first}
    if seen:
        found |= {"utilisation": sum(seen) / len(seen), "lowest_tenth": seen[len(seen) // 10]}
    return found


@contextmanager
def utilisation(device: torch.device) -> Iterator[list[int]]:
    """Yield a list that fills with the GPU's utilisation in percent, as nvidia-smi reports it."""
    looks: list[int] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(LOOK_SECONDS):
            looks.append(torch.cuda.utilization(device))

    watcher = threading.Thread(target=look, daemon=True)
    if device.type == "cuda":
        torch.cuda.utilization(device)  # NVML starts here, and not within the pass
        watcher.start()
    try:
        yield looks
    finally:
        ended.set()
        if watcher.is_alive():
            watcher.join()


def stage(disk: Path, environment: dict[str, str]) -> tuple[Path, Callable[[], None]]:
    """Stage the files in /dev/shm with hostprep; return where they are, and what removes them."""
    home = Path(tempfile.mkdtemp(prefix="hostprep-training-", dir="/dev/shm"))
    name = home.name
    document = hostprep(["stage", str(disk), "--to", str(home), "--name", name], environment)

    def undo() -> None:
        hostprep(["unstage", name], environment)
        shutil.rmtree(home, ignore_errors=True)

    return Path(document["target"]), undo


def recommend(gpu_rate: float, environment: dict[str, str]) -> dict[str, Any]:
    """Return what ``hostprep recommend`` says about the loader of the staged files."""
    named = ["--loader", "benchmarks.training.images:loader", "--gpu-rate", f"{gpu_rate:.0f}"]
    document = hostprep(["recommend", *named], environment)
    fields = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "binding")
    return {field: document[field] for field in (*fields, "expected_samples_per_s")}


def hostprep(words: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """Run a command of hostprep and return its JSON document."""
    command = [sys.executable, "-m", "hostprep", *words, "--json"]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    document: dict[str, Any] = json.loads(done.stdout)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {json.dumps(document.get('error'))}")
    return document


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
