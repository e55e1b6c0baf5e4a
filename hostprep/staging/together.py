"""Whether several data sets fit into one place, one after the other: before the first is begun."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from hostprep.dataclass import dataclass
from hostprep.errors import Refused
from hostprep.staging.model import StageRequest
from hostprep.staging.planning import StagePlan
from hostprep.staging.plans.copy_plan import JOURNAL_BYTES_AN_ENTRY
from hostprep.staging.plans.space import (
    OUT_OF_MEMORY,
    directory_space,
    larger_volume,
    memory_growth,
    reclaiming,
    volume_space,
)
from hostprep.staging.target.place import open_parent
from hostprep.staging.target.private import footprint
from hostprep.units import PAGE_BYTES, format_bytes, format_count
from hostprep.volumes.budget import arithmetic
from hostprep.volumes.model import INODE_BYTES, RamBudget


@dataclass(frozen=True, slots=True)
class Share:
    """What one data set takes of the place that it shares with others, in bytes and inodes.

    ``needed_*`` is what a run takes at its height, ``lasting_*`` the least that it leaves taken of
    ``free_*``; it may be negative, where the run first clears away what an earlier one left.
    ``free_*`` is what there is now for this one alone; None is no limit, or one that is not told.
    ``volume_bytes`` is the size of a volume, 0 for none. ``budget`` is that of a place in the
    memory, None elsewhere and in a volume, which has its own.
    """

    request: StageRequest
    where: str
    needed_bytes: int
    lasting_bytes: int
    free_bytes: int | None
    needed_inodes: int
    lasting_inodes: int
    free_inodes: int | None
    volume_bytes: int = 0
    budget: RamBudget | None = None

    @property
    def lasting_memory(self) -> int:
        """The least of the memory that it leaves taken, where that is what it lies in."""
        return self.lasting_bytes + self.lasting_inodes * INODE_BYTES


def share_of(plan: StagePlan) -> Share:
    """Return what a data set takes, from its plan.

    What an update replaces or deletes it gives back only at its end, to those that come after it.
    How much that is, the record does not say to the page: so less is counted than it may be, for a
    run that would succeed must not be refused.
    """
    request, files, previous = plan.request, plan.files, plan.previous
    if plan.volume is None:
        space = directory_space(request, files)
    else:
        space = volume_space(request, files, plan.volume)
    lasting_bytes = space.needed_bytes - files.copied.entries * JOURNAL_BYTES_AN_ENTRY
    lasting_inodes = files.copied.files + len(files.make_directories)
    if plan.published:
        before = 0 if previous is None else previous.bytes + previous.files * PAGE_BYTES
        after = files.copied.bytes + files.kept.bytes + files.resumed.bytes
        lasting_bytes, lasting_inodes = min(lasting_bytes, max(0, after - before)), 0
    alone = reclaiming(space, *_left_behind(plan), files)
    lasting_bytes -= alone.reclaimed_bytes
    free_inodes = None
    if plan.volume is None and alone.free_inodes is not None and space.free_inodes is not None:
        free_inodes = alone.free_inodes
        lasting_inodes -= alone.free_inodes - space.free_inodes
    budget = None
    if plan.volume is None and plan.budget is not None:
        budget = replace(plan.budget, growth_bytes=memory_growth(alone))
    return Share(
        request,
        alone.where,
        alone.needed_bytes,
        lasting_bytes,
        alone.free_bytes,
        alone.needed_inodes,
        lasting_inodes,
        free_inodes,  # of a volume None: each run allows it as many more as it needs
        space.volume_bytes,
        budget,
    )


def _left_behind(plan: StagePlan) -> tuple[int, int]:
    """Return what an interrupted run left in the place: (bytes, inodes)."""
    if plan.volume is not None and plan.volume.live is None:
        return 0, 0
    try:
        parent_fd = open_parent(plan.request.parent)
    except FileNotFoundError:
        return 0, 0
    try:
        return footprint(parent_fd, plan.request.name)
    finally:
        os.close(parent_fd)


def room_for_all(shares: Sequence[Share]) -> Refused | None:
    """Return a refusal with the arithmetic where they do not all fit, in this order. Pure.

    That each fits by itself is its own plan's to say.
    """
    taken_bytes = taken_inodes = taken_memory = 0
    for index, share in enumerate(shares):
        names = ", ".join(each.request.name for each in shares[:index])
        if share.free_bytes is not None and taken_bytes > 0:
            lacking = share.needed_bytes + taken_bytes - share.free_bytes
            if lacking > 0:
                return Refused(
                    f"the data sets do not fit together: {share.request.name} needs"
                    f" {format_bytes(share.needed_bytes)}, and of the"
                    f" {format_bytes(share.free_bytes)} free in {share.where}"
                    f" {format_bytes(taken_bytes)} go to {names}; {format_bytes(lacking)} are"
                    " missing. Nothing was changed.",
                    larger_volume(share.request, share.volume_bytes, lacking),
                )
        if (
            share.free_inodes is not None
            and taken_inodes > 0
            and share.needed_inodes + taken_inodes > share.free_inodes
        ):
            return Refused(
                f"too few inodes for the data sets together: {share.request.name} needs"
                f" {format_count(share.needed_inodes)}, and of the"
                f" {format_count(share.free_inodes)} free in {share.where}"
                f" {format_count(taken_inodes)} go to {names}. Nothing was changed.",
                "choose a target with more inodes, or pack the data sets into fewer files",
            )
        if share.budget is not None and taken_memory > 0 and not share.request.force:
            budget = replace(share.budget, growth_bytes=share.budget.growth_bytes + taken_memory)
            if not budget.fits:
                return Refused(
                    f"the data sets do not fit together into the memory, in which"
                    f" {share.request.parent} is, {share.request.name} after {names}:"
                    f" {arithmetic(budget)}. Nothing was changed.",
                    OUT_OF_MEMORY,
                )
        taken_memory += share.lasting_memory
        taken_bytes += share.lasting_bytes
        taken_inodes += share.lasting_inodes
    return None
