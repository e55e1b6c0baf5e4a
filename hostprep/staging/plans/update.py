"""Plan a run over what is there already: what is published, and what an interrupted run left."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import TypeVar

from hostprep.dataclass import dataclass
from hostprep.staging.batches import Batch, pack_batches
from hostprep.staging.kept_times import is_kept_time
from hostprep.staging.model import (
    PLACE_TAKEN,
    RANGE_BYTES,
    Entry,
    Recorded,
    Skipped,
    Totals,
    kind_of,
)
from hostprep.staging.observer import Count, Observer, Silent
from hostprep.staging.plans.copy_plan import (
    CopyPlan,
    count,
    group_links,
    keep,
    keep_published,
    keep_standing,
    plan_single,
)
from hostprep.staging.plans.diff import DirectoryDiff, diff_directory
from hostprep.staging.plans.links import Links
from hostprep.staging.plans.refusing import refuse_taken_places, refuse_to_open
from hostprep.staging.plans.sides import Part, Sides, in_order
from hostprep.staging.plans.standing import Looked, Lookers, as_standing, find_standing
from hostprep.staging.plans.target_tree import TargetTree
from hostprep.staging.record.manifest import ManifestIndex, encode_line
from hostprep.staging.source.scan import Listing, Scan
from hostprep.staging.tree import staged_mode
from hostprep.system.trees import above, join

_Found = TypeVar("_Found")


def plan_update(
    scan: Scan,
    *,
    manifest: ManifestIndex,
    journal: ManifestIndex,
    published_fd: int | None,
    private_fd: int | None,
    suspect: frozenset[str] = frozenset(),
    verified: bool = False,
    lookers: Lookers = Lookers(),  # noqa: B008 - nobody changes it
    observer: Observer | None = None,
) -> CopyPlan:
    """Plan a run over what is published and what an interrupted run left in its private tree.

    ``suspect`` are paths that a full check found to differ: they are copied again. So is, where
    all is to be ``verified``, what was copied without. ``lookers`` pass by what stands as it was.
    """
    observer = observer or Silent()
    observer.phase("compare", files=scan.totals.files)
    count_files = Count(observer, scan.totals.files).add
    standing: dict[str, Looked] = {}
    interrupted = private_fd is not None or len(journal) or manifest.promises
    if published_fd is not None and not (suspect or interrupted):
        standing = find_standing(
            scan, manifest, published_fd, lookers, verified=verified, on_files=count_files
        )
    plan = CopyPlan(skipped=list(scan.skipped))
    listings = {listing.directory: listing for listing in scan.listings}
    published, private = TargetTree(published_fd), TargetTree(private_fd)
    sides = Sides(manifest, journal, published, private)
    comparing = _Comparing(plan, scan, sides, suspect, verified, count_files)
    recorded, links = comparing.recorded, comparing.links
    try:
        for directory, entry in scan.directories.items():
            looked = standing.pop(directory, None)
            listing = listings.get(directory)
            if looked is not None and published.is_there(directory):
                own: Entry | None = comparing.pass_by(directory, looked)
            else:
                if listing is None:
                    _keep_unread(plan, directory, sides, recorded)
                else:
                    comparing.compare(listing)
                own = published.stat(directory)
            _plan_directory(plan, directory, entry, recorded.get(directory), own)
        _plan_gone_directories(plan, scan, sides)
        if os.geteuid() == 0:
            refuse_to_open(plan, scan, recorded, published)
    finally:
        published.close()
        private.close()
    refuse_taken_places(plan, links.replaced)
    group_links(plan, links.kept)
    return plan


@dataclass(frozen=True, slots=True)
class _Comparing:
    """The comparison, a directory at a time; ``recorded`` is what is known of directories."""

    plan: CopyPlan
    scan: Scan
    sides: Sides
    suspect: frozenset[str]
    verified: bool
    on_files: Callable[[int], None]
    recorded: dict[str, Recorded] = field(default_factory=dict)
    links: Links = field(default_factory=Links)

    def pass_by(self, directory: str, looked: Looked) -> Entry:
        """Keep a directory that stands, and return its own entry on the target."""
        stands = as_standing(directory, looked, self.sides.manifest)
        self.sides.published.take(directory, stands)
        _note_directories(self.recorded, directory, stands.directories)
        keep_standing(self.plan, stands)
        return stands.own

    def compare(self, listing: Listing) -> None:
        """Plan what is to be done to the files of a directory."""
        directory = listing.directory
        batches: list[list[Batch]] = []
        for part in self.sides.parts(listing):
            _note_directories(self.recorded, directory, part.manifest.values())
            diff = diff_directory(
                part.source,
                manifest=_without(part.manifest, directory, self.suspect),
                journal=part.journal,
                published=_without(part.published, directory, self.suspect),
                private=part.private,
                subdirectories=_subdirectories(directory, part.published, self.scan),
                links_stand=self.links.stand,
                verified=self.verified,
                promised=part.promised,
            )
            if copied := _apply_diff(self.plan, directory, part, diff, self.links, self.scan):
                batches.append(pack_batches(directory, copied))
            self.on_files(len(part.source))
        self.plan.batches.extend(in_order(batches))


def _without(
    found: Mapping[str, _Found], directory: str, suspect: frozenset[str]
) -> Mapping[str, _Found]:
    """Return what is found of a directory, by name, without what is ``suspect``."""
    if not suspect:
        return found
    return {name: each for name, each in found.items() if join(directory, name) not in suspect}


def _subdirectories(directory: str, entries: Mapping[str, Entry], scan: Scan) -> frozenset[str]:
    """Return which of a target's entries are directories that the source has too."""
    return frozenset(
        name
        for name, entry in entries.items()
        if stat.S_ISDIR(entry.mode) and join(directory, name) in scan.directories
    )


