"""Does the GPU compute while the next batch is copied, and does the right batch arrive?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError
from hostprep.readiness.checks import _gpus
from hostprep.readiness.context import Context
from hostprep.readiness.model import Check, Finding, Level, Measured, Remedy, Severity, Status

# INCONCLUSIVE and ERROR say nothing about the GPU. A SKIP beside tests that ran is UNKNOWN as well:
# nobody knows about what was skipped.
_STATUSES = {
    "PASS": Status.PASS,
    "WARN": Status.WARN,
    "FAIL": Status.FAIL,
    "SKIP": Status.SKIP,
    "INCONCLUSIVE": Status.UNKNOWN,
    "ERROR": Status.UNKNOWN,
}
# HP054 and HP057 already report these.
_SAID_ELSEWHERE = ("device.ecc", "device.persistence")


@dataclass(frozen=True, slots=True)
class Facts:
    """The document of ``hostprep verify --json``, or why there is none: we have no GPU here."""

    document: dict[str, Any] | None
    no_gpu: str = ""


def look(context: Context) -> Facts:
    """Run the short smoke test on every GPU, and keep the result."""
    gpus = _gpus.look(context)
    nothing = gpus.no_hardware and gpus.driver.other is None
    if nothing or gpus.withheld is not None:
        return Facts(None, gpus.withheld or "this host has no NVIDIA GPU")
    document = context.measure("verify", _verify)
    context.forget("last", "verify")
    return Facts(document)


class _Silent:
    def stage(self, subject: str, name: str) -> None:
        """Ignore it."""


def _verify() -> dict[str, Any]:
    from hostprep.cuda import session
    from hostprep.system.last_results import keep_last

    report = session.verify(device=None, quick=True, folder=None, observer=_Silent())
    fields = session.report_fields(report)
    try:
        if report.traces:
            keep_last("verify", fields)
    except (HostprepError, OSError):
        pass  # the report then has an older plot, or none
    return fields


def judge(facts: Facts) -> Iterator[Finding]:
    """Judge each device: one line for all that passed, one for everything else."""
    if facts.document is None:
        yield Finding(Status.SKIP, "GPU", f"{facts.no_gpu}.")
        return
    partial = facts.document["verdict"] != "SKIP"
    checks = [each for each in facts.document["checks"] if each["name"] not in _SAID_ELSEWHERE]
    for subject in dict.fromkeys(each["subject"] for each in checks):
        mine = [each for each in checks if each["subject"] == subject]
        passed = [each for each in mine if each["status"] == "PASS"]
        if passed:
            names = ", ".join(each["name"] for each in passed)
            text = f"{len(passed)} of {len(mine)} tests passed"
            message = f"{subject}: {text}: {names}."
            measured = Measured(text, len(passed), "tests", "higher")
            yield Finding(Status.PASS, subject, message, measured)
        yield from (_finding(each, partial) for each in mine if each["status"] != "PASS")


def _finding(check: dict[str, Any], partial: bool) -> Finding:
    status, threshold = _STATUSES[check["status"]], check["threshold"]
    if partial and status is Status.SKIP:
        status = Status.UNKNOWN
    value = check["measured"]
    unit = f" {check['unit']}" if check["unit"] else ""
    return Finding(
        status,
        f"{check['subject']} {check['name']}",
        f"{check['message'].rstrip('.')}.",
        None if value is None else Measured(f"{value}{unit}", value, check["unit"]),
        threshold and threshold["text"],
        threshold and threshold["source"],
        remedy=None
        if status is Status.SKIP
        else Remedy(
            ("hostprep verify",), check["remedy"] or "runs all tests again, with more time"
        ),
    )


CHECK = Check(
    code="HP065",
    title="smoke test of CUDA",
    severity=Severity.CRITICAL,
    verdicts=frozenset({Status.PASS, Status.WARN, Status.FAIL, Status.UNKNOWN, Status.SKIP}),
    look=look,
    judge=judge,
    level=Level.FULL,
    page="""\
With `--full`, runs `hostprep verify --quick` on every GPU, for some 20 seconds each: torch starts
CUDA, copies overlap with compute, each batch arrives byte for byte, the link reaches its rate, and
the prefetcher keeps up. It runs in a process of its own, which is ended if it hangs.

**FAIL**: one of the tests failed; the finding has its message and remedy.
**WARN**: a test found something worth a look.
**UNKNOWN**: a test was inconclusive (others kept the GPU busy), a part of it was left out (the
memory of the GPU was full, or no time was left), or the test itself broke off.

If nothing at all was tested, because there is no GPU, no torch, or no CUDA in torch, the result is
SKIP, not PASS.
""",
)
