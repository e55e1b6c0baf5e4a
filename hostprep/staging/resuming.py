"""Whether a run continues with what an earlier one copied but did not publish, and the messages."""

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
    """Return the option that makes each run copy unpublished files anew; None without one.

    A disk may not have stored everything that an interrupted run copied, and without hashes nothing
    would show what is missing.
    """
    if full_check:
        return "--full-check"
    return "--verify none" if verify == Verify.NONE and not in_ram else None


def what_comes_of_it(request: StageRequest, *, in_ram: bool) -> str:
    """Return what the same command does with the copies of this run if it is interrupted."""
    option = begins_anew(request.verify, full_check=request.full_check, in_ram=in_ram)
    return GOES_ON if option is None else NEXT_BEGINS_ANEW[option]


def run_again(then: str | None) -> str:
    """Return what to do after an interrupted run; ``then`` says what happens to its copies.

    ``then`` is None if there are none, or if that is unknown.
    """
    return "run the same command again" + ("" if then is None else f": {then}")


def is_in_ram(path: str) -> bool:
    """Whether ``path``, or its nearest existing parent, is on a file system in memory."""
    mount = mount_containing(followed(path), read_mounts())
    return mount is not None and mount.fstype in IN_MEMORY
