"""Writes the page of the comparison of prefetchers, from its results alone."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Any

from hostprep.units import MIB

_HEAD = """# Prefetchers to CUDA, side by side

Written by `python -m benchmarks.prefetchers`, never by hand; all single figures are in
`results.json`. The peers are written anew in a few lines from what their sources
document, so that each can be given late copies the same way; no package of theirs was run.

- **Rate**: uint8 images that are in host memory already, converted to float16 on the device, and
  matrix products that are to take 1.2 times as long as a copy. In turn, medians of the rounds. The
  ideal is the slower of compute alone and copy alone, in which there is no conversion, nor what
  copies and products take from each other. What is used up after an epoch is made anew within the
  time of each pass. No loader is waited for: what a loader costs is not in it, and what a thread
  that draws ahead would gain is not, either.
- **Wrong values**: each value compared on the device as it is used. Late copies: a spinning kernel
  stands before each copy. Slow consumer: one stands before each use, and the consumer writes to
  memory of a batch's size in each step; in a plain `for`, whose name keeps a batch until the next
  one is there, and without that. Early end: the loop is left with copies under way, and memory is
  allocated and written. A race that did not show is not shown to be none.
- **Memory**: what torch's allocator has reserved, beyond what it had before, after epochs of a
  slow loop with batches of mixed sizes.
"""
_FACTS = {
    "again": "a second epoch",
    "has_len": "`len`",
    "empty": "an empty loader",
    "before_error": "batches before a loader's exception",
    "threads_left": "threads left by an early end",
}


def render(results: list[dict[str, Any]]) -> str:
    """Return the page: a section for each device and torch."""
    return "\n".join([_HEAD, *(line for result in results for line in _section(result))]) + "\n"


def _section(result: dict[str, Any]) -> list[str]:
    parts = {"rate": _rate, "values": _values, "memory": _memory, "facts": _facts}
    missing = [
        f"- {part}: {result[part]['problem'] if part in result else 'not reached'}"
        for part in parts
        if "problem" in result.get(part, {"problem": ""})
    ]
    lines = [
        f"## {result['device']}, torch {result['torch']}",
        "",
        f"{result['date']}; driver {result['driver'] or 'unknown'}, CUDA {result['cuda']}, Python"
        f" {result['python']}, {result['processors']} processors; {result['seconds']:.0f} s, of"
        f" {result['limit_seconds']:.0f} s allowed.",
        "",
    ]
    for part, told in parts.items():
        if part in result and "problem" not in result[part]:
            lines += [*told(result), ""]
    if missing:
        lines += ["Not measured:", "", *missing, ""]
    lines += ["Who is who:", ""]
    lines += [f"- {name}: {about.replace('``', '`')}" for name, about in result["about"].items()]
    return [*lines, ""]


def _rate(result: dict[str, Any]) -> list[str]:
    found = result["rate"]
    rates = {name: median(each) for name, each in found["rates"].items()}
    alone = {name: rate for name, rate in rates.items() if name not in result["about"]}
    ideal = min(alone.values(), default=None)
    compute = rates.get("compute alone")
    step = f", compute alone {1e3 / compute:.2f} ms" if compute else ""
    rows = []
    for name in (*alone, *result["about"]):
        if name in rates:
            each = found["rates"][name]
            share = f"{rates[name] / ideal:.0%}" if ideal and name in result["about"] else ""
            told = f"{rates[name]:,.0f} ({min(each):,.0f} to {max(each):,.0f})"
            if name in found["problems"]:
                told += f", then {found['problems'][name]}"
            rows.append((name, told, share, str(len(each))))
        else:
            rows.append((name, found["problems"].get(name, "not measured"), "", ""))
    return [
        f"### Rate: {found['batches']} batches of {found['batch_bytes'] / 1e6:.1f} MB a pass, of"
        f" which a copy takes {found['copy_seconds'] * 1e3:.2f} ms"
        f" ({found['batch_bytes'] / found['copy_seconds'] / 1e9:.1f} GB/s){step}",
        "",
        *_table(("", "batches/s", "of the ideal", "rounds"), rows),
    ]


def _values(result: dict[str, Any]) -> list[str]:
    found = result["values"]
    rows = [
        (name, *(_wrong(by_name.get(name)) for by_name in found.values()))
        for name in result["about"]
    ]
    controls = [
        (name, *(_wrong(by_name.get(name)) for by_name in found.values()))
        for name in result["controls"]
    ]
    silent = [
        arrangement
        for arrangement, by_name in found.items()
        if not any(by_name.get(name, {}).get("wrong") for name in result["controls"])
    ]
    lines = [
        "### Wrong values",
        "",
        *_table(("", *found), rows),
        "",
        "The same of prefetchers that are broken on purpose, which say what can show here:",
        "",
        *_table(("", *found), controls),
    ]
    if silent:
        lines += ["", f"Nothing was provoked, and so nothing shown, by: {', '.join(silent)}."]
    return lines


def _wrong(found: dict[str, Any] | None) -> str:
    if found is None:
        return "not measured"
    told = [found["problem"]] if "problem" in found else []
    if "wrong" in found:
        wrong, values = found["wrong"], found["values"]
        # As a rate, a few wrong ones in millions would be rounded to zero.
        told.append(f"**{wrong:,}** of {values:,}" if wrong else f"0 of {values:,}")
    return "; ".join(told)


def _memory(result: dict[str, Any]) -> list[str]:
    rows = []
    for name, found in result["memory"].items():
        if "problem" in found:
            rows.append((name, found["problem"]))
            continue
        reserved, peaks = found["reserved_bytes"], found["peak_bytes"]
        rows.append((name, *map(_mebibytes, reserved.values()), _mebibytes(max(peaks.values()))))
    told = [found for found in result["memory"].values() if "problem" not in found]
    epochs = told[0]["reserved_bytes"] if told else ()
    heads = ("reserved, MiB", *(f"after epoch {number}" for number in epochs), "the most")
    return ["### Memory", "", *_table(heads, rows)]


def _facts(result: dict[str, Any]) -> list[str]:
    rows = [
        (name, *(_fact(found.get(fact, {})) for fact in _FACTS))
        for name, found in result["facts"].items()
    ]
    return ["### Odd epochs", "", *_table(("", *_FACTS.values()), rows)]


def _fact(found: dict[str, Any]) -> str:
    told = found.get("found", found.get("problem", "not measured"))
    return {True: "yes", False: "no"}[told] if isinstance(told, bool) else str(told)


def _mebibytes(size_bytes: int) -> str:
    return f"{size_bytes / MIB:,.0f}"


def _table(heads: Iterable[str], rows: Iterable[tuple[str, ...]]) -> list[str]:
    columns = list(heads)
    filled = [[*row, *[""] * (len(columns) - len(row))] for row in rows]
    lines = [[*columns], ["---"] * len(columns), *filled]
    return [f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines]
