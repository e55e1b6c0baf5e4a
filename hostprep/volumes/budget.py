"""A volume compared with the machine's memory: refused up front, with the calculation shown."""

from __future__ import annotations

from hostprep.errors import Refused
from hostprep.host.memory import Headroom
from hostprep.units import GIB, format_bytes
from hostprep.volumes.facts import VolumeFacts
from hostprep.volumes.model import RamBudget, VolumeRequest

_LEAST_RESERVE_BYTES = 4 * GIB
# At most a quarter of a job's cgroup limit, which may be smaller than a machine's whole reserve.
_PARTS_OF_A_LIMIT = 4


def default_reserve(headroom: Headroom) -> int:
    """Return what stays for the machine: the larger of 4 GiB and a tenth of its memory.

    Under a limit, such as that of a job's cgroup, the same of the limit, but at most a quarter of
    it: the machine also has the memory beyond the limit. If the latter is less than the machine's
    own reserve, the rest of the reserve is kept within the limit.
    """
    machine = headroom.machine
    if machine is None:
        return _unlimited_reserve(headroom.ram_bytes)
    within = min(_unlimited_reserve(headroom.ram_bytes), headroom.ram_bytes // _PARTS_OF_A_LIMIT)
    beyond = machine.available_bytes - headroom.available_bytes
    return max(within, _unlimited_reserve(machine.ram_bytes) - beyond)


def _unlimited_reserve(ram_bytes: int) -> int:
    return max(_LEAST_RESERVE_BYTES, ram_bytes // 10)


def check_budget(request: VolumeRequest, facts: VolumeFacts, growth_bytes: int) -> RamBudget:
    """Return the budget of ``growth_bytes`` more; raise ``Refused`` if it does not fit.

    ``request.force`` allows it all the same.
    """
    budget = budget_of(growth_bytes, facts, request.reserve_bytes)
    if not budget.fits and not request.force:
        raise Refused(
            f"{facts.path} does not fit into the memory: {arithmetic(budget)}; nothing was"
            " changed.",
            "choose a smaller size, fewer inodes or a smaller --reserve; --force mounts it"
            " all the same",
            spec_hint="choose a smaller size, fewer inodes or a smaller --reserve of"
            " `hostprep apply`",
        )
    return budget


def budget_of(growth_bytes: int, facts: VolumeFacts, reserve_bytes: int | None) -> RamBudget:
    """Return the budget of ``growth_bytes`` more; ``reserve_bytes`` of None is the default."""
    if reserve_bytes is None:
        reserve_bytes = default_reserve(facts.headroom)
    return RamBudget(
        growth_bytes=growth_bytes,
        available_bytes=facts.headroom.available_bytes,
        reserve_bytes=reserve_bytes,
        available_from=facts.headroom.available_from,
        promised_bytes=facts.promised_bytes,
        limits_hidden=facts.headroom.limits_hidden,
        unlimited=facts.unlimited,
    )


def arithmetic(budget: RamBudget) -> str:
    """Return the calculation of a budget that does not fit, in words."""
    promised = ""
    if budget.promised_bytes:
        promised = f" + {format_bytes(budget.promised_bytes)} promised to other volumes and runs"
    needed = budget.growth_bytes + budget.promised_bytes + budget.reserve_bytes
    return (
        f"{format_bytes(budget.growth_bytes)} for what it may still take, inodes"
        f" included,{promised} + {format_bytes(budget.reserve_bytes)} reserved for the machine ="
        f" {format_bytes(needed)}, but {format_bytes(budget.available_bytes)} are available"
        f" according to {budget.available_from}, {format_bytes(budget.missing_bytes)} too little"
    )


def budget_warnings(budget: RamBudget | None, *, forced: bool = True) -> tuple[str, ...]:
    """Warn about a budget that only ``--force`` allows, or in which something may be missing."""
    found = []
    if budget is not None and budget.growth_bytes and budget.limits_hidden:
        found.append(
            "nothing here shows whether memory is limited (/sys/fs/cgroup does not show the control"
            f" group of this process): if {format_bytes(budget.growth_bytes)} more exceed a"
            " limit, the kernel kills the program that writes them"
        )
    if budget is not None and budget.growth_bytes and budget.unlimited:
        named = ", ".join(budget.unlimited)
        found.append(
            f"{named}: mounted without a size limit (as after `mount -o remount,size=0`), so it"
            " may grow to take all of the memory, and no sum here includes it; unmount it and"
            " mount it anew"
        )
    if budget is not None and not budget.fits and forced:
        found.append(f"--force overrides the memory budget: {arithmetic(budget)}")
    return tuple(found)
