"""Carrying a plan out: what is tried, what is not, and what counts as done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from hostprep.converging.apply import apply_plan
from hostprep.converging.model import Change, HostPlan, Kind, ObjectPlan, Problem
from hostprep.errors import HostprepError, Interrupted, Refused, Stopped
from hostprep.staging.observer import Observer, Silent


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tasks change nothing, so it does not matter who runs them."""
    monkeypatch.setattr("os.geteuid", lambda: 0)


@dataclass(frozen=True)
class Call:
    """A task that calls a function."""

    function: Callable[[], object]

    def carry_out(self, observer: Observer) -> None:
        self.function()


def thing(
    kind: Kind, subject: str, act: Callable[[], object], after: Sequence[tuple[Kind, str]] = ()
) -> ObjectPlan:
    change = Change(kind, subject, "do it", "it is not done")
    return ObjectPlan(kind, subject, changes=(change,), task=Call(act), after=tuple(after))


def failing() -> None:
    raise HostprepError("it broke", "fix it")


def host(*objects: ObjectPlan) -> HostPlan:
    return HostPlan("/spec.yml", objects)


def test_what_needs_a_failed_object_is_not_tried_nor_what_needs_that() -> None:
    tried: list[str] = []
    plan = host(
        thing(Kind.VOLUME, "/a", failing),
        thing(Kind.DATASET, "on a", lambda: tried.append("on a"), [(Kind.VOLUME, "/a")]),
        thing(Kind.BOOT, "on a", lambda: tried.append("boot"), [(Kind.DATASET, "on a")]),
        thing(Kind.DATASET, "else", lambda: tried.append("else"), [(Kind.VOLUME, "/b")]),
    )
    pending = host(*plan.objects[:3])
    applied = apply_plan(plan, lambda: pending, Silent())
    assert tried == ["else"]
    assert [problem.message for problem in applied.failed] == ["it broke"]
    assert [(each.kind, each.subject) for each in applied.not_tried] == [
        (Kind.DATASET, "on a"),
        (Kind.BOOT, "on a"),
    ]
    assert [change.subject for change in applied.done] == ["else"]
    assert not applied.ok


def test_an_error_of_the_system_is_the_objects_own_failure() -> None:
    def full() -> None:
        raise OSError(28, "No space left on device", "/nvme/x")

    plan = host(thing(Kind.DATASET, "a", full), thing(Kind.DATASET, "b", lambda: None))
    applied = apply_plan(plan, host, Silent())
    (problem,) = applied.failed
    assert problem.message == "the system refused: No space left on device (/nvme/x)."
    assert ("b" in [change.subject for change in applied.done]) and not applied.ok


def test_of_a_failed_object_only_what_is_there_now_counts_as_done() -> None:
    mount = Change(Kind.VOLUME, "/a", "mount", "-")
    line = Change(Kind.FSTAB, "/a", "add a line", "-")
    volume = ObjectPlan(Kind.VOLUME, "/a", changes=(mount, line), task=Call(failing))
    left = host(ObjectPlan(Kind.VOLUME, "/a", changes=(line,)))
    assert apply_plan(host(volume), lambda: left, Silent()).done == (mount,)


def test_of_an_object_that_is_refused_now_nothing_counts_as_done() -> None:
    mount = Change(Kind.VOLUME, "/a", "mount", "-")
    line = Change(Kind.FSTAB, "/a", "add a line", "-")
    volume = ObjectPlan(Kind.VOLUME, "/a", changes=(mount, line), task=Call(failing))
    refusal = Problem(Kind.VOLUME, "/a", "no place for it", None)
    left = host(ObjectPlan(Kind.VOLUME, "/a", refusal=refusal))
    applied = apply_plan(host(volume), lambda: left, Silent())
    assert (applied.done, applied.ok) == ((), False)


def test_that_nothing_was_changed_is_said_of_the_object_alone() -> None:
    def refused() -> None:
        raise Refused("something lies there; nothing was changed.", "move it away")

    plan = host(thing(Kind.VOLUME, "/a", lambda: None), thing(Kind.VOLUME, "/b", refused))
    refusal = Problem(Kind.VOLUME, "/b", "it is in use. Nothing was changed.", None)
    left = host(ObjectPlan(Kind.VOLUME, "/b", refusal=refusal))
    applied = apply_plan(plan, lambda: left, Silent())
    assert [change.subject for change in applied.done] == ["/a"]
    (failed,), (now,) = applied.failed, applied.refusals
    assert failed.message == "something lies there; nothing of it was changed."
    assert now.message == "it is in use. Nothing of it was changed."


def test_pending_changes_are_no_success_though_nothing_failed() -> None:
    again = thing(Kind.DATASET, "moving", lambda: None)
    applied = apply_plan(host(again), lambda: host(again), Silent())
    assert applied.failed == () and not applied.ok
    assert apply_plan(host(again), host, Silent()).ok


