"""Run what `make test-gpu` does, by the Python that runs this, with whatever is there beside torch.

A machine with a GPU may be at hand only once, and without a package registry. So this says first
what is missing, and then runs all that can be run without it: without pytest the transcript of
`hostprep verify` alone, without its plugin for timeouts the tests without those. Both halves run,
whatever the first one finds.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Module, the package that has it, and what does not run without it.
WANTED = (
    ("torch", "torch", "nothing is tested"),
    ("pynvml", "nvidia-ml-py", "link, clocks and other users of the GPU are not known"),
    ("xxhash", "xxhash", "`hostprep check` does not start"),
    ("pytest", "pytest", "the transcript of `hostprep verify` alone is made"),
    ("pytest_timeout", "pytest-timeout", "a test that hangs is not ended"),
)
# torch is gigabytes, and a cold disk may take minutes for them: read once, before it is timed.
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
    """Return 0 where everything that was run passed."""
    os.chdir(ROOT)
    missing = [each for each in WANTED if importlib.util.find_spec(each[0]) is None]
    for _, package, without in missing:
        print(f"test-gpu: {package} is missing in {sys.executable}: {without}.", flush=True)
    names = {module for module, _, _ in missing}
    # Its command line needs more than one package: what is missing there, it says itself.
    if "torch" in names or _run("-m", "hostprep", "verify", "--help", quiet=True) != 0:
        return 2
    _run("-c", READ_TORCH)
    if "pytest" in names:
        return _run("-m", "tests.gpu.transcript")
    pytest = ["-m", "pytest", "-p", "no:cacheprovider"]
    if "pytest_timeout" in names:
        pytest += ["-o", "addopts=-ra"]  # or its setting and its mark would be mistakes
    first = _run(*pytest, "tests/gpu/test_verify_gpu.py")
    second = _run(*pytest, "tests/gpu", "--ignore", "tests/gpu/test_verify_gpu.py")
    return first or second


def _run(*arguments: str, quiet: bool = False) -> int:
    said = subprocess.DEVNULL if quiet else None
    return subprocess.run([sys.executable, *arguments], stdout=said, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
