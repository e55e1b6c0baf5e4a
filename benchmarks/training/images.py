"""The data set of the training: JPEG files as ImageNet is often stored, and the usual loader."""

from __future__ import annotations

import os
import random
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

CLASSES, DISTINCT, SIDE, CROP = 100, 1000, 256, 224
ROOT = "HOSTPREP_TRAINING_DATA"
BATCH = 256


def write(folder: Path, count: int) -> int:
    """Write ``count`` files of 256 x 256 in a folder for each class; return their bytes.

    There are 1,000 different pictures: the others are copies, each with its own blocks on the disk.
    """
    for label in range(CLASSES):
        (folder / f"{label:03}").mkdir(parents=True)
    with get_context("fork").Pool() as pool:
        pictures = pool.map(_picture, range(DISTINCT), chunksize=10)
    total = 0
    for number in range(count):
        picture = pictures[number % DISTINCT]
        (folder / f"{number % CLASSES:03}" / f"{number:06}.jpg").write_bytes(picture)
        total += len(picture)
    return total


def _picture(seed: int) -> bytes:
    import io

    dice = np.random.default_rng(seed)
    coarse = Image.fromarray(dice.integers(0, 255, (12, 12, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC)).astype(np.int16)
    pixels = (smooth + dice.integers(-12, 12, (SIDE, SIDE, 3))).clip(0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=90)
    return file.getvalue()


class Images(Dataset[tuple[torch.Tensor, int]]):
    """One image, uint8 3 x 224 x 224 (a random crop, mirrored or not), and its class."""

    def __init__(self, root: Path) -> None:
        self.paths = sorted(str(path) for path in root.rglob("*.jpg"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path = self.paths[index]
        with Image.open(path) as image:
            side = random.randint(CROP // 2, SIDE)
            left, top = random.randint(0, SIDE - side), random.randint(0, SIDE - side)
            box = (left, top, left + side, top + side)
            crop = image.convert("RGB").resize((CROP, CROP), Image.Resampling.BILINEAR, box)
        if random.random() < 0.5:
            crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(crop)).permute(2, 0, 1)
        return pixels, int(os.path.basename(os.path.dirname(path)))


def loader() -> DataLoader[tuple[torch.Tensor, int]]:
    """Return what ``hostprep recommend --loader benchmarks.training.images:loader`` measures."""
    return DataLoader(Images(Path(os.environ[ROOT])), batch_size=BATCH, shuffle=True)
