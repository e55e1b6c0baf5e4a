"""What fstab should say about a volume, and how its line differs from that: pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from hostprep.errors import Refused
from hostprep.volumes.facts import VolumeFacts
from hostprep.volumes.fstab import FstabEntry
from hostprep.volumes.fstab_file import fstab_path
from hostprep.volumes.fstab_line import in_order, line_options, set_volume
from hostprep.volumes.model import Step, Unchanged, VolumeRequest
from hostprep.volumes.options import parse_options

RELOAD = Step("fstab", "let systemd read it again", "that failed after the last change")


def fstab_edit(facts: VolumeFacts, options: tuple[str, ...]) -> Callable[[bytes], bytes]:
    """Return a function that puts the volume's line into an fstab."""
    return partial(
        set_volume,
        path=facts.path,
        options=options,
        source=facts.source,
        aliases=facts.fstab_aliases,
    )


def plan_fstab(
    request: VolumeRequest, facts: VolumeFacts, options: tuple[str, ...]
) -> tuple[tuple[str, ...] | None, tuple[Step, ...], tuple[Unchanged, ...]]:
    """Return the volume's options at the next boot, the steps for that, and what stays.

    The options are None if fstab is not asked for. Raises ``Refused`` if the line may not be
    written.
    """
    if not request.fstab:
        return None, (), ()
    if facts.fstab_refusal is not None:
        raise facts.fstab_refusal
    assert facts.fstab is not None
    edited = fstab_edit(facts, options)(facts.fstab)
    if edited == facts.fstab and facts.reload_is_due:
        return options, (RELOAD,), ()
    if edited == facts.fstab:
        return options, (), (Unchanged("fstab", "its line says the same already"),)
    if facts.fstab_obstacle is not None:
        raise facts.fstab_obstacle
    if facts.fstab_entry is None:
        _check_end(facts.fstab)
        change = Step("fstab", "add a line for the volume", "it should come back at boot")
    else:
        reason = line_difference(facts.fstab_entry, options, facts.source)
        change = Step("fstab", "replace the volume's line", reason)
    return options, (change,), ()


def _check_end(fstab: bytes) -> None:
    """Raise ``Refused`` if a power cut has damaged the end of fstab.

    Otherwise the checks of the new fstab would object to our line behind the damage, as one that
    they cannot parse or that yields no mount unit: after a NUL, glibc reads past the end of a line.
    """
    if b"\0" not in fstab.removesuffix(b"\n").rpartition(b"\n")[2]:
        return
    path = shlex.quote(str(fstab_path()))
    raise Refused(
        "the last line of fstab holds NUL bytes, as a power cut leaves a file that was just being"
        " written: what stood there is lost, and not every program would read a line after them;"
        " nothing was changed.",
        f"see what is missing at its end (`cat -v {path}` shows them as ^@), then take them out:"
        f" sed -i 's/\\x00//g' {path}",
    )


def line_difference(entry: FstabEntry, options: Sequence[str], source: str) -> str:
    """Return in words how the volume's line differs from ``options`` and ``source``."""
    wanted = line_options(entry.simple_target, options)
    says = [option for option in entry.options if option not in wanted]
    lacks = [option for option in wanted if option not in entry.options]
    if says or lacks:
        return f"it says {','.join(says) or 'nothing'} instead of {','.join(lacks) or 'nothing'}"
    if in_order(entry.options) != in_order(wanted):
        return "its options are in another order, or given twice"
    if entry.source != source:
        return other_source(entry, source)
    if entry.target != entry.simple_target:
        return "its path is not in its shortest form"
    return "its last two fields are others"


def other_source(entry: FstabEntry, source: str) -> str:
    """Return in words what is wrong with a line that has another source than ``source``."""
    return (
        f"its line calls it {entry.source}, and it is mounted as {source}: `mount -a` would mount"
        " another over it"
    )


def fstab_warnings(
    request: VolumeRequest, facts: VolumeFacts, options: tuple[str, ...]
) -> tuple[str, ...]:
    """Warn if the next boot mounts something else at the path than what is mounted now."""
    if foreign := facts.foreign_fstab_entry:
        return (
            f"line {foreign.line_number} of fstab, which is not hostprep's, mounts"
            f" {foreign.described} on {foreign.place(facts.path)} at the next boot: choose another"
            " path, or remove that line",
        )
    entry = facts.fstab_entry
    if entry is None or request.fstab or parse_options(entry.options) == parse_options(options):
        return ()
    return (
        f"line {entry.line_number} of fstab gives the volume other options at the next boot"
        f" ({','.join(entry.options)}); --fstab brings it up to date",
    )


def link_warnings(facts: VolumeFacts, changes: Iterable[Step]) -> tuple[str, ...]:
    """Warn if changing fstab separates it from its hard links.

    This is no reason to refuse: backups and programs that merge equal files make such links, and
    the other names must stay as they are. With a symlink, the file that it leads to is meant.
    """
    if facts.fstab_names < 2 or all(change.subject != "fstab" for change in changes):
        return ()
    return (
        "fstab has other names (hard links), which keep what it says now: a new file takes its"
        f" place; `find / -xdev -samefile {shlex.quote(str(fstab_path()))}` names them before",
    )
