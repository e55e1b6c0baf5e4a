"""Files of ``/proc``, ``/sys`` and ``/etc`` as text.

They contain names of programs, cgroups, disks and files, which may be any bytes. Those that are not
UTF-8 survive as surrogates, so that a path made from them leads where it should; code that prints
them makes them printable.
"""

from __future__ import annotations

import errno
import glob
import os
from pathlib import Path

from hostprep.errors import HostprepError, reading_hint

NO_PROC_HINT = "is /proc mounted? mount -t proc proc /proc"


def read_text(path: Path) -> str | None:
    """Return the text of ``path`` without surrounding whitespace, None if it cannot be read."""
    text = _read(path)
    return None if text is None else text.strip()


def read_lines(path: Path) -> list[str]:
    """Return the lines of ``path`` that are not empty, none if it cannot be read."""
    # Not splitlines, which also ends lines within names: at a form feed, at U+2028.
    return [line for line in (_read(path) or "").split("\n") if line]


def read_number(path: Path) -> int | None:
    """Return the whole number that ``path`` holds, None if it holds none or cannot be read."""
    text = read_text(path)
    return int(text) if text is not None and text.isdecimal() else None


def read_counts(path: Path) -> dict[str, int]:
    """Return the numbers of a file that has a name and a number in each line, by their names."""
    pairs = map(str.split, read_lines(path))
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def entries_of(folder: Path) -> list[Path]:
    """Return what is in a folder, by name; nothing if it is not there or cannot be read."""
    try:
        return [folder / name for name in sorted(os.listdir(folder))]
    except OSError:
        return []


def matching(folder: Path, pattern: str) -> list[Path]:
    """Return what matches ``pattern`` below a folder, by name; nothing where it cannot be read."""
    return [folder / name for name in sorted(glob.glob(pattern, root_dir=folder))]


def read_link(path: Path) -> str:
    """Return the target of a symlink, ``""`` if there is none to be read."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def own_status(root: Path, name: str) -> str | None:
    """Return a field of ``/proc/self/status``, None if there is none of that name."""
    for line in read_lines(root / "proc/self/status"):
        field, _, value = line.partition(":")
        if field == name:
            return value.strip()
    return None


def read_proc(root: Path, name: str) -> bytes:
    """Return the content of ``/proc/NAME``, which every Linux has.

    Raises ``HostprepError`` if it cannot be read, for instance in a chroot without ``/proc``.
    """
    try:
        return (root / "proc" / name).read_bytes()
    except OSError as error:
        message = f"/proc/{name} cannot be read: {error.strerror}."
        is_there = error.errno not in (errno.ENOENT, errno.ENOTDIR)
        raise HostprepError(message, reading_hint(error) if is_there else NO_PROC_HINT) from None


def first_number(text: str | None) -> float | None:
    """Return the number that ``text`` begins with; None if it does not, or is empty."""
    try:
        return float((text or "").split()[0])
    except (IndexError, ValueError):
        return None


def _read(path: Path) -> str | None:
    try:
        return os.fsdecode(path.read_bytes())
    except OSError:
        return None
