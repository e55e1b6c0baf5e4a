"""Another program on the GPU, whose context is a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

_BUSY = """
import sys, torch
a = torch.rand(4096, 4096, device="cuda")
torch.cuda.synchronize()
print("there", flush=True)
while True:
    for _ in range(20):
        b = a @ a
    torch.cuda.synchronize()
"""
_FULL = """
import sys, torch
torch.zeros(1, device="cuda")
free, _ = torch.cuda.mem_get_info()
held = torch.empty(free - int(sys.argv[1]), dtype=torch.uint8, device="cuda")
print("there", flush=True)
sys.stdin.read()
"""


@contextmanager
def _running(program: str, *arguments: str) -> Iterator[None]:
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "there\n"
            yield
        finally:
            process.kill()


def busy() -> AbstractContextManager[None]:
    """Keep the GPU at work."""
    return _running(_BUSY)


def full(left_bytes: int) -> AbstractContextManager[None]:
    """Hold all of its memory but so much."""
    return _running(_FULL, str(left_bytes))
