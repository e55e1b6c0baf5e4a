"""The kernel's log since the boot, and how much of it is still there."""

from __future__ import annotations

import re

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError
from hostprep.host.reading import first_number
from hostprep.readiness.context import Context
from hostprep.readiness.model import CannotTell, NotInstalled

# What the kernel says first: where this line still is, nothing was dropped since.
_FIRST = "Linux version"
_WHOLE = re.compile(rf"^(?:\[[^]]*\] ?)*{_FIRST} ", re.M)
_BEGINS_AT_SECONDS = re.compile(r"\[\s*(\d+\.\d+)\]")
_REFUSED = ("Operation not permitted", "Permission denied")
_WANTED_FOR = "read the kernel's log"


@dataclass(frozen=True, slots=True)
class KernelLog:
    """The texts of the log, which overlap. ``whole``: one of them reaches back to the boot.

    Where none does, the ring buffer reaches back by ``reach_seconds``, None where that is not
    known. ``closed``: the ring buffer is not for this user or container, and the journal neither.
    """

    texts: tuple[str, ...]
    whole: bool
    reach_seconds: float | None = None
    closed: bool = False


def read_kernel_log(context: Context, wanted: str) -> KernelLog:
    """Read the ring buffer, and where that was overwritten or is closed, the journal.

    ``wanted`` is a regular expression for what is asked of the journal. Raises ``CannotTell`` where
    the journal is not whole, and the ring buffer gives another error than that it is closed.
    """
    ring, trouble = _ring(context)
    if ring is not None and _WHOLE.search(ring):
        return KernelLog((ring,), whole=True)
    journal = _journal(context, wanted)
    texts = (journal,) if ring is None else (ring, journal)
    if _WHOLE.search(journal):
        return KernelLog(texts, whole=True)
    if trouble is not None:
        raise CannotTell(f"the kernel's log cannot be read: {trouble}.", "see what dmesg says")
    if ring is None:
        return KernelLog(texts, whole=False, closed=True)
    return KernelLog(texts, whole=False, reach_seconds=_reach_seconds(context, ring))


def _ring(context: Context) -> tuple[str | None, str | None]:
    """Return what dmesg prints, None where that is not for us; then what else went wrong."""
    try:
        done = context.command(("dmesg",), wanted_for=_WANTED_FOR, package="util-linux")
    except NotInstalled:
        return None, None
    except HostprepError as error:
        return None, error.message.rstrip(".")
    if done.returncode == 0:
        return done.stdout, None
    if any(words in done.stderr for words in _REFUSED):
        return None, None
    return None, done.stderr.strip() or f"dmesg ended with {done.returncode}"


def _journal(context: Context, wanted: str) -> str:
    """Return what the journal has of it, and the kernel's first line; "" where none can be read.

    To users who may not see the system's journal it shows their own alone. So that nothing is
    found proves nothing; only the kernel's first line does.
    """
    line = ("journalctl", "--dmesg", "--boot", "--output=cat", f"--grep={wanted}|^{_FIRST}")
    try:
        return context.command(line, wanted_for=_WANTED_FOR, package="systemd").stdout
    except HostprepError:
        return ""


def _reach_seconds(context: Context, ring: str) -> float | None:
    begins = _BEGINS_AT_SECONDS.match(ring)
    uptime = first_number(context.read("proc/uptime"))
    return None if begins is None or uptime is None else max(0.0, uptime - float(begins[1]))
