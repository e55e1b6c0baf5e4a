"""Six data sets like those of users, for the benchmark of ``hostprep recommend``.

Their files lie below ``$HOSTPREP_BENCH_DATA``. Lengths are nominal if reading a file again costs
the same as reading another one; ``arm`` has as many samples as files, because there it does not.
"""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

_SIDE = 224
_LENGTH = 200_000
_ARM_BYTES = 16_384
_WORD = re.compile(r"[a-z]+|[0-9]|[^\sa-z0-9]")


@functools.cache
def _files(name: str) -> list[str]:
    root = Path(os.environ["HOSTPREP_BENCH_DATA"]) / name
    return sorted(str(path) for path in root.rglob("*") if path.is_file())


class Jpeg(Dataset[torch.Tensor]):
    """JPEG of 500 x 375 in memory: decoded by Pillow, resized, float32. Bound by processors."""

    name = "jpeg"

    def __init__(self) -> None:
        self.files = _files(self.name)

    def __len__(self) -> int:
        return _LENGTH

    def __getitem__(self, index: int) -> torch.Tensor:
        with Image.open(self.files[index % len(self.files)]) as opened:
            small = opened.convert("RGB").resize((_SIDE, _SIDE), Image.Resampling.BILINEAR)
        pixels = torch.from_numpy(np.asarray(small).transpose(2, 0, 1).copy())
        return pixels.float().div_(255)


class Far(Jpeg):
    """The same files from a server where each open and each read takes 10 ms."""

    name = "far"


class Npy(Jpeg):
    """Arrays of 150 KB in a tmpfs, used unchanged."""

    name = "npy"

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(np.load(self.files[index % len(self.files)]))


class Arm(Jpeg):
    """Whole files from a hard disk, read for the first time."""

    name = "arm"

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        data = Path(self.files[index]).read_bytes()[:_ARM_BYTES]
        return torch.frombuffer(bytearray(data.ljust(_ARM_BYTES, b"\0")), dtype=torch.uint8)


class Text(Jpeg):
    """Text of 6 KB in memory, tokenised in Python: bound by processors, a small batch to send."""

    name = "text"

    def __getitem__(self, index: int) -> torch.Tensor:
        text = Path(self.files[index % len(self.files)]).read_text().lower()
        tokens = [hash(word) & 0x7FFF for word in _WORD.findall(text)][:512]
        return torch.tensor(tokens + [0] * (512 - len(tokens)))


class Volume(Jpeg):
    """Volumes of 2 MB in a tmpfs, normalised: a batch of 32 is 128 MB to pass on."""

    name = "volume"

    def __getitem__(self, index: int) -> torch.Tensor:
        voxels = torch.from_numpy(np.load(self.files[index % len(self.files)]))
        return (voxels - voxels.mean()) / voxels.std()


WORKLOADS = {kind.name: kind for kind in (Jpeg, Far, Npy, Arm, Text, Volume)}
