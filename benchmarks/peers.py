"""The copiers that people use today, each called as its manual recommends."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Peer:
    """A copier: its name, the tool it needs, and its command for (source, target directory)."""

    name: str
    tool: str
    command: Callable[[Path, Path], list[str]]

    @property
    def installed(self) -> bool:
        """Whether it can be run here."""
        return shutil.which(self.tool) is not None


def _tar(source: Path, target: Path) -> list[str]:
    pipe = 'tar -C "$1" -cf - . | tar -C "$2" -xf -'
    return ["bash", "-c", f"set -o pipefail; {pipe}", "tar", str(source), str(target)]


def _rsync_delete(source: Path, target: Path) -> list[str]:
    return ["rsync", "-a", "--delete", f"{source}/", f"{target}/"]


def _rclone(command: str, source: Path, target: Path) -> list[str]:
    return ["rclone", command, "--config", "", "--transfers", "8", str(source), str(target)]


def _fpsync(source: Path, target: Path) -> list[str]:
    # Its partitioned lists go to the target's own file system, not to a disk.
    scratch = str(target) + ".fpsync"
    return ["fpsync", "-n", "8", "-m", "cpio", "-t", scratch, f"{source}/", f"{target}/"]


def _read(source: Path, target: Path) -> list[str]:
    del target
    pipe = 'find "$1" -type f -print0 | xargs -0 -n 50 -P 32 cat > /dev/null'
    return ["bash", "-c", f"set -o pipefail; {pipe}", "read", str(source)]


CP = Peer("cp -a", "cp", lambda source, target: ["cp", "-a", f"{source}/.", str(target)])
RSYNC = Peer("rsync -a", "rsync", lambda s, t: ["rsync", "-a", f"{s}/", f"{t}/"])
TAR = Peer("tar | tar", "tar", _tar)
RCLONE = Peer("rclone copy --transfers 8", "rclone", partial(_rclone, "copy"))
FPSYNC = Peer("fpsync -n 8 -m cpio", "fpsync", _fpsync)
ALL = (CP, RSYNC, TAR, RCLONE, FPSYNC)
# What brings a copy up to date that they have made before.
CP_UPDATE = Peer("cp -a --update", "cp", lambda s, t: ["cp", "-a", "--update", f"{s}/.", str(t)])
RSYNC_DELETE = Peer("rsync -a --delete", "rsync", _rsync_delete)
RCLONE_SYNC = Peer("rclone sync --transfers 8", "rclone", partial(_rclone, "sync"))
UPDATERS = (CP_UPDATE, RSYNC_DELETE, RCLONE_SYNC)
# Not a copier: what many readers that write nothing get from a cold source.
READING = Peer("reading alone: xargs -P 32 cat", "xargs", _read)
