"""A device that exists on paper: it logs what it is asked, and carries it out in any legal order.

Two independent judges of the same run: ``races`` replays the log with vector clocks and so speaks
for every possible schedule; the contents that the consumer's reads return speak for the schedule
that the random numbers chose. Memory that was given back is what the next allocation gets, as
early as torch's caching allocator may do it. It proves nothing about a real device's overlap.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

HOST = "host"


@dataclass(frozen=True, slots=True)
class Op:
    """One entry of the log. ``agent`` is the host or a stream; ``event`` is of record/wait/sync."""

    agent: str
    kind: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    event: int | None = None


def races(log: list[Op]) -> list[str]:
    """Return the pairs of accesses to one address that no order holds apart, in words.

    What the host enqueues comes after all the host did before; a stream is in order; a wait comes
    after the recorded event; the host comes after what it synchronised with. Nothing else.
    """
    clocks: dict[str, Counter[str]] = defaultdict(Counter)
    events: dict[int, Counter[str]] = {}
    seen: dict[str, dict[tuple[str, bool], tuple[int, int]]] = defaultdict(dict)
    found = []
    for number, op in enumerate(log):
        clock = clocks[op.agent]
        if op.agent != HOST:
            clock |= clocks[HOST]
        clock[op.agent] += 1
        if op.kind in ("wait", "sync"):
            assert op.event is not None
            clock |= events[op.event]
        clocks[op.agent] = clock
        if op.kind == "record":
            assert op.event is not None
            events[op.event] = clock.copy()
        for address, writes in [(a, False) for a in op.reads] + [(a, True) for a in op.writes]:
            for (agent, wrote), (tick, before) in seen[address].items():
                if (wrote or writes) and clock[agent] < tick:
                    found.append(f"{address}: {log[before]} | {op} (#{before}, #{number})")
            seen[address][op.agent, writes] = (clock[op.agent], number)
    return found


@dataclass(eq=False)
class Stream:
    name: str
    queue: deque[Callable[[], bool]] = field(default_factory=deque)


@dataclass(eq=False)
class HostTensor:
    """``size`` numbers at ``address``; ``pinned`` ones give their address back when they go."""

    size: int
    address: str
    device: Device
    pinned: bool

    def to(self, device: Any) -> Any:
        """Be a leaf of a batch, as all that moves by itself."""
        raise AssertionError("the prefetcher copies tensors itself")

    def __del__(self) -> None:
        if self.pinned:
            self.device.free_host[self.size].append(self.address)


class Mover:
    """What is placed on the device by itself, on the stream that is current then."""

    def __init__(self, value: Any) -> None:
        self.value = value


@dataclass(eq=False)
class DeviceTensor:
    size: int
    address: str
    device: Device
    stream: Stream
    kept_for: list[Stream] = field(default_factory=list)

    def __del__(self) -> None:
        self.device.give_back(self)


class Device:
    """A ``Backend``; besides, what a training loop does with it: ``use`` and ``scribble``."""

    def __init__(self, seed: int = 0, *, converts: bool = False) -> None:
        self.random = random.Random(seed)
        self.converts = converts
        self.log: list[Op] = []
        self.memory: dict[str, Any] = {}
        self.free_host: dict[int, list[str]] = defaultdict(list)
        self.free_device: dict[tuple[str, int], list[str]] = defaultdict(list)
        self.kept: list[tuple[tuple[str, int], str, list[int]]] = []
        self.executed: set[int] = set()
        self.streams: list[Stream] = []
        self.consumer = self.new_stream()
        self.addresses = 0
        self.events = 0
        self.live_device = 0
        self.buffers_made = 0
        self.read: list[tuple[Any, Any]] = []
        self.fail_after_copies: int | None = None

    # -- what the prefetcher asks

    def new_stream(self) -> Stream:
        stream = Stream(f"stream{len(self.streams)}")
        self.streams.append(stream)
        return stream

    def current_stream(self) -> Stream:
        return self.consumer

    def record(self, stream: Stream) -> int:
        self.events += 1
        event = self.events
        self._enqueue(stream, Op(stream.name, "record", event=event), self._mark(event))
        return event

    def wait(self, stream: Stream, event: int) -> None:
        self._enqueue(stream, Op(stream.name, "wait", event=event), lambda: event in self.executed)

    def is_done(self, event: int) -> bool:
        self.advance(self.random.randrange(4))
        if event in self.executed:
            self.log.append(Op(HOST, "sync", event=event))
            return True
        return False

    def synchronize(self, event: int) -> None:
        while event not in self.executed:
            self.advance(1)
        self.log.append(Op(HOST, "sync", event=event))

    def is_host_tensor(self, value: Any) -> bool:
        return isinstance(value, HostTensor)

    def place(self, value: Any) -> Any:
        return self.scribble(1, value.value) if isinstance(value, Mover) else value

    def can_copy_from(self, tensor: HostTensor) -> bool:
        return tensor.pinned

    def stage(self, tensor: HostTensor, buffer: Any | None) -> tuple[HostTensor, HostTensor]:
        if buffer is None or buffer.size < tensor.size:
            self.buffers_made += 1
            buffer = HostTensor(tensor.size, self._address("buffer"), self, True)
        self._touch_host((tensor.address,), (buffer.address,))
        self.memory[buffer.address] = self.memory[tensor.address]
        return buffer, buffer

    def allocate(self, tensor: HostTensor) -> tuple[DeviceTensor, DeviceTensor]:
        landing = self.empty(tensor.size)
        return landing, self.empty(4 * tensor.size) if self.converts else landing

    def copy(self, target: DeviceTensor, source: Any, stream: Stream) -> None:
        if self.fail_after_copies is not None:
            self.fail_after_copies -= 1
            if self.fail_after_copies < 0:
                self.fail_after_copies = None
                raise RuntimeError("the device is out of something")
        here, there = source.address, target.address
        self._enqueue(
            stream, Op(stream.name, "copy", (here,), (there,)), lambda: self._move(here, there)
        )

    def keep_for(self, value: Any, stream: Stream) -> None:
        if isinstance(value, DeviceTensor):
            value.kept_for.append(stream)

    # -- what a loader and a training loop do

    def host_tensor(self, value: Any, size: int = 1, *, pinned: bool = False) -> HostTensor:
        """Make a tensor as a loader would; a pinned one where an earlier one was, if it may."""
        if pinned and self.free_host[size]:
            address = self.free_host[size].pop()
        else:
            address = self._address("pinned" if pinned else "pageable")
        self._touch_host((), (address,))
        self.memory[address] = value
        return HostTensor(size, address, self, pinned)

    def refill(self, tensor: HostTensor, value: Any) -> None:
        """Write to a tensor again, as a loader that has few of them."""
        self._touch_host((), (tensor.address,))
        self.memory[tensor.address] = value

    def empty(self, size: int) -> DeviceTensor:
        """Allocate from the current stream's memory: what was given back last comes first."""
        self._reap()
        free = self.free_device[self.consumer.name, size]
        address = free.pop() if free else self._address("device")
        self.live_device += 1
        return DeviceTensor(size, address, self, self.consumer)

    def use(self, tensor: DeviceTensor, expected: Any) -> None:
        """Read a tensor on the current stream; ``read`` gets what was there, and the expected."""
        address = tensor.address

        def look() -> bool:
            self.read.append((self.memory.get(address), expected))
            return True

        self._enqueue(self.consumer, Op(self.consumer.name, "use", (address,)), look)

    def scribble(self, size: int, value: Any) -> DeviceTensor:
        """Allocate, write on the current stream, as activations do."""
        tensor = self.empty(size)
        address = tensor.address

        def write() -> bool:
            self.memory[address] = value
            return True

        self._enqueue(self.consumer, Op(self.consumer.name, "scribble", (), (address,)), write)
        return tensor

    def follow(self, stream: Stream) -> None:
        """Make ``stream`` the current one, after all that is in the one before: ``wait_stream``."""
        self.wait(stream, self.record(self.consumer))
        self.consumer = stream

    def finish(self) -> None:
        """Carry out all that is queued."""
        while any(stream.queue for stream in self.streams):
            self.advance(1)

    def wrong(self) -> list[tuple[Any, Any]]:
        """Return the reads that got something else than was expected."""
        return [(got, expected) for got, expected in self.read if got != expected]

    # -- how it works

    def advance(self, steps: int) -> None:
        """Carry out up to ``steps`` entries, each of a stream chosen by chance.

        Up to twenty draws may fall on a stream that waits.
        """
        for _ in range(steps):
            for _ in range(20):
                queues = [stream.queue for stream in self.streams if stream.queue]
                if not queues:
                    return
                queue = self.random.choice(queues)
                if queue[0]():
                    queue.popleft()
                    break

    def give_back(self, tensor: DeviceTensor) -> None:
        self.live_device -= 1
        pool = (tensor.stream.name, tensor.size)
        if tensor.kept_for:
            pending = [self.record(stream) for stream in tensor.kept_for]
            self.kept.append((pool, tensor.address, pending))
        else:
            self.free_device[pool].append(tensor.address)

    def _reap(self) -> None:
        """Take back what was kept for streams that are through with it, as the allocator does."""
        for entry in list(self.kept):
            pool, address, pending = entry
            if all(event in self.executed for event in pending):
                self.log += [Op(HOST, "sync", event=event) for event in pending]
                self.free_device[pool].append(address)
                self.kept.remove(entry)

    def _address(self, kind: str) -> str:
        self.addresses += 1
        return f"{kind}{self.addresses}"

    def _touch_host(self, reads: tuple[str, ...], writes: tuple[str, ...]) -> None:
        self.log.append(Op(HOST, "host", reads, writes))

    def _enqueue(self, stream: Stream, op: Op, run: Callable[[], bool]) -> None:
        self.log.append(op)
        stream.queue.append(run)

    def _mark(self, event: int) -> Callable[[], bool]:
        def mark() -> bool:
            self.executed.add(event)
            return True

        return mark

    def _move(self, here: str, there: str) -> bool:
        self.memory[there] = self.memory[here]
        return True
