"""What cannot be an inventory: refused before Ansible takes each of its lines for a host.

Or reads it for ever, as it would a device without an end, or a pipe that nobody writes to.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

from hostprep.errors import UsageError
from hostprep.fleet.events import vault_cure

# What Ansible leaves out of a folder, beside hidden files and what it is configured to.
_NOT_READ = frozenset({"host_vars", "group_vars", "vars_plugins"})
# fmt: off
_NOT_READ_ENDINGS = (
    ".pyc", ".pyo", ".swp", ".bak", "~", ".rpm", ".md", ".txt", ".rst", ".orig", ".cfg", ".retry"
)
# fmt: on
_LOOKED_AT_BYTES = 64 * 1024
_MOST_BYTES = 16 * 1024 * 1024  # of a file; a hundred thousand hosts
# Of a pattern of hosts what Ansible passes by, without a word; and "!$HOSTS" where that variable is
# empty, of which, also beside others, it says that it is a bug.
_NOTHING = re.compile(r"\s*[!&]?[\s\[\]]*")
_CONTROL = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_COMMENT = (b"#", b";")
# What Ansible says where nothing of it can read a file, and of each kind why; the latter since
# ansible-core 2.19.
_UNREAD = re.compile(r"Completely failed to parse inventory source (.+)")
_AS_KIND = re.compile(r"Failed to parse inventory with '(\w+)' plugin: (.+)")
_ORIGIN = re.compile(r"^Origin: (.+:\d+.*)$", re.MULTILINE)  # with line and column


def refuse_what_is_none(inventory: str) -> None:
    """Raise ``UsageError`` where a file of an inventory, or a name in a list, can name no host."""
    if "," in inventory:
        if not inventory.isprintable():
            raise UsageError(
                f"{inventory!r} holds what no host's name can; none was reached.",
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
                f"{path} is no inventory: it is not text; no host was reached.",
                "name a file of hosts, or a folder that holds such files alone",
            )


def only_one(given: Sequence[str]) -> str:
    """Return the inventory that ``-i`` gives.

    Raises ``UsageError`` for several: Ansible takes all of them, and whoever is used to that would
    miss the hosts of all but one.
    """
    if len(given) > 1:
        raise UsageError(
            f"-i is given {len(given)} times, and takes one inventory; no host was reached.",
            "put the files into one folder and name that, or hosts with commas: -i host1,host2",
        )
    return given[0]


def limits(given: Sequence[str] | None) -> tuple[str, ...]:
    """Return the patterns of hosts that ``--limit`` gives, none where it was not given.

    Raises ``UsageError`` for one that names no host: Ansible takes it for no limit, and of an empty
    variable, or file, all the lab would be reached.
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
    return tuple(given or ())


def _is_empty_file(pattern: str) -> bool:
    """Whether a pattern of ``--limit`` is a file, ``@FILE``, that has no pattern in it."""
    path = pattern[1:]
    if not (pattern.startswith("@") and os.path.isfile(path)):
        return False  # of one that is not there Ansible says so
    with suppress(OSError), open(path, "rb") as file:
        return not any(map(bytes.strip, file))
    return False


def unread(said: str) -> UsageError | None:
    """Return the mistake where Ansible ``said`` that a file of the inventory cannot be read."""
    if (named := _UNREAD.search(said)) is None:
        return None
    kinds = "".join(f"\nas {kind}: {why}" for kind, why in _AS_KIND.findall(said))
    kinds += "".join(f"\nat {place}" for place in dict.fromkeys(_ORIGIN.findall(said)))
    return UsageError(
        f"{named[1]} cannot be read as an inventory; no host was reached.{kinds or chr(10) + said}",
        vault_cure(said) or "mend it; a program that prints one needs its mode +x",
    )


def _files(inventory: str) -> Iterator[str]:
    """Yield the regular files that Ansible would read; of programs it reads what they print."""
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
    """Whether the file begins as text does; comments may be in any encoding, as for Ansible."""
    try:
        with open(path, "rb") as file:
            head = file.read(_LOOKED_AT_BYTES)
    except OSError:
        return True  # Ansible says best why it cannot be read
    if _CONTROL.search(head):
        return False
    if len(head) == _LOOKED_AT_BYTES:
        head = head.rpartition(b"\n")[0]  # the end may lie within a character
    try:
        for line in head.splitlines():
            if not line.lstrip().startswith(_COMMENT):
                line.decode()
    except UnicodeDecodeError:
        return False
    return True
