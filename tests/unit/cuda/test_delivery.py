"""What ``hostprep verify`` says of deliveries by a device that does its work late: faults show.

The device is ``deferred_cuda``'s; what a real GPU does is for ``make test-gpu``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from hostprep.cuda import CudaPrefetcher, controls, delivery
from hostprep.cuda.bench import Bench
from tests.unit.cuda.deferred_cuda import DeferredCuda
from tests.unit.cuda.posing_cuda import Mode

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(delivery, "_SIDE", 32)
    DeferredCuda(monkeypatch)
    with Mode():
        yield Bench(0)


@pytest.mark.parametrize("case", delivery.CASES, ids=lambda case: case.name)
def test_every_value_arrives(bench: Bench, case: delivery.Case) -> None:
    trace = delivery.check(bench, case)
    assert trace.problem is None and trace.mismatches == 0
    assert trace.batches == trace.expected_batches


def test_each_fault_that_is_made_on_purpose_is_seen(bench: Bench) -> None:
    found = {control.mutant: control.mismatches for control in delivery.provoke(bench)}
    assert set(found) == {kind.__name__ for kind in controls.MUTANTS}
    assert all(found.values()), found


@pytest.mark.parametrize(
    ("fault", "cases"),
    [
        (controls.NoWaitBeforeUse, {"tensors", "dicts_converted", "slow_copies", "early_end"}),
        (controls.NoWaitBack, {"slow_consumer", "slow_consumer_deep"}),
        (controls.NoLifetime, {"early_end"}),
        (controls.EarlyRefill, {"tensors", "slow_consumer", "slow_copies", "early_end"}),
    ],
)
def test_and_by_the_arrangements_that_are_run_of_a_prefetcher_that_has_it(
    fault: type[CudaPrefetcher[Any]], cases: set[str], bench: Bench
) -> None:
    seen = {case.name for case in delivery.CASES if delivery.check(bench, case, fault).mismatches}
    assert seen >= cases
