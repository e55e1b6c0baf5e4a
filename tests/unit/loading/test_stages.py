"""What a file takes, stage by stage."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hostprep.errors import Inconclusive
from hostprep.loading.files import stages as stages_module
from hostprep.loading.files.listing import list_samples
from hostprep.loading.files.samples import (
    FileSamples,
    collate_arrays,
    read_whole,
)
from hostprep.loading.files.stages import time_stages
from hostprep.system.page_cache import resident_share


def test_stages_of_images_are_all_timed(images: Path) -> None:
    (images / "class0" / "broken.jpg").write_bytes(b"no image")
    listing = list_samples(str(images))
    # They take some milliseconds each, and on a busy machine far more: the files end it.
    stages = time_stages(FileSamples(listing.names, "image", "pillow", 32), 4, 60.0)
    assert stages.samples >= 10
    assert stages.sample_bytes == 3 * 32 * 32 * 4
    assert {stage.name for stage in stages.stages} == {
        "read_as_is",
        "read_cold",
        "read_warm",
        "decode",
        "resize",
        "collate",
    }
    assert all(stage.seconds > 0 for stage in stages.stages)
    assert stages.relative_error is not None and 0 < stages.relative_error < 1
    # On one core the processor's time is part of the time; clocks differ by their resolution.
    assert all(stage.cpu_seconds <= stage.seconds * 1.5 + 1e-3 for stage in stages.stages)


def test_cold_is_cold_also_of_files_that_were_only_just_written(
    disk_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [str(disk_folder / f"{number}.bin") for number in range(6)]
    for name in names:
        Path(name).write_bytes(os.urandom(1 << 20))
    if resident_share(names[:1]) is None:
        pytest.skip("residency is not told here")
    seen: list[float | None] = []

    def reading(name: str) -> bytes:
        seen.append(resident_share([name]))
        return read_whole(name)

    monkeypatch.setattr(stages_module, "read_whole", reading)
    timed = time_stages(FileSamples(names, "bytes", None, 32), 4, 5.0)
    # As it is, cold, warm: of each sample in turn.
    assert len(seen) == 3 * timed.samples >= 9
    assert all(share is not None and share < 0.05 for share in seen[1::3])
    assert set(seen[2::3]) == {1.0}


def test_nothing_readable_is_inconclusive(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}.jpg").write_bytes(b"no image")
    names = [str(path) for path in tmp_path.iterdir()]
    with pytest.raises(Inconclusive, match="no file could be read"):
        time_stages(FileSamples(names, "image", "pillow", 32), 4, 0.2)


def test_the_file_that_cannot_be_read_is_the_one_that_is_named(images: Path) -> None:
    names = [*list_samples(str(images)).names[:3], str(images / "gone.jpg")]
    stages = time_stages(FileSamples(names, "image", "pillow", 32), 4, 60.0)
    assert stages.problem == f"{images}/gone.jpg: No such file or directory"


class Slow(FileSamples):
    """As of images that take long to decode."""

    def unpack(self, data: bytes) -> np.ndarray:
        time.sleep(0.2)
        return super().unpack(data)  # type: ignore[no-any-return]


def test_one_slow_file_is_enough_for_the_stages(images: Path) -> None:
    listing = list_samples(str(images))
    stages = time_stages(Slow(listing.names, "image", "pillow", 32), 4, 0.1)
    assert stages.samples == 1
    assert stages.stage("decode").seconds >= 0.2


def test_a_broken_file_first_does_not_end_the_stages(images: Path) -> None:
    names = list(list_samples(str(images)).names)
    broken = images / "class0" / "broken.jpg"
    broken.write_bytes(b"no image")
    stages = time_stages(Slow([str(broken)] * 4 + names, "image", "pillow", 32), 4, 0.1)
    assert (stages.samples, stages.unreadable) == (1, 2)


def test_an_archive_among_the_samples_is_not_read_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hostprep.loading.files.samples._MOST_BYTES", 100)
    names = [str(tmp_path / name) for name in ("0.bin", "all.bin", "1.bin", "2.bin")]
    for name in names:
        Path(name).write_bytes(b"sample")
    Path(names[1]).write_bytes(b"x" * 101)
    samples = FileSamples(names, "bytes", None, 32)
    stages = time_stages(samples, 2, 5.0)
    assert (stages.samples, stages.mean_file_bytes) == (1, 6)
    assert stages.unreadable and "all.bin: it has 101 B, too large for a sample" in stages.problem
    assert samples[1] == b"sample"


@pytest.mark.parametrize(("batch_size", "collated"), [(4, [4]), (3, [3, 3]), (10, [6])])
def test_whole_batches_are_collated_and_what_there_is_only_without_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_size: int, collated: list[int]
) -> None:
    names = [str(tmp_path / f"{number}.bin") for number in range(10)]
    for name in names:
        Path(name).write_bytes(os.urandom(1000))
    sizes: list[int] = []

    def collating(batch: list[Any]) -> Any:
        sizes.append(len(batch))
        return collate_arrays(batch)

    monkeypatch.setattr(stages_module, "collate_arrays", collating)
    timed = time_stages(FileSamples(names, "bytes", None, 32), batch_size, 60.0)
    assert (timed.samples, sizes) == (6, collated)
    assert [stage.name for stage in timed.stages][-1] == "collate"
    assert timed.stage("collate").seconds > 0
