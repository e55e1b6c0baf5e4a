"""Who else is at a device, with this process there itself; NVML's answers are made."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from hostprep.cuda import others
from hostprep.host.gpu import Gpu, GpuProcess
from tests.unit.cuda.virtual_cuda import GPU

ME = os.getpid()
STRANGER, OTHER = 4_194_301, 4_194_302  # beyond what Linux gives out by itself


def gpu(*pids: int, used: int | None = 0) -> Gpu:
    processes = tuple(GpuProcess(pid, None) for pid in pids)
    return replace(GPU, processes=processes, utilisation_percent=used)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Gpu]:
    """What NVML says next; the last of it again and again."""
    answers: list[Gpu] = []

    def watch(index: int, times: int) -> tuple[Gpu, ...]:
        assert (index, times) == (GPU.index, 1)
        if not answers:
            return ()
        return (answers.pop(0) if len(answers) > 1 else answers[0],)

    monkeypatch.setattr(others, "watch_gpu", watch)
    return answers


@pytest.fixture
def child() -> Iterator[int]:
    """A process that we started, as a DataLoader starts its workers."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid


@pytest.mark.parametrize(
    ("before", "now", "count"),
    [
        ((), (ME,), 0),
        ((), (ME, STRANGER), 1),
        ((STRANGER,), (ME, STRANGER), 0),
        ((STRANGER,), (ME,), 0),
        # In a container: one of them is this process, by its number outside.
        ((), (STRANGER,), 0),
        ((OTHER,), (OTHER, STRANGER), 0),
        ((), (STRANGER, OTHER), 1),
        # NVML names none of them there.
        ((), (), 0),
    ],
)
def test_newcomers_are_those_who_are_not_us(
    before: tuple[int, ...], now: tuple[int, ...], count: int, seen: list[Gpu]
) -> None:
    seen.append(gpu(*now))
    assert others.newcomers(gpu(*before)) == count


def test_what_we_started_is_no_newcomer(seen: list[Gpu], child: int) -> None:
    seen.append(gpu(ME, child, STRANGER))
    assert others.newcomers(gpu()) == 1


def test_what_nvml_does_not_say_stays_unknown(seen: list[Gpu]) -> None:
    untold = replace(GPU, processes=None)
    assert others.newcomers(gpu()) is None
    assert others.look_again(gpu(used=3)) == gpu(used=3)
    seen.append(untold)
    assert others.newcomers(gpu()) is None
    assert others.look_again(gpu()).processes is None
    seen[:] = [gpu(ME)]
    assert others.newcomers(untold) is None


def test_a_device_is_seen_as_it_is_when_its_turn_comes(seen: list[Gpu]) -> None:
    seen.append(gpu(OTHER, ME, STRANGER, used=70))
    now = others.look_again(gpu(OTHER, used=0))
    assert now == gpu(OTHER, STRANGER, used=70)
    # Who is there then is no newcomer later.
    seen[:] = [gpu(OTHER, ME, STRANGER)]
    assert others.newcomers(now) == 0
    seen[:] = [gpu(STRANGER, used=0)]
    assert others.look_again(gpu(OTHER, used=90)) == gpu()


def test_what_has_just_ended_is_not_taken_for_work(
    seen: list[Gpu], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen += [gpu(ME, used=40), gpu(ME, used=20), gpu(ME, used=5), gpu(ME, used=90)]
    assert others.look_again(gpu()) == gpu(used=5)
    monkeypatch.setattr(others, "SETTLE_SECONDS", 0.05)
    assert others.look_again(gpu()) == gpu(used=90)
    # With somebody on it, it is theirs at once.
    seen[:] = [gpu(ME, STRANGER, used=40), gpu(ME, STRANGER, used=0)]
    assert others.look_again(gpu()) == gpu(STRANGER, used=40)
