"""Drafts a spec file for what this host has now, as a start for an admin to read and change."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from hostprep.converging.boot_facts import gather_boot
from hostprep.converging.boot_links import AT_BOOT
from hostprep.converging.packages import look_at_packages
from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError, Refused
from hostprep.host.memory import ram_for_percent
from hostprep.host.mounts import lies_in
from hostprep.spec.loading import parse_spec
from hostprep.spec.model import DatasetSpec, SpecError
from hostprep.staging.record.records import all_records, damaged_records
from hostprep.system.accounts import name_of
from hostprep.system.files import replace_file
from hostprep.units import GIB, KIB, MIB, format_bytes
from hostprep.volumes.facts import VolumeFacts, gather
from hostprep.volumes.model import Huge, LiveVolume
from hostprep.volumes.options import parse_options
from hostprep.volumes.settings import DEFAULT_MODE
from hostprep.volumes.status import unread_fstab, volume_statuses

_HEAD = """\
# What this host must look like. `hostprep plan` shows what that would change here, and
# `hostprep apply` makes the changes; what this file does not mention stays as it is.
# `hostprep spec check` checks this file, `hostprep spec schema` describes it to your editor.
"""
_VOLUMES = """
# tmpfs volumes (this host has {ram} of RAM): mounted now, and at each boot by a line in fstab.
"""
_VOLUME_EXAMPLE = """\
# volumes:
#   - path: /mnt/hostprep
#     size: 40%              # of the RAM, or 30G
#     owner: alice:ml
"""
_DATASETS = """
# Data sets: copied whole and verified, into a volume of this file, or into a directory (`to:`).
"""
_DATASET_EXAMPLE = """\
# datasets:
#   - name: cityscapes
#     source: /srv/datasets/cityscapes
#     volume: /mnt/hostprep  # or `to: /nvme/datasets`
#     at_boot: true          # staged again after each boot, when a tmpfs is empty
"""
_REQUIREMENTS = """
# How fast training must be able to read them; `hostprep check` tests it.
# requirements:
#   - dataset: {name}
#     samples_per_second: 1800
"""
_PACKAGES = """
# System packages, installed if they are missing. `hostprep probe` measures with fio.
"""
# By the phase of its record, why a data set is not one that the host should have again.
_NOT_WANTED = {
    "copying": "the run that was to stage it first has not got to its end",
    "publishing": "the run that was to stage it first has not got to its end",
    "removing": "it was unstaged, though not all of it is gone",
}
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9/._+-]*(:[A-Za-z0-9._-]+)?")
_YAML_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


@dataclass(frozen=True, slots=True)
class Draft:
    """A spec file's text, and sentences about what is not in it, or is not true yet."""

    text: str
    notes: tuple[str, ...]


def draft_spec() -> Draft:
    """Return a valid spec of what hostprep made on this host; changes nothing.

    Raises ``HostprepError`` if a spec cannot express what is there.
    """
    notes: list[str] = []
    volumes = _volumes(notes)
    datasets = _datasets(volumes.keys(), notes)
    fio = "packages: [fio]\n" if _has_fio() else "# packages: [fio]\n"
    example = datasets[0].name if datasets else "cityscapes"
    text = "".join(
        (
            _HEAD,
            _VOLUMES.format(ram=format_bytes(ram_for_percent())),
            _section("volumes", volumes.values()) or _VOLUME_EXAMPLE,
            _DATASETS,
            _section("datasets", map(_dataset, datasets)) or _DATASET_EXAMPLE,
            _REQUIREMENTS.format(name=_scalar(example)),
            _PACKAGES,
            fio,
        )
    )
    try:
        parse_spec(text.encode(errors="surrogateescape"), shown_path="the draft", path="/draft.yml")
    except SpecError as error:
        raise HostprepError(
            f"a spec cannot say what is on this host: {error.message}",
            "fix what it names, or write the file by hand; nothing was written",
        ) from None
    return Draft(text, tuple(notes))


def _has_fio() -> bool:
    """Whether fio is installed; False if the package database does not say, as when it is broken.

    All else that the draft says does not depend on that.
    """
    try:
        return bool(look_at_packages(("fio",)).installed)
    except HostprepError:
        return False


def write_draft(draft: Draft, path: Path) -> None:
    """Write the draft to a new file.

    Raises ``Refused`` if something is there already, ``HostprepError`` if it cannot be written.
    """
    if os.path.isdir(path):
        raise Refused(
            f"{path} is a directory; nothing was written.",
            f"name a file in it: hostprep spec init {shlex.quote(str(path / 'hostprep.yml'))}",
        )
    if os.path.exists(path) and not os.path.isfile(path):
        raise Refused(
            f"{path} is not a regular file; nothing was written.",
            "name a new file; - is the standard output",
        )
    if os.path.lexists(path):
        raise Refused(
            f"{path} exists, and a spec that somebody wrote is never overwritten.",
            "name another file, and compare the two: hostprep spec init FILE",
        )
    replace_file(path, draft.text.encode(errors="surrogateescape"), expected=None)


