"""Which files are samples, and how they become arrays."""

from __future__ import annotations

import io
import itertools
import json
import os
import struct
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hostprep.errors import Inconclusive, UsageError
from hostprep.loading import decoders, files
from hostprep.loading import stages as stages_module
from hostprep.loading.building import ProbeJob, build
from hostprep.loading.files import (
    FileSamples,
    collate_arrays,
    collate_tensors,
    in_memory,
    list_samples,
    read_whole,
)
from hostprep.loading.opening import open_source
from hostprep.loading.stages import time_stages
from hostprep.system.page_cache import resident_share


def picture(seed: int = 0) -> Image.Image:
    dice = np.random.default_rng(seed)
    small = dice.integers(0, 255, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((80, 60), Image.Resampling.BICUBIC)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    for number in range(20):
        folder = tmp_path / f"class{number % 3}"
        folder.mkdir(exist_ok=True)
        picture(number).save(folder / f"{number}.jpg", quality=95)
    (tmp_path / "labels.txt").write_text("0 1 2\n")
    (tmp_path / ".hidden.jpg").write_bytes(b"")
    return tmp_path


def test_images_are_samples_and_labels_are_not(images: Path) -> None:
    listing = list_samples(str(images))
    assert (listing.kind, len(listing.names), listing.others) == ("image", 20, 0)
    assert listing.jpeg
    assert listing.whole
    assert listing.mean_bytes > 100


def test_the_kind_of_most_files_wins_and_the_rest_is_counted(images: Path) -> None:
    for number in range(5):
        np.save(images / f"{number}.npy", np.zeros(3))
    (images / "a.webp").write_bytes(b"x")
    listing = list_samples(str(images))
    assert (listing.kind, listing.others, listing.jpeg) == ("image", 5, False)


def test_odd_directories(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        list_samples(str(tmp_path / "absent"))
    with pytest.raises(Inconclusive, match="no files"):
        list_samples(str(tmp_path))
    with open(tmp_path / "shard.tar", "wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(Inconclusive, match=r"1\.00 GiB on the mean"):
        list_samples(str(tmp_path))


def test_text_alone_is_samples(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    assert list_samples(str(tmp_path)).kind == "bytes"


def test_linked_folders_are_listed_once_also_in_a_circle(images: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "links"
    elsewhere.mkdir()
    for number in range(3):
        (elsewhere / f"class{number}").symlink_to(images / f"class{number}")
        (images / f"class{number}" / "up").symlink_to(elsewhere)
    (elsewhere / "nowhere").symlink_to(tmp_path / "absent")
    assert len(list_samples(str(elsewhere)).names) == 20
    assert len(list_samples(str(images)).names) == 20


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    for number in range(2000):
        (tmp_path / f"{number}.bin").touch()
    assert list_samples(str(tmp_path)).whole
    return tmp_path


def test_a_flat_folder_is_listed_as_far_as_wanted(
    flat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_MOST_FILES", 7)
    listing = list_samples(str(flat))
    assert not listing.whole
    assert len(listing.names) == 7


def test_a_flat_folder_is_listed_as_far_as_there_is_time(
    flat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(entry: os.DirEntry[str], names: list[str], folders: list[str]) -> None:
        time.sleep(0.001)
        names.append(entry.path)

    monkeypatch.setattr(files, "_sort_in", slowly)
    monkeypatch.setattr(files, "_LISTING_SECONDS", 0.3)
    listing = list_samples(str(flat))
    assert not listing.whole
    assert 0 < len(listing.names) < 400


def test_names_of_any_bytes_are_listed(tmp_path: Path) -> None:
    name = b"\xff\xe9.bin"
    (Path(str(tmp_path)) / name.decode(errors="surrogateescape")).touch()
    (found,) = list_samples(str(tmp_path)).names
    assert found.encode(errors="surrogateescape").endswith(name)


@pytest.mark.parametrize("decoder", decoders.installed())
def test_decoders_agree_on_the_same_jpeg(decoder: str) -> None:
    target = io.BytesIO()
    picture().save(target, "jpeg", quality=95)
    image = decoders.decode(target.getvalue(), decoder)
    reference = np.asarray(picture()).astype(int)
    assert image.shape == reference.shape
    assert np.abs(image - reference).mean() < 8
    ready = decoders.resize(image, 32, decoder)
    assert (ready.shape, ready.dtype) == ((3, 32, 32), np.float32)
    assert 0 <= ready.min() < ready.max() <= 1


@pytest.mark.parametrize("decoder", decoders.installed())
def test_what_is_no_image_is_an_error(decoder: str) -> None:
    with pytest.raises((ValueError, OSError)):
        decoders.decode(b"no image at all", decoder)


@pytest.mark.parametrize("form", ["jpeg", "png", "npy"])
def test_forms_hold_the_same_picture(images: Path, form: str) -> None:
    listing = list_samples(str(images))
    files = FileSamples(listing.names, "image", "pillow", 32)
    kept = in_memory(files, form, "pillow")
    assert len(kept) == 20_000
    assert np.abs(kept[3] - files[3]).mean() < 0.02


def test_batches_of_arrays_and_of_bytes() -> None:
    same = [np.zeros((2, 2)), np.ones((2, 2))]
    assert collate_arrays(same).shape == (2, 2, 2)
    assert tuple(collate_tensors(same).shape) == (2, 2, 2)
    odd = [np.zeros(3, np.uint8), np.ones(4, np.uint8)]
    assert tuple(collate_tensors(odd).shape) == (7,)
    assert collate_tensors([b"abc", b"de"]).tolist() == [97, 98, 99, 100, 101]
    assert collate_tensors([b"", b""]).numel() == 0


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(10, dtype=[("x", "f4"), ("t", "i8")]),
        np.array(["some", "words"]),
        np.array(["", ""]),
        np.zeros(3, "M8[s]"),
        np.zeros(3, np.longdouble),
        np.zeros((2, 3), ">f4"),
        np.zeros((0, 3)),
    ],
)
def test_arrays_that_torch_does_not_take_are_measured_all_the_same(
    array: np.ndarray[Any, Any], tmp_path: Path
) -> None:
    np.save(tmp_path / "0.npy", array)
    samples = FileSamples([str(tmp_path / "0.npy")], "npy", None, 32)
    batch = collate_tensors([samples[0], samples[0]])
    assert batch.shape[0] == 2
    assert batch.nbytes == 2 * array.nbytes


def test_an_image_too_large_for_pillow_is_one_that_cannot_be_decoded(
    images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(ValueError, match="pixels"):
        decoders.decode((images / "class0" / "0.jpg").read_bytes(), "pillow")


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(*, side: int = 8, between: bytes = b"") -> bytes:
    rows = zlib.compress(bytes(3 * 8 + 1) * 8, 0)
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    data = chunk(b"IDAT", rows[:99]) + between + chunk(b"IDAT", rows[99:])
    return b"\x89PNG\r\n\x1a\n" + header + data + chunk(b"IEND", b"")


@pytest.mark.parametrize("decoder", [name for name in decoders.installed() if name != "simplejpeg"])
def test_whatever_a_decoder_raises_of_a_broken_image_it_cannot_be_decoded(decoder: str) -> None:
    decoders.decode(png(), decoder)
    for broken in (b"", png(side=40_000), png(between=b"\0\0\0\0~U\xec\xd9....")):
        with pytest.raises((OSError, ValueError)):
            decoders.decode(broken, decoder)


def test_stages_of_images_are_all_timed(images: Path) -> None:
    (images / "class0" / "broken.jpg").write_bytes(b"no image")
    listing = list_samples(str(images))
    stages = time_stages(FileSamples(listing.names, "image", "pillow", 32), 4, 0.2, 0)
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
    # On one core the processor's time is part of the time; clocks differ by their resolution.
    assert all(stage.cpu_seconds <= stage.seconds * 1.5 + 1e-3 for stage in stages.stages)


def test_cold_is_cold_also_of_files_that_were_only_just_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [str(tmp_path / f"{number}.bin") for number in range(6)]
    for name in names:
        Path(name).write_bytes(os.urandom(1 << 20))
    if resident_share(names[:1]) is None:
        pytest.skip("residency is not told here")
    seen: list[float | None] = []

    def reading(name: str) -> bytes:
        seen.append(resident_share([name]))
        return read_whole(name)

    monkeypatch.setattr(stages_module, "read_whole", reading)
    timed = time_stages(FileSamples(names, "bytes", None, 32), 4, 5.0, 0)
    # As it is, cold, warm: of each sample in turn.
    assert len(seen) == 3 * timed.samples >= 9
    assert all(share is not None and share < 0.05 for share in seen[1::3])
    assert set(seen[2::3]) == {1.0}


def test_nothing_readable_is_inconclusive(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}.jpg").write_bytes(b"no image")
    names = [str(path) for path in tmp_path.iterdir()]
    with pytest.raises(Inconclusive, match="no file could be read"):
        time_stages(FileSamples(names, "image", "pillow", 32), 4, 0.2, 0)


class Slow(FileSamples):
    """As of images that take long to decode."""

    def unpack(self, data: bytes) -> np.ndarray:
        time.sleep(0.2)
        return super().unpack(data)  # type: ignore[no-any-return]


def test_one_slow_file_is_enough_for_the_stages(images: Path) -> None:
    listing = list_samples(str(images))
    began = time.monotonic()
    stages = time_stages(Slow(listing.names, "image", "pillow", 32), 4, 0.1, 0)
    assert stages.samples == 1
    assert stages.stage("decode").seconds >= 0.2
    assert time.monotonic() - began < 2


def test_a_broken_file_first_does_not_end_the_stages(images: Path) -> None:
    names = list(list_samples(str(images)).names)
    broken = images / "class0" / "broken.jpg"
    broken.write_bytes(b"no image")
    stages = time_stages(Slow([str(broken)] * 4 + names, "image", "pillow", 32), 4, 0.1, 0)
    assert (stages.samples, stages.unreadable) == (1, 2)


def test_probes_go_on_in_the_list_where_the_stages_ended(images: Path, tmp_path: Path) -> None:
    listing = list_samples(str(images))
    told = {
        "names": listing.names,
        "kind": "image",
        "decoder": "pillow",
        "side": 32,
        "directory": str(images),
    }
    (tmp_path / "told.json").write_text(json.dumps(told))
    of = open_source({"files": str(tmp_path / "told.json")}, 4)
    order = build(of, ProbeJob(0, 2, 4, 14, 0.1, 1.0)).order
    assert order is not None
    assert list(itertools.islice(order, 8)) == [*range(14, 20), 0, 1]
    assert order.seen_before
