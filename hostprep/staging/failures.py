"""What ended a run of ``stage``, as a sentence and what to do."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Iterable

from hostprep.errors import OF_A_DISK, HostprepError, NoRoom, Refused, without_claim
from hostprep.staging.model import LET_CHOWN, NO_CHOWN, StageRequest
from hostprep.staging.resuming import run_again
from hostprep.staging.target.owned import private_name
from hostprep.system.bounded import QuestionFailed
from hostprep.system.state import state_dir
from hostprep.volumes.paths import NotEmpty

_MOST_NAMED = 3
# What copies meet whose disk fails: ext4 is read-only after its first error.
DISK_FAILS = {*OF_A_DISK, errno.EROFS}
SEE_DMESG = "`dmesg` tells what became of a disk or its file system"


def unstage_first(refusal: Refused | None, targets: Iterable[str]) -> Refused | None:
    """Have a refusal to mount over what lies there say what is to be done about our data sets."""
    lines = " and ".join(f"`hostprep unstage {shlex.quote(target)}`" for target in targets)
    if isinstance(refusal, NotEmpty) and lines:
        moved = f"hostprep staged that: {lines} first, and stage it again into the volume; or"
        refusal.spec_hint = f"{moved} {refusal.spec_hint}"
        refusal.hint = f"{moved} {refusal.hint}"
    return refusal


def unstage_leftovers(
    refusal: HostprepError | None, targets: Iterable[str], *, prune: bool = False
) -> None:
    """Have a refusal for want of room name what takes it, and what the spec does not name.

    With ``prune`` it would go, but after the volume is as it is to be: what a plan refuses keeps
    all of it from being done.
    """
    lines = [f"`hostprep unstage {shlex.quote(target)}`" for target in targets]
    if not isinstance(refusal, NoRoom) or not lines:
        return
    named = " and ".join(lines[:_MOST_NAMED])
    more = ", or others that it does not name" if lines[_MOST_NAMED:] else ""
    whom = "them" if lines[1:] else "it"
    after = f"; --prune would remove {whom} only after the volume is changed" if prune else ""
    refusal.spec_hint = (
        f"{named} first, where nobody needs {whom}: the spec does not name {whom}{more}{after}; or"
        f" {refusal.spec_hint}"
    )


def failed(error: OSError, request: StageRequest, then: str) -> HostprepError:
    """Return the error where the kernel refused a step of the run.

    ``then`` is what the same command does with what was copied.
    """
    named = error.filename2 or error.filename
    name = os.fsdecode(named) if isinstance(named, str | bytes) else ""
    if name.startswith("/proc/self/fd/"):  # by which journals are opened: nobody can look there
        name = f"{private_name(request.name)}/{os.path.basename(name)}"
    where = ""
    if name:
        where = f" ({name})" if name.startswith("/") else f" ({name}, below {request.parent})"
    hint = f"mend that and {run_again(then)}"
    records = f"{state_dir()}/"
    # Or a directory above, which is the one to be named where they could not be made.
    if name.startswith("/") and (f"{name}/".startswith(records) or records.startswith(f"{name}/")):
        hint = "hostprep keeps its records there; HOSTPREP_STATE_DIR names another place for them"
    elif error.errno in (errno.EACCES, errno.EPERM) and os.geteuid() != 0:
        hint = "run it with sudo, or choose a target that you may write to"
    elif error.strerror == NO_CHOWN:
        hint = f"{LET_CHOWN} and {run_again(then)}"
    elif error.errno == errno.EPERM:
        hint = f"{what_is_fixed(request.parent)}; {hint}"
    elif error.errno in DISK_FAILS:
        hint = f"{SEE_DMESG}: {hint}"
    elif isinstance(error, QuestionFailed) and error.hint is not None:
        hint = error.hint
    return HostprepError(
        f"staging failed: {error.strerror or error}{where}; the source was not touched.",
        hint,
    )


def what_is_fixed(parent: str) -> str:
    """Return how to find what not even root may change; some of it may be hidden by its name."""
    return f"`lsattr -Ra {shlex.quote(parent)}` shows what is immutable or append-only (chattr -ia)"


def refused_late(refusal: Refused, volume: str) -> HostprepError:
    """Return as a failure what a rule forbids now that this run has mounted or changed the volume.

    A refusal's own words and code would say that nothing was changed.
    """
    said = without_claim(refusal.message).removesuffix(".")
    return HostprepError(
        f"{said}; nothing was published. The volume {volume} was mounted or changed before, and"
        " stays as it is now.",
        refusal.hint,
        spec_hint=refusal.spec_hint,
    )


def gone(request: StageRequest) -> HostprepError:
    """Return the error where what the plan counts on went with its volume, or by hand.

    What it leaves out as it is there already would be missing, and called verified.
    """
    return HostprepError(
        f"what was at {request.target}, or kept for it, is gone since it was looked at; nothing was"
        " published.",
        "run the same command again",
    )
