"""Writes ``README.md`` from stored results alone, a section for each machine."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.recommend.plan import FULL, rules
from benchmarks.recommend.sweep import is_disturbed, limit_of, median_rate

TARGET = 0.05
PREDICTION = 0.15

_HEAD = """# How much `hostprep recommend` loses against an exhaustive sweep

Written by `python -m benchmarks.recommend`; its docstring says how. Regret is
1 - rate with what was recommended / best rate of the sweep; the target is 5 %. Each machine that
was measured has its own section; all single figures are in `results.json`.
"""


def render(results: list[dict[str, Any]]) -> str:
    """Return the report in Markdown, the machine with the most workloads first."""
    machines: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        machines.setdefault(result["machine"], []).append(result)
    ranked = sorted(machines.items(), key=lambda item: (-len(item[1]), item[0]))
    return "\n".join([_HEAD, *(_section(machine, found) for machine, found in ranked)])


def _section(machine: str, results: list[dict[str, Any]]) -> str:
    versions = dict.fromkeys(f"torch {each['torch']}, Pillow {each['pillow']}" for each in results)
    lines = [f"## {machine[:1].upper()}{machine[1:]}", "", f"With {'; '.join(versions)}.", ""]
    if shortened := [_shortened(result) for result in results if _is_shortened(result)]:
        words = "Shortened: less sure than a whole run; an empty cell was not measured."
        lines += [words, ""]
        lines += [*shortened, ""]
    lines += [
        *_summary(results),
        "",
        *_rules(results),
        "",
        *_sweeps(results),
        "",
        *_counts(results),
    ]
    if found := _caveats(results):
        lines += ["", *found]
    return "\n".join(lines) + "\n"


# Parts ---------------------------------------------------------------------------------------


def _is_shortened(result: dict[str, Any]) -> bool:
    plan = result["plan"]
    less = any(
        plan[field] < getattr(FULL, field)
        for field in ("passes", "final_rounds", "window_seconds", "tries", "quiet_seconds")
    )
    return less or bool(set(FULL.workers) - set(plan["workers"]))


def _shortened(result: dict[str, Any]) -> str:
    plan = result["plan"]
    return (
        f"- {result['name']}: {len(plan['workers'])} points in the sweep"
        f" ({', '.join(map(str, plan['workers']))}), where a whole run has {len(FULL.workers)};"
        f" passes {plan['passes']} ({FULL.passes}),"
        f" rounds with the best {plan['final_rounds']} ({FULL.final_rounds}),"
        f" seconds of a measurement {plan['window_seconds']:g} ({FULL.window_seconds:g}),"
        f" tries where it was disturbed {plan['tries']} ({FULL.tries}),"
        f" seconds to wait for quiet {plan['quiet_seconds']:g} ({FULL.quiet_seconds:g})."
    )


def _summary(results: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| workload | recommended | regret | best of the sweep | binds | expected / measured |"
        " model alone / measured | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        chosen = result["recommended"]
        measured = _rate(result, chosen)
        best = max(map(int, result["sweep"]), key=lambda number: _rate(result, number))
        lines.append(
            f"| {result['name']} | {chosen} | {_verdict(result, chosen)} |"
            f" {best} ({_rate(result, best):,.0f}/s) | {result['binding']} |"
            f" {_within(result['expected'], measured)} | {_within(result['modelled'], measured)} |"
            f" {result['seconds']:.0f} |"
        )
    return lines


def _rules(results: list[dict[str, Any]]) -> list[str]:
    """Return the regret of each rule; an empty cell if a sweep lacks that point."""
    lines = ["Regret of the rules from the number of processors, on the same sweeps:", ""]
    lines += [f"| rule | {_cells(r['name'] for r in results)} |", "|---|" + "---|" * len(results)]
    chosen = (_regret_cell(r, r["recommended"]) for r in results)
    lines.append(f"| **hostprep recommend** | {_cells(chosen)} |")
    for rule, workers in rules(results[0]["processors"], results[0]["affinity"]).items():
        lines.append(
            f"| {rule} ({workers}) | {_cells(_regret_cell(r, workers) for r in results)} |"
        )
    return lines


def _sweeps(results: list[dict[str, Any]]) -> list[str]:
    numbers = sorted({int(number) for result in results for number in result["sweep"]})
    lines = ["The sweeps, samples/s, medians (spread in brackets):", ""]
    lines += [f"| workload | {_cells(numbers)} |", "|---|" + "---|" * len(numbers)]
    for result in results:
        cells = (_sweep_cell(result, number) for number in numbers)
        lines.append(f"| {result['name']} | {_cells(cells)} |")
    return lines


def _counts(results: list[dict[str, Any]]) -> list[str]:
    lines = [
        "How often each point was measured, and when the recommendation was made, which with",
        "`--again` is later than the sweep:",
        "",
    ]
    for result in results:
        counts = [len(measured) for measured in result["sweep"].values()]
        often = " to ".join(map(str, dict.fromkeys((min(counts), max(counts)))))
        lines.append(f"- {result['name']}: {often} times, {result['when']}")
    return lines


def _caveats(results: list[dict[str, Any]]) -> list[str]:
    """Return what readers should know: above all what other programs did meanwhile."""
    lines = []
    for result in results:
        name, tries = result["name"], result["plan"]["tries"]
        points = [point for measured in result["sweep"].values() for point in measured]
        shares = [point["others"] for point in points if point["others"] is not None]
        disturbed = sum(is_disturbed(name, point) for point in points)
        if result["disturbed"]:
            often = ", twice" if tries > 1 else ""
            lines.append(f"- {name}: other programs were at work during the recommendation{often}.")
        if disturbed:
            often = {1: "", 2: ", twice in a row", 3: ", three times in a row"}
            lines.append(
                f"- {name}: during {disturbed} of {len(points)} measurements of the sweep (*) other"
                f" programs took more than {limit_of(name):.0%} of the processors,"
                f" {max(shares):.0%} at the most{often.get(tries, f', {tries} times in a row')}:"
                " the row is not valid by that much."
            )
        if len(shares) < len(points):
            lines.append(f"- {name}: the kernel does not say what other programs took.")
        for workers, words in result["failed"].items():
            lines.append(f"- {name}: nothing was measured with {workers} workers: {words}")
    return ["Disturbances:", *lines] if lines else []


# Figures -------------------------------------------------------------------------------------


def _rate(result: dict[str, Any], workers: int) -> float:
    return median_rate(result["sweep"][str(workers)])


def _regret(result: dict[str, Any], workers: int) -> float:
    best = max(_rate(result, int(number)) for number in result["sweep"])
    return 1 - _rate(result, workers) / best


def _spread(measured: list[dict[str, Any]]) -> float:
    rates = [point["samples_per_s"] for point in measured]
    return (max(rates) - min(rates)) / statistics.fmean(rates)


def _drift(result: dict[str, Any]) -> float:
    """Return by how much passes differ at the same number of workers, as the median.

    What was measured only once says nothing about that.
    """
    repeated = [measured for measured in result["sweep"].values() if len(measured) > 1]
    return statistics.median(map(_spread, repeated)) if repeated else 0.0


# Cells ---------------------------------------------------------------------------------------


def _cells(values: Any) -> str:
    return " | ".join(map(str, values))


def _regret_cell(result: dict[str, Any], workers: int) -> str:
    return f"{_regret(result, workers):.1%}" if str(workers) in result["sweep"] else ""


def _sweep_cell(result: dict[str, Any], workers: int) -> str:
    """Return the median, a mark, and the spread of the measurements."""
    measured = result["sweep"].get(str(workers))
    if measured is None:
        return ""
    mark = "*" if any(is_disturbed(result["name"], point) for point in measured) else ""
    shown = f"{median_rate(measured):,.0f}{mark}"
    return shown if len(measured) == 1 else f"{shown} ({_spread(measured):.0%})"


def _verdict(result: dict[str, Any], workers: int) -> str:
    """Return a regret with its verdict; none if the passes themselves differ by as much."""
    value, noise = _regret(result, workers), _drift(result)
    if value <= TARGET:
        return f"{value:.1%}"
    missed = "missed" if value > noise else f"undecided: passes differ by {noise:.0%}"
    return f"{value:.1%}, {missed}"


def _within(expected: float, measured: float) -> str:
    """Return an expectation as a share of what was measured, with its verdict."""
    ratio = expected / measured
    return f"{ratio:.2f}{'' if abs(ratio - 1) <= PREDICTION else ', missed'}"
