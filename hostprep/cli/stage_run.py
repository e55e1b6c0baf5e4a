"""Carrying out ``stage``: with several data sets, all are checked before the first one begins."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from hostprep.cli.output import emit_json, error_fields, warn
from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError, Interrupted

if TYPE_CHECKING:
    from hostprep.cli.progress import ProgressReporter
    from hostprep.staging.model import StageRequest, StageResult
    from hostprep.staging.planning import StagePlan
    from hostprep.staging.together import Share


@dataclass(frozen=True, slots=True)
class _Outcome:
    """One data set: its JSON fields, and the error that prevents the run or that it left behind.

    ``share`` is the room that it takes if it is one of several in a dry run.
    """

    fields: dict[str, Any]
    error: HostprepError | None = None
    share: Share | None = None


def stage_all(
    requests: Sequence[StageRequest], *, dry_run: bool, as_json: bool, no_wait: bool
) -> None:
    """Stage the data sets in turn, or show what that would do, and print the result of each.

    Anything that forbids one of several, including too little room for all of them, is raised
    before anything is changed. If one fails later, the others stay as they are by then: the error
    says so, and comes with what was done.
    """
    several = len(requests) > 1
    if several and not dry_run:
        _check_all(requests)
    outcomes: list[_Outcome] = []
    for request in requests:
        try:
            outcome = _stage_one(
                request, dry_run=dry_run, as_json=as_json, no_wait=no_wait, several=several
            )
        except (HostprepError, KeyboardInterrupt) as end:
            if not several:
                raise
            raise _cut_short(end, requests, outcomes) from None
        outcomes.append(outcome)
    error = next((outcome.error for outcome in outcomes if outcome.error), None)
    if error is None and (shares := [outcome.share for outcome in outcomes if outcome.share]):
        from hostprep.staging.together import room_for_all

        error = room_for_all(shares)
    if as_json:
        emit_json("stage", _document(outcomes, error), ok=error is None)
    if error is not None:
        if dry_run and not as_json:
            raise error
        raise typer.Exit(error.exit_code)  # the document, or the end of the run, has reported it


def _document(outcomes: Sequence[_Outcome], error: HostprepError | None) -> dict[str, Any]:
    """Return the fields of the one JSON document."""
    if len(outcomes) == 1:
        return outcomes[0].fields
    return {**_datasets(outcomes), **({} if error is None else {"error": error_fields(error)})}


def _datasets(outcomes: Sequence[_Outcome]) -> dict[str, Any]:
    return {
        "datasets": [{**outcome.fields, "ok": outcome.error is None} for outcome in outcomes],
    }


@contextmanager
def _named(request: StageRequest) -> Iterator[None]:
    """Make an error say which of several data sets it is about."""
    try:
        yield
    except HostprepError as error:
        error.message = f"{request.name}: {error.message}"
        raise


def _check_all(requests: Sequence[StageRequest]) -> None:
    """Raise what forbids one of the runs, or all of them together; changes nothing.

    Each is planned again before it is carried out, because the ones before it change the volume. A
    full check reads the files only then, so that they are not read twice.
    """
    from hostprep.cli.progress import ProgressReporter
    from hostprep.staging.planning import check_ends, plan_stage
    from hostprep.staging.together import room_for_all, share_of

    for request in requests:
        with _named(request):
            check_ends(request)
    shares = []
    with ProgressReporter() as reporter:
        for request in requests:
            with _named(request), plan_stage(replace(request, full_check=False), reporter) as plan:
                if plan.refusal is not None:
                    raise plan.refusal
                shares.append(share_of(plan))
    if refusal := room_for_all(shares):
        raise refusal


def _cut_short(
    end: HostprepError | KeyboardInterrupt,
    requests: Sequence[StageRequest],
    outcomes: Sequence[_Outcome],
) -> HostprepError:
    """Turn the error that ended a run over several data sets into an error of the whole run."""
    error = end if isinstance(end, HostprepError) else Interrupted("interrupted.")
    request, *later = requests[len(outcomes) :]
    words = [f"{request.name}: {error.message}"]
    changed = [outcome.fields for outcome in outcomes if outcome.fields["changed"]]
    if done := [fields["dataset"] for fields in changed if fields["published"]]:
        words.append(f"What was done before stays: {', '.join(done)}.")
    if later and changed:
        words.append(f"Not begun: {', '.join(each.name for each in later)}.")
    error.message = " ".join(words)
    error.beside = _datasets(outcomes)
    if changed and not isinstance(error, Interrupted) and error.exit_code != 1:
        # The code of a refusal would mean that nothing was changed.
        error.exit_code, error.code = HostprepError.exit_code, HostprepError.code
    return error


def _stage_one(
    request: StageRequest, *, dry_run: bool, as_json: bool, no_wait: bool, several: bool
) -> _Outcome:
    from hostprep.cli.progress import ProgressReporter
    from hostprep.host.cpu import usable_cpus
    from hostprep.staging.forbidding import unkept_refusal
    from hostprep.staging.planning import check_ends, plan_stage, stage_lock
    from hostprep.system.locks import lock
    from hostprep.system.state import check_own_records

    with ExitStack() as stack:
        reporter = stack.enter_context(ProgressReporter())
        if dry_run:
            check_own_records()
        else:
            check_ends(request)
            stack.enter_context(
                lock(
                    stage_lock(request),
                    purpose=f"hostprep stage {request.source}",
                    wait_seconds=0 if no_wait else None,
                    on_wait=reporter.note,
                )
            )
        plan = stack.enter_context(plan_stage(request, reporter))
        plan.refusal = plan.refusal or unkept_refusal(request, plan.files, plan.previous)
        # Already imported while the source was scanned.
        from hostprep.cli.stage_fields import result_fields, stage_plan_fields, warnings_of
        from hostprep.cli.stage_text import announce, conclude, show_stage_plan
        from hostprep.staging.bound import bound_of
        from hostprep.staging.shortfall import shortfall_of

        warned = warnings_of(plan)
        if not as_json:
            for warning in warned:
                warn(warning)
        if dry_run:
            if not as_json:
                show_stage_plan(plan)
            share = None
            if several and plan.refusal is None:
                from hostprep.staging.together import share_of

                share = share_of(plan)
            return _Outcome(stage_plan_fields(plan, warned), plan.refusal, share)
        if not as_json:
            announce(plan)
        result = _carry_out(plan, reporter)
        bound = bound_of(result, plan, usable_cpus())
    shortfall = shortfall_of(result, partial=request.partial)
    conclude(result, bound, shortfall, as_json=as_json)
    return _Outcome(result_fields(result, warned, bound, shortfall), shortfall)


def _carry_out(plan: StagePlan, reporter: ProgressReporter) -> StageResult:
    from hostprep.staging.resuming import run_again
    from hostprep.staging.stage import carry_out

    try:
        return carry_out(plan, reporter)
    except KeyboardInterrupt:
        hint = run_again(plan.then)
        if not plan.published:  # otherwise unstage would also remove the published copy
            target = shlex.quote(plan.request.target)
            hint += f"; to remove what was copied: hostprep unstage {target}"
        raise Interrupted("interrupted.", hint) from None
