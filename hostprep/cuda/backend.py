"""What the prefetcher asks of a device: streams, events, memory, copies; nothing else reaches it.

A second implementation, in the tests, logs what it is asked, for a happens-before checker.
"""

from __future__ import annotations

from typing import Any, Protocol


class Backend(Protocol):
    """A device with streams. Streams, events, tensors and buffers are the backend's own objects.

    Device memory is given back when the last reference to its tensor goes, to the stream that was
    current when it was allocated: whatever is allocated there next may get it at once.
    """

    def new_stream(self) -> Any:
        """Return a new stream that is not the default one."""
        ...

    def current_stream(self) -> Any:
        """Return the stream that the caller's own work goes to at the moment."""
        ...

    def record(self, stream: Any) -> Any:
        """Return an event that completes when all that is in ``stream`` now is done."""
        ...

    def wait(self, stream: Any, event: Any) -> None:
        """Have what comes into ``stream`` from now on wait for ``event``; does not block."""
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
        """Return ``value``, no host tensor, as the device should have it; it may block."""
        ...

    def can_copy_from(self, tensor: Any) -> bool:
        """Return whether ``tensor`` is page-locked and in one piece, so that a copy needs no help.

        ``tensor`` is one for which ``is_host_tensor`` holds.
        """
        ...

    def stage(self, tensor: Any, buffer: Any | None) -> tuple[Any, Any]:
        """Write ``tensor`` into page-locked memory; return it there, and the buffer that was used.

        ``buffer`` is one that an earlier call returned and that nobody reads any more; where it is
        None or too small, another one is made.
        """
        ...

    def allocate(self, tensor: Any) -> tuple[Any, Any]:
        """Return device tensors for a copy of ``tensor``: where it lands, and what is handed on.

        One and the same where nothing is to be converted; in the current stream's memory.
        """
        ...

    def copy(self, target: Any, source: Any, stream: Any) -> None:
        """Copy (and convert) in ``stream``; returns before it is done."""
        ...

    def keep_for(self, value: Any, stream: Any) -> None:
        """Have a device tensor's memory, once given back, outlast what ``stream`` then holds.

        ``value`` is of ``allocate`` or ``place``; one of the latter may be no such tensor.
        """
        ...
