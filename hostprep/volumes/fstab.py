"""The fstab as bytes: one line of our own a volume, every other byte as it was (fstab(5)).

Pure: bytes in, bytes out; ``hostprep.volumes.fstab_file`` reads and replaces the file.

A line is ours by the option ``X-hostprep.id=ID``, which mount(8) keeps from the kernel. Lines are
separated as glibc and libmount do it, at ``\\n`` alone; our line ends as most lines of the file do.
A file whose last line has no newline keeps it so: ``A`` becomes ``A\\nours``, and ``A`` again. So
taking our line out restores the file exactly, with one exception: a file that ends in a bare
``\\r`` gets the newline that it lacks, and keeps it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence

from hostprep.dataclass import dataclass
from hostprep.errors import Refused
from hostprep.host.mounts import unescape
from hostprep.volumes.model import SOURCE

_OWNER_OPTION = "X-hostprep.id"

_OPTION = re.compile(r'(?:[^,"]|"[^"]*"?)+')
_VOLUME_ID = re.compile(r"[A-Za-z0-9._-]+")
_USER_MAY_MOUNT = frozenset({"user", "users", "owner", "group"})
_UNIT_NAME_BYTES = 255


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
            if name == _OWNER_OPTION and equals:
                return value
        return None

    @property
    def is_ours(self) -> bool:
        """Whether it is the line of the volume at its target, by the id that such a one has."""
        return self.owner_id == volume_id_for(self.simple_target)

    @property
    def simple_target(self) -> str:
        """The target without what its readers drop: doubled and final slashes, ``.`` parts."""
        return _simplified(self.target)

    @property
    def described(self) -> str:
        """What is mounted, in words; bytes that are no text are escaped."""
        source = _shown(self.source)
        return source if self.source == self.fstype else f"{source} ({_shown(self.fstype)})"

    def place(self, path: str) -> str:
        """Return ``path``, to which the target leads, in words: with the target if that differs."""
        simple = self.simple_target
        return path if simple == path else f"{_shown(simple)} (that is {path})"


@dataclass(frozen=True, slots=True)
class _Line:
    body: bytes
    ending: bytes  # b"\n", b"\r\n"; for a last line without a newline b"", or b"\r"

    @property
    def terminated(self) -> bool:
        return self.ending.endswith(b"\n")


def entries(content: bytes) -> tuple[FstabEntry, ...]:
    """Return the entries in the file's order.

    Lenient where the readers of fstab differ (a missing type, ``# comment`` after four fields):
    what any of them may mount counts as an entry, so that its target is not taken twice.
    """
    parsed = (_parse(number, line.body) for number, line in enumerate(_lines(content), 1))
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


def volume_line(
    *, volume_id: str, path: str, options: Sequence[str], source: str = SOURCE
) -> bytes:
    """Return the line of a volume, without a line ending.

    ``source`` is the name under which it is mounted: by another ``mount -a`` would mount a second
    one over it. ``nofail`` and ``X-hostprep.id`` come after ``options``. Raises ``Refused`` for a
    path that fstab or systemd cannot carry, ``ValueError`` for options that would not survive the
    file or that would let ordinary users mount.
    """
    check_target(path)
    fields = (source, path, "tmpfs", ",".join(line_options(volume_id, options)), "0", "0")
    return b" ".join(_escape(field) for field in fields)


def set_volume(
    content: bytes,
    *,
    volume_id: str,
    path: str,
    options: Sequence[str],
    source: str = SOURCE,
    aliases: Collection[str] = (),
) -> bytes:
    """Return ``content`` with the volume's line in it: in place of its earlier one, or appended.

    The very same bytes come back where the line says the same already. ``source`` is as for
    ``volume_line``, ``aliases`` as for ``foreign_entry``. Raises ``Refused`` where somebody else's
    entry has the same target, several lines carry this id, or somebody made another of our line.
    """
    line = volume_line(volume_id=volume_id, path=path, options=options, source=source)
    own = _own_entry(content, volume_id)
    if foreign := foreign_entry(content, volume_id=volume_id, path=path, aliases=aliases):
        raise Refused(
            f"line {foreign.line_number} of fstab already mounts {foreign.described} on"
            f" {foreign.place(path)}, and it is not this volume's line; nothing was changed.",
            "choose another path, or remove that line yourself",
        )
    lines = _lines(content)
    if own is None:
        return _appended(content, lines, line)
    _check_still_at(own, path)
    wanted = _parse(own.line_number, line)
    assert wanted is not None  # volume_line makes six fields
    if _meaning(own) == _meaning(wanted):
        return content
    index = own.line_number - 1
    lines[index] = _Line(line, lines[index].ending)
    return _joined(lines)


def foreign_entry(
    content: bytes, *, volume_id: str, path: str, aliases: Collection[str] = ()
) -> FstabEntry | None:
    """Return somebody else's entry that has a volume's path as its target, if there is one.

    ``aliases`` are targets that lead to the path through symlinks, which systemd follows.
    """
    for entry in entries(content):
        if entry.owner_id != volume_id and (entry.simple_target == path or entry.target in aliases):
            return entry
    return None


def remove_volume(content: bytes, *, volume_id: str, path: str) -> bytes:
    """Return ``content`` without the volume's line; the same bytes where there is none.

    Raises ``Refused`` where several lines carry this id, or somebody made another of our line.
    """
    own = _own_entry(content, volume_id)
    if own is None:
        return content
    _check_still_at(own, path)
    lines = _lines(content)
    index = own.line_number - 1
    removed = lines.pop(index)
    if not removed.terminated and lines and lines[-1].body:
        # Ours was the unterminated last line: the newline before it was only our separator. After a
        # blank line it was not, for without one that is none: somebody has cut off ours since.
        lines[-1] = _Line(lines[-1].body, b"")
    return _joined(lines)


def check_target(path: str) -> None:
    """Refuse a mount point that fstab(5), mount(8) or systemd's fstab generator would misread."""
    problem = _path_problem(path)
    if problem is not None:
        raise Refused(
            f"the path {path!r} {problem}, so it cannot stand in fstab; nothing was changed.",
            "choose a plain absolute path, such as /mnt/hostprep",
        )


def foreign_lines(content: bytes) -> tuple[bytes, ...]:
    """Return the bodies of all lines that are not ours, without line endings."""
    ours = {entry.line_number for entry in entries(content) if entry.owner_id is not None}
    return tuple(line.body for number, line in enumerate(_lines(content), 1) if number not in ours)


def _path_problem(path: str) -> str | None:
    if not path.startswith("/"):
        return "is not absolute"
    if path != _simplified(path) or ".." in path.split("/"):
        return "is not in its shortest form"
    if path == "/":
        return "is the root"
    try:
        # What the path is on the disk, as the kernel and systemd read it, whatever our locale.
        raw = os.fsencode(path)
        text = raw.decode()
    except UnicodeError:
        return "is not UTF-8, which systemd ignores in a unit"
    if any(character < " " or "\x7f" <= character <= "\x9f" for character in text):
        return "holds control characters"
    if path != path.rstrip() or path.endswith("\\"):
        # Where= loses white space at its end (systemd#38804) and takes \ for a continuation.
        return "ends in white space or a backslash, which systemd loses"
    if _unit_name_bytes(raw) > _UNIT_NAME_BYTES:
        return f"makes a systemd unit name of more than {_UNIT_NAME_BYTES} bytes"
    return None


def _unit_name_bytes(raw: bytes) -> int:
    # systemd.unit(5), "String escaping": what is not alphanumeric, ":", "_", "." or "/" takes four.
    plain = len(re.findall(rb"[A-Za-z0-9:_./]", raw))
    return plain - 1 + 4 * (len(raw) - plain) + len(".mount")


def line_options(volume_id: str, options: Sequence[str]) -> tuple[str, ...]:
    """Return all options of a volume's line; raises ``ValueError`` as ``volume_line`` does."""
    if not _VOLUME_ID.fullmatch(volume_id):
        raise ValueError(f"{volume_id!r} is no volume id")
    kept = tuple(option for option in options if option != "nofail")
    for option in kept:
        name = option.partition("=")[0]
        if _split_options(option) != (option,) or not option.isprintable() or " " in option:
            raise ValueError(f"{option!r} is not one mount option")
        if name == _OWNER_OPTION or name in _USER_MAY_MOUNT:
            raise ValueError(f"the mount option {option!r} is not for a volume's line")
    return (*kept, "nofail", f"{_OWNER_OPTION}={volume_id}")


def _own_entry(content: bytes, volume_id: str) -> FstabEntry | None:
    own = [entry for entry in entries(content) if entry.owner_id == volume_id]
    if not own:
        return None
    if len(own) > 1:
        numbers = ", ".join(str(entry.line_number) for entry in own)
        raise Refused(
            f"the lines {numbers} of fstab all carry {_OWNER_OPTION}={volume_id};"
            " nothing was changed.",
            f"keep one of them, or take the {_OWNER_OPTION} option out of your copies",
        )
    if own[0].fstype != "tmpfs":
        raise Refused(
            f"line {own[0].line_number} of fstab carries {_OWNER_OPTION}={volume_id}, but somebody"
            f" made it mount {own[0].described}; nothing was changed.",
            f"take the {_OWNER_OPTION} option out of that line if it is yours",
        )
    return own[0]


def _check_still_at(own: FstabEntry, path: str) -> None:
    if own.simple_target != path:
        raise Refused(
            f"line {own.line_number} of fstab was made for {path}, but somebody pointed it at"
            f" {_shown(own.target)}; nothing was changed.",
            f"take the {_OWNER_OPTION} option out of that line if it is yours, or remove it",
        )


def _shown(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


def _meaning(entry: FstabEntry) -> tuple[object, ...]:
    return (entry.source, entry.target, entry.options, entry.freq or 0, entry.passno or 0)


def _lines(content: bytes) -> list[_Line]:
    *ended, last = content.split(b"\n")
    lines = [
        _Line(body[:-1], b"\r\n") if body.endswith(b"\r") else _Line(body, b"\n") for body in ended
    ]
    if last:
        lines.append(_Line(last[:-1], b"\r") if last.endswith(b"\r") else _Line(last, b""))
    return lines


def _joined(lines: Sequence[_Line]) -> bytes:
    return b"".join(line.body + line.ending for line in lines)


def _appended(content: bytes, lines: Sequence[_Line], line: bytes) -> bytes:
    ended = [each.ending for each in lines if each.terminated]
    ending = b"\r\n" if ended.count(b"\r\n") * 2 > len(ended) else b"\n"
    if not lines or lines[-1].terminated:
        return content + line + ending
    if lines[-1].ending == b"\r":
        # Readers forgive \r at the end of a file, but not \r\r\n: that would break a foreign line.
        return content + b"\n" + line + b"\r\n"
    return content + ending + line


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
        options=_split_options(unescape(options)),
        freq=_number(freq),
        passno=_number(passno),
    )


def _split_options(text: str) -> tuple[str, ...]:
    """Split at commas, but not inside double quotes (``context="u:r:t:s0:c1,c2"``)."""
    return tuple(_OPTION.findall(text))


def _number(field: bytes) -> int | None:
    # More digits than any reader takes are no number, and int() gives up on thousands of them.
    return int(field) if field.isascii() and field.isdigit() and len(field) < 20 else None


def _escape(field: str) -> bytes:
    # glibc's getmntent, which systemd reads with, undoes \040 and \134 but not every octal escape.
    return os.fsencode(field).replace(b"\\", b"\\134").replace(b" ", b"\\040")


def _simplified(path: str) -> str:
    if not path.startswith("/"):
        return path
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))
