"""The fstab as bytes: its lines, its entries, and whose they are (fstab(5)).

Pure. A line is ours by the option ``X-hostprep.id=ID``, which mount(8) keeps from the kernel. Lines
are separated as glibc and libmount do it, at ``\\n`` alone. ``fstab_line`` puts our lines in and
takes them out, ``fstab_file`` reads and replaces the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection

from hostprep.dataclass import dataclass
from hostprep.host.mounts import unescape

OWNER_OPTION = "X-hostprep.id"

_OPTION = re.compile(r'(?:[^,"]|"[^"]*"?)+')


@dataclass(frozen=True, slots=True)
class FstabEntry:
    """One entry, unescaped; ``line_number`` counts from 1 and counts comments and blank lines too.

    ``fstype`` is ``""`` and ``options`` is empty where the line is that short. ``freq`` and
    ``passno`` of None are absent, or no numbers.
    """

    line_number: int
    source: str
    target: str
    fstype: str
    options: tuple[str, ...]
    freq: int | None
    passno: int | None

    @property
    def owner_id(self) -> str | None:
        """The id of the volume whose line this is; None for everybody else's."""
        for option in self.options:
            name, equals, value = option.partition("=")
            if name == OWNER_OPTION and equals:
                return value
        return None

    @property
    def is_ours(self) -> bool:
        """Whether it is the line of the volume at its target, by the id that such a one has."""
        return self.owner_id == volume_id_for(self.simple_target)

    @property
    def simple_target(self) -> str:
        """The target without what its readers drop: doubled and final slashes, ``.`` parts."""
        return simplified(self.target)

    @property
    def described(self) -> str:
        """What is mounted, in words; bytes that are no text are escaped."""
        source = shown(self.source)
        return source if self.source == self.fstype else f"{source} ({shown(self.fstype)})"

    def place(self, path: str) -> str:
        """Return ``path``, to which the target leads, in words: with the target if that differs."""
        simple = self.simple_target
        return path if simple == path else f"{shown(simple)} (that is {path})"


@dataclass(frozen=True, slots=True)
class Line:
    """A line, and how it ends: in LF or CR LF; the last perhaps in nothing, or in a bare CR."""

    body: bytes
    ending: bytes

    @property
    def terminated(self) -> bool:
        """Whether it has its newline."""
        return self.ending.endswith(b"\n")


def entries(content: bytes) -> tuple[FstabEntry, ...]:
    """Return the entries in the file's order.

    Lenient where the readers of fstab differ (a missing type, ``# comment`` after four fields):
    what any of them may mount counts as an entry, so that its target is not taken twice.
    """
    parsed = (_parse(number, line.body) for number, line in enumerate(lines_of(content), 1))
    return tuple(entry for entry in parsed if entry is not None)


def volume_id_for(path: str) -> str:
    """Return the id of the volume at ``path``: ``/mnt/my-data`` has ``mnt-my_2ddata``.

    Made as systemd-escape(1) makes unit names, with ``_`` in place of ``\\x``, so that different
    paths have different ids and nothing in them needs escaping in fstab.
    """
    escaped = (
        "-"
        if byte == ord("/")
        else chr(byte)
        if chr(byte).isascii() and (chr(byte).isalnum() or byte == ord("."))
        else f"_{byte:02x}"
        for byte in os.fsencode(path.strip("/"))
    )
    return "".join(escaped) or "-"


def our_line(path: str, fstab: bytes) -> FstabEntry | None:
    """Return our own line for a volume at ``path``, if ``fstab`` has one."""
    for entry in entries(fstab):
        if entry.is_ours and entry.simple_target == path:
            return entry
    return None


def foreign_entry(content: bytes, *, path: str, aliases: Collection[str]) -> FstabEntry | None:
    """Return somebody else's entry that has a volume's path as its target, if there is one.

    ``aliases`` are targets that lead to the path through symlinks, which systemd follows.
    """
    volume_id = volume_id_for(path)
    for entry in entries(content):
        if entry.owner_id != volume_id and (entry.simple_target == path or entry.target in aliases):
            return entry
    return None


def foreign_lines(content: bytes) -> tuple[bytes, ...]:
    """Return the bodies of all lines that are not ours, without line endings."""
    ours = {entry.line_number for entry in entries(content) if entry.owner_id is not None}
    return tuple(
        line.body for number, line in enumerate(lines_of(content), 1) if number not in ours
    )


def lines_of(content: bytes) -> list[Line]:
    """Return all lines, comments and blank ones too; joined they are ``content`` again."""
    *ended, last = content.split(b"\n")
    lines = [
        Line(body[:-1], b"\r\n") if body.endswith(b"\r") else Line(body, b"\n") for body in ended
    ]
    if last:
        lines.append(Line(last[:-1], b"\r") if last.endswith(b"\r") else Line(last, b""))
    return lines


def split_options(text: str) -> tuple[str, ...]:
    """Split at commas, but not inside double quotes (``context="u:r:t:s0:c1,c2"``)."""
    return tuple(_OPTION.findall(text))


def simplified(path: str) -> str:
    """Return a target without what its readers drop, see ``FstabEntry.simple_target``."""
    if not path.startswith("/"):
        return path
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))


def shown(text: str) -> str:
    """Return a field as it may be printed: bytes that are no text are escaped."""
    return text.encode(errors="backslashreplace").decode()


def _parse(number: int, body: bytes) -> FstabEntry | None:
    fields = [field for field in body.replace(b"\t", b" ").split(b" ") if field]
    if len(fields) < 2 or fields[0].startswith(b"#"):
        return None
    source, target, fstype, options, freq, passno = (*fields, b"", b"", b"", b"")[:6]
    return FstabEntry(
        line_number=number,
        source=unescape(source),
        target=unescape(target),
        fstype=unescape(fstype),
        options=split_options(unescape(options)),
        freq=_number(freq),
        passno=_number(passno),
    )


def _number(field: bytes) -> int | None:
    # More digits than any reader takes are no number, and int() gives up on thousands of them.
    return int(field) if field.isascii() and field.isdigit() and len(field) < 20 else None
