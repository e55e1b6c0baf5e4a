"""Options that several commands share, and how their values are read.

Every ``hostprep --help`` loads this module, so it imports nothing heavy.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from hostprep.errors import UsageError
from hostprep.units import parse_size

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print the plan; change nothing.")]
FstabOption = Annotated[
    bool,
    typer.Option(
        "--fstab", help="Keep a line in /etc/fstab, so that the volume is mounted at boot."
    ),
]
SpecArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[SPEC]",
        help="The spec file. If not given: $HOSTPREP_SPEC, ./hostprep.yml or the one in /etc.",
    ),
]
PruneOption = Annotated[
    bool, typer.Option("--prune", help="Remove what hostprep made but the spec does not name.")
]
ReserveOption = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="Memory to leave to the machine. If not given: the larger of 4G and 10%.",
    ),
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Go ahead even if this leaves too little memory.")
]
# One command requires it.
INVENTORY = typer.Option(
    "--inventory",
    "-i",
    metavar="INVENTORY",
    help="The hosts, as an Ansible inventory: a file, a directory or h1,h2",
)


def size_in_bytes(text: str) -> int:
    """Read a size; ``50%`` means half of the RAM, or of the cgroup's limit."""
    if "%" not in text:
        return parse_size(text)
    from hostprep.host.memory import ram_for_percent

    return parse_size(text, ram_bytes=ram_for_percent())


def volume_bytes(text: str) -> int:
    """Read a volume's size, which must not be 0: for tmpfs 0 means no limit."""
    size_bytes = size_in_bytes(text)
    if not size_bytes:
        raise UsageError(
            f"{text!r} is not a size for a volume: one of size 0 would have no limit at all;"
            " nothing was changed.",
            "give it a size, such as 30G",
        )
    return size_bytes


def absolute(path: str) -> str:
    """Return a mount point as an absolute path; ``..`` and links stay in it and are refused."""
    return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)


def mode_of(text: str) -> int:
    """Read the permissions of a directory in octal: ``0755``, ``1777``."""
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if not (text.isascii() and text.isdigit()) or not 0 <= mode <= 0o7777:
        raise UsageError(f"{text!r} is not a mode.", "accepted: octal digits such as 0755 or 1777")
    return mode
