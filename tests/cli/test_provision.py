"""``hostprep provision``: its words, its document, and what it refuses before reaching a host."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

import hostprep.fleet.playbook
from hostprep.cli.fleet_progress import FleetProgress
from hostprep.cli.main import run
from hostprep.cli.provision import _ProvisionProgress
from hostprep.cli.provision_text import run_fields, show_run
from hostprep.fleet.events import Event
from hostprep.fleet.last_run import failed_hosts, remember
from hostprep.fleet.model import FleetRun, HostOutcome
from hostprep.fleet.packing import pack_wheel

STEP = {"kind": "volume", "subject": "/mnt/a", "action": "mount it", "reason": "nothing is there"}
STAGED = {
    "dataset": "city", "copied_bytes": 8_000_000, "seconds": 4.0, "bound": {"by": "source"}
}  # fmt: skip
PLANNED = {
    "schema": "hostprep.plan/1", "changes": [STEP], "unchanged": [], "warnings": [], "refusals": []
}  # fmt: skip
CONVERGED = {**PLANNED, "schema": "hostprep.apply/1", "done": [STEP], "staged": [STAGED]}
RUN = FleetRun(
    (
        HostOutcome("a", ("Converge",), documents=(CONVERGED,), started_at=1.0, ended_at=5.0),
        HostOutcome("b"),
        HostOutcome("c", failed=True, unreachable=True, message="cannot be reached: timed out"),
    ),
    61.0,
)


@pytest.mark.parametrize("command", ["provision", "check"])
@pytest.mark.parametrize(
    ("inventory", "said"),
    [
        ("images", "images/one/a.jpg is not an inventory: it is not text; no host was reached."),
        ("images/one/a.jpg", "images/one/a.jpg is not an inventory"),
        ("latin", "latin is not an inventory"),
        ("a,b\x1b[2J", "'a,b\\x1b[2J' holds characters that no host's name can have"),
        ("a,\udcff", "holds characters that no host's name can have"),
        ("pipe", "the inventory pipe is a pipe or a device; no host was reached."),
        ("/dev/full", "the inventory /dev/full is a pipe or a device"),
        ("large", "large is too large for an inventory"),
    ],
)
def test_what_can_be_no_inventory_is_refused_before_a_host_is_reached(
    command: str, inventory: str, said: str, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (lab / "images/one").mkdir(parents=True)
    (lab / "images/hosts.ini").write_text("[lab]\na\n")
    (lab / "images/one/a.jpg").write_bytes(b"\xff\xd8\xff\xe0\0\x10JFIF\0\n")
    (lab / "latin").write_bytes("höst\n".encode("latin-1"))
    (lab / "large").write_text("host\n" * 4_000_000)
    os.mkfifo(lab / "pipe")
    assert run([command, "-i", inventory, "--json"]) == 2
    assert said in json.loads(capsys.readouterr().out)["error"]["message"]


@pytest.mark.parametrize("command", ["provision", "check"])
def test_of_several_inventories_none_is_left_out_without_a_word(
    command: str, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, "-i", "hosts.yml", "-i", "others.yml"]) == 2
    assert "-i is given 2 times, and takes one inventory" in capsys.readouterr().err


def test_hosts_of_each_limit_are_meant(
    lab: Path, asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run(["provision", "-i", "hosts.yml", "--limit", "a", "--limit", "c"])
    assert asked["limit"] == ("a", "c")


def test_what_ansible_does_not_read_keeps_no_folder_from_being_an_inventory(lab: Path) -> None:
    folder = lab / "inventory"
    (folder / "host_vars").mkdir(parents=True)
    (folder / "hosts.ini").write_bytes("# für München\n[lab]\na\n".encode("latin-1"))
    for name in ("host_vars/a", ".hosts.swp", "old.bak", "logo.pyc"):
        (folder / name).write_bytes(b"\0")
    (folder / "dynamic").write_bytes(b"\x7fELF\0")
    (folder / "dynamic").chmod(0o755)
    os.mkfifo(folder / "pipe")
    assert hostprep.fleet.playbook.checked_inventory("inventory") == str(folder)
    long = "ä" * 100 + "\n"
    (folder / "more.yml").write_text(f"# {'x' * 64}\n" + long * 1000)
    assert hostprep.fleet.playbook.checked_inventory("inventory") == str(folder)


def test_a_diff_is_shown_to_who_asks_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    seen = FleetRun((HostOutcome("a", ("Write the spec",), diffs=("-old\n+new\n",)),), 1.0)
    show_run(seen, check=False, diff=True)
    assert capsys.readouterr().out.startswith("a:\n  done: Write the spec\n  -old\n  +new\n\n")
    show_run(seen, check=False, diff=False)
    assert "old" not in capsys.readouterr().out


def test_what_a_host_warns_of_is_passed_on_once(
    lab: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "systemd does not run here"
    warned = {"warnings": [words], "changes": [], "done": []}
    documents = tuple({**document, **warned} for document in (PLANNED, CONVERGED))
    seen = FleetRun((HostOutcome("a", documents=documents), HostOutcome("b")), 1.0)
    monkeypatch.setattr(hostprep.fleet.playbook, "run_playbook", lambda *_, **__: seen)
    assert run(["provision", "-i", "hosts.yml"]) == 0
    assert capsys.readouterr().out.startswith(f"a:\n  warning: {words}\n\nhost ")
    assert run(["provision", "-i", "hosts.yml", "--json"]) == 0
    hosts = json.loads(capsys.readouterr().out)["hosts"]
    assert [host["warnings"] for host in hosts] == [[words], []]


@pytest.mark.parametrize(
    ("words", "again"),
    [
        ((), "the same command with --retry-failed"),
        (("--limit", "c"), "the same command with --retry-failed in place of --limit"),
        (("--retry-failed",), "the same command"),
    ],
)
def test_the_way_to_go_on_after_a_failure_is_one_that_is_taken(
    words: tuple[str, ...],
    again: str,
    lab: Path,
    asked: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(["provision", "-i", "hosts.yml"])
    capsys.readouterr()
    assert run(["provision", "-i", "hosts.yml", *words]) == 1
    assert f"  -> once they are fixed: {again}\n" in capsys.readouterr().err


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an inventory and a spec."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOSTPREP_SPEC", raising=False)
    (tmp_path / "hosts.yml").write_text("all: {hosts: {a: , b: , c: }}\n")
    (tmp_path / "hostprep.yml").write_text("volumes: [{path: /mnt/a, size: 1G}]\n")
    return tmp_path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What Ansible would be asked; the run itself is that of three hosts, one of them down."""
    seen: dict[str, Any] = {}

    def answer(name: str, inventory: str, variables: Any, **options: Any) -> FleetRun:
        seen.update(name=name, inventory=inventory, variables=variables, **options)
        return RUN

    monkeypatch.setattr(hostprep.fleet.playbook, "run_playbook", answer)
    return seen


