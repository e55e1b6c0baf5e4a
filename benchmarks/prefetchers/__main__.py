"""``CudaPrefetcher`` beside what people use today, on a real GPU.

    python -m benchmarks.prefetchers                the current device, within about a minute
    python -m benchmarks.prefetchers --seconds 30   fewer batches, and only the parts that fit in
    python -m benchmarks.prefetchers --out DIR      results and page there, not beside this file

Measures the rate of a loop that resembles a training, taking turns with its peers; counts wrong
values in cases that show missing synchronisation; measures reserved memory over epochs; and tries
what each does with unusual epochs. Needs CUDA and torch, but nothing else that hostprep depends on.
Results are kept in ``results.json``, by device and version of torch, after each part; ``README.md``
is written from them alone.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import kept
from benchmarks.prefetchers.report import render
from hostprep.cuda.torch_backend import why_no_cuda

HERE = Path(__file__).parent
# Share of the time left that the rate may take; the other parts get the rest.
RATE_SHARE = 0.5


def main(args: Sequence[str] | None = None) -> int:
    """Measure on the current device and write the results; return 1 if there is no CUDA."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.prefetchers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=60, help="about how long it may take")
    parser.add_argument(
        "--out", type=Path, default=HERE, help="the folder to write results and page to"
    )
    options = parser.parse_args(args)
    until = time.monotonic() + options.seconds
    reason = why_no_cuda()
    if reason is not None:
        print(f"This compares prefetchers on a GPU, and there is none to use: {reason}.")
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    measure(options.out, options.seconds, until)
    return 0


def measure(out: Path, seconds: float, until: float) -> None:
    """Measure part by part, and store the results so far after each."""
    import torch

    from benchmarks.prefetchers import rate as costs
    from benchmarks.prefetchers import trials
    from benchmarks.prefetchers.peers import CONTENDERS, CONTROLS
    from hostprep.cuda.bench import Bench

    began = time.monotonic()
    index = torch.cuda.current_device()
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name(index),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "driver": driver(),
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "date": time.strftime("%Y-%m-%d"),
        "limit_seconds": seconds,
        "about": {each.name: each.about for each in CONTENDERS},
        "controls": {each.name: each.about for each in CONTROLS},
    }
    bench = Bench(index)
    parts = {
        "rate": (costs.rate, RATE_SHARE),
        "values": (trials.values, 1.0),
        "memory": (costs.memory, 1.0),
        "facts": (trials.facts, 1.0),
    }
    for name, (part, share) in parts.items():
        now = time.monotonic()
        print(f"{name}: from {now - began:.1f} s", file=sys.stderr, flush=True)
        result[name] = trials.guarded(partial(part, bench, now + share * (until - now)), until)
        result["seconds"] = round(time.monotonic() - began, 1)
        keep(result, out)
    print(f"written to {out} after {result['seconds']} s", file=sys.stderr, flush=True)


def keep(result: dict[str, Any], out: Path) -> None:
    """Replace the earlier result of the same device and torch; write the page again."""
    kept.keep(result, out, ("device", "torch"), render)


def driver(path: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    """Return the version of the kernel's driver, None if it does not say."""
    try:
        found = re.search(r"\d+\.\d+(\.\d+)?", path.read_text().partition("\n")[0])
    except OSError:
        return None
    return found[0] if found else None


if __name__ == "__main__":
    sys.exit(main())
