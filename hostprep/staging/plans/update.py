"""Plans a run over what is already there: published, or left by an interrupted run."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import TypeVar

from hostprep.dataclass import dataclass
from hostprep.host.mounts import mount_of, read_mounts
from hostprep.staging.batches import Batch, pack_batches
from hostprep.staging.kept_times import is_kept_time
from hostprep.staging.model import RANGE_BYTES, Entry, Recorded, Totals, kind_of
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
from hostprep.staging.plans.refusing import opening_refusal, refuse_taken_places
from hostprep.staging.plans.sides import Part, Sides, in_order
from hostprep.staging.plans.standing import Looked, Lookers, as_standing, find_standing
from hostprep.staging.plans.target_tree import TargetTree
from hostprep.staging.reasons import PLACE_TAKEN, Skipped
from hostprep.staging.record.lines import encode_line
from hostprep.staging.record.manifest import ManifestIndex
from hostprep.staging.source.scan import Listing, Scan
from hostprep.staging.target.place import keeps_numbers
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

    ``suspect`` are paths that a full check found to differ; they are copied again. If all is to be
    ``verified``, so are files that were copied without. ``lookers`` skip what is unchanged.
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

    def compare(links: Links) -> CopyPlan:
        plan = CopyPlan(skipped=list(scan.skipped))
        published, private = TargetTree(published_fd), TargetTree(private_fd)
        sides = Sides(manifest, journal, published, private)
        update = _Update(plan, scan, sides, suspect, verified, count_files, links)
        try:
            update.plan_directories(standing)
            if os.geteuid() == 0 and published_fd is not None:
                plan.opens = opening_refusal(plan, scan, update.recorded, published, published_fd)
        finally:
            published.close()
            private.close()
        refuse_taken_places(plan, update.replaced)
        return plan

    there = published_fd if published_fd is not None else private_fd
    numbered = there is None or keeps_numbers(mount_of(there, read_mounts()))
    plan = compare(links := Links(numbered=numbered))
    if torn := links.torn():
        # Some of these were kept before their other names were seen. This is rare: plan it again.
        del plan
        observer.phase("compare", files=scan.totals.files)
        count_files = Count(observer, scan.totals.files).add
        plan = compare(links := Links(torn, numbered=numbered))
    group_links(plan, links.kept)
    return plan


@dataclass(frozen=True, slots=True)
class _Update:
    """The comparison, one directory at a time, and what it has found besides the ``plan``.

    ``recorded`` is what is known of directories; ``replaced`` are places where a file becomes a
    directory or the reverse.
    """

    plan: CopyPlan
    scan: Scan
    sides: Sides
    suspect: frozenset[str]
    verified: bool
    on_files: Callable[[int], None]
    links: Links
    recorded: dict[str, Recorded] = field(default_factory=dict)
    replaced: set[str] = field(default_factory=set)

    def plan_directories(self, standing: Mapping[str, Looked]) -> None:
        """Plan what to do to everything that the source has, and to what it no longer has.

        ``standing`` are directories that may be skipped, with what was seen of them.
        """
        listings = {listing.directory: listing for listing in self.scan.listings}
        for directory, entry in self.scan.directories.items():
            looked = standing.get(directory)
            self.plan_directory(directory, entry, listings.get(directory), looked)
        self.plan_gone_directories()

    def plan_directory(
        self, directory: str, wanted: Entry, listing: Listing | None, looked: Looked | None
    ) -> None:
        """Plan what to do to a directory of the source and to the files in it.

        Without a ``listing`` it could not be read; with ``looked`` it may be skipped.
        """
        if looked is not None and self.sides.published.is_there(directory):
            found: Entry | None = self._pass_by(directory, looked)
        else:
            if listing is None:
                self._keep_unread(directory)
            else:
                self._compare(listing)
            found = self.sides.published.stat(directory)
        if found is not None:
            self.plan.inodes[directory] = found.ino
        if not _directory_stands(wanted, self.recorded.get(directory), found):
            self.plan.make_directories.append(directory)

    def _pass_by(self, directory: str, looked: Looked) -> Entry:
        """Keep what is unchanged in a directory, plan the rest, and return its own target entry."""
        stands = as_standing(directory, looked, self.sides.manifest)
        self.sides.published.take(directory, stands)
        self._note_directories(directory, stands.directories)
        keep_standing(self.plan, stands)
        if any(stands.differing):
            source, recorded, published = stands.differing
            known = {record.name: record for record in recorded}
            here = {entry.name: entry for entry in published}
            part = Part(source, known, frozenset(), {}, here, {})
            self.plan.batches.extend(self._decide(directory, part))
        return stands.own

    def _keep_unread(self, top: str) -> None:
        """Keep what is published at and below a directory that could not be read this time."""
        # Nobody can tell now whether an interrupted run's copies of it are still right.
        self.plan.discard.extend(join(top, name) for name in self.sides.private.list(top))
        for directory in self.sides.manifest.directories():
            if directory != top and not directory.startswith(top + "/"):
                continue
            for known, here in self.sides.staged(directory):
                self._note_directories(directory, known.values())
                keep_published(self.plan, directory, known.values(), here)

    def _compare(self, listing: Listing) -> None:
        """Plan what to do to the files of a directory."""
        directory = listing.directory
        batches: list[list[Batch]] = []
        for part in self.sides.parts(listing):
            if copied := self._decide(directory, part):
                batches.append(copied)
        self.plan.batches.extend(in_order(batches))

    def _decide(self, directory: str, part: Part) -> list[Batch]:
        """Plan what to do to some files of a directory; return the batches of what to copy."""
        self._note_directories(directory, part.manifest.values())
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
        copied = self._apply(directory, part, diff)
        self.on_files(len(part.source))
        return pack_batches(directory, copied) if copied else []

    def _apply(self, directory: str, part: Part, diff: DirectoryDiff) -> list[Entry]:
        """Add the decisions to the plan, and return what is to be copied in batches."""
        plan, here = self.plan, part.published
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
                self.replaced.add(join(directory, name))
        wanted = {record.name for record in diff.done}
        wanted |= _subdirectories(directory, part.private, self.scan)
        plan.discard.extend(join(directory, name) for name in part.private if name not in wanted)
        if diff.done:
            plan.done_lines.append(encode_line(directory, diff.done))
            plan.resumed += count(plan, directory, diff.done)
        standing = {record.name: record for record in (*diff.keep, *diff.done) if record.group}
        for entry in part.source if standing else ():
            if entry.nlink > 1 and entry.name in standing:
                place = join(directory, entry.name), standing[entry.name]
                self.links.kept.setdefault(entry.inode, place)
        for name in diff.delete:
            if not stat.S_ISDIR(here[name].mode):  # otherwise it comes up in plan_gone_directories
                plan.delete.append(join(directory, name))
        for name in diff.foreign:
            if not stat.S_ISDIR(here[name].mode):
                path = join(directory, name)
                plan.foreign.append(path)
                if path in self.scan.directories:
                    self.replaced.add(path)
        for entry in diff.blocked:
            plan.skipped.append(Skipped(join(directory, entry.name), PLACE_TAKEN, failed=True))
        return batch

    def _note_directories(self, directory: str, known: Iterable[Recorded]) -> None:
        for record in known:
            if record.kind == "d":
                path = "" if record.name == "." else join(directory, record.name)
                self.recorded[path] = record

    def plan_gone_directories(self) -> None:
        """Plan the removal of what is published in directories that the source no longer has.

        Nothing below a directory that could not be read counts as gone.
        """
        plan, scan, sides = self.plan, self.scan, self.sides
        pending = [""]
        while pending:
            directory = pending.pop()
            names = sides.published.subdirectories(directory)
            below = {join(directory, name): name for name in names}
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
                # The record may also be of a file that a killed update was to put there.
                if path in recorded and recorded[path].kind == "d":
                    self._plan_gone(path)
                else:
                    plan.foreign.append(path + "/")
                    del below[path]  # and nothing in it is ours
            pending.extend(below)

    def _plan_gone(self, path: str) -> None:
        """Plan the removal of a published directory, and of its files that are as staged."""
        self.plan.delete_directories.append(path)
        for known, here in self.sides.staged(path):
            for name, entry in here.items():
                if stat.S_ISDIR(entry.mode):
                    continue
                if name in known and known[name].present_as(entry):
                    self.plan.delete.append(join(path, name))
                else:
                    self.plan.foreign.append(join(path, name))


def _without(
    found: Mapping[str, _Found], directory: str, suspect: frozenset[str]
) -> Mapping[str, _Found]:
    """Return the entries of a directory, by name, without those that are ``suspect``."""
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


def _below(path: str, directories: set[str]) -> bool:
    return not directories.isdisjoint((path, *above(path), ""))


def _directory_stands(wanted: Entry, recorded: Recorded | None, found: Entry | None) -> bool:
    """Whether a published directory is like its source, whose owner only the record has.

    The target's own owner means nothing: without root it is always ourselves. Its mode may be what
    the target made of the source's, if it holds no ACLs or handles modes in its own way.
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
