"""Carries a host's plan out, object by object, and then checks whether it came true."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, field, replace

from hostprep.converging.model import Change, HostPlan, Kind, ObjectPlan, Problem, Staged, Unchanged
from hostprep.converging.writable import check_kept
from hostprep.dataclass import dataclass
from hostprep.errors import (
    HostprepError,
    Interrupted,
    Refused,
    Stopped,
    claim_of_it,
    reading_hint,
    where_in,
    without_claim,
)
from hostprep.staging.observer import Observer
from hostprep.volumes.apply import WITHOUT_ROOT, need_root

_Key = tuple[Kind, str]

_GOES_ON = "run the same command again: it goes on where this one stopped"
_LOOK = "`hostprep plan` shows what is left to do"


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of applying a plan.

    ``done`` are the changes that are in place now; ``failed`` the objects whose change failed;
    ``not_tried`` those that make no sense without them. ``after`` is a plan from facts that were
    read again: if it is empty, that is the proof. ``staged`` are the data sets that were staged.
    """

    plan: HostPlan
    done: tuple[Change, ...]
    failed: tuple[Problem, ...]
    not_tried: tuple[Unchanged, ...]
    after: HostPlan
    staged: tuple[Staged, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the host now matches the spec."""
        return not (self.failed or self.after.changes or self.after.refusals)

    @property
    def refusals(self) -> tuple[Problem, ...]:
        """What is refused now but was not before."""
        return tuple(map(_of_it, self.after.refusals))


def apply_plan(plan: HostPlan, replan: Callable[[], HostPlan], observer: Observer) -> Applied:
    """Carry ``plan`` out and return the result; ``replan`` looks at the host again.

    An object that fails does not stop those that do not need it. Raises ``Refused`` before the
    first change if anything in the plan is refused, ``HostprepError`` if it needs root or cannot be
    checked afterwards, ``Interrupted`` on Ctrl-C: what was done stays and is named, and the object
    at work is in the state in which its own executor leaves it.
    """
    if plan.refusals:
        raise refusal_of(plan)
    if not plan.changes:
        return Applied(plan, (), (), (), plan)
    if for_root := next((each for each in plan.changes if each.kind is not Kind.DATASET), None):
        otherwise = WITHOUT_ROOT if for_root.kind is Kind.VOLUME else ""
        need_root(f"{for_root.kind} {for_root.subject}", otherwise)
    check_kept({each.kind for each in plan.objects if each.task is not None})
    so_far = _carry_out(plan, observer)
    after = _look_again(replan, so_far)
    return Applied(
        plan,
        _achieved(plan, so_far, after),
        tuple(so_far.failed.values()),
        tuple(so_far.left.values()),
        after,
        tuple(so_far.staged),
    )


@dataclass(slots=True)
class _SoFar:
    """The results for a plan's objects so far; those ``left`` have not been tried."""

    done: list[ObjectPlan] = field(default_factory=list)
    staged: list[Staged] = field(default_factory=list)
    failed: dict[_Key, Problem] = field(default_factory=dict)
    left: dict[_Key, Unchanged] = field(default_factory=dict)


def _carry_out(plan: HostPlan, observer: Observer) -> _SoFar:
    """Carry out each object of ``plan`` that does not depend on one which failed."""
    so_far = _SoFar()
    failed, left = so_far.failed, so_far.left
    for each in plan.objects:
        if each.task is None:
            continue
        lacking = next((key for key in each.after if key in failed or key in left), None)
        if lacking is not None:
            reason = f"not tried, since {lacking[0]} {lacking[1]} could not be made as wanted"
            left[each.key] = Unchanged(each.kind, each.subject, reason)
            continue
        observer.note(f"at work: {each.kind} {each.subject}")
        try:
            if came := each.task.carry_out(observer):
                so_far.staged.append(came)
        except Stopped as error:
            why = without_claim(error.message).removesuffix(".")
            words = f"stopped at {each.kind} {each.subject}: {why}"
            raise _cut_short(HostprepError, words, error.hint, so_far) from None
        except (HostprepError, OSError) as error:
            problem = Problem.of(each.kind, each.subject, _in_words(error))
            failed[each.key] = _of_it(problem)
            observer.note(f"failed: {each.kind} {each.subject}")
        except KeyboardInterrupt:
            words = f"interrupted at {each.kind} {each.subject}"
            raise _cut_short(Interrupted, words, _GOES_ON, so_far) from None
        else:
            so_far.done.append(each)
    return so_far


def _look_again(replan: Callable[[], HostPlan], so_far: _SoFar) -> HostPlan:
    try:
        return replan()
    except KeyboardInterrupt:
        words = "interrupted while the host was looked at again"
        raise _cut_short(Interrupted, words, _LOOK, so_far) from None
    except (HostprepError, OSError) as error:
        said = _in_words(error)
        why = without_claim(said.message).removesuffix(".")
        words = f"the host could not be looked at again: {why}"
        raise _cut_short(HostprepError, words, said.hint, so_far) from None


def refusal_of(plan: HostPlan) -> Refused:
    """Return the refusals of a plan as one error."""
    first, *others = plan.refusals
    also = "".join(f"\n{each.kind} {each.subject}: {each.message}" for each in others)
    return Refused(f"{first.kind} {first.subject}: {first.message}{also}", first.hint)


def _achieved(plan: HostPlan, so_far: _SoFar, after: HostPlan) -> tuple[Change, ...]:
    """Return the changes that were made; of a failed object, those with nothing left to do.

    If the object is refused now, it is unknown what is left, so none of its changes counts.
    """
    open_keys = {(change.kind, change.subject) for change in after.changes}
    refused = {each.key for each in after.objects if each.refusal is not None}
    finished = {each.key for each in so_far.done}
    halfway = so_far.failed.keys() - refused
    return tuple(
        change
        for each in plan.objects
        for change in each.changes
        if each.key in finished
        or (each.key in halfway and (change.kind, change.subject) not in open_keys)
    )


def _of_it(problem: Problem) -> Problem:
    """Return one object's problem among others, as something may have been changed by then."""
    return replace(problem, message=claim_of_it(problem.message))


def _in_words(error: HostprepError | OSError) -> HostprepError:
    if isinstance(error, HostprepError):
        return error
    return HostprepError(
        f"the system refused: {error.strerror or error}{where_in(error)}.", reading_hint(error)
    )


def _cut_short(
    kind: type[HostprepError], words: str, hint: str | None, so_far: _SoFar
) -> HostprepError:
    """Return the error that ends a run, with what was done and what failed before it."""
    named = ", ".join(f"{each.kind} {each.subject}" for each in so_far.done) or "nothing"
    words += f"; done before: {named}"
    if so_far.failed:
        words += f"; failed: {', '.join(' '.join(key) for key in so_far.failed)}"
    error = kind(f"{words}.", hint)
    error.beside = {
        "changed": bool(so_far.done),
        "done": [asdict(change) for each in so_far.done for change in each.changes],
        "staged": [asdict(each) for each in so_far.staged],
        "failed": [asdict(problem) for problem in so_far.failed.values()],
    }
    return error
