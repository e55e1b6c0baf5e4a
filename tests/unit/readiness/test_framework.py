"""What the framework promises, whatever the checks are."""

from __future__ import annotations

import dataclasses
import errno
import os
import pkgutil
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hostprep.errors import HostprepError, UsageError
from hostprep.readiness.checks._disks import file_system_of, seats, storage_of
from hostprep.readiness.context import Context
from hostprep.readiness.model import (
    CannotTell,
    Check,
    Finding,
    Level,
    Remedy,
    Result,
    Severity,
    Status,
    verdict,
)
from hostprep.readiness.registry import all_checks, collect, find, select
from hostprep.readiness.report import CLASS_FIELDS, class_fields, document
from hostprep.readiness.runner import run_check, run_checks
from hostprep.readiness.side_by_side import at_once
from hostprep.readiness.space import space_of
from hostprep.units import GIB, MIB

FINE = Finding(Status.PASS, "host", "all is well.")


class Listener:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def looking(self, title: str) -> None:
        self.heard.append(title)


def check(
    code: str,
    look: Callable[[Context], Any] = lambda context: None,
    judge: Callable[[Any], Iterable[Finding]] = lambda facts: [FINE],
    level: Level = Level.QUICK,
    limit_seconds: float = 5.0,
) -> Check[Any]:
    return Check(
        code=code,
        title=f"check {code}",
        severity=Severity.MINOR,
        verdicts=frozenset(Status),
        look=look,
        judge=judge,
        page="",
        level=level,
        limit_seconds=limit_seconds,
    )


def module(name: str, code: str) -> ModuleType:
    made = ModuleType(f"package.{name}")
    made.CHECK = check(code)  # type: ignore[attr-defined]
    return made


def test_checks_are_collected_by_code() -> None:
    found = collect([module("b", "HP020"), module("a", "HP001"), ModuleType("package._shared")])
    assert [each.code for each in found] == ["HP001", "HP020"]


def test_two_checks_of_one_code_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"HP001 is in package.a and in package.b"):
        collect([module("a", "HP001"), module("b", "HP001")])


def test_a_code_has_its_form() -> None:
    with pytest.raises(ValueError, match="not a code"):
        collect([module("a", "shm")])


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("hp12", "did you mean HP012? "),
        ("50", "did you mean HP050? "),
        ("HP019", "did you mean HP012? "),
        ("HPO12", "did you mean HP012? "),
        ("Check HP0", "did you mean HP012 (check HP012), HP050 (check HP050)? "),
        ("HP099", ""),
        ("", ""),
    ],
)
def test_a_code_that_there_is_not_names_those_that_may_be_meant(written: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        find([check("HP012"), check("HP050")], written)
    assert caught.value.message == f"there is no check {written!r}."
    assert caught.value.hint == f"{meant}`hostprep explain` lists all"


def test_a_code_is_found_in_either_case() -> None:
    checks = [check("HP012"), check("HP050")]
    assert find(checks, "hp012").code == "HP012"
    assert [each.code for each in select(checks, level=Level.QUICK, only=("hp050",)).checks] == [
        "HP050"
    ]


def test_levels_and_codes_select() -> None:
    checks = (check("HP001"), check("HP002"), check("HP060", level=Level.FULL))

    def codes(**how: Any) -> list[str]:
        return [each.code for each in select(checks, **how).checks]

    assert codes(level=Level.QUICK) == ["HP001", "HP002"]
    assert codes(level=Level.FULL) == ["HP001", "HP002", "HP060"]
    assert codes(level=Level.QUICK, skip=("HP001",)) == ["HP002"]
    assert codes(level=Level.QUICK, only=("HP060",)) == ["HP060"]
    assert select(checks, level=Level.QUICK, skip=("HP001",)).left_out == (
        ("HP001", "--skip"),
        ("HP060", "needs --full"),
    )
    with pytest.raises(UsageError):
        codes(level=Level.QUICK, skip=("HP999",))


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (["PASS", "WARN", "FAIL", "UNKNOWN", "SKIP"], "FAIL"),
        (["PASS", "WARN", "UNKNOWN", "SKIP"], "UNKNOWN"),
        (["PASS", "WARN", "SKIP"], "WARN"),
        (["PASS", "SKIP"], "PASS"),
        (["SKIP"], "SKIP"),
        ([], "SKIP"),
    ],
)
def test_the_verdict_over_all(statuses: list[str], expected: str) -> None:
    assert verdict(map(Status, statuses)) == expected