def _volumes(notes: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    if (unread := unread_fstab()) is not None:
        notes.append(f"{unread.message.removesuffix('.')}: what only it says is left out")
    for status in volume_statuses():
        if status.problem is not None:
            notes.append(f"{status.path} is left out: {status.problem}")
            continue
        facts = gather(status.path)
        if facts.live is not None and facts.is_ours:
            size_bytes = facts.live.size_bytes or (facts.record.size_bytes if facts.record else 0)
            if not size_bytes:
                notes.append(f"{status.path} is left out: it has no size limit")
                continue
            if not facts.live.size_bytes:
                then = "this size is the one that it was mounted with"
                notes.append(f"{status.path} has no size limit now; {then}")
            found[status.path] = _volume(replace(facts.live, size_bytes=size_bytes), facts)
            if status.in_fstab is False:
                notes.append(f"{status.path} has no line in fstab yet; apply adds it")
        elif facts.live is None and facts.fstab_entry is not None:
            size = parse_options(facts.fstab_entry.options).size_bytes
            if size:
                found[status.path] = [f"path: {_scalar(status.path)}", f"size: {_size(size)}"]
                notes.append(f"{status.path} is in fstab and not mounted; apply mounts it")
        else:
            notes.append(f"{status.path} is left out: it was mounted before, and is not now")
    return found


def _volume(live: LiveVolume, facts: VolumeFacts) -> list[str]:
    usual_huge = {
        None: (Huge.NEVER, Huge.WITHIN_SIZE),
        True: (Huge.WITHIN_SIZE,),
        False: (Huge.NEVER,),
    }[facts.support.huge]
    lines = [f"path: {_scalar(live.path)}", f"size: {_size(live.size_bytes)}"]
    if (live.uid, live.gid) != (0, 0):
        lines.append(f"owner: {_scalar(name_of(live.uid, live.gid))}")
    if live.mode != DEFAULT_MODE:
        lines.append(f"mode: {live.mode:04o}")
    if live.huge not in usual_huge:
        lines.append(f"huge: {live.huge}")
    if not live.noswap and facts.support.noswap:
        lines.append("swap: true")
    return lines


def _datasets(volumes: Collection[str], notes: list[str]) -> list[DatasetSpec]:
    at_boot = _targets_at_boot()
    found = []
    notes += [
        f"{folder} is left out: {error.message.removesuffix('.')}"
        for folder, error in damaged_records().items()
    ]
    for record in all_records():
        if record.phase in _NOT_WANTED:
            notes.append(f"{record.target} is left out: {_NOT_WANTED[record.phase]}")
            continue
        if record.volume is not None and record.volume not in volumes:
            notes.append(f"{record.name} is left out: its volume {record.volume} is not mounted")
            continue
        to = os.path.dirname(record.target) if record.volume is None else None
        within = next((path for path in volumes if to and to != path and lies_in(to, path)), None)
        if within is not None:
            why = f"a spec can only stage directly below {within}"
            notes.append(f"{record.name} is left out: {why}")
            continue
        comes_back = record.target in at_boot
        found.append(DatasetSpec(record.name, record.source, record.volume, to, comes_back))
    return found


def _targets_at_boot() -> frozenset[str]:
    """Return the targets of the enabled services that hostprep wrote."""
    boot = gather_boot(())
    units = {each.unit for each in boot.installed if AT_BOOT in each.wanted_by and each.made_by_us}
    return frozenset(record.target for record in boot.records if record.unit in units)


def _dataset(dataset: DatasetSpec) -> list[str]:
    return [
        f"name: {_scalar(dataset.name)}",
        f"source: {_scalar(dataset.source)}",
        f"{'to' if dataset.to else 'volume'}: {_scalar(dataset.parent)}",
        *(["at_boot: true"] if dataset.at_boot else []),
    ]


def _section(name: str, entries: Iterable[Sequence[str]]) -> str:
    """Return a section of YAML, ``""`` if it would have no entries."""
    lines = [
        ("  - " if index == 0 else "    ") + line
        for entry in entries
        for index, line in enumerate(entry)
    ]
    return "".join(f"{line}\n" for line in [f"{name}:", *lines]) if lines else ""


def _size(size_bytes: int) -> str:
    for unit, word in ((GIB, "G"), (MIB, "M"), (KIB, "K")):
        if size_bytes % unit == 0:
            return f"{size_bytes // unit}{word}"
    return str(size_bytes)


def _scalar(text: str) -> str:
    """Return ``text`` as a YAML scalar: plain if that is unambiguous, otherwise quoted."""
    if _PLAIN.fullmatch(text) and text.lower() not in _YAML_WORDS:
        return text
    return json.dumps(text, ensure_ascii=False)
