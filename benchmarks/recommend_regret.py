"""Regret of ``hostprep recommend``, and of the rules that frameworks have, against a full sweep.

    python -m benchmarks.recommend_regret              all workloads
    python -m benchmarks.recommend_regret --only far   one of them; the others' results are kept
    python -m benchmarks.recommend_regret --again      recommend anew, against the sweeps as kept

For each workload: the recommendation, by the command line and with its defaults; then real
DataLoaders with 0, 1, 2, 3, 4, 6, 8, 12, 16, 24 and 32 workers, and what was recommended, each in
a fresh process, by a timing loop that shares no code with hostprep. The sweep is gone through
twice, in opposite orders; then the three best of it and what was recommended five times more, in
turn, since the best of a dozen noisy figures owes its place to the noise as well. Each measurement
waits for the machine to be quiet, ten seconds at most, and is taken again, twice at most, where
other programs got into it nevertheless. Writes ``recommend-results.json`` and, from it,
``README-recommend.md``.
"""

from __future__ import annotations

import argparse
import itertools
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
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).with_name("recommend-results.json")
README = Path(__file__).with_name("README-recommend.md")
SWEEP = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
TARGET = 0.05
PREDICTION = 0.15
WINDOW_SECONDS = 4.0
# Of all processors: where other programs took more during a measurement, it is taken again, and
# says so if that did not help. The server of a slow source is such a program, but belongs to it.
DISTURBED = 0.10
DISTURBED_WITH_A_SERVER = 0.25
SERVED = ("far", "arm")
TRIES = 3
FINALISTS = 3
FINAL_ROUNDS = 5
QUIET_SECONDS = 10.0
IMAGES, ARRAYS, TEXTS, VOLUMES, ARM_FILES = 800, 400, 400, 60, 12_000
ARM_MEAN_BYTES = 40_000


