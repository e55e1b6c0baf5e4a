"""What each value of a spec must look like: text in, value out, or ``ValueError`` with a sentence.

Pure text: nothing is looked up on the machine, since the file may be meant for another one.
"""

from __future__ import annotations

import math
import re

from hostprep.errors import UsageError
from hostprep.spec.document import shown
from hostprep.spec.names import name_problem
from hostprep.units import MOST_INODES, RATE_FORMS, SIZE_FORMS, is_plain_number, parse_size

SIZE_PATTERN = r"^[0-9]+([kKmMgGtT]([iI]?[bB])?|%)?$"
RATE_PATTERN = r"^[0-9]+([kKmMgGtT]([iI]?[bB])?)?(/s)?$"
MODE_PATTERN = r"^(0o)?[0-7]{3,4}$"
# A leading zero means octal to YAML 1.1 and nothing to YAML 1.2.
COUNT_PATTERN = r"^[1-9][0-9]{0,17}$"
SAMPLES_PATTERN = r"^[0-9]*[.]?[0-9]+([eE][-+]?[0-9]+)?$"
OWNER_PATTERN = r"^[^-\s:][^\s:]*(:[^-\s:][^\s:]*)?$"
# To apt-get a name that ends in a minus says: remove it.
PACKAGE_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9+._-]*[A-Za-z0-9+])?$"
HUGE_VALUES = ("never", "within_size", "advise", "always")


def text(value: object) -> str:
    """Return a value that must be text; numbers arrive as the text that was written."""
    if value is None or value == "":
        raise ValueError("has no value")
    if isinstance(value, bool):
        word = "true" if value else "false"
        raise ValueError(f"YAML reads this as {word}; put it into quotes if it is meant as text")
    if not isinstance(value, str):
        raise ValueError(f"must be text, not a {'list' if isinstance(value, list) else 'mapping'}")
    if not value.isprintable():
        raise ValueError(f"{shown(value)} holds control characters or others that cannot be shown")
    return value


def _matching(pattern: str, value: object, problem: str) -> str:
    written = text(value)
    if not re.fullmatch(pattern, written):
        raise ValueError(f"{shown(written)} {problem}")
    return written


def flag(value: object) -> bool:
    """Return a value that must be true or false."""
    if value is None:
        raise ValueError("has no value")
    if not isinstance(value, bool):
        raise ValueError("must be true or false, without quotes")
    return value


def size(value: object) -> str:
    """Return a volume's size as written."""
    written = text(value)
    # A percentage means bytes on the host only; any RAM does to see whether it is one at all.
    if not _bytes(written, ram_bytes=2**40):
        raise ValueError(f"{shown(written)} is nothing; accepted: {SIZE_FORMS}")
    return written


def rate_bytes(value: object) -> int:
    """Return a rate in bytes a second: ``400M``, ``400MB/s``."""
    written = text(value)
    bare = written.removesuffix("/s")
    if "/" in bare or not re.fullmatch(RATE_PATTERN, bare.strip()):
        raise ValueError(f"{shown(written)} is not a rate; accepted: {RATE_FORMS}")
    found = _bytes(bare, ram_bytes=None)
    if not found:
        raise ValueError(f"{shown(written)} is nothing; accepted: {RATE_FORMS}")
    return found


def _bytes(written: str, *, ram_bytes: int | None) -> int:
    try:
        return parse_size(written, ram_bytes=ram_bytes)
    except UsageError as error:
        said = (error.message.rstrip("."), error.hint)
        raise ValueError("; ".join(filter(None, said))) from None


def samples(value: object) -> float:
    """Return a number of samples a second."""
    written = text(value)
    try:
        found = float(written) if is_plain_number(written) else math.nan
    except ValueError:
        found = math.nan
    if not math.isfinite(found) or found <= 0:
        raise ValueError(f"{shown(written)} is not a number above 0")
    return found


def count(value: object) -> int:
    """Return a whole number above 0, and no more inodes than a tmpfs takes."""
    written = _matching(COUNT_PATTERN, value, "is not a whole number above 0")
    if int(written) > MOST_INODES:
        raise ValueError(f"{shown(written)} is more than the kernel takes ({MOST_INODES})")
    return int(written)


def mode(value: object) -> int:
    """Return permissions, written in octal."""
    problem = "is not a mode; accepted: octal digits such as 0755 or 1777"
    return int(_matching(MODE_PATTERN, value, problem).removeprefix("0o"), 8)


def owner(value: object) -> str:
    """Return ``USER[:GROUP]``; whether they exist is the host's to say."""
    problem = "is not an owner; accepted: USER, USER:GROUP, UID:GID"
    return _matching(OWNER_PATTERN, value, problem)


def huge(value: object) -> str:
    """Return a value of the tmpfs option ``huge=``."""
    written = text(value)
    if written not in HUGE_VALUES:
        raise ValueError(f"{shown(written)} is none of {', '.join(HUGE_VALUES)}")
    return written


def package(value: object) -> str:
    """Return a package's name; nothing that a package manager could take for an option."""
    return _matching(PACKAGE_PATTERN, value, "is not the name of a package")


def target(value: object) -> str:
    """Return an absolute path in its shortest form, for a volume or a target directory."""
    written = text(value)
    if not written.startswith("/"):
        raise ValueError(f"{shown(written)} is not an absolute path")
    if written != written.strip():
        raise ValueError(f"{shown(written)} ends in a blank, which systemd cannot mount on")
    parts = [part for part in written.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError(f"{shown(written)} goes through `..`; write the path out")
    if not parts:
        raise ValueError("is the root directory; name one below it")
    return "/" + "/".join(parts)


def source(value: object) -> str:
    """Return a source in its shortest form, absolute or relative to the file.

    ``..`` may only lead up from the file's own folder: behind a name that is a symlink, it means
    another folder than its text says.
    """
    written = text(value)
    if written.startswith("~"):
        raise ValueError(f"{shown(written)}: `~` is not expanded; write the path out")
    if written.startswith("$"):
        raise ValueError(
            f"{shown(written)}: variables are not expanded; write the path out, or ./ before a"
            " folder of that name"
        )
    parts = [part for part in written.split("/") if part not in ("", ".")]
    named = parts if written.startswith("/") else parts[_leading_ups(parts) :]
    if ".." in named:
        raise ValueError(f"{shown(written)} goes through `..`; write the path out")
    shortest = "/".join(parts)
    return "/" + shortest if written.startswith("/") else shortest or "."


def _leading_ups(parts: list[str]) -> int:
    return next((index for index, part in enumerate(parts) if part != ".."), len(parts))


def name(value: object) -> str:
    """Return what a data set may be called, see ``names``."""
    written = text(value)
    problem = name_problem(written)
    if problem:
        raise ValueError(f"{shown(written)} cannot name a data set: it {problem}")
    return written
