"""Which boot of the machine this is: what a tmpfs held in another boot is gone."""

from __future__ import annotations

from pathlib import Path

from hostprep.host.reading import read_text


def boot_id(root: Path = Path("/")) -> str:
    """Return the kernel's random identity of this boot, ``""`` if it is not readable."""
    return read_text(root / "proc/sys/kernel/random/boot_id") or ""
