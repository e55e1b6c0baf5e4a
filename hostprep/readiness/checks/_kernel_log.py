"""The kernel's log since the boot, and how much of it is still there."""

from __future__ import annotations

import re

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError
from hostprep.host.reading import first_number
from hostprep.readiness.context import Context
from hostprep.readiness.model import CannotTell, NotInstalled

# The kernel's first line: if it is still there, nothing has been dropped since boot.
_FIRST = "Linux version"
_WHOLE = re.compile(rf"^(?:\[[^]]*\] ?)*{_FIRST} ", re.M)
_BEGINS_AT_SECONDS = re.compile(r"\[\s*(\d+\.\d+)\]")
_REFUSED = ("Operation not permitted", "Permission denied")
_WANTED_FOR = "read the kernel's log"


@dataclass(frozen=True, slots=True)
class KernelLog:
    """The texts of the log, which overlap. ``whole``: one of them reaches back to the boot.

    Otherwise the ring buffer reaches back by ``reach_seconds``, None if that is not known.
    ``closed``: this user or container may read neither the ring buffer nor the journal.
    """

    texts: tuple[str, ...]
    whole: bool
    reach_seconds: float | None = None
    closed: bool = False


def read_kernel_log(context: Context, wanted: str) -> KernelLog:
    """Read the ring buffer, and if that was overwritten or may not be read, the journal.

    ``wanted`` is a regular expression for what is searched in the journal. Raises ``CannotTell`` if
    the journal is not whole and reading the ring buffer failed for another reason than a lack of
    rights.
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
    """Return the output of dmesg, None if we may not read it; then any other error."""
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
    return None, done.complaint or f"dmesg ended with {done.returncode}"


def _journal(context: Context, wanted: str) -> str:
    """Return the wanted lines of the journal and the kernel's first; "" if it cannot be read.

    Users who may not see the system's journal see only their own. Therefore finding nothing proves
    nothing, unless the kernel's first line is there.
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
