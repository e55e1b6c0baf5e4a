"""Runs what `make test-gpu` does, with the Python that runs this and whatever it has beside torch.

A machine with a GPU may be available only once, and without a package registry. So this first says
what is missing, and then runs everything that works without it: without pytest only the transcript
of `hostprep verify`, without its timeout plugin the tests without timeouts. Both halves run,
whatever the first one finds.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Module, the package that provides it, and what does not work without it.
WANTED = (
    ("torch", "torch", "nothing is tested"),
    ("pynvml", "nvidia-ml-py", "link, clocks and other users of the GPU are not known"),
    ("xxhash", "xxhash", "`hostprep check` does not start"),
    ("pytest", "pytest", "the transcript of `hostprep verify` alone is made"),
    ("pytest_timeout", "pytest-timeout", "a test that hangs is not ended"),
)
# torch is gigabytes, and reading them from a cold disk may take minutes: done before it is timed.
READ_TORCH = """
import time
began = time.monotonic()
import torch
print(
    f"test-gpu: torch {torch.__version__} was imported in {time.monotonic() - began:.1f} s;"
    f" it sees {torch.cuda.device_count()} device(s)."
)
"""


def main() -> int:
    """Return 0 if everything that was run passed."""
    os.chdir(ROOT)
    missing = [each for each in WANTED if importlib.util.find_spec(each[0]) is None]
    for _, package, without in missing:
        print(f"test-gpu: {package} is missing in {sys.executable}: {without}.", flush=True)
    names = {module for module, _, _ in missing}
    # hostprep's command line needs several packages: it says itself what is missing.
    if "torch" in names or _run("-m", "hostprep", "verify", "--help", quiet=True) != 0:
        return 2
    _run("-c", READ_TORCH)
    if "pytest" in names:
        return _run("-m", "tests.gpu.transcript")
    pytest = ["-m", "pytest", "-p", "no:cacheprovider"]
    if "pytest_timeout" in names:
        pytest += ["-o", "addopts=-ra"]  # otherwise its setting and its mark would be errors
    first = _run(*pytest, "tests/gpu/test_verify_gpu.py")
    second = _run(*pytest, "tests/gpu", "--ignore", "tests/gpu/test_verify_gpu.py")
    return first or second


def _run(*arguments: str, quiet: bool = False) -> int:
    said = subprocess.DEVNULL if quiet else None
    return subprocess.run([sys.executable, *arguments], stdout=said, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
