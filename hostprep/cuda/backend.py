"""What the prefetcher needs of a device: streams, events, memory, copies; it uses nothing else.

A second implementation, in the tests, logs all calls for a happens-before checker.
"""

from __future__ import annotations

from typing import Any, Protocol


class Backend(Protocol):
    """A device with streams. Streams, events, tensors and buffers are the backend's own objects.

    When the last reference to a tensor goes, its device memory is returned to the stream that was
    current when it was allocated: the next allocation there may get it at once.
    """

    def new_stream(self) -> Any:
        """Return a new stream that is not the default one."""
        ...

    def current_stream(self) -> Any:
        """Return the stream that the caller's own work currently goes to."""
        ...

    def record(self, stream: Any) -> Any:
        """Return an event that completes when everything now queued in ``stream`` is done."""
        ...

    def wait(self, stream: Any, event: Any) -> None:
        """Make everything queued in ``stream`` from now on wait for ``event``; does not block."""
        ...

    def is_done(self, event: Any) -> bool:
        """Return whether ``event`` has completed; does not block."""
        ...

    def synchronize(self, event: Any) -> None:
        """Block until ``event`` has completed."""
        ...

    def is_host_tensor(self, value: Any) -> bool:
        """Return whether ``value`` is a dense tensor in the host's memory."""
        ...

    def place(self, value: Any) -> Any:
        """Return ``value``, not a host tensor, as it should be on the device; it may block."""
        ...

    def can_copy_from(self, tensor: Any) -> bool:
        """Return whether ``tensor`` is page-locked and contiguous, and can be copied as it is.

        ``is_host_tensor`` must hold for it.
        """
        ...

    def stage(self, tensor: Any, buffer: Any | None) -> tuple[Any, Any]:
        """Write ``tensor`` into page-locked memory; return it there, and the buffer that was used.

        ``buffer`` is one that an earlier call returned and that nobody reads any more; if it is
        None or too small, a new one is made.
        """
        ...

    def allocate(self, tensor: Any) -> tuple[Any, Any]:
        """Return device tensors for a copy of ``tensor``: where it lands, and what is passed on.

        Both are the same unless something is to be converted; in memory of the current stream.
        """
        ...

    def copy(self, target: Any, source: Any, stream: Any) -> None:
        """Copy (and convert) in ``stream``; returns before it is done."""
        ...

    def keep_for(self, value: Any, stream: Any) -> None:
        """Make a device tensor's memory, once released, outlast what ``stream`` then holds.

        ``value`` comes from ``allocate`` or ``place``; in the latter case it may be no such tensor.
        """
        ...