def _raise(error: Exception) -> Callable[[Context], Any]:
    def look(context: Context) -> Any:
        raise error

    return look


@pytest.mark.parametrize(
    ("error", "said", "hint"),
    [
        (CannotTell("no permission.", "run it as root"), "no permission.", "run it as root"),
        (HostprepError("it broke.", "fix it"), "it broke.", "fix it"),
        (HostprepError("it broke."), "it broke.", "fix that"),
        (OSError(errno.EMFILE, "No"), "the host failed a step: No.", "ulimit -n"),
        (ZeroDivisionError("oh"), "the check failed with ZeroDivisionError: oh", "--skip HP001"),
    ],
)
def test_what_a_check_raises_is_its_own_unknown(error: Exception, said: str, hint: str) -> None:
    results = run_checks([check("HP001", _raise(error)), check("HP002")], Context(), Listener())
    first, second = results
    assert (first.status, second.status) == (Status.UNKNOWN, Status.PASS)
    assert first.finding.message.startswith(said)
    assert first.finding.remedy is not None and hint in str(first.finding.remedy.hint)


def test_a_judge_that_fails_half_way_is_unknown() -> None:
    def judge(facts: Any) -> Iterable[Finding]:
        yield FINE
        raise KeyError("half")

    (finding,) = run_check(check("HP001", judge=judge), Context())
    assert finding.status is Status.UNKNOWN


