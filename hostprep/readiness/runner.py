"""Runs checks: the quick ones at the same time, the full ones one after another.

A check that fails or hangs is UNKNOWN, and does not affect the others.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Iterable
from typing import Any, Protocol

from hostprep.errors import HostprepError, failed_by_host
from hostprep.readiness.context import FULL_SECONDS, Context
from hostprep.readiness.model import CannotTell, Check, Finding, Level, Remedy, Result, Status
from hostprep.readiness.side_by_side import begin


class Observer(Protocol):
    """Is told what is being checked."""

    def looking(self, title: str) -> None:
        """Say that a check, or all the quick ones, has begun."""


def run_checks(
    checks: Iterable[Check[Any]], context: Context, observer: Observer
) -> tuple[Result, ...]:
    """Return the findings of all checks, in their order.

    A quick check runs in a thread, which is abandoned when its time is up. A full check puts load
    on the machine, so two at once would measure each other; it runs in the main thread, where
    Ctrl-C reaches it and it can clean up.
    """
    checks = tuple(checks)
    full = [check for check in checks if check.level is Level.FULL]
    quick = [check for check in checks if check.level is Level.QUICK]
    later = [check for check in quick if check.after_full] if full else []
    observer.looking("quick checks")
    found = _at_once([check for check in quick if check not in later], context)
    for check in full:
        observer.looking(check.title)
        found[check.code] = run_check(check, context)
    found |= _at_once(later, context)
    return tuple(
        Result(check.code, check.title, check.severity, finding)
        for check in checks
        for finding in found[check.code]
    )


def _at_once(checks: Iterable[Check[Any]], context: Context) -> dict[str, tuple[Finding, ...]]:
    """Run quick checks at the same time, and abandon those whose time is up."""
    begun = time.monotonic()
    found: dict[str, tuple[Finding, ...]] = {}
    waiting = [(check, _start(check, context)) for check in checks]
    for check, answer in waiting:
        # With --full nobody is in a hurry, and a machine under load should be judged as well.
        limit = FULL_SECONDS if context.level is Level.FULL else check.limit_seconds
        left = begun + limit - time.monotonic()
        try:
            found[check.code] = answer.get(timeout=max(0.0, left))
        except queue.Empty:
            found[check.code] = (_late(check, limit),)
    return found


def run_check(check: Check[Any], context: Context) -> tuple[Finding, ...]:
    """Return the findings of one check; if it raises, that is an UNKNOWN."""
    try:
        return tuple(check.judge(check.look(context)))
    except CannotTell as error:
        remedy = Remedy(error.commands, error.hint)
        return (Finding(Status.UNKNOWN, "host", error.message, remedy=remedy),)
    except Exception as error:
        known = error if isinstance(error, HostprepError) else failed_by_host(error)
        if known is not None:
            hint = known.hint or "fix that, then check again"
            return (Finding(Status.UNKNOWN, "host", known.message, remedy=Remedy(hint=hint)),)
        said = f"the check failed with {type(error).__name__}: {error}"
        hint = f"this is a bug in hostprep; meanwhile: --skip {check.code}"
        return (Finding(Status.UNKNOWN, "host", said, remedy=Remedy(hint=hint)),)


def _start(check: Check[Any], context: Context) -> queue.SimpleQueue[tuple[Finding, ...]]:
    answer: queue.SimpleQueue[tuple[Finding, ...]] = queue.SimpleQueue()
    begin(lambda: answer.put(run_check(check, context)), name=check.code)
    return answer


def _late(check: Check[Any], limit_seconds: float) -> Finding:
    return Finding(
        Status.UNKNOWN,
        "host",
        f"no answer within {limit_seconds:g} s: something that the check looks at hangs, or the"
        " machine is very busy.",
        remedy=Remedy(
            (f"hostprep check --full --only {check.code}",),
            f"run alone, with up to {FULL_SECONDS:g} s to answer, it shows whether it hangs;"
            " processes in state D hang too: ps -eo pid,stat,wchan:30,args | grep ' D'",
        ),
    )
