"""What is put down of a run's time on the processors, and how many workers it is planned with."""

from __future__ import annotations

import pytest

from hostprep.host.cgroups import CpuThrottling
from hostprep.host.cpu_time import CpuTicks
from hostprep.staging import planning, processor_time
from hostprep.staging.processor_time import ProcessorMeter


def test_this_process_counts_from_the_beginning_and_workers_from_their_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: dict[int | str, float | None] = {"self": 1.0, 7: 2.0, 8: None, 9: 0.5}
    held_up = [CpuThrottling("job", 100, 50), CpuThrottling("job", 110, 59)]
    ticks = [CpuTicks(100, 1000), CpuTicks(190, 1100)]
    monkeypatch.setattr(processor_time, "cpu_ticks", lambda: ticks.pop(0))
    monkeypatch.setattr(processor_time, "run_delay_seconds", waited.get)
    monkeypatch.setattr(processor_time, "read_cpu_throttling", lambda: (held_up.pop(0),))
    meter = ProcessorMeter()
    meter.workers_wait([7, 8, 9])
    waited["self"] = 1.25
    found = meter.time()
    assert found.waited_seconds == pytest.approx(2.75)
    assert found.throttled_share == pytest.approx(0.9)
    assert found.busy_share == pytest.approx(0.9)
    assert found.spent_seconds >= 0


def test_where_the_kernel_tells_nothing_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_time, "run_delay_seconds", lambda _: None)
    monkeypatch.setattr(processor_time, "read_cpu_throttling", lambda: ())
    meter = ProcessorMeter()
    meter.workers_wait([7])
    found = meter.time()
    assert (found.waited_seconds, found.throttled_share) == (None, None)


@pytest.mark.parametrize(
    ("usable", "workers"), [(0.4, 1), (1.0, 1), (1.2, 2), (1.5, 2), (2.0, 2), (2.4, 3)]
)
def test_a_fraction_of_a_processor_takes_a_worker_more(
    usable: float, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for 1.2 would leave a sixth of the quota, where two share all of it."""
    monkeypatch.setattr(planning, "usable_cpus", lambda: usable)
    assert planning.cores() == workers
