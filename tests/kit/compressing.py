"""A FUSE passthrough that says its files take a fifth of their blocks, as ZFS and EROFS may."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kit import serving
from tests.kit.passthrough import ReadOnly, many_threads


class Compressing(ReadOnly):
    """The files below ``root``, which are whole, with few blocks."""

    def getattr(self, path: str, fh: Any = None) -> dict[str, int]:
        found = super().getattr(path, fh)
        return {**found, "st_blocks": found["st_blocks"] // 5}


@contextmanager
def compressing_fs(root: Path, point: Path) -> Iterator[Path]:
    """Show ``root`` at ``point``, which is made, for as long as the block lasts."""
    point.mkdir()
    with serving.served("tests.kit.compressing", {"root": str(root)}, point, grace_seconds=0.5):
        yield point


def _make(config: serving.Config) -> tuple[Any, dict[str, Any]]:
    return Compressing(config["root"]), {"fsname": "compressing", **many_threads(128)}


if __name__ == "__main__":
    serving.main(_make)
