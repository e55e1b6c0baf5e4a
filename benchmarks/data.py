"""The data sets that the benchmarks copy."""

from __future__ import annotations

import random
from pathlib import Path

_NOISE_BYTES = 4 * 1024 * 1024


def make_files(root: Path, files: int, *, mu: float, sigma: float, folders: int) -> Path:
    """Make ``files`` of log-normal size (``mu``, ``sigma`` of the natural logarithm of bytes).

    Neighbours in a folder were not written one after the other, as in most real data sets.
    """
    if (root / ".complete").exists():
        return root / "data"
    chooser = random.Random(0)
    noise = chooser.randbytes(_NOISE_BYTES)
    data = root / "data"
    for number in range(folders):
        (data / f"n{number:05d}").mkdir(parents=True, exist_ok=True)
    for number in range(files):
        size = min(max(16, int(chooser.lognormvariate(mu, sigma))), _NOISE_BYTES // 2)
        start = chooser.randrange(_NOISE_BYTES - size)
        name = data / f"n{number % folders:05d}" / f"img_{number:07d}.jpg"
        name.write_bytes(noise[start : start + size])
    (root / ".complete").touch()
    return data


def make_imagenet_like(work: Path) -> Path:
    """15,000 files of about 100 KB in 200 folders."""
    return make_files(work / "imagenet", 15_000, mu=11.4, sigma=0.5, folders=200)


def make_tiny(work: Path) -> Path:
    """120,000 files of about 2 KB in 200 folders."""
    return make_files(work / "tiny", 120_000, mu=7.45, sigma=0.5, folders=200)


def make_ten(work: Path) -> Path:
    """10 files of about 100 KB."""
    return make_files(work / "ten", 10, mu=11.4, sigma=0.5, folders=1)


def make_kilobytes(work: Path, files: int) -> Path:
    """``files`` of about 1 KB, 500 a folder."""
    folders = max(1, files // 500)
    return make_files(work / f"kilo-{files}", files, mu=6.9, sigma=0.3, folders=folders)


def make_folders(work: Path) -> Path:
    """40,000 folders with one file of about 3 KB each, as if each sample had its own folder."""
    return make_files(work / "folders", 40_000, mu=8.0, sigma=0.3, folders=40_000)


def make_medium(work: Path) -> Path:
    """500 files of 4 MiB in one folder, like volumes or short videos."""
    return _make_noise(work / "medium" / "data", 500, 1)


def make_shards(work: Path) -> Path:
    """3 files of 1 GiB."""
    return _make_noise(work / "shards" / "data", 3, 256)


def _make_noise(data: Path, files: int, pieces: int) -> Path:
    """Make ``files`` of ``pieces`` times 4 MiB of incompressible data."""
    data.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        path = data / f"shard_{number}.tar"
        if path.exists() and path.stat().st_size == pieces * _NOISE_BYTES:
            continue
        chooser = random.Random(number)
        with path.open("wb") as file:
            for _ in range(pieces):
                file.write(chooser.randbytes(_NOISE_BYTES))
    return data
