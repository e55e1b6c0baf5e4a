"""Writes the page of the comparison of trainings, from its results alone."""

from __future__ import annotations

from statistics import median
from typing import Any

_HEAD = """# A GPU during a training, with the usual settings and with those of hostprep

Written by `python -m benchmarks.training`, never by hand; all single figures are in
`results.json`. ResNet-18 in bfloat16 by SGD on JPEG files of 256 x 256 (a random crop, resized by
Pillow, mirrored or not), which before each pass are on a disk and not in the page cache, or staged
in RAM. The settings take turns; figures are medians of the rounds. The ideal is the same step on a
batch that is on the GPU already. Utilisation is NVML's, which `nvidia-smi` shows: the share of time
in which some kernel ran, so that 100 % may still be slow; the lowest tenth is what a tenth of the
looks did not exceed. The first batch, with the start of the workers, is not in the rate: an epoch
has it once. If a disk answers faster than the processors decode, staging adds little to a rate, and
that shows here.
"""


def render(results: list[dict[str, Any]]) -> str:
    """Return the page: a section for each device and machine."""
    return "\n".join([_HEAD, *(line for result in results for line in _section(result))]) + "\n"


def _section(result: dict[str, Any]) -> list[str]:
    advice = result["advice"]
    runs = {name: found for name, found in result["runs"].items() if found}
    ideal = _median(runs["alone"], "rate")
    rounds = f"{len(runs['alone'])} rounds of {result['pass_seconds']:g} s"
    rows = [_row(name, found, ideal) for name, found in runs.items() if name != "alone"]
    return [
        f"## {result['device']}; {result['machine']}",
        "",
        f"{result['date']}; torch {result['torch']}; {result['files']:,} files,"
        f" {result['bytes'] / 1e9:.2f} GB, batches of {result['batch']}; {rounds}."
        f" `hostprep stage` took {result['stage_seconds']:.1f} s,"
        f" `hostprep recommend --loader` {result['recommend_seconds']:.0f} s. It said:"
        f" {advice['num_workers']} workers, {advice['expected_samples_per_s']:,.0f} samples/s"
        f" expected, bound by {advice['binding']}.",
        "",
        "| | samples/s | of the ideal | utilisation | lowest tenth | first batch |",
        "|---|---|---|---|---|---|",
        *rows,
        f"| the ideal: no loader | {ideal:,.0f} | 100 % | {_percent(runs['alone'], 'utilisation')}"
        f" | {_percent(runs['alone'], 'lowest_tenth')} | |",
        "",
    ]


def _row(name: str, found: list[dict[str, float]], ideal: float) -> str:
    rate = _median(found, "rate")
    return (
        f"| {name} | {rate:,.0f} | {100 * rate / ideal:.0f} % | {_percent(found, 'utilisation')}"
        f" | {_percent(found, 'lowest_tenth')} | {_median(found, 'first_batch_seconds'):.1f} s |"
    )


def _median(found: list[dict[str, float]], field: str) -> float:
    return median(each[field] for each in found)


def _percent(found: list[dict[str, float]], field: str) -> str:
    return f"{_median(found, field):.0f} %" if field in found[0] else ""
