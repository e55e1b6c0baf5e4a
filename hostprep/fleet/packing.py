"""The running hostprep as a wheel, without its source tree, a build tool or a network.

A wheel is a zip archive of the files as installed and a RECORD of their hashes (PyPA's binary
distribution format). The same files give the same bytes, so the wheel's hash identifies the build.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.metadata
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import hostprep
from hostprep.dataclass import dataclass
from hostprep.system.resources import data_path

_DATA = ("playbooks", "templates")
# What our wheels have besides the RECORD. Other files there were written by an installer about this
# installation (by uv with its time), and would make the same hostprep a different build on each
# controller.
_OF_WHEEL = {"METADATA", "WHEEL", "entry_points.txt", "licenses"}
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can have


@dataclass(frozen=True, slots=True)
class PackedWheel:
    """A wheel in memory; ``build`` is the beginning of its SHA-256."""

    name: str
    content: bytes
    build: str


def pack_wheel() -> PackedWheel:
    """Return the running hostprep as a wheel."""
    distribution = importlib.metadata.distribution("hostprep")
    stem = f"hostprep-{distribution.version}"
    files = sorted(_files(distribution, f"{stem}.dist-info"))
    record = io.StringIO()
    writer = csv.writer(record, lineterminator="\n")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in files:
            content = path.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            writer.writerow([name, f"sha256={digest.decode()}", len(content)])
            archive.writestr(_entry(name), content)
        writer.writerow([f"{stem}.dist-info/RECORD", "", ""])
        archive.writestr(_entry(f"{stem}.dist-info/RECORD"), record.getvalue())
    content = packed.getvalue()
    return PackedWheel(
        f"{stem}-py3-none-any.whl", content, hashlib.sha256(content).hexdigest()[:16]
    )


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o100644 << 16
    return entry


def _files(
    distribution: importlib.metadata.Distribution, metadata: str
) -> Iterator[tuple[str, Path]]:
    """Yield each file's name in the wheel and its path here."""
    package = Path(hostprep.__file__).parent
    yield from _below(package, "hostprep")
    if not (package / "_data").is_dir():  # a checkout: they are next to the package
        for folder in _DATA:
            yield from _below(data_path(folder), f"hostprep/_data/{folder}")
    for file in distribution.files or ():
        below = file.parts[1:]
        if file.parts[0] == metadata and below[0] in _OF_WHEEL:
            yield "/".join((metadata, *below)), Path(str(file.locate()))


def _below(folder: Path, prefix: str) -> Iterator[tuple[str, Path]]:
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        hidden = any(part.startswith(".") or part == "__pycache__" for part in parts)
        if path.is_file() and not hidden:
            yield "/".join((prefix, *parts)), path
