"""What ``hostprep recommend``, and frameworks' rules, lose compared with the best of a full sweep.

    python -m benchmarks.recommend              all workloads
    python -m benchmarks.recommend --only far   one of them; the others' results are kept
    python -m benchmarks.recommend --again      recommend anew, and compare with the kept sweeps
    python -m benchmarks.recommend --render     write the page anew from the kept results

For each workload, this asks for the recommendation, with the command line and its defaults. Then
it times real DataLoaders with 0, 1, 2, 3, 4, 6, 8, 12, 16, 24 and 32 workers, with the numbers that
the rules give, and with the recommended one, each in a fresh process, by a timing loop that shares
no code with hostprep. It goes through the sweep twice, in opposite orders. Then it times the three
best and the recommended number five times more, taking turns, because the best of a dozen noisy
figures owes its place partly to the noise. Each measurement waits up to ten seconds for the machine
to be quiet, and is repeated, twice at most, if other programs disturbed it nevertheless.

No GPU is used: CUDA_VISIBLE_DEVICES hides it from all that is measured. If hostprep knew the rate
of a GPU, it would recommend only as many workers as suffice for that rate, which it would have
measured itself: a sweep without a GPU could not contradict it. With the GPU hidden, the aim is the
best rate of the sweep on every machine. Processors and memory stay as they are.

If there is little time, options shorten the run; what was shortened is kept with the results and
shown on the page. Writes ``results.json``, by workload and machine, and ``README.md`` from it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.measure import machine
from benchmarks.recommend.data import prepared
from benchmarks.recommend.plan import FULL, SWEEP, Plan, processors, rules
from benchmarks.recommend.report import render
from benchmarks.recommend.sweep import ROOT, Failed, Sweep, measure

HERE = Path(__file__).parent
NAMES = ("jpeg", "far", "npy", "arm", "text", "volume")


def main() -> int:
    """Measure what is asked for and write the results."""
    options = parsed()
    names = [name for name in NAMES if name in (options.only or NAMES)]
    options.out.mkdir(parents=True, exist_ok=True)
    if options.render:
        write(options.out, read(options.out))
        return 0
    plan = Plan(
        options.workers,
        options.passes,
        options.final_rounds,
        options.window,
        options.tries,
        options.quiet,
    )
    kept = {each["name"]: each for each in read(options.out) if each["machine"] == machine()}
    began, status = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="recommend-", dir="/dev/shm") as home:
        set_environment(Path(home))
        for name in names:
            chosen, points = kept_sweep(kept.get(name)) if options.again else (plan, {})
            chosen = chosen or plan
            seconds = chosen.estimated_seconds(len({*chosen.workers} - set(points)))
            say(f"{name}: takes about {seconds:.0f} s")
            try:
                with prepared(name, Path(home)) as make_cold:
                    keep(options.out, name, measure(name, make_cold, chosen, points, say))
            except Failed as error:
                say(f"{name}: {error}")
                status = 1
    say(f"{time.monotonic() - began:.0f} s in all; written to {options.out}")
    return status


def parsed() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.recommend",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    add = parser.add_argument
    add("--only", action="append", choices=NAMES, help="one workload; may be repeated")
    add("--again", action="store_true", help="keep the sweeps that there are, and their settings")
    add("--render", action="store_true", help="measure nothing, write the page")
    add("--out", type=Path, default=HERE, metavar="DIR", help="where results and page are")
    whole = tuple(sorted({*SWEEP, *rules(**processors()).values()}))
    add("--workers", type=numbers, default=whole, metavar="N,N,...", help="points of the sweep")
    for name, kind, default, words in (
        ("--passes", int, FULL.passes, "passes over the sweep"),
        ("--final-rounds", int, FULL.final_rounds, "rounds with the best of it"),
        ("--window", float, FULL.window_seconds, "what each measurement takes at least"),
        ("--tries", int, FULL.tries, "how often one that is disturbed is taken"),
        ("--quiet", float, FULL.quiet_seconds, "how long to wait for quiet before each"),
    ):
        metavar = "N" if kind is int else "SECONDS"
        add(name, type=kind, default=default, metavar=metavar, help=f"{words} [%(default)s]")
    options = parser.parse_args()
    if min(options.passes, options.tries) < 1:
        parser.error("a sweep has one pass at least, and each measurement one try")
    return options


def numbers(text: str) -> tuple[int, ...]:
    """Return the listed numbers of workers, in order."""
    return tuple(sorted({int(word) for word in text.split(",")}))


def set_environment(home: Path) -> None:
    """Set the environment that everything measured inherits."""
    # If hostprep is not installed, its own processes import nothing from the current directory.
    folders = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ.update(
        PYTHONPATH=os.pathsep.join(folders),
        CUDA_VISIBLE_DEVICES="",
        HOSTPREP_STATE_DIR=str(home / "state"),  # recommendations made here are not the machine's
        HOSTPREP_BENCH_DATA=str(home),
    )


def kept_sweep(result: dict[str, Any] | None) -> tuple[Plan | None, Sweep]:
    """Return the sweep of a stored result and how it was measured; nothing if there is none."""
    if result is None:
        return None, {}
    plan = Plan(**{**result["plan"], "workers": tuple(result["plan"]["workers"])})
    return plan, {int(number): measured for number, measured in result["sweep"].items()}


def keep(out: Path, name: str, measured: dict[str, Any]) -> None:
    """Replace this machine's earlier result of a workload; write the page again."""
    result = {
        "name": name,
        "machine": machine(),
        **processors(),
        "torch": version("torch"),
        "pillow": version("pillow"),
        **measured,
    }
    same = name, result["machine"]
    results = [other for other in read(out) if (other["name"], other["machine"]) != same]
    write(out, [*results, result])


def read(out: Path) -> list[dict[str, Any]]:
    """Return the stored results of all machines."""
    path = out / "results.json"
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def write(out: Path, results: list[dict[str, Any]]) -> None:
    """Write the results, in their order, and the page."""
    results.sort(key=lambda result: (result["machine"], NAMES.index(result["name"])))
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (out / "README.md").write_text(render(results))


def say(text: str) -> None:
    """Print progress."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
