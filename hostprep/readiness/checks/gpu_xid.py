"""Has the driver reported errors of the GPUs since the boot?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hostprep.errors import HostprepError
from hostprep.readiness.checks import _gpus
from hostprep.readiness.context import Context
from hostprep.readiness.model import CannotTell, Check, Finding, Measured, Remedy, Severity, Status

_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+),? ?(.*)")
_DMESG = ("dmesg",)
_JOURNAL = ("journalctl", "--dmesg", "--boot", "--quiet", "--output=cat", "--grep=NVRM: Xid")
_FROM = "NVIDIA, Xid errors: catalogue and what to do"
# Programs cause these themselves (a bad access, an end that came early).
_OF_PROGRAMS = frozenset({8, 13, 31, 32, 43, 45, 68, 69})
# Work goes on, and the card wants a reset soon (a row is replaced, an error was contained).
_OF_NOTE = frozenset({63, 92, 94})
# Everything else is of the hardware or the driver itself: 48, 62, 64, 74, 79, 95, 119, 120, ...


@dataclass(frozen=True, slots=True)
class Xid:
    """An error's number, on which GPU, how often, and the last words of the driver about it."""

    address: str
    number: int
    count: int
    words: str


@dataclass(frozen=True, slots=True)
class Facts:
    """``xids`` is None where there is no GPU, and the log was not looked at."""

    xids: tuple[Xid, ...] | None


def look(context: Context) -> Facts:
    """Read the kernel's log: the ring buffer, or where that is closed to us, the journal."""
    if _gpus.look(context).no_hardware:
        return Facts(None)
    found: dict[tuple[str, int], Xid] = {}
    for address, number, words in _XID.findall(_log(context)):
        key = address, int(number)
        before = found[key].count if key in found else 0
        found[key] = Xid(address, int(number), before + 1, words.strip().rstrip("."))
    return Facts(tuple(found.values()))


def _log(context: Context) -> str:
    done = context.command(_DMESG, wanted_for="read the kernel's log", package="util-linux")
    if done.returncode == 0:
        return done.stdout
    try:
        journal = context.command(_JOURNAL, wanted_for="read the kernel's log", package="systemd")
        if not journal.stderr.strip():  # it says there what this user may not see
            return journal.stdout
    except HostprepError:
        pass
    raise CannotTell(
        "the kernel's log, where the driver reports errors, may not be read by this user.",
        "run the check as root, or let the group adm read the journal",
    )


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge each number on each GPU."""
    if facts.xids is None:
        yield Finding(Status.SKIP, "GPU", "this host has no NVIDIA GPU.")
        return
    grave = [xid for xid in facts.xids if xid.number not in _OF_PROGRAMS]
    for xid in grave:
        yield _judge_one(xid)
    if not grave:
        numbers = ", ".join(sorted({str(xid.number) for xid in facts.xids}))
        message = "the driver has reported no error of a GPU since the boot."
        if numbers:
            message = f"no error of a GPU; programs caused Xid {numbers} by themselves."
        measured = Measured(f"Xid {numbers}" if numbers else "no Xid", 0, "errors", "lower")
        yield Finding(Status.PASS, "GPU", message, measured, "none", _FROM, 0)


def _judge_one(xid: Xid) -> Finding:
    of_note = xid.number in _OF_NOTE
    times = "" if xid.count == 1 else f" {xid.count} times"
    return Finding(
        Status.WARN if of_note else Status.FAIL,
        f"Xid {xid.number} on {xid.address}",
        f"the driver reported Xid {xid.number} of the GPU at {xid.address}{times}: {xid.words}.",
        Measured(f"Xid {xid.number}", xid.count, "errors", "lower"),
        "none",
        _FROM,
        0,
        Remedy(
            (
                "nvidia-smi -q -d ECC,ROW_REMAPPER",
                "nvidia-smi --gpu-reset" if of_note else "systemctl reboot",
            ),
            "end what uses the GPUs first; if it comes again, the card, its cables or its slot",
        ),
    )


CHECK = Check(
    code="HP055",
    title="the driver reports no errors",
    severity=Severity.CRITICAL,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.FAIL, Status.UNKNOWN, Status.SKIP}),
    look=look,
    judge=judge,
    page="""\
The driver reports errors of GPUs as `NVRM: Xid` in the kernel's log. It is read from the kernel's
ring buffer (`dmesg`), or from the journal, since this boot and as far as it reaches.

Some numbers are programs' own mistakes (13, 31, 43, 45): they are named and no fault of the host.

**FAIL** any other: memory that failed (48, 64, 95), the GPU fell off the bus (79), its system
processor does not answer (119, 120), NVLink (74). A training there ends sooner or later, or hangs.
**WARN** 63, 92 and 94: contained; the row is replaced when the GPU is reset. The log forgets with
the reboot, so the check is clean after it. **UNKNOWN** the log is closed to this user.
""",
)
