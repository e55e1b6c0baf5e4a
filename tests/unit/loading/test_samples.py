"""How files become arrays and batches, and where probes go on in the list of them."""

from __future__ import annotations

import importlib.util
import io
import itertools
import json
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hostprep.loading.child.building import ProbeJob, build
from hostprep.loading.child.opening import open_source
from hostprep.loading.files import decoders
from hostprep.loading.files.arrays import _check_size, read_array
from hostprep.loading.files.listing import list_samples
from hostprep.loading.files.samples import (
    BytesSamples,
    FileSamples,
    collate_arrays,
    collate_tensors,
    in_memory,
    read_whole,
)
from hostprep.loading.files.stages import time_stages
from tests.unit.loading.making import picture


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


def test_what_took_the_place_of_a_file_since_it_was_listed_is_not_read(tmp_path: Path) -> None:
    """Whoever owns the folder could have it wait for ever, or fill the memory."""
    os.mkfifo(tmp_path / "pipe.bin")
    (tmp_path / "endless.bin").symlink_to("/dev/zero")
    (tmp_path / "made-up.bin").symlink_to("/proc/version")  # as /proc/kmsg, which it would empty
    (tmp_path / "plain.bin").write_bytes(b"data")
    (tmp_path / "z.bin").symlink_to("plain.bin")
    names = [str(path) for path in sorted(tmp_path.iterdir())]
    for name in names[:3]:
        with pytest.raises(OSError, match="it leads to no file of data"):
            read_whole(name)
    assert read_whole(names[4]) == b"data"
    assert FileSamples(names, "bytes", None, 32)[0] == b"data"  # the next that can be read


@pytest.mark.skipif("opencv" not in decoders.installed(), reason="needs OpenCV")
def test_opencv_keeps_to_one_thread_also_where_it_was_imported_anew() -> None:
    import cv2

    cv2.setNumThreads(2)  # as in a worker that was not forked from the loader's process
    decoders._opencv.cache_clear()
    try:
        decoders.resize(np.asarray(picture()), 32, "opencv")
        assert cv2.getNumThreads() == 1
    finally:
        cv2.setNumThreads(0)


@pytest.mark.parametrize("decoder", decoders.installed())
def test_what_is_no_image_is_an_error(decoder: str) -> None:
    with pytest.raises((ValueError, OSError)):
        decoders.decode(b"no image at all", decoder)


