"""Whether a host's answers to ``provision`` can be shown and used in calculations. Pure.

A host may be damaged, or in somebody else's hands: one answer must not cost the results of all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hostprep.fleet.model import FleetRun, HostOutcome
from hostprep.kinds import (
    all_of,
    is_count,
    is_flag,
    is_number,
    is_text,
    or_none,
    where_there,
    with_fields,
)

_NOT_UNDERSTOOD = (
    "its answer is not understood: hostprep gives no such answer. What was done there is not known"
)


def understood(run: FleetRun) -> FleetRun:
    """Return the run without malformed answers; the hosts that gave them have failed."""
    return replace(run, hosts=tuple(map(_judged, run.hosts)))


def _judged(outcome: HostOutcome) -> HostOutcome:
    documents = tuple(filter(is_whole, outcome.documents))
    if len(documents) == len(outcome.documents):
        return outcome
    words = "\n".join(filter(None, (outcome.message, _NOT_UNDERSTOOD)))
    return replace(outcome, failed=True, message=words, documents=documents)


def is_whole(document: Any) -> bool:
    """Return whether it is what ``apply`` or ``plan`` print, with all the fields that we read.

    A document that reports an error may lack any of them, but those it has must be well-formed.
    """
    if not where_there(_FIELDS)(document):
        return False
    needed = _NEEDED.get(document.get("schema"))
    return needed is not None and (document.get("ok") is False or document.keys() >= needed)


_STEP = with_fields({"kind": is_text, "subject": is_text, "action": is_text, "reason": is_text})
_PROBLEM = with_fields({"kind": is_text, "subject": is_text, "message": is_text})
_UNCHANGED = with_fields(
    {"kind": is_text, "subject": is_text, "reason": is_text, "as_wanted": is_flag}
)
_STAGED = with_fields(
    {
        "dataset": is_text,
        "copied_bytes": is_count,
        "seconds": is_number,
        "bound": or_none(with_fields({"by": is_text})),
    }
)
_FIELDS = {
    "schema": is_text,
    "ok": is_flag,
    "warnings": all_of(is_text),
    "changes": all_of(_STEP),
    "unchanged": all_of(_UNCHANGED),
    "refusals": all_of(_PROBLEM),
    "done": all_of(_STEP),
    "staged": all_of(_STAGED),
}
# The fields that are read from a document without an error.
_PLANNED = {"warnings", "changes", "unchanged", "refusals"}
_NEEDED = {
    "hostprep.plan/1": _PLANNED,
    "hostprep.apply/1": _PLANNED | {"done", "staged"},
}
