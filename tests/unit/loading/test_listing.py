"""Which files are samples."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hostprep.errors import Inconclusive, UsageError
from hostprep.loading.files import listing as listing_module
from hostprep.loading.files.listing import list_samples
from hostprep.loading.files.samples import FileSamples
from hostprep.loading.naming import OwnLoaderWanted
from hostprep.loading.recommend import _how_to_read, _left_out, _undecoded


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


@pytest.mark.parametrize("suffix", [".JPG", ".tif", ".bmp", ".gif", ".jp2", ".ppm"])
def test_images_of_many_kinds_are_decoded_and_what_else_there_is_is_counted(
    suffix: str, tmp_path: Path
) -> None:
    for number in range(3):
        picture = Image.new("RGB", (40, 30))
        picture.save(tmp_path / f"{number}{suffix}", format="JPEG" if suffix == ".JPG" else None)
    (tmp_path / "a.wav").write_bytes(b"x")
    listing = list_samples(str(tmp_path))
    assert (listing.kind, len(listing.names), listing.others) == ("image", 3, 1)
    samples = FileSamples(listing.names, "image", "pillow", 20)
    assert samples[0].shape == (3, 20, 20)


def test_odd_directories(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="absent does not exist"):
        list_samples(str(tmp_path / "absent"))
    with pytest.raises(UsageError, match=r"\.py is not a directory"):
        list_samples(__file__)
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(UsageError, match="circle cannot be looked at: Too many"):
        list_samples(str(tmp_path / "circle"))
    (tmp_path / "circle").unlink()
    with pytest.raises(Inconclusive, match="no files"):
        list_samples(str(tmp_path))
    with open(tmp_path / "shard.tar", "wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(Inconclusive, match=r"1\.00 GiB on average"):
        list_samples(str(tmp_path))


@pytest.mark.parametrize(
    "name",
    [
        "a{}.tar",
        "a{}.tar.gz",
        "part-{}.parquet",
        "data-{}.arrow",
        "train-{:05}-of-00100",
        "{}.h5",
        "{}.HDF5",
        "{}.lmdb",
        "images-{}.zip",
        "texts-{}.jsonl",
        "texts-{}.jsonl.zst",
        "a.zarr/c/0/{}",
    ],
)
def test_shards_are_no_samples_however_small(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    for number in range(100):
        (tmp_path / name.format(number)).write_bytes(b"x" * 100)
    (tmp_path / "checksums.bin").write_bytes(b"x")
    with pytest.raises(OwnLoaderWanted, match="many samples each, or parts of them") as caught:
        list_samples(str(tmp_path))
    assert "--loader" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("marker", "chunk"),
    [("zarr.json", "x/c/{}/0"), (".zgroup", "x/{}.0"), (".zarray", "{}.0"), (None, "{}.0")],
)
def test_chunks_of_zarr_are_known_by_what_lies_beside_them(
    marker: str | None, chunk: str, tmp_path: Path
) -> None:
    store = tmp_path / "era5"
    for number in range(20):
        path = store / chunk.format(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 100)
    if marker is None:
        assert len(list_samples(str(tmp_path)).names) == 20
        return
    (store / marker).write_text("{}")
    with pytest.raises(OwnLoaderWanted, match="parts of them"):
        list_samples(str(tmp_path))


def test_folders_that_cannot_be_listed_are_told(
    images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = os.scandir
    shut = {images / "class0"}

    def scandir(path: str) -> Any:
        if Path(path) in shut:
            raise PermissionError(13, "Permission denied", path)
        return really(path)

    monkeypatch.setattr(os, "scandir", scandir)
    listing = list_samples(str(images))
    assert 0 < len(listing.names) < 20
    assert (listing.closed, listing.problem) == (1, f"{images}/class0: Permission denied")
    assert any("1 folder that cannot be listed, such as" in note for note in _left_out(listing))
    shut.add(images)
    with pytest.raises(Inconclusive, match="could not be listed") as caught:
        list_samples(str(images))
    assert f"{images}: Permission denied" in caught.value.message


@pytest.mark.parametrize(
    ("suffix", "absent", "why", "packages"),
    [
        (".jpg", (), None, ""),
        (".jpg", ("cv2", "simplejpeg"), None, ""),
        (".jpg", ("PIL", "cv2"), "neither Pillow nor OpenCV is installed", "numpy pillow"),
        (".jpg", ("numpy",), "numpy is not installed", "numpy"),
        (".npy", ("PIL", "cv2"), None, ""),
        (".npy", ("numpy",), "numpy is not installed", "numpy"),
        (".flac", (), "only your own code knows what to make of them", None),
        (".txt", ("numpy", "PIL", "cv2"), "only your own code knows what to make of them", None),
    ],
)
def test_what_is_missing_to_decode_is_named(
    suffix: str,
    absent: tuple[str, ...],
    why: str | None,
    packages: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / f"a{suffix}").write_bytes(b"x")
    listing = list_samples(str(tmp_path))
    for name in absent:
        monkeypatch.setitem(sys.modules, name, None)
    found = _undecoded(listing)
    assert (None if found is None else found.why) == why
    cure = "--loader MODULE:NAME" if packages is None else f"-m pip install {packages}"
    assert found is None or found.cure.endswith(cure)
    assert (_how_to_read(listing, found)[0] == "bytes") is (found is not None)


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
    monkeypatch.setattr(listing_module, "_MOST_FILES", 7)
    listing = list_samples(str(flat))
    assert not listing.whole
    assert len(listing.names) == 7


def test_a_flat_folder_is_listed_as_far_as_there_is_time(
    flat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(entry: os.DirEntry[str], names: list[str], folders: list[str]) -> None:
        time.sleep(0.001)
        names.append(entry.path)

    monkeypatch.setattr(listing_module, "_sort_in", slowly)
    monkeypatch.setattr(listing_module, "_LISTING_SECONDS", 0.3)
    listing = list_samples(str(flat))
    assert not listing.whole
    assert 0 < len(listing.names) < 400


def test_names_of_any_bytes_are_listed(tmp_path: Path) -> None:
    name = b"\xff\xe9.bin"
    (Path(str(tmp_path)) / name.decode(errors="surrogateescape")).touch()
    (found,) = list_samples(str(tmp_path)).names
    assert found.encode(errors="surrogateescape").endswith(name)


def test_sizes_are_asked_for_as_long_as_there_is_time(
    flat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a server each of them is a request, which may take a fifth of a second."""
    names = [str(flat / f"{number}.bin") for number in range(200)]
    really = os.stat

    def slowly(name: Any, **options: Any) -> os.stat_result:
        if name in names:
            time.sleep(0.1)
        return really(name, **options)

    monkeypatch.setattr(os, "stat", slowly)
    begun = time.monotonic()
    assert listing_module._mean_bytes(str(flat), names) == 0
    assert time.monotonic() - begun < 15  # of 20
