"""Which processes keep a mounted file system busy, from ``/proc/PID`` (proc_pid(5))."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.host.mounts import lies_in, unescape
from hostprep.host.reading import read_link, read_text


@dataclass(frozen=True, slots=True)
class PathUser:
    """A process that uses something at or below a path: what it has there, and how.

    ``how`` completes "process 42 (python) ...": ``has ... open``, ``works in ...``.
    """

    pid: int
    command: str
    how: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command}) {self.how}"


def users_of(path: str, root: Path = Path("/"), *, limit: int = 5) -> tuple[PathUser, ...]:
    """Return up to ``limit`` processes that use ``path`` or something below it, one entry each.

    Looks at working and root directories, programs, open files and mapped files. Links are read,
    never followed, so that a hung network file system does not hang the search. Processes that end
    meanwhile, or that an ordinary user may not look into, are skipped, and so are those of other
    mount namespaces: their ``path`` is another, and does not prevent ours from being unmounted.
    """
    found: list[PathUser] = []
    ours = read_link(root / "proc/self/ns/mnt")
    try:
        names = os.listdir(root / "proc")
    except OSError:
        return ()
    for name in sorted(filter(str.isdigit, names), key=int):
        theirs = read_link(root / "proc" / name / "ns/mnt")
        if ours and theirs and theirs != ours:
            continue
        how = next(_uses(root / "proc" / name, path), None)
        if how is not None:
            found.append(PathUser(int(name), _command(root / "proc" / name), how))
            if len(found) >= limit:
                break
    return tuple(found)


def _uses(process: Path, path: str) -> Iterator[str]:
    for link, words in (
        ("cwd", "works in {}"),
        ("root", "has its root in {}"),
        ("exe", "runs {}"),
    ):
        if lies_in(target := read_link(process / link), path):
            yield words.format(target)
    try:
        descriptors = os.listdir(process / "fd")
    except OSError:
        descriptors = []
    for descriptor in descriptors:
        if lies_in(target := read_link(process / "fd" / descriptor), path):
            yield f"has {target} open"
    try:
        maps = (process / "maps").read_bytes()
    except OSError:
        return
    for line in maps.split(b"\n"):  # a name may hold a carriage return
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and lies_in(target := unescape(fields[5]), path):
            yield f"has {target} mapped"


def in_words(pid: int, root: Path = Path("/")) -> str:
    """Return the process with its name, as part of a sentence."""
    return f"process {pid} ({_command(root / 'proc' / str(pid))})"


def _command(process: Path) -> str:
    command = read_text(process / "comm")
    return "unknown" if command is None else command
