"""A volume's line in fstab: its content, how it is added, and how it is removed again.

Pure: bytes in, bytes out, and every byte that is not ours stays. Our line ends as most lines of the
file do. If the last line has no newline, it stays that way: ``A`` becomes ``A\\nours``, and ``A``
again. So removing our line restores the file exactly, with one exception: a file that ends in a
bare ``\\r`` gets the newline that it lacks, and keeps it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence

from hostprep.errors import Refused
from hostprep.volumes.fstab import (
    OWNER_OPTION,
    FstabEntry,
    Line,
    entries,
    foreign_entry,
    lines_of,
    shown,
    simplified,
    split_options,
    volume_id_for,
)
from hostprep.volumes.model import SOURCE
from hostprep.volumes.options import labels_in

_USER_MAY_MOUNT = frozenset({"user", "users", "owner", "group"})
_UNIT_NAME_BYTES = 255


def set_volume(
    content: bytes,
    *,
    path: str,
    options: Sequence[str],
    source: str = SOURCE,
    aliases: Collection[str] = (),
) -> bytes:
    """Return ``content`` with the volume's line, replacing its earlier one, or appended.

    If the line already says the same, the same bytes are returned. ``source`` is as for
    ``volume_line``, ``aliases`` as for ``foreign_entry``. Raises ``Refused`` if somebody else's
    entry has the same target, if several lines have its id, or if somebody changed our line into
    another.
    """
    line = volume_line(path=path, options=options, source=source)
    own = _own_entry(content, path)
    if foreign := foreign_entry(content, path=path, aliases=aliases):
        raise Refused(
            f"line {foreign.line_number} of fstab already mounts {foreign.described} on"
            f" {foreign.place(path)}, and it is not this volume's line; nothing was changed.",
            "choose another path, or remove that line yourself",
        )
    lines = lines_of(content)
    if own is None:
        return _appended(content, lines, line)
    _check_still_at(own, path)
    if _meaning(own) == _meaning(entries(line)[0]):
        return content
    index = own.line_number - 1
    lines[index] = Line(line, lines[index].ending)
    return _joined(lines)


def remove_volume(content: bytes, *, path: str) -> bytes:
    """Return ``content`` without the volume's line; the same bytes if there is none.

    Raises ``Refused`` if several lines have its id, or if somebody changed our line into another.
    """
    own = _own_entry(content, path)
    if own is None:
        return content
    _check_still_at(own, path)
    lines = lines_of(content)
    index = own.line_number - 1
    removed = lines.pop(index)
    if not removed.terminated and lines and lines[-1].body:
        # Ours was the unterminated last line, so the newline before it was only our separator. Not
        # so after a blank line, which is nothing but its newline: in that case somebody has cut off
        # the end of our line since.
        lines[-1] = Line(lines[-1].body, b"")
    return _joined(lines)


def volume_line(*, path: str, options: Sequence[str], source: str = SOURCE) -> bytes:
    """Return the line of a volume, without a line ending.

    ``source`` is the name under which it is mounted: with another one, ``mount -a`` would mount a
    second tmpfs over it. ``nofail`` and ``X-hostprep.id`` come after ``options``. Raises
    ``Refused`` for a path that fstab or systemd cannot handle, ``ValueError`` for options that the
    file cannot hold or that would let ordinary users mount.
    """
    check_target(path)
    fields = (source, path, "tmpfs", ",".join(line_options(path, options)), "0", "0")
    return b" ".join(_escape(field) for field in fields)


def line_options(path: str, options: Sequence[str]) -> tuple[str, ...]:
    """Return all options of a volume's line; raises ``ValueError`` as ``volume_line`` does."""
    kept = tuple(option for option in options if option != "nofail")
    for option in kept:
        name = option.partition("=")[0]
        if split_options(option) != (option,) or not option.isprintable() or " " in option:
            raise ValueError(f"{option!r} is not one mount option")
        if name == OWNER_OPTION or name in _USER_MAY_MOUNT:
            raise ValueError(f"the mount option {option!r} is not for a volume's line")
    return (*kept, "nofail", f"{OWNER_OPTION}={volume_id_for(path)}")


def in_order(options: Sequence[str]) -> tuple[str, ...]:
    """Return the options of a line with its labels last, wherever the admin put them."""
    labels = labels_in(options)
    return (*(option for option in options if option not in labels), *labels)


def check_target(path: str) -> None:
    """Refuse a mount point that fstab(5), mount(8) or systemd's fstab generator would misread."""
    problem = _path_problem(path)
    if problem is not None:
        raise Refused(
            f"the path {path!r} {problem}, so it cannot stand in fstab; nothing was changed.",
            "choose a plain absolute path, such as /mnt/hostprep",
        )


def _path_problem(path: str) -> str | None:
    if not path.startswith("/"):
        return "is not absolute"
    if path != simplified(path) or ".." in path.split("/"):
        return "is not in its shortest form"
    if path == "/":
        return "is the root"
    try:
        # The path in bytes, as the kernel and systemd read it, whatever our locale.
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
    # systemd.unit(5), "String escaping": all but alphanumerics, ":", "_", "." and "/" take 4 bytes.
    plain = len(re.findall(rb"[A-Za-z0-9:_./]", raw))
    return plain - 1 + 4 * (len(raw) - plain) + len(".mount")


def _own_entry(content: bytes, path: str) -> FstabEntry | None:
    volume_id = volume_id_for(path)
    own = [entry for entry in entries(content) if entry.owner_id == volume_id]
    if not own:
        return None
    if len(own) > 1:
        numbers = ", ".join(str(entry.line_number) for entry in own)
        raise Refused(
            f"the lines {numbers} of fstab all carry {OWNER_OPTION}={volume_id};"
            " nothing was changed.",
            f"keep one of them, or take the {OWNER_OPTION} option out of your copies",
        )
    if own[0].fstype != "tmpfs":
        raise Refused(
            f"line {own[0].line_number} of fstab carries {OWNER_OPTION}={volume_id}, but somebody"
            f" made it mount {own[0].described}; nothing was changed.",
            f"take the {OWNER_OPTION} option out of that line if it is yours",
        )
    return own[0]


def _check_still_at(own: FstabEntry, path: str) -> None:
    if own.simple_target != path:
        raise Refused(
            f"line {own.line_number} of fstab was made for {path}, but somebody pointed it at"
            f" {shown(own.target)}; nothing was changed.",
            f"take the {OWNER_OPTION} option out of that line if it is yours, or remove it",
        )


def _meaning(entry: FstabEntry) -> tuple[object, ...]:
    options = in_order(entry.options)
    return (entry.source, entry.target, options, entry.freq or 0, entry.passno or 0)


def _joined(lines: Sequence[Line]) -> bytes:
    return b"".join(line.body + line.ending for line in lines)


def _appended(content: bytes, lines: Sequence[Line], line: bytes) -> bytes:
    ended = [each.ending for each in lines if each.terminated]
    ending = b"\r\n" if ended.count(b"\r\n") * 2 > len(ended) else b"\n"
    if not lines or lines[-1].terminated:
        return content + line + ending
    if lines[-1].ending == b"\r":
        # Readers accept \r at the end of a file, but \r\r\n would break somebody else's line.
        return content + b"\n" + line + b"\r\n"
    return content + ending + line


def _escape(field: str) -> bytes:
    # glibc's getmntent, which systemd uses, unescapes \040 and \134, but not every octal escape.
    return os.fsencode(field).replace(b"\\", b"\\134").replace(b" ", b"\\040")