def array_file(shape: object, kind: object = "<f4", content: bytes = b"") -> bytes:
    """Return an ``.npy`` file with a header that may say anything."""
    said = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    said += b" " * (-(len(said) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(said)) + said + content


BROKEN_ARRAYS = {
    "more-than-any-memory": array_file((200_000_000_000,), content=b"some bytes"),
    "more-than-64-bits": array_file((2**40, 2**40)),
    "a-number-too-long": array_file((2**70,)),
    "negative": array_file((-4,), content=bytes(16)),
    "cut-short": array_file((4,), content=bytes(15)),
    "cut-in-its-header": array_file((4,))[:40],
    "nothing-but-its-mark": b"\x93NUMPY",
    "no-type": array_file((4,), "<q9", bytes(64)),
    "of-objects": array_file((4,), "|O", bytes(64)),
    "too-many-dimensions": array_file((1,) * 70, content=bytes(4)),
    "no-shape": array_file("[[[[]]]]", content=bytes(4)),
    "empty": b"",  # a run that was to write it was killed, or the disk was full
    "something-else": b"some bytes",
}


@pytest.mark.parametrize("data", BROKEN_ARRAYS.values(), ids=BROKEN_ARRAYS.keys())
def test_a_broken_array_costs_itself_alone(tmp_path: Path, data: bytes) -> None:
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", np.full((4,), number, np.float32))
    (tmp_path / "1.npy").write_bytes(data)
    samples = FileSamples([str(tmp_path / f"{n}.npy") for n in range(3)], "npy", None, 32)
    with pytest.raises(ValueError):
        samples.unpack(data)
    assert [float(samples[number][0]) for number in range(3)] == [0, 2, 2]
    assert {float(sample[0]) for sample in in_memory(samples, "as_is", "pillow")} == {0, 2}
    # Every other file is only read: the broken one is to come first, and a whole one after it.
    samples.names = [samples.names[number] for number in (1, 2, 0)]
    found = time_stages(samples, 2, 0.2)
    assert found.unreadable > 0 and f"{tmp_path}/1.npy: " in found.problem


@pytest.mark.parametrize("decoder", decoders.installed())
def test_an_array_that_calls_itself_a_picture_and_is_none_costs_itself_alone(
    tmp_path: Path, decoder: str
) -> None:
    picture().save(tmp_path / "1.jpg")
    names = [str(tmp_path / "0.jpg"), str(tmp_path / "1.jpg")]
    samples = FileSamples(names, "image", decoder, 32)
    odd = [np.zeros(shape, np.uint8) for shape in ((), (5,), (0, 5, 3), (2, 3, 4, 3), (5, 5, 5))]
    for array in (*odd, np.zeros((5, 5, 3), np.int64)):
        with open(names[0], "wb") as file:
            np.save(file, array)
        assert samples[0].std() > 0  # the next one
    # Every other file is only read.
    samples.names = [*names, names[1]]
    found = time_stages(samples, 2, 0.1)
    assert (found.samples, found.unreadable) == (1, 1)


def test_memory_that_a_whole_array_lacks_is_no_fault_of_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*args: object, **how: object) -> None:
        raise MemoryError

    file = io.BytesIO()
    np.save(file, np.ones(4))
    monkeypatch.setattr(np, "load", refuse)
    with pytest.raises(MemoryError):
        read_array(file.getvalue())


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_whole_arrays_of_every_version_are_read(
    version: tuple[int, int], shape: tuple[int, ...]
) -> None:
    wanted = np.ones(shape, [("é" if version == (3, 0) else "e", "<f4"), ("s", "<U2")])
    file = io.BytesIO()
    np.lib.format.write_array(file, wanted, version)
    _check_size(file.getvalue())
    assert (read_array(file.getvalue()) == wanted).all()


def test_no_program_is_run_on_what_calls_itself_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pillow hands PostScript to Ghostscript, whatever the name of the file; root may measure."""
    ran = tmp_path / "ran"
    stub = tmp_path / "gs"
    stub.write_text(f"#!/bin/sh\ntouch {ran}\n")
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    # To be looked for again; Pillow before 10.1 does so each time.
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None, raising=False)
    data = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 64 64\n%%EndComments\nshowpage\n%%EOF\n"
    with pytest.raises(ValueError, match="Pillow cannot identify it"):
        decoders.decode(data, "pillow")
    assert not ran.exists()
    with pytest.raises(OSError), Image.open(io.BytesIO(data)) as opened:
        opened.load()  # as it would be
    assert ran.exists()


@pytest.mark.parametrize("form", ["jpeg", "png", "webp", "tiff", "bmp", "gif", "jpeg2000", "ppm"])
def test_pictures_of_all_usual_forms_are_read(form: str) -> None:
    target = io.BytesIO()
    picture().save(target, form)
    assert decoders.decode(target.getvalue(), "pillow").shape == np.asarray(picture()).shape


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


def test_simplejpeg_alone_is_no_way_to_read_images(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    hidden = ("PIL", "cv2")  # either of which would resize
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in hidden else found(name)
    )
    assert decoders.installed() == ()


def test_each_decoder_resizes_in_its_own_way_unless_another_is_named() -> None:
    target = io.BytesIO()
    Image.effect_noise((80, 60), 80).convert("RGB").save(target, "jpeg")
    data = target.getvalue()
    by_pillow, own, by_opencv = (
        BytesSamples([data], "image", "pillow", 20, resizer)[0]
        for resizer in ("pillow", None, "opencv")
    )
    assert (own == by_pillow).all()
    # OpenCV looks at four pixels for each, whatever lies between them.
    assert by_opencv.std() > 1.3 * own.std()


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
