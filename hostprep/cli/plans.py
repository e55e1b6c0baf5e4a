"""How plans are shown: what changes and why, what stays and why, and the warnings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hostprep.cli.output import emit_text, printable, warn
from hostprep.errors import HostprepError, without_claim
from hostprep.units import format_bytes, format_count

if TYPE_CHECKING:
    from hostprep.volumes.model import LiveVolume, Step, Unchanged


def plan_fields(
    changes: Sequence[Step],
    unchanged: Sequence[Unchanged],
    warnings: Sequence[str],
    *,
    dry_run: bool,
) -> dict[str, Any]:
    """Return the fields of a plan's JSON document; ``changed`` says whether it was carried out."""
    return {
        "changed": bool(changes) and not dry_run,
        "dry_run": dry_run,
        "changes": [asdict(change) for change in changes],
        "unchanged": [asdict(each) for each in unchanged],
        "warnings": list(warnings),
    }


def show_plan(
    changes: Sequence[Step],
    unchanged: Sequence[Unchanged],
    warnings: Sequence[str],
    *,
    dry_run: bool,
    for_root: bool = False,
    lacking: HostprepError | None = None,
) -> None:
    """Print a plan, or what was done, for people: the steps on stdout, the warnings on stderr.

    ``for_root``: only root can carry it out; ``lacking`` is the right that even root lacks here.
    """
    for warning in warnings:
        warn(warning)
    for change in changes:
        words = f"{change.subject}: {change.action}"
        emit_text(printable(f"would: {words} ({change.reason})" if dry_run else f"done: {words}"))
    for each in unchanged:
        emit_text(printable(f"unchanged: {each.subject}: {each.reason}"))
    if not changes:
        emit_text("nothing to do")
    elif dry_run:
        if for_root:
            tell_of_root(lacking=lacking)
        emit_text("dry run: nothing was changed")


def tell_of_root(
    what: str = "that", *, lacking: HostprepError | None = None, indent: str = ""
) -> None:
    """Say what an ordinary user, or root in a container, lacks for ``what``, shown before."""
    if os.geteuid() != 0:
        emit_text(f"{indent}root: needed for {what}: run it with sudo")
    elif lacking is not None:
        emit_text(printable(f"{indent}root: {without_claim(lacking.message)}"))
        emit_text(printable(f"{indent}  -> {lacking.hint}"))


def volume_fields(live: LiveVolume) -> dict[str, Any]:
    """Return a mounted volume for JSON; the mode as octal digits, ``inodes`` null for no limit."""
    return {
        **asdict(live),
        "mode": f"{live.mode:04o}",
        "options": ",".join(live.options),
    }


def volume_line(live: LiveVolume) -> str:
    """Return a mounted volume as one line."""
    size = "no size limit"  # the kernel does not report the usage in this case
    if live.size_bytes:
        size = f"{format_bytes(live.size_bytes)}, {format_bytes(live.used_bytes)} used"
    inodes = "no inode limit" if live.inodes is None else format_count(live.inodes, "inode")
    return printable(
        f"{live.path}: {size}, {inodes}, mode {live.mode:04o}, owner {live.uid}:{live.gid},"
        f" huge={live.huge}, {','.join(live.flags)}"
    )