def _apply_diff(
    plan: CopyPlan, directory: str, part: Part, diff: DirectoryDiff, links: Links, scan: Scan
) -> list[Entry]:
    """Add what was decided to the plan, and return what is to be copied in batches."""
    here = part.published
    batch: list[Entry] = []
    for entry in diff.copy:
        if stat.S_ISREG(entry.mode) and (entry.nlink > 1 or entry.size > RANGE_BYTES):
            plan_single(plan, directory, entry)
        else:
            batch.append(entry)
        plan.copied += Totals.of(entry)
    keep(plan, directory, diff.keep)
    for name in (*(entry.name for entry in diff.copy), *(record.name for record in diff.done)):
        if name in here and stat.S_ISDIR(here[name].mode):
            links.replaced.add(join(directory, name))
    wanted = {record.name for record in diff.done}
    wanted |= _subdirectories(directory, part.private, scan)
    plan.discard.extend(join(directory, name) for name in part.private if name not in wanted)
    if diff.done:
        plan.done_lines.append(encode_line(directory, diff.done))
        plan.resumed += count(plan, directory, diff.done)
    standing = {record.name: record for record in (*diff.keep, *diff.done) if record.group}
    for entry in part.source if standing else ():
        if entry.nlink > 1 and entry.name in standing:
            place = join(directory, entry.name), standing[entry.name]
            links.kept.setdefault(entry.inode, place)
    for name in diff.delete:
        if stat.S_ISDIR(here[name].mode):
            continue  # its own directory decides, see _plan_gone_directories
        plan.delete.append(join(directory, name))
    for name in diff.foreign:
        if stat.S_ISDIR(here[name].mode):
            continue
        plan.foreign.append(join(directory, name))
        if join(directory, name) in scan.directories:
            links.replaced.add(join(directory, name))
    for entry in diff.blocked:
        plan.skipped.append(Skipped(join(directory, entry.name), PLACE_TAKEN, failed=True))
    return batch


def _note_directories(
    recorded: dict[str, Recorded], directory: str, known: Iterable[Recorded]
) -> None:
    for record in known:
        if record.kind == "d":
            recorded["" if record.name == "." else join(directory, record.name)] = record


def _keep_unread(plan: CopyPlan, top: str, sides: Sides, recorded: dict[str, Recorded]) -> None:
    """Keep what is published at and below a directory that could not be read this time."""
    # Whether what was copied of it is still right, nobody can tell now.
    plan.discard.extend(join(top, name) for name in sides.private.list(top))
    for directory in sides.manifest.directories():
        if directory != top and not directory.startswith(top + "/"):
            continue
        for known, here in sides.staged(directory):
            _note_directories(recorded, directory, known.values())
            keep_published(plan, directory, known.values(), here)


def _plan_gone_directories(plan: CopyPlan, scan: Scan, sides: Sides) -> None:
    """Plan the removal of what is published in directories that the source no longer has.

    Below a directory that could not be read nothing counts as gone.
    """
    pending = [""]
    while pending:
        directory = pending.pop()
        below = {join(directory, name): name for name in sides.published.subdirectories(directory)}
        lost = [
            path
            for path in below
            if path not in scan.directories and not _below(path, scan.unreadable)
        ]
        recorded: dict[str, Recorded] = {}
        if lost:
            for known, _ in sides.staged(directory):
                recorded |= {path: known[below[path]] for path in lost if below[path] in known}
        for path in lost:
            # Of a file that a killed update was to put in its place, ``records`` does not speak.
            if path in recorded and recorded[path].kind == "d":
                _plan_gone(plan, path, sides)
            else:
                plan.foreign.append(path + "/")
                del below[path]  # and nothing in it is ours
        pending.extend(below)


def _plan_gone(plan: CopyPlan, path: str, sides: Sides) -> None:
    """Plan the removal of a published directory, and of those of its files that are as staged."""
    plan.delete_directories.append(path)
    for known, here in sides.staged(path):
        for name, entry in here.items():
            if stat.S_ISDIR(entry.mode):
                continue
            if name in known and known[name].present_as(entry):
                plan.delete.append(join(path, name))
            else:
                plan.foreign.append(join(path, name))


def _below(path: str, directories: set[str]) -> bool:
    return not directories.isdisjoint((path, *above(path), ""))


def _plan_directory(
    plan: CopyPlan, directory: str, wanted: Entry, recorded: Recorded | None, found: Entry | None
) -> None:
    if found is not None:
        plan.inodes[directory] = found.ino
    if not _directory_stands(wanted, recorded, found):
        plan.make_directories.append(directory)


def _directory_stands(wanted: Entry, recorded: Recorded | None, found: Entry | None) -> bool:
    """Whether a published directory is as its source, whose owner only the record has.

    The target's own owner says nothing: without root it is always ourselves. Its mode may be the
    one that the target made of the source's, where it holds no ACL or keeps modes its own way.
    """
    if recorded is None or not recorded.same_as(wanted):
        return False
    if found is None or kind_of(found.mode) != "d":
        return False
    if recorded.content:
        as_left = f"{stat.S_IMODE(found.mode):o}" == recorded.content
    else:
        as_left = found.mode == wanted.mode or found.mode == staged_mode(wanted.mode)
    return as_left and is_kept_time(found.mtime_ns, wanted.mtime_ns)
