"""A FUSE passthrough that keeps names in its own way, as exFAT, SMB and macOS shares do.

``case`` takes ``A.jpg`` for ``a.jpg`` and keeps the spelling that was first; ``unicode`` takes
composed and decomposed letters for the same and keeps them decomposed; ``dots`` drops dots and
spaces at the end; ``short`` holds no name of over 143 bytes (eCryptfs), ``strict`` none with
``:`` (NTFS) and no symlink; ``plain`` keeps all.
"""

from __future__ import annotations

import errno
import os
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kit import serving
from tests.kit.passthrough import ReadWrite, many_threads


def _decomposed(name: str) -> str:
    return unicodedata.normalize("NFD", name)


_KEPT: dict[str, Callable[[str], str]] = {
    "unicode": _decomposed,
    "dots": lambda name: name.rstrip(". ") or name,
}
_LOOKED_UP: dict[str, Callable[[str], str]] = {**_KEPT, "case": str.casefold}


class Folding(ReadWrite):
    """Finds what a name leads to by the names that are there."""

    def __init__(self, root: str, kind: str) -> None:
        super().__init__(root)
        self._kind = kind
        self._kept = _KEPT.get(kind, str)
        self._key = _LOOKED_UP.get(kind, str)

    def real(self, path: str) -> bytes:
        found = self._root
        for name in path.encode("utf-8", "surrogateescape").split(b"/")[1:]:
            if name:
                found = os.path.join(found, self._found(found, name))
        return found

    def _found(self, folder: bytes, name: bytes) -> bytes:
        text = os.fsdecode(name)
        if self._kind == "short" and len(name) > 143:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        if self._kind == "strict" and ":" in text:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if self._kind not in _LOOKED_UP or os.path.lexists(os.path.join(folder, name)):
            return name
        for other in os.listdir(folder):
            if self._key(os.fsdecode(other)) == self._key(text):
                return other
        return os.fsencode(self._kept(text))

    def symlink(self, target: str, source: str) -> int:
        if self._kind == "strict":
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        return super().symlink(target, source)

    def link(self, target: str, source: str) -> int:
        if self._kind == "strict":
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        return super().link(target, source)


@contextmanager
def folding_fs(root: Path, point: Path, kind: str, **options: str) -> Iterator[Path]:
    """Show ``root`` at ``point``, which are made, for as long as the block lasts.

    ``options`` are libfuse's: with ``umask`` and ``uid`` it makes modes and owners up, as for FAT.
    """
    for folder in (root, point):
        folder.mkdir(exist_ok=True)
    config = {"root": str(root), "kind": kind, "options": options}
    with serving.served("tests.kit.folding", config, point, grace_seconds=0.5):
        yield point


def _make(config: serving.Config) -> tuple[Any, dict[str, Any]]:
    options = {
        "fsname": "folding",
        "use_ino": True,
        "entry_timeout": 0,
        "attr_timeout": 0,
        "negative_timeout": 0,
        **many_threads(128),
        **config["options"],
    }
    return Folding(config["root"], config["kind"]), options


if __name__ == "__main__":
    serving.main(_make)
