"""What is timed beside each other, and what is not worth it."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hostprep.cli import recommend
from hostprep.loading.measuring.variants import Variant, compare_prefetching, winners
from tests.unit.loading.making import probe


class Timed:
    """A measurer that is asked for rates, and notes for which."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, bool]] = []

    def with_workers(self, workers: int, *, background: bool = False) -> Any:
        self.asked.append((workers, background))
        return probe(workers, 100.0 + 10 * workers + len(self.asked))


@pytest.fixture(autouse=True)
def has_prefetch_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("prefetch_generator")
    module.__spec__ = sys.__spec__
    monkeypatch.setitem(sys.modules, "prefetch_generator", module)


def test_the_thread_is_timed_alone_and_around_workers() -> None:
    timed: Any = Timed()
    found = compare_prefetching(timed, 3)
    assert timed.asked == [(3, False), (0, True), (3, True)]
    assert [variant.name for variant in found] == [
        "DataLoader, 3 workers",
        "prefetch_generator, no workers",
        "prefetch_generator, 3 workers",
    ]


def test_without_workers_nothing_is_timed_twice() -> None:
    timed: Any = Timed()
    found = compare_prefetching(timed, 0)
    assert timed.asked == [(0, False), (0, True)]
    assert [variant.name for variant in found] == [
        "DataLoader, no workers",
        "prefetch_generator, no workers",
    ]
    assert found[0].alone_samples_per_s == found[0].peak_samples_per_s
    assert [winner.name for winner in winners(found)] == ["prefetch_generator, no workers"]


def test_the_columns_of_the_table_stand_below_each_other() -> None:
    report: Any = SimpleNamespace(
        variants=(
            Variant("decoder", "pillow", 465.0, 650.0),
            Variant("prefetching", "prefetch_generator, no workers", 470_828.0, 470_828.0),
            Variant("prefetching", "DataLoader, 16 workers", None, 1_000_000.0),
        ),
        winners=(),
    )
    lines = recommend._variant_lines(report)
    assert len({len(line) for line in lines}) == 1
    assert lines[2].split()[-2:] == ["470,828", "470,828"]
