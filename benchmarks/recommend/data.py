"""The files that the workloads read, and the rigs that two of the workloads use."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

IMAGES, ARRAYS, TEXTS, VOLUMES, ARM_FILES = 800, 400, 400, 60, 12_000
ARM_MEAN_BYTES = 40_000


@contextmanager
def prepared(name: str, home: Path) -> Iterator[Callable[[], None]]:
    """Make the files of a workload; yield a function that makes them cold between measurements."""
    if name in ("jpeg", "far"):
        write_images(home / "jpeg")
    if name == "npy":
        write_arrays(home / "npy")
    if name == "text":
        write_texts(home / "text")
    if name == "volume":
        write_volumes(home / "volume")
    with ExitStack() as rigs:
        cold: Callable[[], None] = nothing
        if name == "far":
            from benchmarks.rigs.far import far_source

            far = rigs.enter_context(far_source(home / "jpeg", home, request_seconds=0.010))
            (home / "far").symlink_to(far.mount)
            rigs.callback((home / "far").unlink)
        elif name == "arm":
            from benchmarks.rigs.arm import arm_disk, write_scattered

            disk = rigs.enter_context(arm_disk(2 << 30, home))
            write_scattered(disk, ARM_FILES, ARM_MEAN_BYTES, 40)
            (home / "arm").symlink_to(disk.mount)
            rigs.callback((home / "arm").unlink)
            cold = disk.remount
        yield cold


def nothing() -> None:
    """Leave a workload as it is: what it reads is equally warm, or cold, each time."""


def write_images(folder: Path) -> None:
    """Write JPEG files with the detail of photographs: about 60 KB at 500 x 375."""
    folder.mkdir(exist_ok=True)
    dice = np.random.default_rng(0)
    for number in range(IMAGES):
        coarse = dice.integers(0, 255, (16, 20, 3), dtype=np.uint8)
        smooth = Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC)
        grain = dice.integers(-12, 12, (375, 500, 3))
        pixels = (np.asarray(smooth).astype(np.int16) + grain).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:05}.jpg", quality=90)


def write_arrays(folder: Path) -> None:
    """Write arrays of 224 x 224 x 3 bytes."""
    folder.mkdir(exist_ok=True)
    dice = np.random.default_rng(0)
    for number in range(ARRAYS):
        np.save(folder / f"{number:05}.npy", dice.integers(0, 255, (224, 224, 3), dtype=np.uint8))


def write_texts(folder: Path) -> None:
    """Write texts of about 6 KB."""
    folder.mkdir(exist_ok=True)
    dice = random.Random(0)
    words = ["".join(dice.choices("abcdefghij", k=dice.randint(2, 9))) for _ in range(5000)]
    for number in range(TEXTS):
        text = " ".join(dice.choices(words, k=1000))
        (folder / f"{number:05}.txt").write_text(text)


def write_volumes(folder: Path) -> None:
    """Write volumes of 80 x 80 x 80 floats."""
    folder.mkdir(exist_ok=True)
    dice = np.random.default_rng(0)
    for number in range(VOLUMES):
        np.save(folder / f"{number:05}.npy", dice.random((80, 80, 80), dtype=np.float32))