def test_a_run_ends_with_one_table_and_names_the_host_that_is_down(
    lab: Path, asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["provision", "-i", "hosts.yml"]) == 1
    out, err = capsys.readouterr()
    assert out == (
        "a:\n"
        "  done: volume /mnt/a: mount it (nothing is there)\n"
        "\n"
        "c:\n"
        "  failed: cannot be reached: timed out\n"
        "\n"
        "host  changed  failed       staged\n"
        "a     1        no           city: 2.00 MB/s, bound by the source\n"
        "b     nothing  no           -\n"
        "c     nothing  unreachable  -\n"
        "\n"
        "3 hosts: 1 changed, 1 failed, in 1 min 01 s;"
        " staged 7.63 MiB in 4.0 s, 2.00 MB/s in all\n"
    )
    assert err == (
        "hostprep: 1 of 3 hosts failed: c.\n  -> once they are fixed: the same command with"
        " --retry-failed\n"
    )


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        (None, ""),
        ({"by": "storage"}, ", bound by the source or the target"),
        ({"by": "processors"}, ", bound by the processors"),
        ({"by": "other programs"}, ", bound by other programs"),
    ],
)
def test_the_table_says_what_bound_the_staging_where_that_is_known(
    bound: dict[str, str] | None, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    document = {**CONVERGED, "staged": [{**STAGED, "bound": bound}]}
    show_run(FleetRun((HostOutcome("a", documents=(document,)),), 2.0), check=False, diff=False)
    assert f"a     nothing  no      city: 2.00 MB/s{words}\n" in capsys.readouterr().out


def test_one_host_in_other_hands_costs_nobody_elses_result(
    lab: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = HostOutcome("evil\x1b[2J", documents=({"schema": "hostprep.apply/1", "done": [{}]},))
    seen = FleetRun((evil, *RUN.hosts[:2]), 1.0)
    monkeypatch.setattr(hostprep.fleet.playbook, "run_playbook", lambda *_, **__: seen)
    assert run(["provision", "-i", "hosts.yml"]) == 1
    out, err = capsys.readouterr()
    assert "evil\\x1b[2J:\n  failed: its answer is not understood: " in out
    assert ["a", "1", "no"] in [line.split()[:3] for line in out.splitlines()]
    assert err.startswith("hostprep: 1 of 3 hosts failed: evil\\x1b[2J.\n")
    assert failed_hosts(str(lab / "hosts.yml")) == ("evil\x1b[2J",)
    assert run(["provision", "-i", "hosts.yml", "--json"]) == 1
    hosts = json.loads(capsys.readouterr().out)["hosts"]
    assert [each["failed"] for each in hosts] == [True, False, False]


def test_what_stays_other_than_the_spec_has_it_is_named_and_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept = {"kind": "volume", "subject": "/mnt/a", "reason": "swap", "as_wanted": True}
    swapped = {**kept, "as_wanted": False}
    hosts = tuple(
        HostOutcome(name, documents=({**CONVERGED, "done": [], "staged": [], "unchanged": [said]},))
        for name, said in (("a", swapped), ("b", kept))
    )
    seen = FleetRun(hosts, 1.0)
    show_run(seen, check=False, diff=False)
    out = capsys.readouterr().out
    assert out.startswith("a:\n  left: volume /mnt/a: swap\n\nhost ")
    assert "\n2 hosts: 0 changed, 0 failed, 1 not all as the spec says, in 1.0 s\n" in out
    told = run_fields(seen, check=False, error=None)["hosts"]
    assert [host["left"] for host in told] == [[{"subject": "volume /mnt/a", "reason": "swap"}], []]


def test_what_the_spec_no_longer_names_is_told_of_until_it_is_pruned(
    capsys: pytest.CaptureFixture[str],
) -> None:
    named = {"kind": "dataset", "subject": "a", "reason": "fresh", "as_wanted": True}
    gone = {**named, "subject": "/mnt/b", "reason": "--prune removes it", "prunable": True}
    document = {**CONVERGED, "done": [], "staged": [], "unchanged": [named, gone]}
    seen = FleetRun((HostOutcome("a", documents=(document,)),), 1.0)
    show_run(seen, check=False, diff=False)
    out = capsys.readouterr().out
    assert out.startswith("a:\n  stays: dataset /mnt/b: --prune removes it\n\nhost ")
    assert "\n1 host: 0 changed, 0 failed, in 1.0 s\n" in out
    (told,) = run_fields(seen, check=False, error=None)["hosts"]
    assert told["prunable"] == [{"subject": "dataset /mnt/b", "reason": "--prune removes it"}]


def test_what_hosts_have_in_common_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    alike = [
        HostOutcome(name, ("Converge",), documents=(PLANNED,), diffs=("-old\n+new\n",))
        for name in ("a", "b")
    ]
    bare = HostOutcome("c", ("Converge",), predicted=False, message="nothing is installed there")
    show_run(FleetRun((alike[0], bare, alike[1]), 2.0), check=True, diff=True)
    assert capsys.readouterr().out == (
        "a, b:\n"
        "  would: volume /mnt/a: mount it (nothing is there)\n"
        "  -old\n"
        "  +new\n"
        "\n"
        "c:\n"
        "  would: Converge\n"
        "  not known: nothing is installed there\n"
        "\n"
        "host  changed    failed  staged\n"
        "a     1          no      -\n"
        "c     1 or more  no      -\n"
        "b     1          no      -\n"
        "\n"
        "3 hosts: 3 would change, 0 failed, in 2.0 s\n"
    )


def test_each_line_of_a_message_is_labelled_and_no_empty_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failed = HostOutcome("a", failed=True, message="no Python\n\nsee pyenv\n")
    show_run(FleetRun((failed,), 2.0), check=False, diff=False)
    assert capsys.readouterr().out.startswith("a:\n  failed: no Python\n  failed: see pyenv\n\n")


def test_who_takes_long_is_said_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr("hostprep.cli.fleet_progress.time.monotonic", lambda: now)
    progress = FleetProgress()
    for host in ("a", "b"):
        progress.event(Event("start", 0.0, host, "Converge"))
    progress.waiting()
    now = 107.0
    progress.event(Event("ok", 0.0, "b", "Converge", {"changed": False}))
    progress.waiting()
    progress.waiting()
    assert capsys.readouterr().err == "Converge: at work for up to 7.0 s: a\n"
    for _ in range(7200):
        now += 1.0
        progress.waiting()
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "Converge: at work for up to 12.0 s: a"
    assert said[-2:] == [f"Converge: at work for up to 1 h {left} min: a" for left in (58, 59)]
    assert len(said) < 150


def test_what_ansible_says_in_several_lines_is_shown_in_several(
    capsys: pytest.CaptureFixture[str],
) -> None:
    message = "pip failed\n\nno such wheel\x1b[2J\n"
    FleetProgress().event(Event("failed", 0.0, "a", "Install", {"message": message}))
    assert capsys.readouterr().err == "a: Install: pip failed\n  no such wheel\\x1b[2J\n"


@pytest.mark.parametrize(("check", "said"), [(False, "changed"), (True, "would change")])
def test_a_prediction_does_not_say_that_anything_was_changed(
    capsys: pytest.CaptureFixture[str], check: bool, said: str
) -> None:
    _ProvisionProgress(check=check).event(
        Event("ok", 0.0, "a", "Write the spec", {"changed": True})
    )
    assert capsys.readouterr().err == f"a: Write the spec: {said}\n"


def test_the_document_has_the_hosts_and_the_sums(
    lab: Path, asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["provision", "-i", "hosts.yml", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["ok"], document["check"]) == (
        "hostprep.provision/1", False, False
    )  # fmt: skip
    a, _, c = document["hosts"]
    assert (a["host"], a["changed"], a["failed"]) == ("a", True, False)
    assert a["changes"] == [
        {"subject": "volume /mnt/a", "action": "mount it", "reason": "nothing is there"}
    ]
    assert a["staged"][0]["bound_by"] == "source"
    assert (c["unreachable"], c["message"]) == (True, "cannot be reached: timed out")
    assert document["totals"]["bytes_per_s"] == 2_000_000
    assert document["error"]["message"] == "1 of 3 hosts failed: c."


def test_what_was_not_said_is_left_to_the_inventory(lab: Path, asked: dict[str, Any]) -> None:
    run(["provision", "-i", "hosts.yml"])
    assert asked["variables"] == {"hostprep_spec": {"volumes": [{"path": "/mnt/a", "size": "1G"}]}}
    words = ["provision", "-i", "hosts.yml", "--prune", "--waves", "3", "--wheelhouse", "wheels"]
    asked.clear()
    assert run(words) == 2 and asked == {}  # there is none, and no host was asked
    (lab / "wheels").mkdir()
    run(words)
    assert (
        asked["variables"].items()
        >= {
            "hostprep_prune": True,
            "hostprep_waves": 3,
            "hostprep_install_wheelhouse": str(lab / "wheels"),
        }.items()
    )


def test_prune_clears_hosts_only_for_a_spec_that_says_so(
    lab: Path, asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    spec = lab / "hostprep.yml"
    spec.write_text("volumes:\ndatasets:\n")
    assert run(["provision", "-i", "hosts.yml", "--prune"]) == 2
    assert "is empty, and --prune would remove all" in capsys.readouterr().err
    assert asked == {}
    spec.write_text("{volumes: [], datasets: []}")
    run(["provision", "-i", "hosts.yml", "--prune"])
    assert asked["variables"]["hostprep_prune_all"] is True


def test_hosts_that_failed_are_tried_again(
    lab: Path, asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run(["provision", "-i", "hosts.yml"])
    run(["provision", "-i", "hosts.yml", "--retry-failed"])
    assert asked["limit"] == ("c",)
    assert run(["provision", "-i", "hosts.yml", "--retry-failed", "--limit", "a"]) == 2
    assert "goes without --limit" in capsys.readouterr().err


def test_where_nothing_can_be_noted_the_result_is_shown_all_the_same(
    lab: Path, asked: dict[str, Any], own_state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (own_state / "state").write_text("no folder")
    assert run(["provision", "-i", "hosts.yml"]) == 1
    out, err = capsys.readouterr()
    assert "3 hosts: 1 changed, 1 failed" in out
    assert "hostprep: --retry-failed will not know of this run: " in err
    assert err.endswith("  -> once they are fixed: the same command\n")


def test_a_run_of_all_hosts_forgets_one_that_has_left(lab: Path, asked: dict[str, Any]) -> None:
    remember(str(lab / "hosts.yml"), FleetRun((HostOutcome("gone", failed=True),), 1.0))
    for words, hosts in ((["--limit", "a"], ("gone", "c")), ([], ("c",))):
        run(["provision", "-i", "hosts.yml", *words])
        assert failed_hosts(str(lab / "hosts.yml")) == hosts


def test_without_failed_hosts_there_is_nothing_to_try_again(
    lab: Path, asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["provision", "-i", "hosts.yml", "--retry-failed"]) == 0
    said = "nothing to do: no host of hosts.yml is on record as failed\n"  # of hosts never reached
    assert capsys.readouterr().out == said
    assert run(["provision", "-i", "node1,", "--retry-failed"]) == 0
    assert capsys.readouterr().out == said.replace("hosts.yml", "node1")
    assert run(["provision", "-i", "hosts.yml", "--retry-failed", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    totals = document["totals"]
    assert (document["hosts"], totals["hosts"], totals["failed"]) == ([], 0, 0)
    assert (totals["changed"], totals["copied_bytes"]) == (0, 0)
    assert asked == {}


def test_totals_separate_thousands(capsys: pytest.CaptureFixture[str]) -> None:
    many = FleetRun((HostOutcome("h", changed_tasks=("t",)),) * 1200, 2.0)
    show_run(many, check=False, diff=False)
    assert capsys.readouterr().out.endswith("\n1,200 hosts: 1,200 changed, 0 failed, in 2.0 s\n")


def test_a_prediction_is_no_run_to_be_tried_again(
    lab: Path, asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["provision", "-i", "hosts.yml", "--check"]) == 1
    assert asked["check"] is True
    assert failed_hosts(str(lab / "hosts.yml")) == ()
    assert capsys.readouterr().err.endswith("  -> nothing was changed on any host\n")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "what was done on the hosts stays"),
        (["--check"], "nothing was changed on any host, but a folder"),
        (["--dry-run"], "nothing was changed on any host, but a folder"),
    ],
)
def test_ctrl_c_says_how_the_hosts_are_left(
    lab: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    sentence: str,
) -> None:
    def interrupted(*arguments: Any, **options: Any) -> FleetRun:
        raise KeyboardInterrupt

    monkeypatch.setattr(hostprep.fleet.playbook, "run_playbook", interrupted)
    assert run(["provision", "-i", "hosts.yml", "--json", *words]) == 130
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["code"] == "interrupted"
    assert f"hostprep: interrupted; {sentence}" in err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-i", "no.yml"], "the inventory no.yml does not exist"),
        (["-i", "hosts.yml", "no-spec.yml"], "no-spec.yml does not exist"),
        (["-i", "hosts.yml", "--forks", "0"], "--forks"),
        (["-i", "hosts.yml", "--limit", ""], "--limit names no host; none was reached"),
        (["-i", "hosts.yml", "--limit", " ,"], "--limit names no host; none was reached"),
        (["-i", "hosts.yml", "--limit", "] ["], "--limit names no host; none was reached"),
        (["-i", "hosts.yml", "--limit", "!"], "--limit names no host; none was reached"),
        (["-i", "hosts.yml", "--limit", "all:!"], "--limit all:! names no host behind its ! or &"),
        (["-i", "hosts.yml", "--limit", "a, & "], "--limit a, &  names no host behind its ! or &"),
        (["-i", "hosts.yml", "--limit", "@empty"], "--limit @empty names no host: nothing is in"),
        (["-i", "hosts.yml", "--limit", "@empty, @empty"], "nothing is in that file; none was"),
        (["-i", "hosts.yml", "--limit", "a:b", "--limit", "c"], "--limit a:b has colons, and"),
        ([], "--inventory"),
    ],
)
def test_mistakes_end_before_any_host_is_reached(
    lab: Path,
    asked: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    sentence: str,
) -> None:
    Path("empty").write_text(" \n\n")
    assert run(["provision", *words]) == 2
    assert sentence in capsys.readouterr().err
    assert asked == {}


def test_without_a_spec_it_is_said_how_to_name_one(
    lab: Path, asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    (lab / "hostprep.yml").unlink()
    assert run(["provision", "-i", "hosts.yml"]) == 2
    assert "provision -i INVENTORY SPEC" in capsys.readouterr().err


def test_without_ansible_it_is_said_how_to_get_it(
    lab: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "ansible" else real(name)
    )
    assert run(["provision", "-i", "hosts.yml", "--json"]) == 1
    printed = capsys.readouterr()
    assert f"{shlex.quote(sys.executable)} -m pip install ansible-core" in printed.err
    assert json.loads(printed.out)["error"]["code"] == "missing_tool", "as docs/json.md has it"


def test_hosts_that_no_inventory_has_are_a_mistake(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["provision", "-i", "hosts.yml", "--limit", "nobody"]) == 2
    said = capsys.readouterr().err
    assert "no host of hosts.yml is meant" in said and "--limit" in said


def test_hosts_that_failed_and_are_gone_are_told_of_as_what_they_are(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = FleetRun((HostOutcome("gone", failed=True), HostOutcome("sold", failed=True)), 1.0)
    remember(str(lab / "hosts.yml"), gone)
    assert run(["provision", "-i", "hosts.yml", "--retry-failed"]) == 2
    said = capsys.readouterr().err
    assert "gone, sold failed when last provisioned; hosts.yml has no such host any more" in said
    assert "-> leave out --retry-failed" in said and "--limit" not in said


def test_no_advice_is_of_an_option_that_was_not_given(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (lab / "nobody").touch()
    assert run(["check", "-i", "nobody"]) == 2  # which has no --limit
    said = capsys.readouterr().err
    assert "no host of nobody is meant" in said and "--limit" not in said


def test_the_role_asks_the_controller_for_an_archive(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["wheelhouse", "--only-hostprep", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert Path(document["archive"]).is_file()
    assert document["wheel"].startswith("hostprep-")
    assert len(document["build"]) == 16


def test_a_host_that_has_this_build_needs_no_wheels(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not even those that the folder lacks."""
    words = ["wheelhouse", "--target", "3.11-x86_64-glibc-2.36", "--from", str(lab), "--json"]
    build = pack_wheel().build
    assert run([*words, "--installed=0123456789abcdef"]) == 2
    assert "holds no wheels" in capsys.readouterr().out
    assert run([*words, f"--installed={build}"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["build"], document["archive"]) == (build, None)
