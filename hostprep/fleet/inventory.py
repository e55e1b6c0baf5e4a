"""Refuses what cannot be an inventory, before Ansible reads it.

Ansible would take each line for a host, or read for ever, as from an endless device or a pipe to
which nobody writes.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

from hostprep.errors import UsageError
from hostprep.fleet.cures import vault_cure

# What Ansible ignores in a folder, besides hidden files and what it is configured to ignore.
_NOT_READ = frozenset({"host_vars", "group_vars", "vars_plugins"})
# fmt: off
_NOT_READ_ENDINGS = (
    ".pyc", ".pyo", ".swp", ".bak", "~", ".rpm", ".md", ".txt", ".rst", ".orig", ".cfg", ".retry"
)
# fmt: on
_LOOKED_AT_BYTES = 64 * 1024
_MOST_BYTES = 16 * 1024 * 1024  # per file; a hundred thousand hosts
# Parts of a host pattern that Ansible silently ignores, and "!$HOSTS" with an empty variable, about
# which it reports a bug of its own, even if there are other parts.
_NOTHING = re.compile(r"\s*[!&]?[\s\[\]]*")
_RANGE = re.compile(r"\[[^\]]*\]")
_GROUPS = re.compile(r"\(\?[a-zA-Z-]*:")  # of a regular expression: (?:a|b)
_WITH_PORT = re.compile(r"[^:]+:\d+")
_CONTROL = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_COMMENT = (b"#", b";")
# What Ansible says if none of its plugins can read a file, and why for each plugin; the latter
# since ansible-core 2.19.
_UNREAD = re.compile(r"Completely failed to parse inventory source (.+)")
_AS_KIND = re.compile(r"Failed to parse inventory with '(\w+)' plugin: (.+)")
_ORIGIN = re.compile(r"^Origin: (.+:\d+.*)$", re.MULTILINE)  # with line and column


def refuse_what_is_none(inventory: str) -> None:
    """Raise ``UsageError`` if a file of the inventory, or a listed name, cannot name a host."""
    if "," in inventory:
        if not inventory.isprintable():
            raise UsageError(
                f"{inventory!r} holds characters that no host's name can have; none was reached.",
                "name the hosts with commas between them: -i host1,host2",
            )
        return
    if os.path.exists(inventory) and not (os.path.isfile(inventory) or os.path.isdir(inventory)):
        raise UsageError(
            f"the inventory {inventory} is a pipe or a device; no host was reached.",
            "Ansible reads it in a process of its own: write it into a file, or name the program"
            " that prints it, with its mode +x",
        )
    for path in _files(inventory):
        if os.path.getsize(path) > _MOST_BYTES:
            raise UsageError(
                f"{path} is too large for an inventory; no host was reached.",
                "is it the right file?",
            )
        if not _is_text(path):
            raise UsageError(
                f"{path} is not an inventory: it is not text; no host was reached.",
                "name a file of hosts, or a folder that holds such files alone",
            )


def only_one(given: Sequence[str]) -> str:
    """Return the inventory that ``-i`` gives.

    Raises ``UsageError`` if there are several: Ansible combines them, and users who expect that
    would miss the hosts of all but one.
    """
    if len(given) > 1:
        raise UsageError(
            f"-i is given {len(given)} times, and takes one inventory; no host was reached.",
            "put the files into one folder and name that, or hosts with commas: -i host1,host2",
        )
    return given[0]


def limits(given: Sequence[str] | None) -> tuple[str, ...]:
    """Return the host patterns that ``--limit`` gives, none if it was not given.

    Raises ``UsageError`` for a pattern that names no host: Ansible takes that for no limit, so an
    empty variable or file would make it reach the whole lab.
    """
    for limit in given or ():
        parts = limit.split("," if "," in limit else ":")
        named = [part.strip() for part in parts if not _NOTHING.fullmatch(part)]
        if not named:
            raise UsageError(
                "--limit names no host; none was reached.", "name some, or leave it out for all"
            )
        if any(part not in named and part[:1] in ("!", "&") for part in map(str.strip, parts)):
            raise UsageError(
                f"--limit {limit} names no host behind its ! or &; none was reached.",
                "name some there, or leave that out",
            )
        if all(map(_is_empty_file, named)):
            raise UsageError(
                f"--limit {limit} names no host: nothing is in that file; none was reached.",
                "write hosts into it, one a line, or leave it out for all",
            )
        if len(given or ()) > 1 and _has_colons(limit):
            raise UsageError(
                f"--limit {limit} has colons, and beside another --limit Ansible would take it for"
                " one name; no host was reached.",
                "put commas in their place, or use one --limit",
            )
    only = tuple(given or ())
    # Alone, a regular expression would be divided at its colons; not where there is a comma.
    divided = len(only) == 1 and "," not in only[0] and _GROUPS.search(only[0])
    return (f"{only[0]},",) if divided and not _has_colons(only[0]) else only


def _has_colons(limit: str) -> bool:
    """Whether colons in a pattern separate others, and not the parts of a range or an address."""
    if "," in limit or ":" not in _GROUPS.sub("", _RANGE.sub("", limit)):
        return False
    try:
        ipaddress.ip_address(limit)
    except ValueError:
        return not _WITH_PORT.fullmatch(limit)
    return False


def _is_empty_file(pattern: str) -> bool:
    """Whether a pattern of ``--limit`` is a file, ``@FILE``, that has no pattern in it."""
    path = pattern[1:]
    if not (pattern.startswith("@") and os.path.isfile(path)):
        return False  # Ansible reports a file that does not exist
    with suppress(OSError), open(path, "rb") as file:
        return not any(map(bytes.strip, file))
    return False


def unread(said: str) -> UsageError | None:
    """Return the error if Ansible ``said`` that it cannot read a file of the inventory."""
    if (named := _UNREAD.search(said)) is None:
        return None
    kinds = "".join(f"\nas {kind}: {why}" for kind, why in _AS_KIND.findall(said))
    kinds += "".join(f"\nat {place}" for place in dict.fromkeys(_ORIGIN.findall(said)))
    return UsageError(
        f"{named[1]} cannot be read as an inventory; no host was reached.{kinds or chr(10) + said}",
        vault_cure(said)
        or "fix it; a program that prints an inventory must be executable (chmod +x)",
    )


def _files(inventory: str) -> Iterator[str]:
    """Yield the regular files that Ansible would read; it runs programs and reads their output."""
    if os.path.isdir(inventory):
        for folder, folders, names in os.walk(inventory):
            folders[:] = [name for name in folders if _is_read(name)]
            yield from (
                path
                for path in (os.path.join(folder, name) for name in names if _is_read(name))
                if _is_data(path)
            )
    elif _is_data(inventory):
        yield inventory


def _is_read(name: str) -> bool:
    return not (name.startswith(".") or name in _NOT_READ or name.endswith(_NOT_READ_ENDINGS))


def _is_data(path: str) -> bool:
    return os.path.isfile(path) and not os.access(path, os.X_OK)


def _is_text(path: str) -> bool:
    """Whether the file begins as text does; like Ansible, allow any encoding in comments."""
    try:
        with open(path, "rb") as file:
            head = file.read(_LOOKED_AT_BYTES)
    except OSError:
        return True  # Ansible's own message says best why
    if _CONTROL.search(head):
        return False
    if len(head) == _LOOKED_AT_BYTES:
        head = head.rpartition(b"\n")[0]  # the end may have split a character
    try:
        for line in head.splitlines():
            if not line.lstrip().startswith(_COMMENT):
                line.decode()
    except UnicodeDecodeError:
        return False
    return True
