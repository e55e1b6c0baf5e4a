"""Whether a copy is fresh or stale: what the next run would have to do to it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence, Set
from typing import Any

from hostprep.errors import (
    HostprepError,
    one_line,
)
from hostprep.host.answering import WHICH_MOUNT, silent_ones
from hostprep.host.block import locate
from hostprep.host.mounts import read_mounts
from hostprep.staging.observer import Observer
from hostprep.staging.planning import scan_source, target_lookers
from hostprep.staging.plans.changed import who_changed
from hostprep.staging.plans.update import plan_update
from hostprep.staging.publishing.published import open_published
from hostprep.staging.record.damage import damage
from hostprep.staging.record.manifest import ManifestIndex
from hostprep.staging.record.records import ClosedManifest, Record, manifest_of
from hostprep.staging.source.opening import is_served, open_source
from hostprep.staging.source.submounts import missing
from hostprep.staging.target.apart import check_not_source
from hostprep.staging.target.place import open_parent
from hostprep.staging.target.strangers import exchanged_refusal
from hostprep.system.bounded import NoAnswerInTime, QuestionFailed, ask_in_child
from hostprep.units import format_count

_SOURCE_SECONDS = 10.0


def silent_sources(sources: Sequence[str], observer: Observer) -> Set[str]:
    """Return those sources that do not answer at all; all are waited for together, for 10 s."""
    waiting = _begin("data sets with their sources", observer)
    return silent_ones(sources, _SOURCE_SECONDS, waiting)


def no_answer(record: Record) -> tuple[str, str, str | None]:
    """Return freshness, reason and hint if the source does not answer."""
    return (
        "unknown",
        f"its source has not answered for {_SOURCE_SECONDS:g} s: is its server gone?",
        f"{WHICH_MOUNT}; until it is back, the copy can be used as it is",
    )


def _begin(what: str, observer: Observer) -> Callable[[float], None]:
    """Begin to compare, and return what is to be told the seconds that it has taken so far."""
    observer.phase(f"comparing {what}", files=math.ceil(_SOURCE_SECONDS))
    return lambda seconds: observer.progress(int(seconds), 0)


def freshness_of(record: Record, observer: Observer) -> tuple[str, str, str | None]:
    """Return freshness, reason and hint."""
    on_wait = _begin(f"{one_line(record.name)} with its source", observer)
    try:
        answer = ask_in_child(
            lambda: _compare(record), patience_seconds=_SOURCE_SECONDS, on_wait=on_wait
        )
    except NoAnswerInTime:
        return "unknown", f"the source was not read through within {_SOURCE_SECONDS:g} s", None
    except QuestionFailed as error:
        return "unknown", str(error), error.hint
    if answer["unreadable"]:
        count = format_count(answer["unreadable"], "folder")
        return "unknown", f"{count} of the source cannot be read", None
    if answer["empty"] and record.files:  # a run refuses to copy this
        return "unknown", "the source is empty: is its file system mounted?", None
    if place := answer["not_mounted"]:  # and this
        return (
            "unknown",
            f"{one_line(place)} is empty, where a file system was mounted before",
            None,
        )
    if answer["damaged"]:  # the counts would call files of ours somebody else's
        return "stale", answer["damaged"], answer["helps"]
    parts = [
        f"{answer[key]:,} {words}"
        for key, words in (
            ("copy", "to copy"),
            ("delete", "to delete"),
            ("blocked", "whose place on the target is taken"),
            ("folders", f"folder{'' if answer['folders'] == 1 else 's'} to bring up to date"),
            ("foreign", "not staged by hostprep"),
        )
        if answer[key]
    ]
    parts = [", ".join(parts)] if parts else []
    if answer["by_hand"]:
        parts.append("the source is as it was staged: the copy was changed by hand")
    stale = any(answer[key] for key in ("copy", "delete", "blocked", "folders"))
    return ("stale" if stale else "fresh"), "; ".join(parts), None


def _compare(record: Record) -> dict[str, Any]:
    """Scan source and target and count what a ``stage`` run would do; run in a child process."""
    check_not_source(record)  # the source itself would always be fresh
    parent_fd = open_parent(os.path.dirname(record.target))
    published_fd = open_published(parent_fd, record.name)
    if published_fd is None:
        raise HostprepError("it is not on the target")
    try:
        manifest = manifest_of(record)
    except ClosedManifest as closed:
        raise HostprepError(closed.found, closed.hint) from None
    with open_source(record.source) as source_fd:
        storage_class = locate(record.source).storage_class
        served = is_served(record.source, storage_class)
        scan = scan_source(source_fd, storage_class, served=served)
        plan = plan_update(
            scan,
            manifest=manifest,
            journal=ManifestIndex([]),
            published_fd=published_fd,
            private_fd=None,
            lookers=target_lookers(locate(record.target).storage_class),
        )
        exchanged = exchanged_refusal(record, published_fd)
        if not plan.nothing_to_do and (forbidden := exchanged or plan.opens):
            raise forbidden
        source, copy = who_changed(plan, manifest)
        damaged = damage(record, manifest, plan.strangers)
    # What failed when it was staged would be tried again, but does not make it stale.
    failed = {item.path for item in record.skipped if item.failed}
    return {
        "copy": plan.copied.files + len(plan.links) - plan.copies_among(failed),
        "delete": len(plan.delete) + len(plan.delete_directories),
        "blocked": sum(item.blocked and item.path not in failed for item in plan.skipped),
        "folders": len(set(plan.make_directories) - failed),
        "foreign": len(plan.foreign),
        "by_hand": copy and not source,
        "damaged": damaged and damaged.found,
        "helps": damaged and damaged.anew,
        "unreadable": len(scan.unreadable),
        "empty": scan.holds_nothing,
        "not_mounted": missing(record, scan, read_mounts()),
    }
