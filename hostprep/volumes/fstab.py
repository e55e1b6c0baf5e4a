"""The fstab as bytes: its lines, its entries, and whose they are (fstab(5)).

Pure. The option ``X-hostprep.id=ID``, which mount(8) does not pass to the kernel, marks our lines.
Like glibc and libmount, this splits lines at ``\\n`` only. ``fstab_line`` adds and removes our
lines, ``fstab_file`` reads and replaces the file.
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
    """One entry, unescaped; ``line_number`` counts all lines from 1, comments and blanks too.

    ``fstype`` is ``""`` and ``options`` is empty if the line is too short. ``freq`` and ``passno``
    are None if they are missing or not numbers.
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
        """The id of the volume that the line belongs to; None for lines that are not ours."""
        for option in self.options:
            name, equals, value = option.partition("=")
            if name == OWNER_OPTION and equals:
                return value
        return None

    @property
    def is_ours(self) -> bool:
        """Whether it is the line of the volume at its target: its id is that volume's."""
        return self.owner_id == volume_id_for(self.simple_target)

    @property
    def simple_target(self) -> str:
        """The target without what readers ignore: doubled and final slashes, ``.`` parts."""
        return simplified(self.target)

    @property
    def described(self) -> str:
        """What is mounted, in words; bytes that are not text are escaped."""
        source = shown(self.source)
        return source if self.source == self.fstype else f"{source} ({shown(self.fstype)})"

    def place(self, path: str) -> str:
        """Return ``path``, to which the target leads, with the target if it is different."""
        simple = self.simple_target
        return path if simple == path else f"{shown(simple)} (that is {path})"


@dataclass(frozen=True, slots=True)
class Line:
    """A line and its ending: LF or CR LF; the last line may have none, or a bare CR."""

    body: bytes
    ending: bytes

    @property
    def terminated(self) -> bool:
        """Whether it has its newline."""
        return self.ending.endswith(b"\n")


def entries(content: bytes) -> tuple[FstabEntry, ...]:
    """Return the entries in the file's order.

    Where the readers of fstab differ (a missing type, ``# comment`` after four fields), anything
    that one of them may mount counts as an entry, so that its target is not used twice.
    """
    parsed = (_parse(number, line.body) for number, line in enumerate(lines_of(content), 1))
    return tuple(entry for entry in parsed if entry is not None)


def volume_id_for(path: str) -> str:
    """Return the id of the volume at ``path``: ``/mnt/my-data`` has ``mnt-my_2ddata``.

    It is made like unit names by systemd-escape(1), with ``_`` instead of ``\\x``, so that
    different paths have different ids and nothing in them needs escaping in fstab.
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
    """Return all lines, with comments and blank ones; joined they give ``content`` again."""
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
    """Return a target without what readers ignore, see ``FstabEntry.simple_target``."""
    if not path.startswith("/"):
        return path
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))


def shown(text: str) -> str:
    """Return a field in printable form: bytes that are not text are escaped."""
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
    # A number with more digits is too large for any reader, and int() refuses thousands of digits.
    return int(field) if field.isascii() and field.isdigit() and len(field) < 20 else None
