"""What stays on record of a run that failed: why, and whether its copies may be taken up."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from hostprep.errors import HostprepError, without_claim
from hostprep.staging.execute import NotWritten
from hostprep.staging.failures import SEE_DMESG, failed
from hostprep.staging.model import StageResult, Verify
from hostprep.staging.planning import StagePlan
from hostprep.staging.processes.pool import TaskFailed
from hostprep.staging.record.records import folder, folder_of, load_record, save_record
from hostprep.staging.shortfall import shortfall_of
from hostprep.staging.target.private import PrivateDir
from hostprep.system.flushing import flush_file_system

_AS_IT_SAID = "it said why"
_ANEW = "mend that and run the same command again: it copies anew, as the disk did not take all"


@contextmanager
def failure_on_record(plan: StagePlan, private: PrivateDir) -> Iterator[None]:
    """Have ``status`` say what ended the run in the body, where that raises an error.

    A disk that fails did not take all that was copied, also of what was written without an error.
    Only a run that reads back from the disk sees of what: no other may take the copies up.
    """
    try:
        yield
    except (HostprepError, OSError) as error:
        read_back = plan.in_ram or plan.request.verify is Verify.READBACK
        doubtful = not read_back and not _is_written(error, private)
        if doubtful:
            with suppress(OSError):  # its file system is read-only by now
                private.drop_journals()
        _keep(plan, _nameless(error), doubtful=doubtful)
        if not doubtful:
            raise
        told = failed(error, plan.request) if isinstance(error, OSError) else error
        told.hint = told.spec_hint = f"{SEE_DMESG}: {_ANEW}"
        raise told from error.__cause__


def keep_shortfall(plan: StagePlan, result: StageResult) -> StageResult:
    """Have ``status`` say what kept a run from publishing, and return its ``result``."""
    shortfall = shortfall_of(result, partial=plan.request.partial)
    if shortfall is not None and not result.published:
        _keep(plan, shortfall.message.removesuffix("."))
    return result


def _is_written(error: HostprepError | OSError, private: PrivateDir) -> bool:
    """Whether the disk has all that was copied, as far as its file system tells.

    It tells once what could not be written, and takes it for written from then on.
    """
    if isinstance(error, NotWritten):
        return False
    try:
        flush_file_system(private.fd)
    except OSError:
        return False
    return True


def _nameless(error: HostprepError | OSError) -> str:
    """Return what is said of an error to all who may read the record."""
    if isinstance(error, NotWritten):
        return without_claim(error.message).removesuffix(".")
    cause = error.__cause__ if isinstance(error.__cause__, TaskFailed) else error
    if isinstance(cause, OSError | TaskFailed) and cause.errno:
        return os.strerror(cause.errno)
    return _AS_IT_SAID


def _keep(plan: StagePlan, failure: str, *, doubtful: bool = False) -> None:
    request = plan.request
    with suppress(OSError, HostprepError):  # its own disk fails as well
        record = load_record(request.name, request.target)
        if record is None or folder_of(record) != folder(request.name, request.target):
            return
        record = replace(record, failure=failure, doubtful=record.doubtful or doubtful)
        save_record(record, durable=not plan.in_ram)