def test_a_check_that_hangs_is_left_behind() -> None:
    release = threading.Event()
    hanging = check("HP001", lambda context: release.wait(60), limit_seconds=0.2)
    begun = time.monotonic()
    results = run_checks([hanging, check("HP002")], Context(), Listener())
    release.set()
    assert [each.status for each in results] == [Status.UNKNOWN, Status.PASS]
    assert "no answer within 0.2 s" in results[0].finding.message
    remedy = results[0].finding.remedy
    assert remedy is not None and remedy.commands == ("hostprep check --full --only HP001",)
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("allowed", [0, 2])
def test_where_no_further_thread_may_be_checks_run_in_turn(
    allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `ulimit -u` or pids.max, which count threads, and with `ulimit -v`."""
    start, begun = threading.Thread.start, []

    def refuse(thread: threading.Thread) -> None:
        begun.append(thread)
        if len(begun) > allowed:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    spread = check("HP009", lambda context: at_once(str, range(9)))
    checks = [*(check(f"HP00{number}") for number in range(4)), spread]
    results = run_checks(checks, Context(), Listener())
    assert [each.status for each in results] == [Status.PASS] * 5
    assert at_once(str, (1, 2, 3)) == ("1", "2", "3")


def test_a_current_directory_that_was_removed_is_none_to_look_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert [seat.path for seat in seats(Context())] == ["/"]


def test_with_full_a_quick_check_has_more_time() -> None:
    slow = check("HP001", lambda context: time.sleep(0.3), limit_seconds=0.05)
    quick = run_checks([slow], Context(), Listener())
    full = run_checks([slow], Context(level=Level.FULL), Listener())
    assert [each.status for each in (*quick, *full)] == [Status.UNKNOWN, Status.PASS]


def test_full_checks_run_one_after_another_in_the_main_thread() -> None:
    threads: list[tuple[str, str]] = []

    def look(context: Context) -> None:
        threads.append((threading.current_thread().name, ""))

    listener = Listener()
    run_checks(
        [check("HP060", look, level=Level.FULL), check("HP061", look, level=Level.FULL)],
        Context(),
        listener,
    )
    assert {name for name, _ in threads} == {threading.main_thread().name}
    assert listener.heard[-2:] == ["check HP060", "check HP061"]


def test_what_judges_the_measured_comes_after_it() -> None:
    order: list[str] = []

    def look(code: str) -> Callable[[Context], Any]:
        return lambda context: order.append(code)

    late = dataclasses.replace(check("HP001", look("HP001")), after_full=True)
    full = check("HP060", look("HP060"), level=Level.FULL)
    soon = check("HP002", look("HP002"))
    results = run_checks([late, soon, full], Context(), Listener())
    assert order == ["HP002", "HP060", "HP001"]
    assert [each.code for each in results] == ["HP001", "HP002", "HP060"]


def test_where_nothing_is_measured_all_quick_checks_run_at_once() -> None:
    """Together they take as long as the slowest."""
    both = threading.Barrier(2, timeout=30)
    late = dataclasses.replace(check("HP001", lambda context: both.wait()), after_full=True)
    listener = Listener()
    results = run_checks([late, check("HP002", lambda context: both.wait())], Context(), listener)
    assert [each.status for each in results] == [Status.PASS, Status.PASS]
    assert listener.heard == ["quick checks"]


def test_what_was_measured_meanwhile_is_read_again() -> None:
    kept = iter([("old",), ("new",)])
    context = Context()
    context._answers._answer = lambda name, reader, by_root: next(kept)  # type: ignore[method-assign]
    assert context.probes == context.probes == ("old",)
    context.forget("probes")
    assert context.probes == ("new",)


def test_a_reader_is_asked_once_however_many_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def question() -> str:
        asked.append("asked")
        time.sleep(0.05)
        return "answer"

    context = Context()
    asking = "hostprep.readiness.context.ask_in_time"
    monkeypatch.setattr(asking, lambda name, question, *limits: question())
    checks = [
        check(f"HP00{number}", lambda context: context.ask("it", question)) for number in range(8)
    ]
    assert {each.status for each in run_checks(checks, context, Listener())} == {Status.PASS}
    assert asked == ["asked"]


def test_a_captured_host_gets_no_answer_of_this_machine(tmp_path: Path) -> None:
    context = Context(root=tmp_path)
    for ask in (
        lambda: context.nvml,
        lambda: context.volumes,
        lambda: context.statvfs("/"),
        lambda: context.command(["true"], wanted_for="test", package="coreutils"),
        lambda: context.now,
    ):
        with pytest.raises(HostprepError, match="does not say"):
            ask()
    assert context.read("proc/meminfo") is None


def test_what_a_path_sits_on_is_waited_for_longer_with_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The hint of a quick check says so."""
    waited: list[float] = []

    def ask(name: str, question: Callable[[], Any], patience_seconds: float, level: Level) -> Any:
        waited.append(patience_seconds)
        return question()

    monkeypatch.setattr("hostprep.readiness.context.ask_in_time", ask)
    for level in (Level.QUICK, Level.FULL):
        context = Context(level=level)
        file_system_of(context, storage_of(context, "/"))
    quick, full = waited[:2], waited[2:]
    assert len(quick) == len(full) == 2 and max(quick) < min(full)


def test_a_path_that_hangs_is_unknown_in_time() -> None:
    for level in Level:
        with pytest.raises(CannotTell, match=r"no answer within 0.2 s") as caught:
            Context(level=level).ask("dead", lambda: time.sleep(60), patience_seconds=0.2)
        assert ("--full" in (caught.value.hint or "")) is (level is Level.QUICK)


def test_a_question_that_fails_says_why() -> None:
    with pytest.raises(CannotTell, match="No such file"):
        Context().statvfs("/no/such/path")


def test_a_command_that_is_not_installed_is_unknown_with_its_package() -> None:
    with pytest.raises(CannotTell) as caught:
        Context().command(["no-such-tool"], wanted_for="look", package="some-package")
    assert caught.value.commands == ("apt-get install some-package",)


def test_a_file_that_may_not_be_read_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/folder").mkdir()
    with pytest.raises(CannotTell, match="/proc/folder cannot be read"):
        Context(root=tmp_path).read("/proc/folder")


def test_a_file_that_the_kernel_does_not_offer_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, **how: Any) -> str:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported", str(path))

    monkeypatch.setattr(Path, "read_text", refuse)
    assert Context(root=tmp_path).read("proc/pressure/io") is None


def test_the_age_of_kept_results() -> None:
    context = Context(given={"now": 1_700_000_100.0})
    assert context.age_of({"unix_seconds": 1_700_000_000}) == 100
    assert context.age_of({"time": "20231114T221320Z"}) == 100
    assert context.age_of({}) is None
    assert context.age_of({"unix_seconds": 1_700_000_130}) == -30  # a clock that was set right
    assert context.age_of({"unix_seconds": 1_700_090_000}) is None
    assert context.age_of({"time": "20331114T221320Z"}) is None


def test_remedies_reach_json_as_lists() -> None:
    finding = Finding(Status.FAIL, "x", "bad.", remedy=Remedy(("fix it",), "soon"))
    fields = Result("HP001", "title", Severity.MAJOR, finding).fields()
    assert fields["remedy"] == {"commands": ["fix it"], "hint": "soon"}
    assert fields["severity"] == "major" and fields["measured"] is None


