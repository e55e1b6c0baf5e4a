"""Measures one workload: what ``hostprep recommend`` says, and the sweep to compare that with."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.recommend.plan import FINALISTS, Plan, Progress
from benchmarks.recommend.point import processor_ticks

ROOT = Path(__file__).parents[2]
# Share of all processors: if other programs took more during a measurement, it is repeated, and
# marked if that did not help. The server of a slow source is such a program, but belongs to it.
DISTURBED = 0.10
DISTURBED_WITH_A_SERVER = 0.25
SERVED = ("far", "arm")
# A recommendation takes so long that it is repeated only once.
_RECOMMENDATIONS = 2

# One measurement: its rate, its seconds, the share of other programs if that is known.
Point = dict[str, Any]
Sweep = dict[int, list[Point]]


class Failed(Exception):
    """What was to be measured ended with this message."""


def measure(
    name: str, make_cold: Callable[[], None], plan: Plan, points: Sweep, say: Callable[[str], None]
) -> dict[str, Any]:
    """Return the recommendation and the sweep of one workload; measures what ``points`` lacks."""
    recommended, seconds = recommended_in_quiet(name, make_cold, plan)
    chosen = recommended["num_workers"]
    say(f"{name}: {recommended['verdict']} ({seconds:.0f} s)")
    missing = sorted({*plan.workers, chosen} - set(points))
    failed = complete(name, make_cold, plan, points, chosen, say) if missing else {}
    if chosen in failed:
        raise Failed(f"{name} with {chosen} workers, which are recommended: {failed[chosen]}")
    model = recommended["evidence"]["model"]
    predicted = {row["workers"]: row["samples_per_s"] for row in model["predicted"]}
    return {
        "recommended": chosen,
        "expected": recommended["expected_samples_per_s"],
        "modelled": predicted[chosen],
        "binding": recommended["binding"],
        "seconds": seconds,
        "disturbed": was_disturbed(recommended),
        "probes": [
            [probe["workers"], probe["samples_per_s"], probe["others_cpus"]]
            for probe in recommended["evidence"]["probes"]
        ],
        "plan": asdict(plan),
        "failed": {str(number): words for number, words in failed.items()},
        "sweep": {str(number): measured for number, measured in sorted(points.items())},
        "when": time.strftime("%Y-%m-%d %H:%M"),
    }


def complete(
    name: str,
    make_cold: Callable[[], None],
    plan: Plan,
    points: Sweep,
    chosen: int,
    say: Callable[[str], None],
) -> dict[int, str]:
    """Measure what is missing in ``points``, then the best again; return what failed, and how.

    A number fails if the host supports only fewer workers: the results of the others stand.
    """
    missing = sorted({*plan.workers, chosen} - set(points))
    progress = Progress(say, plan.measurements(len(missing)))
    failed: dict[int, str] = {}

    def measure_all(numbers: list[int], *, backwards: bool) -> None:
        for number in reversed(numbers) if backwards else numbers:
            if number in failed:
                continue
            try:
                point = timed_in_quiet(name, number, make_cold, plan)
            except Failed as error:
                failed[number] = str(error).splitlines()[-1]
                points.pop(number, None)
                progress.tell(f"{number:2d} workers: {failed[number]}")
                continue
            points.setdefault(number, []).append(point)
            others = "unknown" if point["others"] is None else f"{point['others']:.0%}"
            progress.tell(f"{number:2d} workers: {point['samples_per_s']:,.0f}/s, others {others}")

    for number in range(plan.passes):
        measure_all(missing, backwards=number % 2 == 1)
    ranked = sorted(points, key=lambda number: median_rate(points[number]), reverse=True)
    finalists = sorted({*ranked[:FINALISTS], chosen} - set(failed))
    for number in range(plan.final_rounds):
        measure_all(finalists, backwards=number % 2 == 1)
    return failed


def recommended_in_quiet(
    name: str, make_cold: Callable[[], None], plan: Plan
) -> tuple[dict[str, Any], float]:
    """Return a recommendation and its seconds; made once more if it was disturbed."""
    for _ in range(min(_RECOMMENDATIONS, plan.tries)):
        make_cold()
        wait_until_quiet(plan.quiet_seconds)
        began = time.monotonic()
        recommended = recommendation(name)
        seconds = time.monotonic() - began
        if not was_disturbed(recommended):
            break
    return recommended, seconds


def was_disturbed(recommended: dict[str, Any]) -> bool:
    """Return whether the recommendation itself says that other programs were at work."""
    return any("other programs" in note for note in recommended["notes"])


def recommendation(name: str) -> dict[str, Any]:
    """Run ``hostprep recommend`` as a user would."""
    spec = f"benchmarks.recommend.workloads:{name.capitalize()}"
    return asked(["-m", "hostprep", "recommend", "--loader", spec, "--json"])


def timed_in_quiet(name: str, workers: int, make_cold: Callable[[], None], plan: Plan) -> Point:
    """Time one number of workers, again if it was disturbed; return the least disturbed try."""
    tries: list[Point] = []
    while len(tries) < plan.tries and (not tries or is_disturbed(name, tries[-1])):
        make_cold()
        wait_until_quiet(plan.quiet_seconds)
        words = [name, str(workers), str(plan.window_seconds)]
        tries.append(asked(["-W", "ignore", "-m", "benchmarks.recommend.point", *words]))
    return min(tries, key=lambda point: point["others"] or 0.0)


def asked(arguments: list[str]) -> dict[str, Any]:
    """Return what this Python prints as JSON in a fresh process; raise ``Failed``."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(done.stderr.strip() or f"status {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def is_disturbed(name: str, point: Point) -> bool:
    """Return whether other programs took too much during a measurement, as far as is known."""
    return point["others"] is not None and point["others"] > limit_of(name)


def limit_of(name: str) -> float:
    """Return the share of other programs above which a measurement counts as disturbed."""
    return DISTURBED_WITH_A_SERVER if name in SERVED else DISTURBED


def wait_until_quiet(longest_seconds: float) -> None:
    """Wait until other programs leave the processors alone for a second, or the limit is over."""
    deadline = time.monotonic() + longest_seconds
    while time.monotonic() < deadline:
        busy, idle = processor_ticks()
        time.sleep(1.0)
        busy_now, idle_now = processor_ticks()
        # Not `<`: if the kernel counts nothing, both are 0, and waiting is useless.
        if busy_now - busy <= DISTURBED * (busy_now - busy + idle_now - idle):
            return


def median_rate(measured: list[Point]) -> float:
    """Return the median rate of some measurements."""
    return statistics.median(point["samples_per_s"] for point in measured)
