"""Errors that end a ``stage`` run, as a sentence with a hint."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Iterable

from hostprep.errors import (
    LIMIT_HINTS,
    MOUNT_ANEW,
    OF_A_DISK,
    OF_A_SERVER,
    HostprepError,
    NoRoom,
    Refused,
    named_in,
    without_claim,
)
from hostprep.staging.model import StageRequest
from hostprep.staging.reasons import LET_CHOWN, NO_CHOWN
from hostprep.staging.resuming import run_again
from hostprep.staging.target.owned import private_name
from hostprep.system.bounded import QuestionFailed
from hostprep.system.state import state_dir
from hostprep.volumes.paths import NotEmpty

_MOST_NAMED = 3
# Errors that copying meets if a disk fails: ext4 becomes read-only after its first error.
DISK_FAILS = {*OF_A_DISK, errno.EROFS}
SEE_DMESG = "`dmesg` says what happened to a disk or its file system"


def unstage_first(refusal: Refused | None, targets: Iterable[str]) -> Refused | None:
    """If a refusal to mount over files concerns our data sets, add what to do about them."""
    lines = " and ".join(f"`hostprep unstage {shlex.quote(target)}`" for target in targets)
    if isinstance(refusal, NotEmpty) and lines:
        moved = f"hostprep staged that: first {lines}, then stage it again into the volume; or"
        refusal.spec_hint = f"{moved} {refusal.spec_hint}"
        refusal.hint = f"{moved} {refusal.hint}"
    return refusal


def unstage_leftovers(
    refusal: HostprepError | None, targets: Iterable[str], *, prune: bool = False
) -> None:
    """Add to a refusal for lack of room the data sets that the spec does not name.

    ``prune`` would remove them, but only after the volume has been changed: a refused plan is not
    carried out at all.
    """
    lines = [f"`hostprep unstage {shlex.quote(target)}`" for target in targets]
    if not isinstance(refusal, NoRoom) or not lines:
        return
    named = " and ".join(lines[:_MOST_NAMED])
    more = ", and others" if lines[_MOST_NAMED:] else ""
    whom = "them" if lines[1:] else "it"
    after = f"; --prune would remove {whom} only after the volume is changed" if prune else ""
    refusal.spec_hint = (
        f"first {named}{more}, if nobody needs {whom}: the spec does not name {whom}{after}; or"
        f" {refusal.spec_hint}"
    )


def failed(error: OSError, request: StageRequest, then: str) -> HostprepError:
    """Return the error for a step of the run that the kernel refused.

    ``then`` is what the same command does with what was copied.
    """
    name = name_in(error, request)
    where = ""
    if name:
        where = f" ({name})" if name.startswith("/") else f" ({name}, below {request.parent})"
    hint = f"fix that and {run_again(then)}"
    records = f"{state_dir()}/"
    # A directory above the records is named if they could not be made in it.
    of_records = f"{name}/".startswith(records) or records.startswith(f"{name}/")
    if error.errno in LIMIT_HINTS and not (error.errno == errno.EAGAIN and name):
        limit = LIMIT_HINTS[error.errno].partition(", and run")[0]
        hint = f"{limit}, and {run_again(then)}"
    elif name.startswith("/") and of_records:
        hint = "hostprep keeps its records there; HOSTPREP_STATE_DIR=DIR moves them elsewhere"
    elif error.errno in (errno.EACCES, errno.EPERM) and os.geteuid() != 0:
        hint = "run it with sudo, or choose a target that you may write to"
    elif error.strerror == NO_CHOWN:
        hint = f"{LET_CHOWN} and {run_again(then)}"
    elif error.errno == errno.EPERM:
        hint = f"{what_is_fixed(request.parent)}; {hint}"
    elif error.errno in DISK_FAILS:
        hint = f"{SEE_DMESG}: {hint}"
    elif error.errno in OF_A_SERVER:
        hint = f"{MOUNT_ANEW}, and {run_again(then)}"
    elif isinstance(error, QuestionFailed) and error.hint is not None:
        hint = error.hint
    return HostprepError(
        f"staging failed: {error.strerror or error}{where}; the source was not touched.",
        hint,
    )


def name_in(error: OSError, request: StageRequest) -> str:
    """Return what an error of the run names, empty if that is nothing."""
    name = named_in(error) or ""
    if name.startswith("/proc/self/fd/"):  # a journal's: nobody else can look there
        return f"{private_name(request.name)}/{os.path.basename(name)}"
    return name


def what_is_fixed(parent: str) -> str:
    """Return how to find files that even root may not change, hidden ones included."""
    return f"`lsattr -Ra {shlex.quote(parent)}` shows what is immutable or append-only (chattr -ia)"


def refused_late(refusal: Refused, volume: str) -> HostprepError:
    """Return a refusal as a failure, after this run has mounted or changed the volume.

    The refusal's own message and code would say that nothing was changed.
    """
    said = without_claim(refusal.message).removesuffix(".")
    return HostprepError(
        f"{said}; nothing was published. The volume {volume} was mounted or changed before, and"
        " stays as it is now.",
        refusal.hint,
        spec_hint=refusal.spec_hint,
    )


def gone(request: StageRequest) -> HostprepError:
    """Return the error if files that the plan relies on are gone, with their volume or by hand.

    The plan does not copy those, so they would be missing but called verified.
    """
    return HostprepError(
        f"what was at {request.target}, or was kept for it, is gone: it was there a moment ago;"
        " nothing was published.",
        "run the same command again",
    )
