"""From a scan and what is already there: what to copy, keep, delete, link and leave alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field, replace

from hostprep.dataclass import dataclass
from hostprep.errors import Refused
from hostprep.staging.batches import BATCH_FILES, Batch, pack_batches
from hostprep.staging.model import RANGE_BYTES, Entry, Inode, Recorded, Totals, space_on_target
from hostprep.staging.plans.standing import Standing
from hostprep.staging.reasons import Differing, Skipped
from hostprep.staging.record import digest
from hostprep.staging.record.lines import decode_line, encode_line
from hostprep.staging.source.scan import Scan
from hostprep.system.trees import join
from hostprep.units import PAGE_BYTES
from hostprep.volumes.model import INODE_BYTES

# What the journal takes on the target for an entry, without its name.
JOURNAL_BYTES_AN_ENTRY = 120
# Smaller blocks (ext4 with 1 KiB) save nothing: their block lists take as much room.
_LEAST_BLOCK_BYTES = 4096


@dataclass(frozen=True, slots=True)
class HardLink:
    """A name to make as a hard link to ``primary``.

    ``kept`` is the record of a primary that is already in place, None for one copied now.
    """

    directory: str
    entry: Entry
    primary: str
    kept: Recorded | None


@dataclass(slots=True)
class CopyPlan:
    """What a run has to do to the data set's files. Paths are relative to its root.

    ``keep_lines`` and ``done_lines`` are manifest lines of what is published and stays, and of what
    an interrupted run has done; their entries add up to ``kept`` and ``resumed``, except those
    changed on the target (see ``keep_published``). ``digest_sum`` is the sum of their terms without
    those of entries that were staged unverified, which make the plan ``unverified``.
    ``make_directories`` are missing or differ; ``inodes`` identify the existing directories, in
    case somebody moves another one to the place of one. ``opens`` forbids every run that has
    something to do, see ``opening_refusal``.
    ``discard`` are paths in the private tree that an interrupted run left and that are useless now.
    ``full_check``: what is published was read, and ``differing`` is what that found.
    ``sequence`` has the batches' entries in the order in which to read them, if that is not the
    order in which they were listed. ``leaves`` are directories that the workers may finish, see
    ``leaves_of``. ``attribute_bytes`` is the room that the ``user.*`` attributes of the copies take
    on a tmpfs, estimated from a few files.
    """

    batches: list[Batch] = field(default_factory=list)
    sequence: Iterable[Batch] | None = None
    leaves: Mapping[str, Entry] = field(default_factory=dict)
    large: list[tuple[str, Entry]] = field(default_factory=list)
    linked: list[tuple[str, Entry]] = field(default_factory=list)
    links: list[HardLink] = field(default_factory=list)
    delete: list[str] = field(default_factory=list)
    delete_directories: list[str] = field(default_factory=list)
    make_directories: list[str] = field(default_factory=list)
    inodes: dict[str, int] = field(default_factory=dict)
    opens: Refused | None = None
    foreign: list[str] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    discard: list[str] = field(default_factory=list)
    keep_lines: list[bytes] = field(default_factory=list)
    done_lines: list[bytes] = field(default_factory=list)
    digest_sum: int = 0
    unverified: bool = False
    full_check: bool = False
    differing: tuple[Differing, ...] = ()
    copied: Totals = field(default_factory=Totals)
    kept: Totals = field(default_factory=Totals)
    resumed: Totals = field(default_factory=Totals)
    attribute_bytes: int = 0

    @property
    def nothing_to_do(self) -> bool:
        """Whether what is published is what the source has."""
        return not (
            self.copied.files
            or self.links
            or self.delete
            or self.delete_directories
            or self.make_directories
            or self.resumed.files
        )

    @property
    def strangers(self) -> list[str]:
        """Return what is on the target but, by its manifest, not hostprep's."""
        return [*self.foreign, *(each.path for each in self.skipped if each.blocked)]

    def copies_among(self, paths: Set[str]) -> int:
        """Return how many of ``paths`` are copied or linked."""
        if not paths:
            return 0  # this avoids unpacking
        return sum(
            join(directory, entry.name) in paths
            for directory, entries in self.to_copy()
            for entry in entries
        )

    def kept_paths(self) -> set[str]:
        """Return the paths of all that is published and stays."""
        lines = map(decode_line, self.keep_lines)
        return {join(directory, each.name) for directory, records in lines for each in records}

    def to_copy(self) -> Iterator[tuple[str, Sequence[Entry]]]:
        """Yield entries to copy or link, with their directory, a few at a time."""
        for batch in self.batches:
            yield batch.directory, batch.entries()
        for directory, entry in self.large:
            yield directory, (entry,)
        for link in self.links:
            yield link.directory, (link.entry,)

    def content_space(self, block_bytes: int = PAGE_BYTES) -> int:
        """Return the bytes that the copies take on a target with such blocks.

        If its blocks are smaller than a page, a file leaves at most part of one block unused, so it
        takes at most its bytes and one more block.
        """
        blocks_at_least = max(block_bytes, _LEAST_BLOCK_BYTES)
        return min(self.copied.space_bytes, self.copied.bytes + self.copied.files * blocks_at_least)

    def space_needed(self, block_bytes: int = PAGE_BYTES) -> int:
        """Return the bytes that copies and journal take on a target with such blocks."""
        return self.content_space(block_bytes) + self.copied.entries * JOURNAL_BYTES_AN_ENTRY

    def inodes_needed(self, *, of_tmpfs: bool = False) -> int:
        """Return the inodes that the copies take, and a few for the private directory.

        On a tmpfs (``of_tmpfs``) they are more: since Linux 6.6 it counts attributes as inodes,
        too.
        """
        attributes = math.ceil(self.attribute_bytes / INODE_BYTES) if of_tmpfs else 0
        return self.copied.files + len(self.make_directories) + 16 + attributes


