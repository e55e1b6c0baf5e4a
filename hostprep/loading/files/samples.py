"""The user's files as a data set: how one becomes an array, and several a batch."""

from __future__ import annotations

import errno
import functools
import json
import os
import stat
from collections.abc import Sequence
from typing import Any

from hostprep.host.block import MADE_UP
from hostprep.host.mounts import read_mounts
from hostprep.loading.files import decoders
from hostprep.loading.files.arrays import MAGIC, read_array
from hostprep.system.trees import NAMED_FILE_FLAGS
from hostprep.units import GIB, format_bytes

_IN_MEMORY = 64
_MOST_BYTES = GIB
_REPEATS = 1000
_MOST_BROKEN = 50


def read_whole(name: str) -> bytes:
    """Return a file's bytes, read in one go and unbuffered.

    Raises ``OSError`` for a file far larger than a sample: among small ones there may be an archive
    of them all, which does not fit in memory. Also for what has no size to tell that by: a pipe or
    a device in place of a listed file, which the folder's owner may have linked there, and files
    that the kernel generates as they are read, some of which never end, or lose what is read.
    """
    with open(os.open(name, NAMED_FILE_FLAGS), "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_dev in _made_up():
            raise OSError(errno.EINVAL, "it leads to no file of data", name)
        if status.st_size > _MOST_BYTES:
            why = (
                f"it has {format_bytes(status.st_size)}, too large for a sample that is read whole"
            )
            raise OSError(errno.EFBIG, why, name)
        return file.readall()


@functools.cache
def _made_up() -> frozenset[int]:
    """Return the devices of generated file systems: they stay as long as this process may ask."""
    numbers = (mount.device.split(":") for mount in read_mounts() if mount.fstype in MADE_UP)
    return frozenset(os.makedev(int(major), int(minor)) for major, minor in numbers)


class FileSamples:
    """Files as a map-style data set, which a DataLoader takes as it is.

    An image becomes float32 of 3 x side x side, ``.npy`` its array, anything else its bytes.
    ``resizer`` names the library that resizes, if it is not the decoder.
    """

    def __init__(
        self,
        names: Sequence[str],
        kind: str,
        decoder: str | None,
        side: int,
        resizer: str | None = None,
    ) -> None:
        self.names = names
        self.kind = kind
        self.decoder = decoder
        self.side = side
        self.resizer = resizer or decoder

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Any:
        """Return the sample of a file, or of the next one if it cannot be read or decoded.

        Raises ``ValueError`` with the name of the last one after many such files.
        """
        problem = ""
        for number in range(index, index + _MOST_BROKEN):
            name = self.names[number % len(self.names)]
            try:
                return self.finish(self.unpack(read_whole(name)))
            except (OSError, ValueError) as error:
                problem = f"{name}: {error}"
        raise ValueError(f"many files in a row cannot be read or decoded, such as {problem}")

    def unpack(self, data: bytes) -> Any:
        """Return the decoded sample of a file's bytes; raises ``ValueError`` if it is broken."""
        if self.kind != "bytes" and data.startswith(MAGIC):
            array = _as_torch_takes(read_array(data))
            if self.kind == "image" and not decoders.is_picture(array):
                raise ValueError("it holds a numpy array that is not an image")
            return array
        if self.kind == "npy":  # for instance an empty file; bytes cannot join a batch of arrays
            raise ValueError("it holds no numpy array")
        if self.kind == "image" and self.decoder is not None:
            return decoders.decode(data, self.decoder)
        return data

    def finish(self, sample: Any) -> Any:
        """Return a decoded sample in the form in which it goes into a batch."""
        if self.kind == "image" and self.resizer is not None:
            return decoders.resize(sample, self.side, self.resizer)
        return sample


def _as_torch_takes(array: Any) -> Any:
    """Return an array that can become a tensor: records, texts or dates become their bytes."""
    import numpy as np

    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.kind in "biufc" and array.dtype not in (np.longdouble, np.clongdouble):
        return array
    return np.frombuffer(bytearray(array.tobytes()), dtype=np.uint8)


def listed_samples(path: str) -> tuple[FileSamples, str]:
    """Return the data set of a list that ``recommend`` has written, and its files' directory."""
    with open(path, encoding="ascii") as file:
        told = json.load(file)
    samples = FileSamples(told["names"], told["kind"], told["decoder"], told["side"])
    return samples, told["directory"]


class BytesSamples(FileSamples):
    """Files whose bytes were read before, to compare decoders and forms without the storage."""

    def __init__(
        self,
        contents: Sequence[bytes],
        kind: str,
        decoder: str | None,
        side: int,
        resizer: str | None,
    ) -> None:
        super().__init__((), kind, decoder, side, resizer)
        self.contents = contents

    def __len__(self) -> int:
        return len(self.contents)

    def __getitem__(self, index: int) -> Any:
        return self.finish(self.unpack(self.contents[index]))


def in_memory(
    samples: FileSamples, form: str, decoder: str, resizer: str | None = None
) -> BytesSamples:
    """Return a few of the samples with their bytes in memory, as they are or in another form.

    ``form`` is ``as_is`` or one that ``decoders.encode`` knows. Unreadable samples are left out;
    the others are repeated many times, so that they last for a measurement.
    """
    contents = []
    for name in samples.names[:_IN_MEMORY]:
        try:
            data = read_whole(name)
            samples.unpack(data)  # those that cannot be decoded are left out
            if form != "as_is":
                data = decoders.encode(decoders.decode(data, "pillow"), form)
        except (OSError, ValueError):
            continue
        contents.append(data)
    return BytesSamples(contents * _REPEATS, samples.kind, decoder, samples.side, resizer)


def collate_arrays(samples: Sequence[Any]) -> Any:
    """Return the batch as in numpy: one array if the shapes agree, else all bytes in a row."""
    if isinstance(samples[0], bytes):
        return b"".join(samples)
    import numpy as np

    if len({sample.shape for sample in samples}) == 1:
        return np.stack(samples)
    return np.concatenate([sample.ravel() for sample in samples])


def collate_tensors(samples: Sequence[Any]) -> Any:
    """Return the batch as tensors, in shared memory if a worker makes it."""
    import torch
    from torch.utils.data import default_collate

    if isinstance(samples[0], bytes):
        data = bytearray(collate_arrays(samples))
        # frombuffer makes no tensor of length zero.
        return torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0).byte()
    if len({sample.shape for sample in samples}) > 1:
        return torch.as_tensor(collate_arrays(samples))
    return default_collate(list(samples))
