"""What is recorded about a failed run: the reason."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from hostprep.errors import HostprepError, without_claim
from hostprep.staging.execute import NotWritten
from hostprep.staging.model import StageResult
from hostprep.staging.planning import StagePlan
from hostprep.staging.processes.pool import TaskFailed
from hostprep.staging.record.records import folder, folder_of, load_record, save_record
from hostprep.staging.shortfall import shortfall_of

_AS_IT_SAID = "it said why"


@contextmanager
def failure_on_record(plan: StagePlan) -> Iterator[None]:
    """If the body raises an error, record it so that ``status`` shows what ended the run."""
    try:
        yield
    except (HostprepError, OSError) as error:
        _keep(plan, _nameless(error))
        raise


def keep_shortfall(plan: StagePlan, result: StageResult) -> StageResult:
    """Record for ``status`` why a run could not publish, and return its ``result``."""
    shortfall = shortfall_of(result, partial=plan.request.partial)
    if shortfall is not None and not result.published:
        _keep(plan, shortfall.message.removesuffix("."))
    return result


def _nameless(error: HostprepError | OSError) -> str:
    """Return an error's message without names, for all who may read the record."""
    if isinstance(error, NotWritten):
        return without_claim(error.message).removesuffix(".")
    cause = error.__cause__ if isinstance(error.__cause__, TaskFailed) else error
    if isinstance(cause, OSError | TaskFailed) and cause.errno:
        return os.strerror(cause.errno)
    return _AS_IT_SAID


def _keep(plan: StagePlan, failure: str) -> None:
    request = plan.request
    with suppress(OSError, HostprepError):  # its own disk may fail as well
        record = load_record(request.name, request.target)
        if record is None or folder_of(record) != folder(request.name, request.target):
            return
        save_record(replace(record, failure=failure), durable=not plan.in_ram)
