"""Does something keep the clock right?"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from errno import EACCES, EPERM
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status
from hostprep.units import format_seconds

# timex.h: the kernel has had no time update lately, or was told that its time is wrong.
_STA_UNSYNC = 0x0040
# Until the next time update, the kernel adds 500 ppm to maxerror (second_overflow() of
# kernel/time/ntp.c). systemd-timesyncd updates it every 2048 s at the latest (timesyncd.conf(5)):
# 1.02 s from one answer to the next, and 2.05 s if one is lost.
_WORST_SECONDS = 2.5


@dataclass(frozen=True, slots=True)
class Facts:
    """What adjtimex(2) says: the UNSYNC bit, and the maximum error of the clock.

    ``refused``: this container or unit may not even ask.
    """

    synchronised: bool
    error_at_most_seconds: float
    refused: bool = False


class _Timex(ctypes.Structure):
    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


# Looked up here because a forked child must not wait for the dynamic linker's lock.
_adjtimex = ctypes.CDLL(None, use_errno=True).adjtimex


def _ask_kernel() -> dict[str, Any]:
    timex = _Timex()  # modes is 0: nothing is set
    if _adjtimex(ctypes.byref(timex)) < 0:
        number = ctypes.get_errno()
        if number in (EPERM, EACCES):
            return {"refused": True}
        raise OSError(number, os.strerror(number))
    return {"status": timex.status, "maxerror": timex.maxerror}


def look(context: Context) -> Facts:
    """Ask the kernel, whichever program keeps its time."""
    said = context.ask("adjtimex", _ask_kernel)
    if said.get("refused"):
        return Facts(False, 0.0, refused=True)
    return Facts(not said["status"] & _STA_UNSYNC, said["maxerror"] / 1e6)


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge what the kernel says about its clock."""
    if facts.refused:
        message = (
            "this container or service may not ask the kernel about its clock (adjtimex is"
            " filtered), so it was not looked at; on the host itself, or without ProtectClock=, run"
            " hostprep check --only HP060."
        )
        yield Finding(Status.SKIP, "clock", message, Measured("not looked at", None))
        return
    error = facts.error_at_most_seconds
    fine = facts.synchronised and error <= _WORST_SECONDS
    message = f"the clock is synchronised, and off by at most {format_seconds(error)}."
    if not facts.synchronised:
        message = (
            "the clock is not synchronised, as far as the kernel knows: left alone, it drifts by"
            " seconds a week or more."
        )
    elif not fine:
        message = (
            f"the clock may be off by {format_seconds(error)}: its time servers have not answered"
            " lately."
        )
    yield Finding(
        Status.PASS if fine else Status.WARN,
        "clock",
        message,
        Measured(
            f"off by at most {format_seconds(error)}" if facts.synchronised else "not synchronised",
            error if facts.synchronised else None,
            "seconds",
            "lower",
        ),
        f"synchronised, to within {format_seconds(_WORST_SECONDS)}",
        "adjtimex(2): STA_UNSYNC and maxerror, which systemd-timesyncd keeps below 1.1 s",
        _WORST_SECONDS,
        None
        if fine
        else Remedy(
            # Without -y the next pasted line would be taken for the answer.
            (
                "apt-get update",
                "apt-get install -y chrony",
                "systemctl enable --now chrony",
                "chronyc waitsync 12",
            ),
            "in a container, do this on its host; if chrony already runs, it needs `rtcsync` in its"
            " configuration to tell the kernel; if systemd-timesyncd is there, use timedatectl"
            " set-ntp true instead; on RHEL and its relatives it is dnf install chrony, and the"
            " unit is chronyd",
        ),
    )


CHECK = Check(
    code="HP060",
    title="the system clock is kept right",
    severity=Severity.MINOR,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.UNKNOWN, Status.SKIP}),
    look=look,
    judge=judge,
    page="""\
Checks whether a program (chrony, systemd-timesyncd, ntpd, ptp4l) tells the kernel the time through
adjtimex(2), and by how much the clock may be wrong at most.

A wrong clock confuses everything that compares times: a source on a file server looks newer or
older than its copy, the logs of several hosts cannot be put in order, and certificates and Kerberos
tickets are refused.

**WARN**: no program tells the kernel the time (a chrony without `rtcsync` keeps the clock right but
does not tell the kernel), or the last update was too long ago: the clock may be wrong by more than
2.5 s. The kernel adds 0.5 ms to this bound for each second since the last update, so this takes
about 80 minutes; systemd-timesyncd asks its server every 34 minutes or more often.
**UNKNOWN**: the kernel returns an error. If a container or a service (`ProtectClock=`) may not ask
the kernel, the result is SKIP.
""",
)
