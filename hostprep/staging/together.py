"""Whether several data sets fit into one place, one after the other; asked before the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hostprep.dataclass import dataclass
from hostprep.errors import Refused
from hostprep.staging.model import StageRequest
from hostprep.staging.planning import StagePlan
from hostprep.staging.plans.copy_plan import JOURNAL_BYTES_AN_ENTRY
from hostprep.staging.plans.space import (
    OUT_OF_MEMORY,
    Space,
    directory_space,
    larger_volume,
    memory_growth,
    reclaiming,
    volume_space,
)
from hostprep.staging.target.place import open_parent
from hostprep.staging.target.private import footprint
from hostprep.system.descriptors import closing_fd
from hostprep.units import PAGE_BYTES, format_bytes, format_count
from hostprep.volumes.budget import arithmetic
from hostprep.volumes.model import INODE_BYTES, RamBudget


@dataclass(frozen=True, slots=True)
class Share:
    """What one data set takes of the place that it shares with others, in bytes and inodes.

    ``space`` is what a run takes at its peak, and what is available to it alone now;
    ``lasting_*`` is the minimum that it uses up permanently. That may be negative, if the run first
    removes what an earlier one left. ``budget`` is for a place in memory, None for others and for a
    volume, which has its own.
    """

    request: StageRequest
    space: Space
    lasting_bytes: int
    lasting_inodes: int
    budget: RamBudget | None = None

    @property
    def lasting_memory(self) -> int:
        """The minimum of memory that it uses up permanently, if it is in memory."""
        return self.lasting_bytes + self.lasting_inodes * INODE_BYTES


def share_of(plan: StagePlan) -> Share:
    """Return what a data set takes, from its plan.

    An update frees what it replaces or deletes only at its end, for the data sets after it. The
    record does not say exactly how much that is, so this counts rather too little, because a run
    that would succeed must not be refused.
    """
    request, files, previous = plan.request, plan.files, plan.previous
    if plan.volume is None:
        space = directory_space(request, files)
    else:
        space = volume_space(request, files, plan.volume)
    space = reclaiming(space, *_left_behind(plan), files)
    lasting_bytes = space.needed_bytes - files.copied.entries * JOURNAL_BYTES_AN_ENTRY
    lasting_inodes = files.copied.files + len(files.make_directories)
    if plan.published:
        before = 0 if previous is None else previous.bytes + previous.files * PAGE_BYTES
        after = files.copied.bytes + files.kept.bytes + files.resumed.bytes
        lasting_bytes, lasting_inodes = min(lasting_bytes, max(0, after - before)), 0
    lasting_bytes -= space.reclaimed_bytes
    if plan.volume is not None:
        space = replace(space, free_inodes=None)  # each run raises the limit by what it needs
    elif space.free_inodes is not None:
        lasting_inodes -= space.reclaimed_inodes
    budget = None
    if plan.volume is None and plan.budget is not None:
        budget = replace(plan.budget, growth_bytes=memory_growth(space))
    return Share(request, space, lasting_bytes, lasting_inodes, budget)


def _left_behind(plan: StagePlan) -> tuple[int, int]:
    """Return what an interrupted run left in the place: (bytes, inodes)."""
    if plan.volume is not None and plan.volume.live is None:
        return 0, 0
    try:
        parent_fd = open_parent(plan.request.parent)
    except FileNotFoundError:
        return 0, 0
    with closing_fd(parent_fd):
        return footprint(parent_fd, plan.request.name)


def room_for_all(shares: Sequence[Share]) -> Refused | None:
    """Return a refusal with the calculation if they do not all fit, in this order. Pure.

    Whether each fits by itself is up to its own plan.
    """
    taken_bytes = taken_inodes = taken_memory = 0
    for index, share in enumerate(shares):
        space = share.space
        names = ", ".join(each.request.name for each in shares[:index])
        if space.free_bytes is not None and taken_bytes > 0:
            lacking = space.needed_bytes + taken_bytes - space.free_bytes
            if lacking > 0:
                return Refused(
                    f"the data sets do not fit together: {share.request.name} needs"
                    f" {format_bytes(space.needed_bytes)}, and of the"
                    f" {format_bytes(space.free_bytes)} free in {space.bytes_where}"
                    f" {format_bytes(taken_bytes)} go to {names}; {format_bytes(lacking)} are"
                    " missing. Nothing was changed.",
                    larger_volume(share.request, space, lacking),
                )
        if (
            space.free_inodes is not None
            and taken_inodes > 0
            and space.needed_inodes + taken_inodes > space.free_inodes
        ):
            return Refused(
                f"too few inodes for the data sets together: {share.request.name} needs"
                f" {format_count(space.needed_inodes)}, and of the"
                f" {format_count(space.free_inodes)} free in {space.inodes_where}"
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
