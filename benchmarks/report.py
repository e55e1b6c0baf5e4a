"""Writes the tables of ``README.md``, here and at the top, from measured results alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from benchmarks.peers import READING

_HEAD = """# Staging, side by side

Whole commands against whole commands, the same data in the same run, in turn; medians. Every target
is a fresh tmpfs. hostprep mounts its own volume, scans, plans, copies, hashes in flight, reads back
(unless the row says otherwise), publishes and records within its time; the peers copy. Ratios
compare runs on one machine within minutes; the seconds mean little elsewhere, and the ratios change
with the processor too: each machine that was measured has its own tables. `reading alone` writes
nothing and is not a peer: it shows what a cold source gives. Of the rows called "again", the second
run of the same command is timed; the first has filled the target. There `cp -a --update` is no
equal: it deletes nothing, and looks at times alone.

This page is written by the run: `make bench` (all of it, about an hour, as root), or
`python -m benchmarks.stage --only imagenet-warm`. All single times are in `results.json`.
"""

_FRONT = re.compile(r"(<!-- from benchmarks/results.json -->\n)(.*?)(<!-- to here -->)", re.DOTALL)
# A ratio to a copy that takes no time says nothing: the difference does.
_OVER_AT_ONCE_SECONDS = 0.1


def host_of(result: dict[str, Any]) -> str:
    """Return the machine of a result, whichever Python ran there."""
    return str(result["machine"]).rsplit(", Python ", 1)[0]


def write_readme(path: Path, results: list[dict[str, Any]]) -> None:
    """Write the tables of all results to ``path``, grouped by machine."""
    parts = [_HEAD]
    for machine, found in _by_machine(results).items():
        parts += [f"## {machine[:1].upper()}{machine[1:]}\n", _summary(found), _scale(found)]
        parts += [_section(result) for result in found]
    path.write_text("\n".join(part for part in parts if part))


def write_front(path: Path, results: list[dict[str, Any]]) -> None:
    """Write the comparison of all machines between the two marks in ``path``."""
    text = path.read_text()
    path.write_text(_FRONT.sub(lambda found: found[1] + front_table(results) + found[3], text))


def front_table(results: list[dict[str, Any]]) -> str:
    """Return a row for each scenario with peers, and a column for each machine."""
    machines = _by_machine(results)
    processors = [re.sub(r".*?(\d+ cores) \((.*)\), .*", r"\1, \2", name) for name in machines]
    cells: dict[str, dict[str, str]] = {}
    for result in (each for found in machines.values() for each in found):
        ours, name, seconds = _against_best(result) or (0.0, "", 0.0)
        if seconds > _OVER_AT_ONCE_SECONDS:
            cells.setdefault(result["title"], {})[host_of(result)] = (
                f"{ours:.2f} s, `{_name(name)}` {seconds:.2f} s: **{seconds / ours:.1f}x**"
                + _of_reading(result)
            )
    lines = [f"| | {' | '.join(processors)} |", "|---" * (len(machines) + 1) + "|"]
    for title, found in cells.items():
        columns = (found.get(machine, "") for machine in machines)
        lines.append(f"| {title} | {' | '.join(columns)} |")
    return "\n".join(lines) + "\n"


def _of_reading(result: dict[str, Any]) -> str:
    """Return the time of reading the source, if it was measured beside the copies."""
    alone = result["medians"].get(READING.name)
    return f" (reading alone {alone['seconds']:.2f} s)" if alone else ""


def _by_machine(results: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the results of each machine, the one with the most of them first."""
    machines: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        machines.setdefault(host_of(result), []).append(result)
    return dict(sorted(machines.items(), key=lambda item: (-len(item[1]), item[0])))


def _against_best(result: dict[str, Any]) -> tuple[float, str, float] | None:
    """Return hostprep's seconds, the fastest peer and its seconds; None without a peer."""
    peers = _peers(result)
    if not peers:
        return None
    name = min(peers, key=lambda peer: peers[peer]["seconds"])
    return (
        result["medians"]["hostprep (readback)"]["seconds"],
        name,
        peers[name]["seconds"],
    )


def _summary(results: list[dict[str, Any]]) -> str:
    lines = [
        "| data and source | hostprep | best peer | ratio |",
        "|---|---|---|---|",
    ]
    for result in results:
        against = _against_best(result)
        if against is None:
            continue
        ours, name, seconds = against
        over_at_once = seconds <= _OVER_AT_ONCE_SECONDS
        versus = f"+ {ours - seconds:.2f} s" if over_at_once else f"{seconds / ours:.1f}x"
        lines.append(
            f"| {result['title']} | {ours:.2f} s | `{_name(name)}` {seconds:.2f} s | **{versus}** |"
        )
    return "\n".join(lines) + "\n"


def _scale(results: list[dict[str, Any]]) -> str:
    found = {result["name"]: result["medians"]["hostprep (readback)"] for result in results}
    if not {"kilo-100k", "kilo-1m"} <= found.keys():
        return ""
    small, large = found["kilo-100k"], found["kilo-1m"]
    times = large["seconds"] / small["seconds"]
    growth = (large["peak_bytes"] - small["peak_bytes"]) / 900_000
    return (
        f"From 100,000 to 1,000,000 files of 1 KB the time grows {times:.1f} times and"
        f" the memory of all processes together by {growth:.0f} bytes a file"
        f" ({large['peak_bytes'] / 1e6:.0f} MB for a million:"
        f" {large['peak_bytes'] / 1e6:.0f} bytes a file in all).\n"
    )


def _section(result: dict[str, Any]) -> str:
    lines = [
        f"### {result['title']}",
        "",
        f"{result['date']}; Python {result['machine'].rsplit(', Python ', 1)[1]};"
        f" {_rounds(result)} rounds; memory before each run:"
        f" {result.get('memory', 'as the run before left it')}.",
        "",
        "| | seconds | times hostprep | CPU seconds | peak memory |",
        "|---|---|---|---|---|",
    ]
    ours = result["medians"]["hostprep (readback)"]["seconds"]
    for name, median in result["medians"].items():
        lines.append(
            f"| `{_name(name)}` | {median['seconds']:.2f} | {median['seconds'] / ours:.2f} "
            f"| {median['cpu_seconds']:.2f} | {_memory(median['peak_bytes'])} |"
        )
    for words, value in result["notes"].items():
        lines += ["", f"{words.capitalize()}: {value:.2f} ({ours / value:.2f} times for hostprep)."]
    if result["missing"]:
        lines += ["", f"Not installed, left out: {', '.join(result['missing'])}."]
    return "\n".join(lines) + "\n"


def _name(name: str) -> str:
    return name.replace("|", "\\|")  # a bar would end the cell, in code too


def _memory(peak_bytes: float) -> str:
    # A run that ended before the first sample has none.
    return f"{peak_bytes / 1e6:.0f} MB" if peak_bytes else "too short to see"


def _peers(result: dict[str, Any]) -> dict[str, Any]:
    return {
        name: median
        for name, median in result["medians"].items()
        if not name.startswith("hostprep") and name != READING.name
    }


def _rounds(result: dict[str, Any]) -> int:
    return max(len(runs) for runs in result["runs"].values())
