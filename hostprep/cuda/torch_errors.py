"""What an exception of torch says, in one line."""

from __future__ import annotations


def in_a_line(error: Exception) -> str:
    """Return its first line: then comes torch's advice on debugging kernels of one's own."""
    return str(error).partition("\n")[0]