def test_what_is_refused_only_now_is_no_success_though_nothing_failed() -> None:
    plan = host(thing(Kind.DATASET, "moving", lambda: None))
    refusal = Problem(Kind.VOLUME, "/a", "its memory was taken meanwhile", None)
    applied = apply_plan(
        plan, lambda: host(ObjectPlan(Kind.VOLUME, "/a", refusal=refusal)), Silent()
    )
    assert (applied.failed, applied.after.changes, applied.ok) == ((), (), False)


def test_a_refusal_anywhere_stops_it_before_the_first_task() -> None:
    problem = Problem(Kind.DATASET, "b", "no room", "make some")
    other = Problem(Kind.VOLUME, "/c", "not ours", None)
    plan = host(
        thing(Kind.VOLUME, "/a", lambda: pytest.fail("this may not run")),
        ObjectPlan(Kind.DATASET, "b", refusal=problem),
        ObjectPlan(Kind.VOLUME, "/c", refusal=other),
    )
    with pytest.raises(Refused, match="no room") as raised:
        apply_plan(plan, lambda: pytest.fail("nothing changed"), Silent())
    assert "not ours" in raised.value.message and raised.value.hint == "make some"


def test_an_interruption_names_what_was_done() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    plan = host(
        thing(Kind.PACKAGE, "fio", lambda: None),
        thing(Kind.VOLUME, "/a", interrupt),
        thing(Kind.DATASET, "b", lambda: pytest.fail("this may not run")),
    )
    with pytest.raises(Interrupted, match="interrupted at volume /a; done before: package fio"):
        apply_plan(plan, host, Silent())


def test_who_is_stopped_for_a_known_reason_begins_nothing_else() -> None:
    """As by systemd, where the kernel has killed a worker for want of memory."""

    def stop() -> None:
        raise Stopped("a worker process was ended: memory ran out.", "free some")

    plan = host(
        thing(Kind.PACKAGE, "fio", lambda: None),
        thing(Kind.DATASET, "a", stop),
        thing(Kind.DATASET, "b", lambda: pytest.fail("this may not run")),
    )
    words = "stopped at dataset a: a worker .*: memory ran out; done before: package fio"
    with pytest.raises(HostprepError, match=words) as caught:
        apply_plan(plan, host, Silent())
    assert (caught.value.exit_code, caught.value.hint) == (1, "free some")


def stopped() -> HostPlan:
    raise KeyboardInterrupt


def unreadable() -> HostPlan:
    raise HostprepError("hostprep's records cannot be read; nothing was changed.", "fix that")


@pytest.mark.parametrize(
    ("look", "words", "kind", "hint"),
    [
        (stopped, "interrupted while the host was looked at again", Interrupted, "hostprep plan"),
        (unreadable, "looked at again: hostprep's records cannot be read;", None, "fix that"),
    ],
)
def test_what_was_done_is_named_where_it_cannot_be_looked_at_again(
    look: Callable[[], HostPlan], words: str, kind: type[HostprepError] | None, hint: str
) -> None:
    plan = host(thing(Kind.PACKAGE, "fio", lambda: None), thing(Kind.VOLUME, "/a", failing))
    with pytest.raises(kind or HostprepError) as caught:
        apply_plan(plan, look, Silent())
    error = caught.value
    assert words in error.message and hint in (error.hint or "")
    assert "nothing was changed" not in error.message
    assert "; done before: package fio; failed: volume /a." in error.message
    assert error.beside["changed"] is True
    assert [each["subject"] for each in error.beside["done"]] == ["fio"]
    assert [each["message"] for each in error.beside["failed"]] == ["it broke"]


def test_what_needs_root_is_said_before_anything_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    tried: list[str] = []
    own = thing(Kind.DATASET, "mine", lambda: tried.append("mine"))
    with pytest.raises(HostprepError, match="package fio needs root; nothing was changed"):
        apply_plan(host(own, thing(Kind.PACKAGE, "fio", failing)), host, Silent())
    assert tried == []
    assert apply_plan(host(own), host, Silent()).ok and tried == ["mine"]


def test_nothing_to_do_is_not_looked_at_twice() -> None:
    plan = host(ObjectPlan(Kind.PACKAGE, "fio"))
    applied = apply_plan(plan, lambda: pytest.fail("it was just planned"), Silent())
    assert applied.ok and applied.done == ()


def test_a_problem_has_the_hint_for_who_has_a_spec() -> None:
    given = HostprepError("no", "take a smaller --size", spec_hint="take a smaller `size`")
    assert Problem.of(Kind.VOLUME, "/a", given).hint == "take a smaller `size`"
    for hint in ("mount it: hostprep mount /a --size 1G", None):
        assert Problem.of(Kind.VOLUME, "/a", HostprepError("no", hint)).hint == hint