def plan_fresh(scan: Scan) -> CopyPlan:
    """Plan the staging of a tree of which nothing is there yet."""
    plan = CopyPlan(skipped=list(scan.skipped), make_directories=list(scan.directories))
    for listing in scan.listings:
        plan.batches.extend(listing.batches)
        for entry in listing.singles:
            plan_single(plan, listing.directory, entry)
    plan.copied = replace(
        scan.totals, entries=scan.totals.files
    )  # directories are made, not copied
    group_links(plan, {})
    return plan


def leaves_of(plan: CopyPlan, directories: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return the directories in which nothing but batches of small files is to be made.

    Once these are copied, no more work is done in such a directory, so it can get its mode, owner
    and times while it is open.
    """
    others = {path.rpartition("/")[0] for path in directories if path}
    others.update(directory for directory, _ in plan.large)
    others.update(link.directory for link in plan.links)
    return {path: entry for path, entry in directories.items() if path and path not in others}


def keep(plan: CopyPlan, directory: str, records: Sequence[Recorded]) -> None:
    """Add records of ``directory`` to what is published and stays."""
    # In lines as short as those of journals: they reuse the memory freed by what was compared.
    for start in range(0, len(records), BATCH_FILES):
        plan.keep_lines.append(encode_line(directory, records[start : start + BATCH_FILES]))
    if records:
        plan.kept += count(plan, directory, records)


def keep_published(
    plan: CopyPlan, directory: str, records: Iterable[Recorded], here: Mapping[str, Entry]
) -> None:
    """Keep ``records`` of what is ``here`` if the source cannot be read for anything newer.

    Files that were changed here do not count as kept but stay on record; otherwise the run that can
    repair them would take them for somebody else's.
    """
    known = [record for record in records if record.name in here]
    keep(plan, directory, [each for each in known if each.present_as(here[each.name])])
    if changed := [each for each in known if not each.present_as(here[each.name])]:
        plan.keep_lines.append(encode_line(directory, changed))


def keep_standing(plan: CopyPlan, stands: Standing) -> None:
    """Add a directory in which nothing has changed to what is published and stays."""
    plan.keep_lines.extend(stands.lines)
    plan.kept += Totals(stands.files, stands.size_bytes, 0, stands.files)
    plan.digest_sum = digest.add(plan.digest_sum, stands.total)
    plan.unverified = plan.unverified or stands.unverified


def count(plan: CopyPlan, directory: str, records: Sequence[Recorded]) -> Totals:
    """Add the records' terms to the digest, and return their totals."""
    for record in records:
        if record.content is None:
            plan.unverified = True
        else:
            term = digest.entry_term(record.kind, join(directory, record.name), record.content)
            plan.digest_sum = digest.add(plan.digest_sum, term)
    files = [record for record in records if record.kind != "d"]
    return Totals(len(files), sum(record.size for record in files), 0, len(files))


def plan_single(plan: CopyPlan, directory: str, entry: Entry) -> None:
    """Add an entry that is copied or linked by itself, not in a batch."""
    if entry.nlink > 1:
        plan.linked.append((directory, entry))
    elif entry.is_sparse:
        # One worker copies a sparse file, however large: its islands take time, not its size.
        plan.batches.extend(pack_batches(directory, [entry]))
    else:
        plan.large.append((directory, entry))


def group_links(plan: CopyPlan, kept: dict[Inode, tuple[str, Recorded]]) -> None:
    """Choose the file of each group of hard links that is copied; the others link to it."""
    primaries: dict[Inode, tuple[str, Recorded | None]] = dict(kept)
    small: dict[str, list[Entry]] = {}
    size_bytes = space_bytes = hole_bytes = links = 0
    for directory, entry in plan.linked:
        key = entry.inode
        path = join(directory, entry.name)
        if key in primaries:
            plan.links.append(HardLink(directory, entry, *primaries[key]))
            links += 1
            size_bytes += entry.size
            space_bytes += space_on_target(entry)
            hole_bytes += entry.hole_bytes
            continue
        primaries[key] = path, None
        if entry.size > RANGE_BYTES and not entry.is_sparse:
            plan.large.append((directory, entry))
        else:
            small.setdefault(directory, []).append(entry)
    for directory, entries in small.items():
        plan.batches.extend(pack_batches(directory, entries))
    # Only one of each group is copied.
    plan.copied += Totals(-links, -size_bytes, -space_bytes, -links, -hole_bytes)
    plan.linked.clear()
