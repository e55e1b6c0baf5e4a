"""The kernel's lists of numbers, ``0-3,8`` (bitmap_parselist), for processors and memory nodes."""

from __future__ import annotations

from collections.abc import Iterable

# Far more than any kernel counts; a range up to larger numbers would take all the memory.
_MOST_DIGITS = 6


def parse_list(text: str | None) -> frozenset[int]:
    """Return the numbers of a list; none for None and for what is not a list."""
    numbers: set[int] = set()
    for part in (text or "").strip().split(","):
        first, _, last = part.partition("-")
        if _is_number(first) and _is_number(last or first):
            numbers.update(range(int(first), int(last or first) + 1))
    return frozenset(numbers)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def format_list(numbers: Iterable[int]) -> str:
    """Return the numbers as the kernel lists them."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(f"{low}-{high}" if high > low else str(low) for low, high in spans)
