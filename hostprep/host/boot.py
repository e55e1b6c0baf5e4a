"""Which boot of the machine this is: what a tmpfs held before belongs to another."""

from __future__ import annotations

from pathlib import Path


def boot_id(root: Path = Path("/")) -> str:
    """Return the kernel's random identity of this boot, ``""`` where it is not readable."""
    try:
        return (root / "proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