def test_the_worst_finding_comes_first() -> None:
    found = [
        ("HP005", "b", Status.SKIP, Severity.CRITICAL),
        ("HP004", "b", Status.PASS, Severity.CRITICAL),
        ("HP003", "b", Status.PASS, Severity.MINOR),
        ("HP002", "b", Status.FAIL, Severity.MINOR),
        ("HP001", "b", Status.FAIL, Severity.MAJOR),
        ("HP001", "a", Status.FAIL, Severity.MAJOR),
        ("HP006", "b", Status.FAIL, Severity.CRITICAL),
        ("HP001", "b", Status.WARN, Severity.CRITICAL),
        ("HP001", "b", Status.UNKNOWN, Severity.MINOR),
    ]
    fields = document(
        [Result(code, "t", how, Finding(says, of, "m.")) for code, of, says, how in found],
        level=Level.QUICK,
        host="node1",
        host_class={},
        spec=None,
        unix_seconds=0.0,
        seconds=1.0,
    )
    assert [(each["status"], each["code"], each["subject"]) for each in fields["checks"]] == [
        ("FAIL", "HP006", "b"),
        ("FAIL", "HP001", "a"),
        ("FAIL", "HP001", "b"),
        ("FAIL", "HP002", "b"),
        ("UNKNOWN", "HP001", "b"),
        ("WARN", "HP001", "b"),
        ("PASS", "HP003", "b"),  # of what is well nobody asks how bad it would have been
        ("PASS", "HP004", "b"),
        ("SKIP", "HP005", "b"),
    ]


def test_a_host_is_told_from_others_by_what_it_has_and_not_by_what_it_may_use() -> None:
    given: dict[str, Any] = {
        "cpu": SimpleNamespace(model="EPYC", online=8, usable=2),
        "headroom": SimpleNamespace(
            ram_bytes=4 * GIB, machine=SimpleNamespace(ram_bytes=64 * GIB - 300 * MIB)
        ),
        "nvml": SimpleNamespace(gpus=(SimpleNamespace(name="H100"), SimpleNamespace(name="H100"))),
    }
    fields = class_fields(Context(given=given))
    assert fields.pop("machine") == os.uname().machine
    told = {"cpu_model": "EPYC", "cpus": 8, "ram_gib": 64, "gpus": ["H100", "H100"]}
    assert fields == told and {"machine", *told} == set(CLASS_FIELDS)
    given["headroom"].machine = None
    assert class_fields(Context(given={**given, "nvml": None})) == {
        "machine": os.uname().machine, **told, "ram_gib": 4, "gpus": None,
    }  # fmt: skip


def test_space_is_that_of_an_ordinary_user_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = SimpleNamespace(
        f_bsize=1 << 20, f_frsize=4096, f_blocks=1000, f_bfree=500, f_bavail=400,
        f_files=70, f_ffree=60, f_favail=50,
    )  # fmt: skip
    monkeypatch.setattr(os, "statvfs", lambda _path: counted)
    assert space_of("/any") == {
        "size_bytes": 4_096_000, "free_bytes": 1_638_400, "inodes": 70, "free_inodes": 50,
    }  # fmt: skip


def test_a_host_that_hides_its_processors_still_has_a_report(tmp_path: Path) -> None:
    memory = SimpleNamespace(ram_bytes=4 * GIB, machine=None)
    given = {"headroom": memory, "nvml": SimpleNamespace(gpus=())}
    fields = class_fields(Context(root=tmp_path, given=given))  # which has no /proc
    assert {name: fields[name] for name in CLASS_FIELDS if name != "machine"} == {
        "cpu_model": None, "cpus": None, "ram_gib": 4, "gpus": [],
    }  # fmt: skip


def test_checks_that_cannot_be_listed_are_not_said_to_be_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pkgutil, "iter_modules", lambda _: iter(()))  # as of a closed folder
    with pytest.raises(HostprepError, match="checks cannot be listed"):
        all_checks()


def test_an_fstab_that_goes_while_it_is_looked_at_has_no_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTPREP_FSTAB", str(tmp_path / "fstab"))
    monkeypatch.setattr(Path, "exists", lambda _: True)
    assert Context().fstab == ()