def main() -> None:
    """Measure what is asked for and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", action="append", help="one workload; may be repeated")
    parser.add_argument("--passes", type=int, default=2, help="passes over the sweep")
    parser.add_argument("--again", action="store_true", help="keep the sweeps that there are")
    parser.add_argument("--point", nargs=2, metavar=("NAME", "WORKERS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        print(json.dumps(time_point(options.point[0], int(options.point[1]))))
        return
    kept = json.loads(RESULTS.read_text())["workloads"] if options.again else {}
    names = options.only or ["jpeg", "far", "npy", "arm", "text", "volume"]
    with tempfile.TemporaryDirectory(prefix="recommend-", dir="/dev/shm") as home:
        os.environ["HOSTPREP_BENCH_DATA"] = home
        for name in names:
            with prepared(name, Path(home)) as make_cold:
                sweep = kept.get(name, {}).get("sweep", {})
                keep(name, measure(name, make_cold, options.passes, sweep))
            README.write_text(render(json.loads(RESULTS.read_text())))


# Preparing -----------------------------------------------------------------------------------


@contextmanager
def prepared(name: str, home: Path) -> Iterator[Callable[[], None]]:
    """Make the files of a workload; yield what makes them cold again between measurements."""
    if name in ("jpeg", "far"):
        write_images(home / "jpeg")
    if name == "npy":
        write_arrays(home / "npy")
    if name == "text":
        write_texts(home / "text")
    if name == "volume":
        write_volumes(home / "volume")
    with ExitStack() as rigs:
        cold: Callable[[], None] = nothing
        if name == "far":
            from benchmarks.rigs.far import far_source

            far = rigs.enter_context(far_source(home / "jpeg", home, request_seconds=0.010))
            (home / "far").symlink_to(far.mount)
            rigs.callback((home / "far").unlink)
        elif name == "arm":
            from benchmarks.rigs.arm import arm_disk, write_scattered

            disk = rigs.enter_context(arm_disk(2 << 30, home))
            write_scattered(disk, ARM_FILES, ARM_MEAN_BYTES, 40)
            (home / "arm").symlink_to(disk.mount)
            rigs.callback((home / "arm").unlink)
            cold = disk.remount
        yield cold


def nothing() -> None:
    """Leave a workload as it is: what it reads is as warm, or as cold, each time."""


def write_images(folder: Path) -> None:
    """Write JPEG files with the detail of photographs: about 60 KB at 500 x 375."""
    import numpy as np
    from PIL import Image

    folder.mkdir(exist_ok=True)
    dice = np.random.default_rng(0)
    for number in range(IMAGES):
        coarse = dice.integers(0, 255, (16, 20, 3), dtype=np.uint8)
        smooth = Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC)
        grain = dice.integers(-12, 12, (375, 500, 3))
        pixels = (np.asarray(smooth).astype(np.int16) + grain).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:05}.jpg", quality=90)


def write_arrays(folder: Path) -> None:
    """Write arrays of 224 x 224 x 3 bytes."""
    import numpy as np

    folder.mkdir(exist_ok=True)
    dice = np.random.default_rng(0)
    for number in range(ARRAYS):
        np.save(folder / f"{number:05}.npy", dice.integers(0, 255, (224, 224, 3), dtype=np.uint8))


def write_texts(folder: Path) -> None:
    """Write texts of about 6 KB."""
    folder.mkdir(exist_ok=True)
    dice = random.Random(0)
    words = ["".join(dice.choices("abcdefghij", k=dice.randint(2, 9))) for _ in range(5000)]
    for number in range(TEXTS):
        text = " ".join(dice.choices(words, k=1000))
        (folder / f"{number:05}.txt").write_text(text)


def write_volumes(folder: Path) -> None:
    """Write volumes of 80 x 80 x 80 floats."""
    import numpy as np

    folder.mkdir(exist_ok=True)
    dice = np.random.default_rng(0)
    for number in range(VOLUMES):
        np.save(folder / f"{number:05}.npy", dice.random((80, 80, 80), dtype=np.float32))


# Measuring -----------------------------------------------------------------------------------


def measure(
    name: str, make_cold: Callable[[], None], passes: int, sweep: dict[str, list[dict[str, float]]]
) -> dict[str, Any]:
    """Return the recommendation and the sweep of one workload; of ``sweep`` what is missing."""
    for _ in range(2):
        make_cold()
        wait_until_quiet()
        began = time.monotonic()
        recommended = recommendation(name)
        seconds = time.monotonic() - began
        if not any("other programs" in note for note in recommended["notes"]):
            break
    say(f"{name}: {recommended['verdict']} ({seconds:.0f} s)")
    workers = sorted({*SWEEP, recommended["num_workers"], *map(int, sweep)})
    points = {int(number): measured for number, measured in sweep.items()}
    missing = [number for number in workers if number not in points]
    points.update({number: [] for number in missing})

    def measure_all(numbers: list[int], *, backwards: bool) -> None:
        for number in reversed(numbers) if backwards else numbers:
            point = timed_in_quiet(name, number, make_cold)
            points[number].append(point)
            shown, others = point["samples_per_s"], point["others"]
            say(f"  {number:2d} workers: {shown:,.0f}/s, others {others:.0%}")

    for number in range(passes):
        measure_all(missing, backwards=number % 2 == 1)
    ranked = sorted(workers, key=lambda number: median_rate(points[number]), reverse=True)
    finalists = sorted({*ranked[:FINALISTS], recommended["num_workers"]})
    for number in range(FINAL_ROUNDS if missing else 0):
        measure_all(finalists, backwards=number % 2 == 1)
    model = recommended["evidence"]["model"]
    predicted = {row["workers"]: row["samples_per_s"] for row in model["predicted"]}
    return {
        "recommended": recommended["num_workers"],
        "expected": recommended["expected_samples_per_s"],
        "modelled": predicted[recommended["num_workers"]],
        "binding": recommended["binding"],
        "seconds": seconds,
        "disturbed": any("other programs" in note for note in recommended["notes"]),
        "probes": [
            [probe["workers"], probe["samples_per_s"], probe["others_cpus"]]
            for probe in recommended["evidence"]["probes"]
        ],
        "sweep": {str(number): measured for number, measured in points.items()},
        "when": time.strftime("%Y-%m-%d %H:%M"),
    }


def recommendation(name: str) -> dict[str, Any]:
    """Run ``hostprep recommend`` as a user would."""
    spec = f"benchmarks.recommend_workloads:{name.capitalize()}"
    command = [sys.executable, "-m", "hostprep", "recommend", "--loader", spec, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{name}: {done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def timed_in_quiet(name: str, workers: int, make_cold: Callable[[], None]) -> dict[str, float]:
    """Time one number of workers, again where it was disturbed; return the least disturbed."""
    tries = []
    while len(tries) < TRIES and (not tries or tries[-1]["others"] > limit_of(name)):
        make_cold()
        wait_until_quiet()
        tries.append(timed_apart(name, workers))
    return min(tries, key=lambda point: point["others"])


def limit_of(name: str) -> float:
    """Return the share of other programs from which on a measurement counts as disturbed."""
    return DISTURBED_WITH_A_SERVER if name in SERVED else DISTURBED


def wait_until_quiet() -> None:
    """Wait until other programs have left the processors alone for a second, or too long."""
    deadline = time.monotonic() + QUIET_SECONDS
    while time.monotonic() < deadline:
        busy, idle = processor_ticks()
        time.sleep(1.0)
        busy_now, idle_now = processor_ticks()
        if busy_now - busy < DISTURBED * (busy_now - busy + idle_now - idle):
            return


def timed_apart(name: str, workers: int) -> dict[str, float]:
    """Time one number of workers in a fresh process."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.recommend_regret"]
    done = subprocess.run(
        [*command, "--point", name, str(workers)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{name} with {workers} workers: {done.stderr}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def time_point(name: str, workers: int) -> dict[str, float]:
    """Time a DataLoader: what is made ahead is discarded, whole rounds of all workers count."""
    from torch.utils.data import DataLoader

    from benchmarks.recommend_workloads import WORKLOADS

    loader = DataLoader(WORKLOADS[name](), batch_size=32, num_workers=workers, shuffle=True)
    batches = iter(loader)
    # A loop holds a batch until the next has come, as a training does.
    for _ in itertools.islice(batches, 2 * workers + 4):
        pass
    busy, idle = processor_ticks()
    mine = own_ticks(batches)
    begin, count, step = time.perf_counter(), 0, max(1, workers)
    while True:
        for _ in itertools.islice(batches, step):
            pass
        count += step
        elapsed = time.perf_counter() - begin
        if elapsed >= WINDOW_SECONDS and count >= max(8, 3 * step):
            break
    busy_now, idle_now = processor_ticks()
    mine_now = own_ticks(batches)
    total = busy_now - busy + idle_now - idle
    others = max(0, busy_now - busy - (mine_now - mine)) / total
    return {"samples_per_s": 32 * count / elapsed, "seconds": elapsed, "others": others}


def processor_ticks() -> tuple[int, int]:
    """Return the ticks in which processors were busy (or stolen), and idle."""
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return sum(fields) - idle, idle


def own_ticks(batches: Any) -> int:
    """Return the ticks that this process and its workers have used."""
    pids = [os.getpid(), *(worker.pid for worker in getattr(batches, "_workers", []))]
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(fields[11]) + int(fields[12]) for fields in stats)


# Rules ---------------------------------------------------------------------------------------


def rules() -> dict[str, int]:
    """Return what the frameworks' own rules give on this machine, one rank, no GPU.

    Each is the expression in the framework's source; Ultralytics with its default of 8 workers,
    nnU-Net with its default of 12 for host names that it does not know.
    """
    affinity = len(os.sched_getaffinity(0))
    cpus = os.cpu_count() or 1
    return {
        "PyTorch's warning": affinity,
        "Lightning": max(1, affinity - 1),
        "Ultralytics": min(cpus, 8),
        "fastai": min(16, cpus),
        "nnU-Net": min(12, cpus),
        "a constant 4": 4,
        "a constant 8": 8,
    }


# Reporting -----------------------------------------------------------------------------------


def keep(name: str, result: dict[str, Any]) -> None:
    """Put one workload's result into the file, beside the others' of the same machine."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept.setdefault("workloads", {})[name] = result
    kept["machine"] = {
        "processors": os.cpu_count(),
        "affinity": len(os.sched_getaffinity(0)),
        "model": processor_model(),
        "kernel": platform.release(),
        "torch": installed("torch"),
        "pillow": installed("pillow"),
    }
    kept["rules"] = rules()
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")


def installed(distribution: str) -> str:
    """Return the version of an installed distribution."""
    from importlib.metadata import version

    return version(distribution)


def processor_model() -> str:
    """Return the processor's name as the kernel has it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def rate(result: dict[str, Any], workers: int) -> float:
    """Return the median of all measurements with a number of workers."""
    return median_rate(result["sweep"][str(workers)])


def median_rate(measured: list[dict[str, float]]) -> float:
    """Return the median rate of some measurements."""
    return statistics.median(point["samples_per_s"] for point in measured)


def regret(result: dict[str, Any], workers: int) -> float:
    """Return 1 - rate / best rate of the sweep."""
    best = max(rate(result, int(number)) for number in result["sweep"])
    return 1 - rate(result, workers) / best


def render(kept: dict[str, Any]) -> str:
    """Return the report in Markdown."""
    machine, results = kept["machine"], kept["workloads"]
    lines = [
        "# How much `hostprep recommend` loses against an exhaustive sweep",
        "",
        "Written by `python -m benchmarks.recommend_regret`; its docstring says how. Regret is",
        "1 - rate with what was recommended / best rate of the sweep; the target is 5 %.",
        "",
        f"Machine: {machine['processors']} processors ({machine['model']}), Linux"
        f" {machine['kernel']}, torch {machine['torch']}, Pillow {machine['pillow']}.",
        "",
        "| workload | recommended | regret | best of the sweep | binds | expected / measured |"
        " model alone / measured | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, result in results.items():
        chosen = result["recommended"]
        measured = rate(result, chosen)
        best = max(result["sweep"], key=lambda number: rate(result, int(number)))
        lines.append(
            f"| {name} | {chosen} | {verdict(result, chosen)} |"
            f" {best} ({rate(result, int(best)):,.0f}/s) | {result['binding']} |"
            f" {within(result['expected'], measured)} | {within(result['modelled'], measured)} |"
            f" {result['seconds']:.0f} |"
        )
    lines += ["", "Regret of the rules from the number of processors, on the same sweeps:", ""]
    lines += [f"| rule | {' | '.join(results)} |", "|---|" + "---|" * len(results)]
    chosen_row = [f"{regret(r, r['recommended']):.1%}" for r in results.values()]
    lines.append(f"| **hostprep recommend** | {' | '.join(chosen_row)} |")
    for rule, workers in kept["rules"].items():
        cells = [f"{regret(result, workers):.1%}" for result in results.values()]
        lines.append(f"| {rule} ({workers}) | {' | '.join(cells)} |")
    lines += ["", "The sweeps, samples/s, medians (spread in brackets):", ""]
    numbers = sorted({int(number) for result in results.values() for number in result["sweep"]})
    lines += [
        f"| workload | {' | '.join(map(str, numbers))} |",
        "|---|" + "---|" * len(numbers),
    ]
    for name, result in results.items():
        cells = [cell(name, result, number) for number in numbers]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += [
        "",
        "How often each point was measured, and when the recommendation was made, which with",
    ]
    lines += ["`--again` is later than the sweep:", ""]
    lines += [
        f"- {name}: {measurements(result)}, {result['when']}" for name, result in results.items()
    ]
    lines += ["", *caveats(results)]
    return "\n".join(lines) + "\n"


def cell(name: str, result: dict[str, Any], workers: int) -> str:
    """Return one cell of the sweep: the median, a mark, and how far its measurements lie apart."""
    passes = result["sweep"].get(str(workers))
    if passes is None:
        return ""
    rates = [p["samples_per_s"] for p in passes]
    mark = "*" if any(p["others"] > limit_of(name) for p in passes) else ""
    shown = f"{statistics.median(rates):,.0f}{mark}"
    if len(rates) == 1:
        return shown
    return f"{shown} ({(max(rates) - min(rates)) / statistics.fmean(rates):.0%})"


def measurements(result: dict[str, Any]) -> str:
    """Return how often the points of a sweep were measured, in words."""
    counts = [len(measured) for measured in result["sweep"].values()]
    return f"{min(counts)} to {max(counts)} times"


def verdict(result: dict[str, Any], workers: int) -> str:
    """Return a regret with its verdict; none where the passes differ by as much themselves."""
    value, noise = regret(result, workers), drift(result)
    if value <= TARGET:
        return f"{value:.1%}"
    return (
        f"{value:.1%}, {'missed' if value > noise else f'undecided: passes differ by {noise:.0%}'}"
    )


def drift(result: dict[str, Any]) -> float:
    """Return by how much the passes differ at the same number of workers, the median.

    What was measured once says nothing of that.
    """
    repeated = [passes for passes in result["sweep"].values() if len(passes) > 1]
    spreads = []
    for passes in repeated:
        rates = [p["samples_per_s"] for p in passes]
        spreads.append((max(rates) - min(rates)) / statistics.fmean(rates))
    return statistics.median(spreads) if spreads else 0.0


def within(expected: float, measured: float) -> str:
    """Return an expectation as a share of what was measured, with its verdict."""
    ratio = expected / measured
    return f"{ratio:.2f}{'' if abs(ratio - 1) <= PREDICTION else ', missed'}"


def caveats(results: dict[str, Any]) -> list[str]:
    """Return what to know when reading: above all what other programs did meanwhile."""
    lines = []
    for name, result in results.items():
        shares = [p["others"] for passes in result["sweep"].values() for p in passes]
        disturbed = sum(share > limit_of(name) for share in shares)
        if result["disturbed"]:
            lines.append(f"- {name}: other programs were at work during the recommendation, twice.")
        if disturbed:
            lines.append(
                f"- {name}: during {disturbed} of {len(shares)} measurements of the sweep (*) other"
                f" programs took more than {limit_of(name):.0%} of the processors,"
                f" {max(shares):.0%} at the most, three times in a row: the row is not valid by"
                " that much."
            )
    if lines:
        lines.insert(0, "Disturbances:")
    return lines


def say(text: str) -> None:
    """Print progress."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
