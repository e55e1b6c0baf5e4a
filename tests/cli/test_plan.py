"""`plan`, `apply` and `spec init` as somebody types them, where nothing is mounted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

from hostprep.cli.apply import _conclude
from hostprep.cli.host_plan import show_host_plan
from hostprep.cli.main import run
from hostprep.converging.apply import Applied
from hostprep.converging.model import Change, HostPlan, Kind, ObjectPlan, Problem, Unchanged
from hostprep.errors import Refused
from hostprep.spec.loading import load_spec


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a data set in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOSTPREP_SPEC", raising=False)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").write_bytes(b"content")
    return tmp_path


def write(home: Path, text: str) -> Path:
    path = home / "hostprep.yml"
    path.write_text(text)
    path.chmod(0o644)
    return path


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_document_of_a_plan(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = write(home, f"datasets: [{{source: data, to: {home}/fast}}]\n")
    assert run(["plan", "--json"]) == 0
    found = document(capsys)
    assert found["schema"] == "hostprep.plan/1"
    assert found["spec"] == str(spec)
    (change,) = found["changes"]
    assert set(change) == {"kind", "subject", "action", "reason"}
    assert (change["kind"], change["subject"]) == ("dataset", "data")
    assert (found["unchanged"], found["warnings"], found["refusals"]) == ([], [], [])
    assert run(["plan", "--exit-code", "--dry-run", "--json"]) == 4
    assert document(capsys)["ok"] is True
    assert not (home / "fast").exists()


def test_apply_and_again_where_nothing_is_mounted(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(home, f"datasets: [{{source: data, to: {home}/fast}}]\n")
    assert run(["apply", "--yes", "--json"]) == 0
    found = document(capsys)
    assert found["schema"] == "hostprep.apply/1"
    assert (found["ok"], found["changed"], found["pending"]) == (True, True, [])
    assert (home / "fast/data/file").read_bytes() == b"content"
    assert run(["apply", "--yes"]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert run(["plan", "--exit-code"]) == 0


def test_a_refusal_is_5_for_both_and_is_told_with_its_hint(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(home, f"datasets: [{{source: nowhere, to: {home}/fast}}]\n")
    for command in ("plan", "apply"):
        words = [command, *(["--yes"] if command == "apply" else [])]
        assert run([*words, "--json"]) == 5
        found = document(capsys)
        assert (found["ok"], found["error"]["code"]) == (False, "refused")
        (refusal,) = found["refusals"]
        assert set(refusal) == {"kind", "subject", "message", "hint"}
        assert "nowhere does not exist" in refusal["message"]
        assert run(words) == 5
        assert "refused: dataset nowhere: the source" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "missing.yml"),
        ("apply", "--yes", "missing.yml"),
        ("plan", "--reserve", "lots"),
        ("spec", "init", "-", "--json"),
        ("spec", "init", "one.yml", "--output", "another.yml"),
    ],
)
def test_usage(words: tuple[str, ...], home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(home, "volumes: []\n")
    assert run(list(words)) == 2
    assert "hostprep: " in capsys.readouterr().err


def test_without_a_spec_it_says_how_to_get_one(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hostprep.spec.finding.SYSTEM_SPEC", home / "none.yml")
    assert run(["plan"]) == 2
    assert "hostprep spec init" in capsys.readouterr().err


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\x04", 130)])
def test_it_asks_on_a_terminal(
    answer: str,
    code: int,
    home: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(home, f"datasets: [{{source: data, to: {home}/fast}}]\n")
    leader, terminal = os.openpty()
    with os.fdopen(terminal, "r") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        os.write(leader, answer.encode())
        assert run(["apply"]) == code
    os.close(leader)
    said = capsys.readouterr()
    assert "would: dataset data" in said.out and "Do this?" in said.err
    assert ("nothing was changed.\n" in said.err) is (code != 0)
    assert (home / "fast/data").exists() is (code == 0)


def test_an_empty_hosts_first_spec_is_valid_and_full_of_examples(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["spec", "init", "--json"]) == 0
    found = document(capsys)
    written = home / "hostprep.yml"
    assert (found["path"], found["notes"]) == (str(written), [])
    spec = load_spec(written)
    assert (spec.volumes, spec.datasets, spec.requirements) == ((), (), ())
    text = written.read_text()
    uncommented = text.replace("# packages", "packages")
    for key in ("volumes", "datasets", "requirements"):
        start = uncommented.index(f"# {key}:")
        example, _, rest = uncommented[start:].partition("\n\n")
        lines = "\n".join(line.removeprefix("# ") for line in example.splitlines())
        uncommented = f"{uncommented[:start]}{lines}\n\n{rest}"
    written.write_text(uncommented)
    example_spec = load_spec(written)
    assert example_spec.datasets[0].at_boot and example_spec.requirements and example_spec.volumes
    written.write_text(text)
    assert run(["plan"]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert run(["spec", "init"]) == 5
    assert written.read_text() == text


@pytest.mark.parametrize("words", [("lab.yml",), ("--output", "lab.yml")])
def test_a_first_spec_goes_into_the_file_that_is_named(
    words: tuple[str, ...], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["spec", "init", *words]) == 0
    assert (
        capsys.readouterr().out
        == "lab.yml was written; `hostprep plan lab.yml` shows what it would change\n"
    )
    load_spec(home / "lab.yml")
    assert not (home / "hostprep.yml").exists()
    assert run(["spec", "init", *words]) == 5
    assert "name another file, and compare" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("folder", "folder is a directory; nothing was written."),
        ("link", "link is a directory; nothing was written."),
        ("/dev/full", "/dev/full is not a regular file; nothing was written."),
        ("dangling", "dangling exists, and a spec"),
    ],
)
def test_what_is_no_file_to_write_a_spec_to_is_called_what_it_is(
    name: str, said: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "folder").mkdir()
    (home / "link").symlink_to("folder")
    (home / "dangling").symlink_to("nowhere")
    assert run(["spec", "init", name]) == 5
    assert said in capsys.readouterr().err
    assert not os.listdir(home / "folder") and not (home / "nowhere").exists()


def test_a_name_that_yaml_would_misread_is_quoted(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("yes", "a: b", "1e3", 'quo"te #'):
        source = home / "sources" / name
        source.mkdir(parents=True)
        (source / "file").touch()
        assert run(["stage", str(source), "--to", str(home / "fast"), "--json"]) == 0
    capsys.readouterr()
    assert run(["spec", "init"]) == 0
    spec = load_spec(home / "hostprep.yml")
    assert {dataset.name for dataset in spec.datasets} == {"yes", "a: b", "1e3", 'quo"te #'}
    assert run(["plan", "--exit-code"]) == 0


@pytest.mark.parametrize(
    ("shell", "code", "words"),
    [
        ("apply --yes --json <&- 2>&-", 0, '"changed": true'),
        ("apply <&-", 2, "there is nobody to ask"),
        ("plan --json <&- 2>&-", 0, '"refusals": []'),
        ("plan --exit-code <&- > /dev/null", 4, ""),
        ("wait data <&- >&- 2>&-", 2, ""),
        ("plan --exit-code <&- >&-", 1, "could not be written: stdout is closed"),
        ("plan --json >&-", 1, "could not be written: stdout is closed"),
        ("apply --yes --json >&-", 1, "could not be written: stdout is closed"),
        ("apply --yes --json > /dev/full", 1, "could not be written: No space left"),
    ],
)
def test_what_a_careless_parent_closes_counts_where_a_result_is_lost(
    shell: str, code: int, words: str, home: Path
) -> None:
    write(home, f"datasets: [{{source: data, to: {home}/fast}}]\n")
    done = sh(f'"$0" -m hostprep {shell}', home)
    assert done.returncode == code, done.stderr
    assert words in done.stdout + done.stderr
    assert "Traceback" not in done.stderr and "bug" not in done.stderr


def test_where_nobody_can_be_asked_the_spec_and_the_plan_come_first(home: Path) -> None:
    def apply(*words: str) -> tuple[int, str, str]:
        done = sh(f'"$0" -m hostprep apply {" ".join(words)} </dev/null', home)
        return done.returncode, done.stdout, done.stderr

    assert "there is no spec file" in apply()[2]
    spec = write(home, "datasets: [{sauce: data}]\n")
    code, _, said = apply()
    assert code == 2 and "sauce" in said and "nobody" not in said
    write(home, f"datasets: [{{source: data, to: {home}/fast}}]\n")
    code, shown, said = apply()
    assert code == 2 and "would: dataset data: " in shown
    assert "there is nobody to ask here; nothing was changed.\n  -> --yes goes ahead" in said
    code, shown, _ = apply("--json")
    assert code == 2 and json.loads(shown)["error"]["message"].startswith("there is nobody to ask")
    assert not (home / "fast").exists()
    spec.write_text("volumes: []\n")
    assert apply()[:2] == (0, "nothing to do\n"), "nothing is to be asked then"


def test_what_stays_other_than_the_spec_has_it_is_not_called_as_it_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def applied(*, as_wanted: bool) -> list[str]:
        stays = Unchanged(Kind.VOLUME, "/mnt/v", "why", as_wanted)
        plan = HostPlan("spec", (ObjectPlan(Kind.VOLUME, "/mnt/v", unchanged=(stays,)),))
        show_host_plan(plan)
        _conclude(Applied(plan, (), (), (), plan), as_json=False)
        told = capsys.readouterr()
        assert ("left: volume /mnt/v: why" in told.err) is not as_wanted
        return told.out.splitlines()[1:]

    assert applied(as_wanted=True) == [
        "nothing to do",
        "looked at again: the host is as the spec says",
    ]
    assert applied(as_wanted=False) == [
        "nothing to do; not as the spec says, and left so: volume /mnt/v",
        "looked at again: the host is as the spec says, but for volume /mnt/v",
    ]


def test_json_names_what_is_left_though_the_plan_did_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    known, found = (Unchanged(Kind.VOLUME, path, "why", False) for path in ("/mnt/v", "/mnt/w"))
    before = HostPlan("spec", (ObjectPlan(Kind.VOLUME, "/mnt/v", unchanged=(known,)),))
    after = replace(before, objects=(ObjectPlan(Kind.VOLUME, "/mnt", unchanged=(known, found)),))
    _conclude(Applied(before, (), (), (), after), as_json=True)
    said = json.loads(capsys.readouterr().out)["unchanged"]
    assert [each["subject"] for each in said] == ["/mnt/v", "/mnt/w"]


@pytest.mark.parametrize("umask", ["0", "077"])
def test_neither_the_encoding_nor_the_umask_of_the_caller_matters(home: Path, umask: str) -> None:
    (home / "dätä").mkdir()
    (home / "dätä/file").touch()
    write(home, f"datasets: [{{source: dätä, to: {home}/fast}}]\n")
    done = sh(f'umask {umask}; PYTHONIOENCODING=ascii "$0" -m hostprep apply --yes', home)
    assert done.returncode == 0, done.stderr
    assert r"fast/d\xe4t\xe4" in done.stdout
    if os.geteuid() == 0:
        state = Path(os.environ["HOSTPREP_STATE_DIR"])
        made = [home / "fast", state, *state.rglob("*")]
        assert [path for path in made if path.stat().st_mode & 0o022] == []
        # Those who wait for the data set must come as far as it.
        assert [
            path for path in made if path.is_dir() and path.stat().st_mode & 0o055 != 0o055
        ] == []


def test_records_of_a_user_are_never_such_as_the_next_run_refuses() -> None:
    program = (
        "import os\n"
        "from hostprep.cli.main import _steady\n"
        "if os.geteuid() == 0:\n"
        "    os.setuid(65534)\n"
        "for before in 0, 0o77:\n"
        "    os.umask(before)\n"
        "    _steady()\n"
        "    print(f'{os.umask(0):o}')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["2", "77"], done.stderr


def test_a_command_that_fails_is_seen_to_though_the_caller_ignores_its_children() -> None:
    script = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN);"
        "os.execv(sys.executable, [sys.executable, '-c', sys.argv[1]])"
    )
    program = (
        "from hostprep.cli.main import _steady\n"
        "from hostprep.system.bounded import ask_in_child\n"
        "from hostprep.system.run import CommandFailed, run\n"
        "_steady()\n"
        "assert ask_in_child(lambda: 1, patience_seconds=5) == 1\n"
        "try:\n"
        "    run(['false'], wanted_for='test')\n"
        "except CommandFailed:\n"
        "    print('seen')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, program], capture_output=True, text=True, check=False
    )
    assert done.stdout == "seen\n", done.stderr


def sh(line: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", line, sys.executable], cwd=cwd, capture_output=True, text=True, check=False
    )


def test_what_is_refused_only_afterwards_is_counted_among_the_failed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    refusal = Problem.of(Kind.VOLUME, "/a", Refused("its parent is another's by now."))
    after = HostPlan("/spec.yml", (ObjectPlan(Kind.VOLUME, "/a", refusal=refusal),))
    with pytest.raises(typer.Exit):
        _conclude(Applied(HostPlan("/spec.yml", ()), (), (), (), after), as_json=False)
    said = capsys.readouterr().err
    assert "failed: volume /a: its parent is another's by now." in said
    assert "1 object failed, 0 still to be done" in said


def test_where_nothing_failed_and_something_is_left_the_hint_is_not_to_mend_what_failed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    change = Change(Kind.VOLUME, "/a", "grow", "another admin shrank it")
    after = HostPlan("/spec.yml", (ObjectPlan(Kind.VOLUME, "/a", changes=(change,)),))
    with pytest.raises(typer.Exit):
        _conclude(Applied(HostPlan("/spec.yml", ()), (), (), (), after), as_json=False)
    said = capsys.readouterr().err
    assert "0 objects failed, 1 still to be done" in said
    assert "fix what failed" not in said and "something else changed it meanwhile" in said


@pytest.mark.parametrize(
    ("kind", "user", "lines"),
    [(Kind.VOLUME, 1000, 1), (Kind.VOLUME, 0, 0), (Kind.DATASET, 1000, 0)],
)
def test_a_plan_says_where_this_user_cannot_apply_it(
    kind: Kind,
    user: int,
    lines: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    steps = (Change(kind, "one", "make it", "it is missing"),)
    show_host_plan(HostPlan("/spec.yml", (ObjectPlan(kind, "one", changes=steps),)))
    assert capsys.readouterr().out.count("root: needed for that") == lines


def test_no_path_in_a_refusal_adds_a_line_to_it(capsys: pytest.CaptureFixture[str]) -> None:
    odd = "/a\x1b[2J\nhostprep: all is well"
    refusal = Problem.of(Kind.VOLUME, odd, Refused("it is mounted."))
    after = HostPlan("/spec.yml", (ObjectPlan(Kind.VOLUME, odd, refusal=refusal),))
    show_host_plan(after)
    with pytest.raises(typer.Exit):
        _conclude(Applied(HostPlan("/spec.yml", ()), (), (), (), after), as_json=False)
    lines = capsys.readouterr().err.splitlines()
    assert all(line.isprintable() for line in lines)
    assert "hostprep: all is well: it is mounted." not in lines
