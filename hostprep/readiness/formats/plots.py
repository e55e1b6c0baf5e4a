"""The plots of the HTML report, as inline SVG: no scripts, nothing to load.

Colours are the page's CSS variables, so that they follow dark mode. Each plot has a description in
words for readers who cannot see it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from hostprep.dataclass import dataclass
from hostprep.units import format_age, format_bytes, format_count, format_rate, format_seconds

_WIDTH = 330
_LABEL_END = 98
_LETTER = 6.6  # average width in the page's 12 px font
_ROW = 22
_GROUP = 20


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure: its title, its caption, and the SVG, or why there is none."""

    title: str
    note: str
    svg: Markup | None = None
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class _Bar:
    """A bar of ``value``, with a lighter part up to ``upto``; None means not measured."""

    label: str
    value: float | None
    text: str
    colour: str
    upto: float | None = None


def plots(measured: dict[str, Any]) -> tuple[Plot, ...]:
    """Return the four plots of a report's ``measurements``."""
    parts: dict[str, Callable[[Any], Plot]] = {
        "storage": _storage,
        "epoch": _epoch,
        "loader": _loader,
        "overlap": _overlap,
    }
    return tuple(_drawn(draw, measured.get(name)) for name, draw in parts.items())


def _drawn(draw: Callable[[Any], Plot], part: Any) -> Plot:
    """Return the plot of a part, which another version may have saved, or another host sent."""
    try:
        return draw(part)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return replace(draw(None), missing="The saved result cannot be read: measure again.")


def _storage(rows: list[dict[str, Any]] | None) -> Plot:
    title = "Storage: one large file against many small ones"
    if not rows:
        return Plot(title, "", missing="Not measured yet: hostprep probe PATH measures it.")
    groups = []
    for row in rows[:4]:
        valid = "" if row["valid"] else ", not valid"
        groups.append(
            (
                f"{row['path']} ({row['class']}{valid})",
                [
                    _rate("sequential", row["sequential_bytes_per_s"], "a"),
                    _rate("small files", row["small_files_bytes_per_s"], "b"),
                ],
            )
        )
    files = [row for row in rows[:4] if row["small_files_per_s"]]
    note = "; ".join(
        f"{row['path']}: {format_count(round(row['small_files_per_s']))} files/s" for row in files
    )
    return Plot(title, _join(note, _age(rows[0])), _bars(groups, title))


def _rate(label: str, value: float | None, colour: str) -> _Bar:
    return _Bar(label, value, "not measured" if value is None else format_rate(value), colour)


def _epoch(epoch: dict[str, Any] | None) -> Plot:
    title = "Reading one epoch: cold, from the page cache, staged"
    if epoch is None:
        return Plot(
            title,
            "",
            missing="Not measured yet: hostprep probe on a data set's folder measures it.",
        )
    low, high = epoch["next_low_seconds"], epoch["next_high_seconds"]
    later = "not measured" if low is None else format_seconds(low)
    if low is not None and high is not None and high > 1.05 * low:
        later = f"{format_seconds(low)} to {format_seconds(high)}"
    bars = [
        _Bar("first, cold", epoch["cold_seconds"], format_seconds(epoch["cold_seconds"]), "b"),
        _Bar("later, cached", low, later, "c", high),
        _Bar(
            "staged in RAM",
            epoch["staged_seconds"],
            "not measured"
            if epoch["staged_seconds"] is None
            else format_seconds(epoch["staged_seconds"]),
            "a",
        ),
    ]
    size = f"{format_count(epoch['files'], 'file')}, {format_bytes(epoch['size_bytes'])}"
    return Plot(title, _join(size, _age(epoch)), _bars([(epoch["path"], bars)], title))


def _overlap(overlap: dict[str, Any] | None) -> Plot:
    title = "Prefetching: copy and compute in turn, and together"
    if overlap is None:
        return Plot(title, "", missing="Not measured yet: hostprep verify measures it on a GPU.")
    words = {"spin": "spinning kernel", "matmul": "matrix products", "prefetcher": "prefetcher"}
    groups = []
    for row in overlap["rows"][:6]:
        in_turn = row["copy_seconds"] + row["compute_seconds"]
        hidden = "" if row["phi"] is None else f", {row['phi']:.0%} hidden"
        groups.append(
            (
                f"{row['device']}, {words[row['kind']]}{hidden}",
                [
                    _Bar("in turn", in_turn, _short(in_turn), "b"),
                    _Bar("together", row["both_seconds"], _short(row["both_seconds"]), "a"),
                ],
            )
        )
    verdict = f"hostprep verify: {overlap['verdict']}"
    return Plot(title, _join(verdict, _age(overlap)), _bars(groups, title))


