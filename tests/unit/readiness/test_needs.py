"""The command that a remedy prints, as `hostprep probe` reads it."""

from __future__ import annotations

import shlex

import pytest

from hostprep.probing.needs import parse_need
from hostprep.readiness.checks._needs import probe_line
from hostprep.spec.model import RequirementSpec


def need_in(line: str) -> str:
    words = shlex.split(line)
    return words[words.index("--need") + 1]


@pytest.mark.parametrize("rate", [1, 1800.0, 1234567.0, 1234567.25, 0.1 + 0.2, 1e-7, 3e22])
def test_a_rate_of_samples_is_printed_as_it_is_read(rate: float) -> None:
    line = probe_line("/mnt/a b", RequirementSpec("data", samples_per_second=rate))
    assert line.startswith("hostprep probe '/mnt/a b' --need ")
    need = parse_need(need_in(line))
    assert (need.samples_per_s, need.bytes_per_s) == (rate, None)


@pytest.mark.parametrize("rate", [1, 999, 400_000_000, 3_180_000_123])
def test_a_rate_of_bytes_is_printed_to_the_next_kilobyte(rate: int) -> None:
    need = parse_need(need_in(probe_line("/d", RequirementSpec("data", bytes_per_second=rate))))
    assert need.samples_per_s is None and need.bytes_per_s is not None
    assert rate <= need.bytes_per_s < rate + 1000


@pytest.mark.parametrize(
    ("rate", "told"),
    [(400_000_000, "400MB"), (3_000_000_000_000, "3000GB"), (1_500_000, "1500kB")],
)
def test_a_rate_of_bytes_is_printed_in_the_unit_that_it_has(rate: int, told: str) -> None:
    assert need_in(probe_line("/d", RequirementSpec("data", bytes_per_second=rate))) == told
