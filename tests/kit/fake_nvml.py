"""Builds the NVML library that answers what a test wants; loaded by name, so in other processes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_name("fake_nvml.c")


def build(folder: Path, **answers: int) -> dict[str, str]:
    """Compile the library into ``folder``; return the environment in which it is found."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler to build the fake NVML with")
    told = {"CODE": 0, "DEVICES": 1, "REASONS": 0, "BUSY": 0, "PROCESSES": 0, "CUDA": 12040}
    told |= {"GLITCH": 0, "LOOKS": 0, "OLD": 0, "CLOSED": 0, "LOST": 0, "GARBLED": 0}
    defines = [f"-D{name}={value}" for name, value in (told | answers).items()]
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-w", *defines, "-o", str(library), str(_SOURCE)], check=True
    )
    return {"LD_LIBRARY_PATH": str(folder)}
