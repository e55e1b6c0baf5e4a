"""Has the driver reported GPU errors since boot?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hostprep.dataclass import dataclass
from hostprep.readiness.checks import _gpus
from hostprep.readiness.checks._kernel_log import KernelLog, read_kernel_log
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Measured, Remedy, Severity, Status
from hostprep.units import format_seconds

_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+),? ?(.*)")
_FROM = "NVIDIA, Xid errors: catalogue and what to do"
# Programs cause these themselves (an invalid access, a premature exit).
_OF_PROGRAMS = frozenset({8, 13, 31, 32, 43, 45, 68, 69})
# Work continues, but the card needs a reset soon (a row was remapped, an error was contained).
_OF_NOTE = frozenset({63, 92, 94})
# Everything else is the hardware's or the driver's own: 48, 62, 64, 74, 79, 95, 119, 120, ...
# A day without errors counts as good; a log that covers less time is worth a warning.
_LONG_SECONDS = 86400.0


@dataclass(frozen=True, slots=True)
class Xid:
    """An error's number, its GPU, how often it came, and the driver's last message about it."""

    address: str
    number: int
    count: int
    words: str


@dataclass(frozen=True, slots=True)
class Facts:
    """The errors in the log; ``log`` is None if it was not read because there is no GPU."""

    xids: tuple[Xid, ...]
    log: KernelLog | None


def look(context: Context) -> Facts:
    """Find the errors in the kernel's log; those in two overlapping texts count once."""
    if _gpus.look(context).no_hardware:
        return Facts((), None)
    log = read_kernel_log(context, "NVRM: Xid")
    found: dict[tuple[str, int], Xid] = {}
    for text in log.texts:
        for key, xid in _errors_in(text).items():
            if key not in found or found[key].count < xid.count:
                found[key] = xid
    return Facts(tuple(found.values()), log)


def _errors_in(text: str) -> dict[tuple[str, int], Xid]:
    found: dict[tuple[str, int], Xid] = {}
    for address, number, words in _XID.findall(text):
        key = address, int(number)
        before = found[key].count if key in found else 0
        found[key] = Xid(address, int(number), before + 1, words.strip().rstrip("."))
    return found


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge each error number on each GPU."""
    if facts.log is None:
        yield Finding(Status.SKIP, "GPU", "this host has no NVIDIA GPU.")
        return
    grave = [xid for xid in facts.xids if xid.number not in _OF_PROGRAMS]
    for xid in grave:
        yield _judge_one(xid)
    if not grave and facts.log.closed:
        message = (
            "this user or container may not read the kernel's log, where the driver reports errors,"
            " so it was not looked at; as root, on the host itself, run hostprep check --only"
            " HP055. Members of the groups adm and systemd-journal may read it too."
        )
        yield Finding(Status.SKIP, "GPU", message, Measured("not looked at", None))
    elif not grave:
        yield _judge_none(facts.log, sorted({xid.number for xid in facts.xids}))


def _judge_none(log: KernelLog, of_programs: list[int]) -> Finding:
    """Judge a log without errors of a GPU: it only covers the time that it reaches back."""
    since, remedy = "since boot", None
    if not log.whole:
        reach = log.reach_seconds
        known = "it is not known how far" if reach is None else format_seconds(reach)
        since = f"as far back as the kernel's log reaches ({known}); older lines were overwritten"
        if reach is None or reach < _LONG_SECONDS:
            remedy = Remedy(
                ("mkdir -p /var/log/journal", "systemctl restart systemd-journald"),
                "from the next boot on, a journal on disk keeps what the kernel's ring buffer"
                " drops; dmesg | tail shows what fills it",
            )
    numbers = ", ".join(map(str, of_programs))
    message = f"the driver has reported no GPU error {since}."
    if numbers:
        message = f"{message[:-1]}; programs, not the GPU, caused Xid {numbers}."
    return Finding(
        Status.PASS if remedy is None else Status.WARN,
        "GPU",
        message,
        Measured(f"Xid {numbers}" if numbers else "no Xid", 0, "errors", "lower"),
        "none",
        _FROM,
        0,
        remedy,
    )


def _judge_one(xid: Xid) -> Finding:
    of_note = xid.number in _OF_NOTE
    times = "" if xid.count == 1 else f" {xid.count} times"
    return Finding(
        Status.WARN if of_note else Status.FAIL,
        f"Xid {xid.number} on {xid.address}",
        f"the driver reported Xid {xid.number} for the GPU at {xid.address}{times}: {xid.words}.",
        Measured(f"Xid {xid.number}", xid.count, "errors", "lower"),
        "none",
        _FROM,
        0,
        _after(xid, of_note),
    )


def _after(xid: Xid, of_note: bool) -> Remedy:
    """Return the remedy; it has no reboot to paste, which would end everything that runs."""
    look, again = "nvidia-smi -q -d ECC,ROW_REMAPPER", "check the card, its cables and its slot"
    if of_note:
        return Remedy(
            (look, f"nvidia-smi --gpu-reset -i {_function(xid.address)}"),
            f"end what uses the GPUs first; if it comes again, {again}; it stays in the log, and"
            " this check reports it, until the next boot",
        )
    return Remedy(
        (look,),
        f"end what uses the GPUs, then reboot (systemctl reboot); if it comes again, {again}",
    )


def _function(address: str) -> str:
    """Return the address in nvidia-smi's form: the driver's log leaves out the function."""
    return address if "." in address else f"{address}.0"


CHECK = Check(
    code="HP055",
    title="the driver reports no errors",
    severity=Severity.CRITICAL,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.FAIL, Status.UNKNOWN, Status.SKIP}),
    look=look,
    judge=judge,
    limit_seconds=_gpus.DRIVER_SECONDS,
    page="""\
The driver reports GPU errors as `NVRM: Xid` in the kernel's log. The check reads the kernel's ring
buffer (`dmesg`) and, if that was overwritten or this user may not read it, the journal. If the
kernel's first line (`Linux version ...`) is still there, the log is complete. If not, the check
says how far back it reaches: a chatty firewall overwrites the ring buffer within hours.

Some numbers are caused by programs themselves (such as 13, 31, 43, 45): they are named, but are not
the fault of the host.

**FAIL**: any other number: memory that failed (48, 64, 95), a GPU that fell off the bus (79), a GPU
system processor that does not answer (119, 120), NVLink (74). A training run on that GPU ends
sooner or later, or hangs.
**WARN**: 63, 92 and 94: the error was contained, and the row is replaced when the GPU is reset. Or
the log reaches back less than a day, so that earlier errors are not known. The log starts anew at a
reboot, so the check is clean after one.
**UNKNOWN**: reading the log fails. If this user or container may not read it
(`kernel.dmesg_restrict`, no CAP_SYSLOG, not in group adm), it was not looked at, and the result is
SKIP.
""",
)