def _short(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms" if seconds < 1 else format_seconds(seconds)


def _bars(groups: Sequence[tuple[str, Sequence[_Bar]]], title: str) -> Markup:
    """Return horizontal bars, all to one scale, in groups with a heading each."""
    # The largest scale at which every bar leaves room for its text.
    scale = min(
        (
            (_WIDTH - _LABEL_END - 8 - _LETTER * len(bar.text)) / (bar.upto or bar.value or 0)
            for _, bars in groups
            for bar in bars
            if bar.upto or bar.value
        ),
        default=0.0,
    )
    parts, y = [], 4
    said = []
    for headline, bars in groups:
        # Long paths keep their ends, which distinguish them.
        shown = headline if len(headline) <= 44 else "…" + headline[-43:]
        parts.append(Markup('<text class="head" x="0" y="{}">{}</text>').format(y + 12, shown))
        y += _GROUP
        for bar in bars:
            parts.append(_row(bar, y, scale))
            said.append(f"{headline}, {bar.label}: {bar.text}")
            y += _ROW
        y += 8
    return _svg(title + ". " + "; ".join(said), y, parts)


def _row(bar: _Bar, y: int, scale: float) -> Markup:
    middle = y + 13
    row = Markup('<text class="label" x="{}" y="{}" text-anchor="end">{}</text>').format(
        _LABEL_END - 6, middle, bar.label
    )
    end = float(_LABEL_END)
    for value, shade in ((bar.upto, "range"), (bar.value, "bar")):
        if value is not None:
            width = max(1.5, value * scale)
            end = max(end, _LABEL_END + width)
            row += Markup(
                '<rect class="{} {}" x="{}" y="{}" width="{:.1f}" height="16" rx="2"/>'
            ).format(shade, bar.colour, _LABEL_END, y, width)
    return row + Markup('<text class="value" x="{:.1f}" y="{}">{}</text>').format(
        end + 5, middle, bar.text
    )


def _loader(loader: dict[str, Any] | None) -> Plot:
    title = "DataLoader: samples a second by number of workers"
    if loader is None:
        return Plot(
            title, "", missing="Not measured yet: hostprep recommend --dataset DIR measures it."
        )
    workers = format_count(loader["num_workers"], "worker")
    binding = loader["binding"]
    bottleneck = "" if binding is None else f"the bottleneck is {binding.replace('_', ' ')}"
    words = _join(f"{workers} recommended", bottleneck, _age(loader))
    return Plot(title, words, _curve(loader, title))


def _curve(loader: dict[str, Any], title: str) -> Markup:
    points, gpu = loader["points"], loader["gpu_rate_samples_per_s"]
    left, top, width, height = 48, 18, 270, 130
    most_workers = max(1, points[-1]["workers"])
    highest = max(point["samples_per_s"] * (1 + point["relative_error"]) for point in points)
    step = _step(max(highest, gpu or 0) or 1.0)
    highest = step * math.ceil(max(highest, gpu or 0) / step) or step

    def at(workers: float, rate: float) -> tuple[float, float]:
        return left + width * workers / most_workers, top + height * (1 - rate / highest)

    parts = []
    for tick in range(round(highest / step) + 1):
        _, y = at(0, tick * step)
        parts.append(
            Markup('<line class="grid" x1="{}" y1="{:.1f}" x2="{}" y2="{:.1f}"/>').format(
                left, y, left + width, y
            )
            + Markup('<text class="label" x="{}" y="{:.1f}" text-anchor="end">{}</text>').format(
                left - 5, y + 4, _thousands(tick * step)
            )
        )
    if gpu:
        _, y = at(0, gpu)
        parts.append(
            Markup('<line class="need" x1="{}" y1="{:.1f}" x2="{}" y2="{:.1f}"/>').format(
                left, y, left + width, y
            )
            + Markup('<text class="label" x="{}" y="{:.1f}" text-anchor="end">{}</text>').format(
                left + width, y - 4, "the GPU takes"
            )
        )
    corners = " ".join(
        f"{x:.1f},{y:.1f}"
        for x, y in (at(point["workers"], point["samples_per_s"]) for point in points)
    )
    parts.append(Markup('<polyline class="curve" points="{}"/>').format(corners))
    for point in points:
        parts.append(_point(point, at, chosen=point["workers"] == loader["num_workers"]))
        x, _ = at(point["workers"], 0)
        parts.append(
            Markup('<text class="label" x="{:.1f}" y="{}" text-anchor="middle">{}</text>').format(
                x, top + height + 16, point["workers"]
            )
        )
    said = ", ".join(f"{point['workers']}: {point['samples_per_s']:,.0f}" for point in points)
    return _svg(f"{title}. {said}", top + height + 24, parts)


def _point(point: dict[str, Any], at: Any, *, chosen: bool) -> Markup:
    rate, error = point["samples_per_s"], point["relative_error"]
    x, y = at(point["workers"], rate)
    _, low = at(point["workers"], rate * (1 - error))
    _, high = at(point["workers"], rate * (1 + error))
    drawn = Markup('<line class="error" x1="{0:.1f}" y1="{1:.1f}" x2="{0:.1f}" y2="{2:.1f}"/>')
    circle = Markup('<circle class="bar {}" cx="{:.1f}" cy="{:.1f}" r="{}"/>')
    return drawn.format(x, low, high) + circle.format(
        "b" if chosen else "a", x, y, 5 if chosen else 3
    )


def _svg(said: str, height: int, parts: Sequence[Markup]) -> Markup:
    return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        _WIDTH, height, said, Markup("").join(parts)
    )


def _step(highest: float) -> float:
    """Return the round number (1, 2 or 5 and zeros) that divides an axis into two to five parts."""
    power = 10.0 ** math.floor(math.log10(highest / 2))
    return max(power * digit for digit in (1, 2, 5) if power * digit <= highest / 2)


def _thousands(rate: float) -> str:
    return f"{rate:,.0f}" if rate < 10_000 else f"{rate / 1000:.3g}k"


def _age(part: dict[str, Any]) -> str:
    age = part["age_seconds"]
    return "" if age is None else f"measured {format_age(age)}"


def _join(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
