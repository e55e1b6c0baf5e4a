"""No order of events lets the prefetcher and its consumer meet in memory; broken ones are caught.

On a simulated device: programs by chance (hypothesis), the log judged by a happens-before checker,
the contents by what a schedule by chance let the consumer read.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostprep.cuda import prefetcher as prefetcher_module
from hostprep.cuda.controls import MUTANTS, EarlyRefill, NoLifetime, NoWaitBack, NoWaitBeforeUse
from hostprep.cuda.prefetcher import CudaPrefetcher
from tests.unit.cuda.simulated import Device, HostTensor, Mover, Op, races


@dataclass(frozen=True)
class Program:
    """What a loader yields and what a consumer does with it."""

    batches: tuple[tuple[tuple[int, bool], ...], ...]  # sizes, pinned or not
    depth: int
    keep: int  # how many batches the consumer holds on to
    uses: int
    scribbles: int
    stop_after: int | None
    fails_at: int | None
    epochs: int
    switches: str | None  # the consumer's stream: "ordered" after one another, or "free"
    converts: bool
    seed: int


programs = st.builds(
    Program,
    batches=st.lists(
        st.lists(st.tuples(st.sampled_from([1, 2]), st.booleans()), max_size=3).map(tuple),
        max_size=8,
    ).map(tuple),
    depth=st.integers(1, 4),
    keep=st.integers(0, 2),
    uses=st.integers(0, 2),
    scribbles=st.integers(0, 2),
    stop_after=st.none() | st.integers(0, 6),
    fails_at=st.none() | st.integers(0, 8),
    epochs=st.integers(1, 3),
    switches=st.sampled_from([None, "ordered", "free"]),
    converts=st.booleans(),
    seed=st.integers(0, 2**32),
)


class LoaderFailed(Exception):
    pass


class Loader:
    def __init__(self, program: Program, device: Device) -> None:
        self.program, self.device = program, device

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for number, sizes in enumerate(self.program.batches):
            if number == self.program.fails_at:
                raise LoaderFailed(number)
            yield {
                "number": number,
                "tensors": [
                    self.device.host_tensor((number, position), size, pinned=pinned)
                    for position, (size, pinned) in enumerate(sizes)
                ],
            }
        if self.program.fails_at == len(self.program.batches):
            raise LoaderFailed(len(self.program.batches))


def run(program: Program, kind: type[CudaPrefetcher[Any]] = CudaPrefetcher) -> Device:
    """Run the program on a simulated device to the end and return the device."""
    device = Device(program.seed, converts=program.converts)
    prefetcher = kind(Loader(program, device), depth=program.depth, backend=device)
    streams = [device.consumer, device.new_stream()]
    for _ in range(program.epochs):
        kept: list[Any] = []
        numbers = []
        failed_at = None
        iterator = iter(prefetcher)
        try:
            for batch in iterator:
                numbers.append(batch["number"])
                for position, tensor in enumerate(batch["tensors"]):
                    for _ in range(program.uses):
                        device.use(tensor, (batch["number"], position))
                kept.append(batch)
                batch = tensor = None
                for _ in range(program.scribbles):
                    paper = device.scribble(1, "paper")
                    device.use(paper, "paper")
                    del paper
                del kept[: max(0, len(kept) - program.keep)]
                if program.switches == "ordered":
                    device.follow(streams[len(numbers) % 2])
                elif program.switches == "free":
                    device.consumer = streams[len(numbers) % 2]
                    paper = device.scribble(1, "paper")  # before it asks for a batch
                    device.use(paper, "paper")
                    del paper
                device.advance(device.random.randrange(6))
                if program.stop_after is not None and len(numbers) > program.stop_after:
                    break
        except LoaderFailed as error:
            failed_at = error.args[0]
        batch = tensor = None
        del iterator
        # What is allocated right after an early end must not meet copies that are under way.
        for size in (1, 2):
            paper = device.scribble(size, "paper")
            device.use(paper, "paper")
            del paper
        stop = 1000 if program.stop_after is None else program.stop_after + 1
        last = len(program.batches) if program.fails_at is None else program.fails_at
        assert numbers == list(range(min(stop, last, len(program.batches))))
        if program.fails_at is not None and program.fails_at <= len(program.batches):
            assert failed_at == (program.fails_at if stop > program.fails_at else None)
        kept.clear()
    device.finish()
    return device


@settings(max_examples=100)
@given(programs)
def test_no_program_makes_a_race_or_a_wrong_byte(program: Program) -> None:
    judge(program)


def test_nor_does_one_of_a_thousand_that_are_larger() -> None:
    chance = random.Random(6)
    for seed in range(1000):
        batches = tuple(
            tuple(
                (chance.choice([1, 2]), chance.random() < 0.5) for _ in range(chance.randrange(4))
            )
            for _ in range(chance.randrange(14))
        )
        judge(
            Program(
                batches=batches,
                depth=chance.randint(1, 5),
                keep=chance.randrange(4),
                uses=chance.randrange(3),
                scribbles=chance.randrange(3),
                stop_after=chance.choice([None, chance.randrange(12)]),
                fails_at=chance.choice([None, chance.randrange(14)]),
                epochs=chance.randint(1, 3),
                switches=chance.choice([None, "ordered", "free"]),
                converts=chance.random() < 0.5,
                seed=seed,
            )
        )


def judge(program: Program) -> None:
    device = run(program)
    assert races(device.log) == []
    assert device.wrong() == []
    assert device.live_device == 0
    tensors = max((len(batch) for batch in program.batches), default=0)
    # Each buffer may be made twice: for a small tensor first, then for a larger one.
    assert device.buffers_made <= 2 * tensors * (program.depth + 2)


PROVOKING = {
    NoWaitBeforeUse: Program((((1, False),),) * 6, 1, 0, 1, 0, None, None, 1, None, False, 0),
    NoWaitBack: Program((((1, False),),) * 6, 1, 0, 2, 0, None, None, 1, None, False, 0),
    NoLifetime: Program((((1, False),),) * 6, 2, 0, 1, 0, 1, None, 1, None, False, 0),
    EarlyRefill: Program((((1, False),),) * 6, 1, 0, 1, 0, None, None, 1, None, False, 0),
}


def test_every_mutant_has_its_program() -> None:
    assert set(PROVOKING) == set(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_checker_catches_each_mutant(mutant: type[CudaPrefetcher[Any]]) -> None:
    program = PROVOKING[mutant]
    assert races(run(program).log) == []
    found = races(run(program, mutant).log)
    kinds = {
        NoWaitBeforeUse: ("copy", "use"),
        NoWaitBack: ("use", "copy"),
        NoLifetime: ("copy", "scribble"),
        EarlyRefill: ("copy", "host"),
    }[mutant]
    assert any(f"kind='{kinds[0]}'" in race and f"kind='{kinds[1]}'" in race for race in found)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_some_schedule_makes_each_mutant_deliver_wrong_bytes(
    mutant: type[CudaPrefetcher[Any]],
) -> None:
    wrong = 0
    for seed in range(200):
        base = PROVOKING[mutant]
        program = Program(**{**vars(base), "seed": seed})
        assert not run(program).wrong()
        wrong += bool(run(program, mutant).wrong())
    assert wrong > 0


def test_conversion_scratch_outlives_the_copy() -> None:
    batches = (((1, False), (1, True)),) * 6
    device = run(Program(batches, 2, 0, 1, 2, None, None, 2, None, True, 3))
    assert races(device.log) == [] and device.wrong() == []


@pytest.mark.parametrize("copies", range(6))
def test_a_copy_that_fails_comes_at_its_batch_and_leaves_nothing_under_way(copies: int) -> None:
    program = Program((((1, False), (2, True)),) * 6, 1, 0, 1, 0, None, None, 1, None, False, 5)
    device = Device(5)
    device.fail_after_copies = copies
    prefetcher = CudaPrefetcher(Loader(program, device), backend=device)
    numbers: list[int] = []
    with pytest.raises(RuntimeError, match="out of something"):
        for batch in prefetcher:
            numbers.append(batch["number"])
    batch = None
    assert numbers == list(range(max(0, copies // 2)))
    gc.collect()
    for size in (1, 2):
        device.use(device.scribble(size, "paper"), "paper")
    device.finish()
    assert races(device.log) == [] and device.wrong() == [] and device.live_device == 0


class InterruptedWhileBuilt(prefetcher_module.Transfer):
    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        if fields["batch"].size == 2:
            raise KeyboardInterrupt


class InterruptedAfterStart(CudaPrefetcher[Any]):
    """Ctrl-C between a copy's begin and the moment from which the loop knows of it."""

    def _start(self, backend: Any, batch: Any) -> Any:
        transfer = super()._start(backend, batch)
        if batch.size == 2:
            del transfer
            raise KeyboardInterrupt
        return transfer


