"""Whether a run goes on with what one before it copied and did not publish, and what is said."""

from __future__ import annotations

from hostprep.host.block import IN_MEMORY
from hostprep.host.mounts import mount_containing, read_mounts
from hostprep.staging.model import StageRequest, Verify
from hostprep.system.following import followed

GOES_ON = "it goes on with what was copied"
NEXT_BEGINS_ANEW = {
    "--full-check": (
        "it copies anew what was not published, as it trusts nothing that it has not read with its"
        " source; without --full-check it goes on"
    ),
    "--verify none": (
        "it copies anew what was not published, since with --verify none nothing shows what of it"
        " reached the disk; with --verify inflight a run goes on with what one like it copied"
    ),
}


def begins_anew(verify: Verify | str, *, full_check: bool = False, in_ram: bool) -> str | None:
    """Return the option that has each run copy anew what none has published; None without one.

    A disk may not have all that an interrupted run copied, and where there is no hash nothing would
    show what is missing.
    """
    if full_check:
        return "--full-check"
    return "--verify none" if verify == Verify.NONE and not in_ram else None


def what_comes_of_it(request: StageRequest, *, in_ram: bool) -> str:
    """Return what the same command does with the copies of this run, where it is cut short."""
    option = begins_anew(request.verify, full_check=request.full_check, in_ram=in_ram)
    return GOES_ON if option is None else NEXT_BEGINS_ANEW[option]


def run_again(then: str | None) -> str:
    """Return what to do after a run that was cut short; ``then`` is what comes of its copies.

    None where it has none, or where that cannot be told.
    """
    return "run the same command again" + ("" if then is None else f": {then}")


def is_in_ram(path: str) -> bool:
    """Whether ``path``, or the nearest parent that exists, lies on a file system in memory."""
    mount = mount_containing(followed(path), read_mounts())
    return mount is not None and mount.fstype in IN_MEMORY