@pytest.mark.parametrize("where", ["while_built", "after_start"])
def test_ctrl_c_at_any_moment_leaves_no_copy_under_way(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind: type[CudaPrefetcher[Any]] = CudaPrefetcher
    if where == "while_built":
        monkeypatch.setattr(prefetcher_module, "Transfer", InterruptedWhileBuilt)
    else:
        kind = InterruptedAfterStart
    device = Device(5)
    tensors = [device.host_tensor(number, size) for number, size in enumerate([1, 1, 2])]
    with pytest.raises(KeyboardInterrupt):
        for _ in kind(tensors, backend=device):
            pass
    gc.collect()
    for size in (1, 2):
        device.use(device.scribble(size, "paper"), "paper")
    device.finish()
    assert races(device.log) == [] and device.wrong() == []


def test_a_batch_is_the_consumers_alone_once_handed_over() -> None:
    device = Device(1)
    tensors = [device.host_tensor(number) for number in range(4)]
    iterator = iter(CudaPrefetcher(tensors, depth=1, backend=device))
    batch = next(iterator)
    assert device.live_device == 1
    batch = next(iterator)
    assert device.live_device == 2  # this one and the next
    del batch
    assert device.live_device == 1
    del iterator
    assert device.live_device == 0


def test_what_was_placed_outlasts_what_another_stream_does_with_it() -> None:
    device = Device(3)
    first, second = device.consumer, device.new_stream()
    movers = [(Mover(number), "name") for number in range(4)]
    iterator = iter(CudaPrefetcher(movers, backend=device))
    next(iterator)
    device.consumer = second  # the next batch is in the first one's memory
    batch, name = next(iterator)
    device.use(batch, 1)
    assert name == "name"
    del batch
    device.consumer = first
    paper = device.scribble(1, "paper")
    device.use(paper, "paper")
    del paper, iterator
    device.finish()
    assert races(device.log) == [] and device.wrong() == []


def test_copies_are_ahead_by_the_depth_and_no_more_and_the_first_batch_waits_for_none() -> None:
    for depth in (1, 2, 3):
        device = Device(1)
        drawn: list[int] = []

        def draw(device: Device = device, drawn: list[int] = drawn) -> Iterator[HostTensor]:
            for number in range(8):
                drawn.append(number)
                yield device.host_tensor(number)

        for number, _ in enumerate(CudaPrefetcher(draw(), depth=depth, backend=device)):
            assert len(drawn) == min(8, number + 1 + min(number, depth))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_copies_begin_before_the_step_that_they_run_beside(depth: int) -> None:
    device = Device(1)
    tensors = [device.host_tensor(number, pinned=True) for number in range(8)]
    begun = []
    for _ in CudaPrefetcher(tensors, depth=depth, backend=device):
        begun.append(sum(op.kind == "copy" for op in device.log))
    ahead = [copies - number - 1 for number, copies in enumerate(begun)]
    assert ahead[: depth + 1] == list(range(depth + 1)) and set(ahead[depth : 8 - depth]) == {depth}


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("missing", [0, 1])
def test_what_a_loader_may_refill_in_turn_is_as_documented(depth: int, missing: int) -> None:
    device = Device(2)
    pinned = [device.host_tensor(None, pinned=True) for _ in range(depth + 2 - missing)]
    arrays: list[list[int]] = [[] for _ in range(depth + 1 - missing)]
    pageable = device.host_tensor(None)

    def refilling() -> Iterator[Any]:
        for number in range(12):
            tensor, array = pinned[number % len(pinned)], arrays[number % len(arrays)]
            device.refill(tensor, number)
            device.refill(pageable, number)
            array[:] = [number]
            yield tensor, pageable, lambda array=array: array[0]

    shifted = 0
    for number, batch in enumerate(CudaPrefetcher(refilling(), depth=depth, backend=device)):
        device.use(batch[0], number)
        device.use(batch[1], number)
        shifted += batch[2]() != number
    del batch
    device.finish()
    raced = {race.partition(":")[0] for race in races(device.log)}
    assert bool(shifted) == bool(missing) and bool(raced) == bool(missing)
    assert raced <= {tensor.address for tensor in pinned}


def test_page_locked_buffers_are_bounded_over_epochs_and_early_ends() -> None:
    device = Device(2)
    tensors = [device.host_tensor(number) for number in range(10)]
    prefetcher = CudaPrefetcher(tensors, depth=2, backend=device)
    for stop in (10, 3, 1, 10, 2, 10):
        for number, _ in enumerate(prefetcher, start=1):
            if number == stop:
                break
    assert device.buffers_made <= 4


def test_two_iterations_at_once_do_not_meet() -> None:
    device = Device(4)
    tensors = [device.host_tensor(number) for number in range(6)]
    prefetcher = CudaPrefetcher(tensors, depth=2, backend=device)
    for number, (one, other) in enumerate(zip(prefetcher, prefetcher, strict=True)):
        device.use(one, number)
        device.use(other, number)
    del one, other
    device.finish()
    assert races(device.log) == [] and device.wrong() == []


def copied(agent: str, *, source: str = "a", target: str = "b") -> Op:
    return Op(agent, "copy", (source,), (target,))


def test_the_checker_knows_what_holds_accesses_apart() -> None:
    use = Op("main", "use", ("b",))
    record, wait = Op("side", "record", event=1), Op("main", "wait", event=1)
    assert races([copied("side"), use])
    assert not races([copied("side"), record, wait, use])
    assert races([copied("side"), record, use, wait])  # the wait came too late
    assert races([record, copied("side"), wait, use])  # recorded before the copy
    refill = Op("host", "host", (), ("a",))
    assert races([copied("side"), record, refill])
    assert not races([copied("side"), record, Op("host", "sync", event=1), refill])
    assert not races([refill, copied("side")])  # what the host did before it enqueued
    assert not races([use, Op("other", "use", ("b",))])  # two that read
    assert races([copied("one"), copied("two")])
    # By a third stream: the wait hands on what was waited for.
    second = [Op("main", "record", event=2), Op("third", "wait", event=2)]
    assert not races([copied("side"), record, wait, *second, Op("third", "use", ("b",))])
