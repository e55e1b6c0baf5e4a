"""The table of commands says what their modules say, and only the one that runs is imported."""

from __future__ import annotations

import contextlib
import errno
import importlib
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TextIO

import pytest

import hostprep
from hostprep.cli import output
from hostprep.cli.app import COMMANDS, load
from hostprep.cli.main import run
from hostprep.errors import UsageError
from hostprep.system.interruption import INTERRUPTIONS


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_line_is_the_commands_own(name: str) -> None:
    command = load(name)
    assert command.help.splitlines()[0] == COMMANDS[name].help


@pytest.mark.parametrize("name", COMMANDS)
def test_without_docstrings_it_still_has_that_line(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As under PYTHONOPTIMIZE=2, which is set for a training and counts for hostprep too."""
    module, _, attribute = COMMANDS[name].place.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    for each in getattr(found, "registered_commands", []):
        monkeypatch.setattr(each.callback, "__doc__", None)
    monkeypatch.setattr(found, "__doc__", None)
    assert load(name).help == COMMANDS[name].help


def test_help_lists_what_is_not_hidden() -> None:
    args = [sys.executable, "-m", "hostprep", "--help"]
    done = subprocess.run(args, capture_output=True, text=True, check=True)
    commands = done.stdout.partition("Commands:\n")[2].splitlines()
    listed = [line.split()[0] for line in commands]
    assert listed == [name for name, command in COMMANDS.items() if not command.hidden]


def _error_beside(folder: Path, *words: str) -> dict[str, str]:
    """Return the error of a command that finds the modules in ``folder`` before all others."""
    root = Path(hostprep.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "hostprep", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{root}"},
        check=False,
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    error: dict[str, str] = json.loads(done.stdout)["error"]
    return error


@pytest.mark.parametrize(
    ("module", "package", "words"),
    [
        ("typer", "typer", ("facts", "--json")),
        ("shellingham", "shellingham", ("facts", "--json")),
        ("xxhash", "xxhash", ("check", "--only", "HP050", "--json")),
        ("yaml", "pyyaml", ("spec", "check", "a.yml", "--json")),
    ],
)
def test_a_python_that_lacks_a_package_is_told_which(
    module: str, package: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / f"{module}.py").write_text(
        f"raise ModuleNotFoundError(\"No module named '{module}'\", name='{module}')\n"
    )
    (tmp_path / "a.yml").write_text("{}\n")
    error = _error_beside(tmp_path, *words)
    assert f"no module {module}," in error["message"]
    assert f"pip install {package}," in error["hint"]


@pytest.mark.parametrize(
    ("module", "content"),
    [
        ("yaml", "x = 1"),
        ("typing_extensions", "print 'of Python 2'"),
        ("typer", "from collections import Mapping"),
    ],
)
def test_what_pythonpath_puts_in_the_place_of_a_module_is_named(
    module: str, content: str, tmp_path: Path
) -> None:
    (tmp_path / f"{module}.py").write_text(content)
    (tmp_path / "a.yml").write_text("{}")
    error = _error_beside(tmp_path, "spec", "check", "a.yml", "--json")
    assert f"PYTHONPATH puts {tmp_path}/{module}.py in the place of" in error["message"]
    assert "env -u PYTHONPATH" in error["hint"]


@pytest.mark.parametrize(
    ("module", "content"),
    [("types", "x = 1"), ("signal", "print 'of Python 2'"), ("json", "raise OSError")],
)
def test_so_is_what_it_puts_in_the_place_of_python_s_own(
    module: str, content: str, tmp_path: Path
) -> None:
    """As the installed command: what is in the way of ``-m`` is in Python's own."""
    file = tmp_path / f"{module}.py"
    file.write_text(content)
    root = Path(hostprep.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", "from hostprep.__main__ import main; main()", "--version"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"},
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "") and "Traceback" not in done.stderr
    assert f"PYTHONPATH puts {file} in the place of" in done.stderr
    assert "env -u PYTHONPATH" in done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [("--help",), ("recommend", "--help")])
def test_help_that_cannot_be_written_is_no_bug(words: tuple[str, ...], unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "hostprep", *words], stdout=full, stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered}, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "could not be written: No space left" in done.stderr
    assert "bug" not in done.stderr


def test_help_onto_a_closed_stdout_is_lost_and_that_is_said() -> None:
    script = 'exec "$0" -m hostprep --help >&-'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "could not be written: stdout is closed" in done.stderr


@pytest.mark.parametrize(
    ("onto", "reason"), [(">&-", "stdout is closed"), (">/dev/full", "No space left on device")]
)
def test_an_error_whose_document_cannot_be_written_stays_what_it_is(onto: str, reason: str) -> None:
    script = f'exec "$0" -m hostprep unstage nothing --json {onto}'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    said = done.stderr.splitlines()
    assert "knows no data set" in said[0]
    assert said[-1] == f"hostprep: the result could not be written: {reason}."


def test_an_option_that_is_misspelt_json_still_gives_a_document(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["facts", "--json=yes"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["ok"]) == ("hostprep.facts/1", False)
    assert "does not take a value" in document["error"]["message"]


@pytest.mark.parametrize(("word", "alike"), [("--force", False), ("--forge", True)])
def test_who_wants_to_force_something_is_not_led_to_forget_it(
    word: str, alike: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["unstage", "city", word]) == 2
    assert ("--forget" in capsys.readouterr().err) is alike


def test_an_argument_too_many_leads_to_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "more"]) == 2
    assert "-> see `hostprep verify --help`" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["--check", "--noop", "--simulate", "--what-if", "-C", "-n"])
def test_a_dry_run_by_the_name_that_other_tools_give_it_is_known(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("apply", "plan", "unstage"):
        assert run([command, word]) == 2
        assert "--dry-run" in capsys.readouterr().err, command
    assert run(["facts", word]) == 2  # which changes nothing
    assert "--dry-run" not in capsys.readouterr().err
    assert run(["unstage", "--forgett"]) == 2  # no name of it, and alike to something else
    assert "--dry-run" not in capsys.readouterr().err


@pytest.mark.parametrize("words", [("stage", "--to"), ("--completion",), ("spec", "check", "--no")])
def test_a_mistake_in_the_command_line_says_whose_help_to_see(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words]) == 2
    path = " ".join(["hostprep", *(word for word in words if not word.startswith("-"))])
    assert f"-> see `{path} --help`" in capsys.readouterr().err


def test_an_option_before_its_command_is_told_where_it_goes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for option, command in (("--json", "status"), ("--size", "mount")):
        assert run([option, command]) == 2
        assert f"after it: `hostprep {command} {option}`" in capsys.readouterr().err
    assert run(["--json"]) == 2
    assert "-> see `hostprep --help`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "way"),
    [(("stage", "/srv", "/dev/shm"), "--to DIR"), (("recommend", "/srv"), "--dataset DIR")],
)
def test_who_gives_an_argument_too_many_is_told_the_option(
    words: tuple[str, ...], way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words]) == 2
    said = capsys.readouterr().err
    assert f"is an option: {way}" in said and f"see `hostprep {words[0]} --help`" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("stage", "/srv", "--to=/x", "--readers=1.5"), "'1.5' is not a whole number."),
        (("stage", "/srv", "--to=/x", "--readers=٣"), "'٣' is not a whole number."),
        (("wait", "x", "--timeout=soon"), "'soon' is not a number."),
        (("wait", "x", "--timeout=٣"), "'٣' is not a number."),
        (("probe", "/srv", "--seconds=1_0"), "'1_0' is not a number."),
        (("recommend", "--gpu-rate=fast"), "'fast' is not a number."),
    ],
)
def test_what_is_no_number_is_told_in_words_of_people(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("option", "mistake"), [("--to-tmpfs", "1X"), ("--reserve", "1X")])
def test_a_size_that_is_none_is_told_of_before_rights_are(
    option: str,
    mistake: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert run(["stage", "/srv", "--to-tmpfs", "1G", option, mistake]) == 2
    assert "'1X' is not a size" in capsys.readouterr().err


@pytest.mark.parametrize(("kind", "coloured"), [("xterm", True), ("dumb", False)])
def test_a_dumb_terminal_is_sent_no_escapes(kind: str, coloured: bool) -> None:
    ours, theirs = os.openpty()
    args = [sys.executable, "-m", "hostprep", "check", "--only", "HP030"]
    environ = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    subprocess.run(
        args, stdout=theirs, stderr=theirs, env={**environ, "TERM": kind}, timeout=60, check=False
    )
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):  # EIO: all was read, which comes in parts
        while chunk := os.read(ours, 65536):
            said += chunk
    os.close(ours)
    assert b"HP030" in said and (b"\x1b" in said) is coloured


@pytest.mark.parametrize(("said", "coloured"), [(None, True), ("", True), ("1", False)])
def test_a_terminal_is_coloured_unless_somebody_wants_none(
    said: str | None, coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if said is not None:
        monkeypatch.setenv("NO_COLOR", said)
    assert output.wants_colour(SimpleNamespace(isatty=lambda: True)) is coloured
    assert not output.wants_colour(SimpleNamespace(isatty=lambda: False))


def test_help_whose_reader_has_gone_is_given() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    args = [sys.executable, "-m", "hostprep", "--help"]
    done = subprocess.run(args, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", ["--help", "spec --help"])
def test_what_a_command_does_is_told_whole_on_a_narrow_terminal(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert run(words.split()) == 0
    assert "..." not in capsys.readouterr().out.partition("Commands:\n")[2]


def test_what_is_hidden_is_no_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["stag"]) == 2
    said = capsys.readouterr().err
    assert "'stage'" in said and "restage" not in said


def test_only_the_command_that_runs_is_imported() -> None:
    code = (
        "import sys; from hostprep.cli.main import run; run(['status', '--help']);"
        "print(*(name for name in sys.modules if name.startswith('hostprep.cli.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(done.stdout.splitlines()[-1].split())
    assert "hostprep.cli.status" in modules
    others = {command.place.partition(":")[0] for command in COMMANDS.values()}
    assert modules & others == {"hostprep.cli.status"}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_parameter_of_any_command_takes_an_empty_text(name: str) -> None:
    command = load(name)
    for each in (command, *getattr(command, "commands", {}).values()):
        for parameter in each.params:
            if parameter.type.name.startswith(("bool", "int", "float", "choice")):
                continue
            if parameter.name in ("skip", "only", "limit"):
                continue  # nothing is left out; the others say themselves what is wrong
            several = parameter.nargs == -1 or getattr(parameter, "multiple", False)
            empty = ["some", ""] if several else ""
            with pytest.raises(UsageError, match="is empty; nothing was done"):
                parameter.process_value(each.context_class(each), empty)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current directory: a folder ``here`` and a spec are in it, and nothing else."""
    (tmp_path / "here").mkdir()
    (tmp_path / "hostprep.yml").write_text("{}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("stage", "", "--to", "there"), "SOURCE"),
        (("stage", "here", "--to", ""), "--to"),
        (("stage", "here", "--to-tmpfs=1M", "--at="), "--at"),
        (("unstage", ""), "NAME|PATH"),
        (("mount", "", "--size", "1M"), "PATH"),
        (("unmount", ""), "PATH"),
        (("facts", "/", ""), "PATH"),
        (("probe", ""), "PATH"),
        (("recommend", "--dataset", ""), "--dataset"),
        (("check", "-i", ""), "--inventory"),
        (("check", "--output", ""), "--output"),
        (("check", ""), "SPEC"),
        (("spec", "check", ""), "SPEC"),
        (("spec", "init", ""), "FILE"),
        (("apply", "", "--yes"), "SPEC"),
        (("wait", ""), "NAME"),
    ],
)
def test_what_an_unset_variable_comes_to_is_not_the_current_directory(
    words: tuple[str, ...], what: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "--json"]) == 2
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert document["error"]["message"] == f"{what} is empty; nothing was done."
    assert document["error"]["message"] in said.err
    assert sorted(os.listdir(here)) == ["here", "hostprep.yml"]


@pytest.mark.parametrize(
    ("words", "what", "taken"),
    [
        (("stage", "here", "--to", "--dry-run"), "--to", "--dry-run"),
        (("stage", "here", "--to-tmpfs", "--dry-run"), "--to-tmpfs", "--dry-run"),
        (("check", "--only", "HP020", "--output", "--json"), "--output", "--json"),
        (("apply", "--reserve", "-y"), "--reserve", "-y"),
        (("provision", "-i", "--check"), "--inventory", "--check"),
        (("verify", "--device", "--data", "here"), "--device", "--data"),
        (("recommend", "--loader", "--seconds", "5"), "--loader", "--seconds"),
    ],
)
def test_an_option_is_not_taken_for_the_value_of_the_one_before_it(
    words: tuple[str, ...], what: str, taken: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A script's `--to $DIR --dry-run` with an unset DIR would be no dry run.
    assert run([*words, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["message"].startswith(f"{what} is {taken!r}, which reads as another option; ")
    assert f'"./{taken}"' in error["hint"]
    assert sorted(os.listdir(here)) == ["here", "hostprep.yml"]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("stage", "here", "--to=~/fast"), "--to"),
        (("stage", "here", "--to", "~"), "--to"),
        (("stage", "here", "--to-tmpfs=1M", "--at=~/ram"), "--at"),
        (("check", "--output=~/report"), "--output"),
        (("mount", "~/ram", "--size=1M"), "PATH"),
        (("provision", "-i", "here,", "--wheelhouse=~/wheels"), "--wheelhouse"),
        (("facts", "/", "~/x"), "PATH"),
    ],
)
def test_a_home_that_the_shell_left_as_it_is_becomes_no_folder_of_that_name(
    words: tuple[str, ...], what: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["message"].startswith(f"{what} is '~") and "nothing was done" in error["message"]
    assert '"$HOME' in error["hint"] and '"./~' in error["hint"]
    assert sorted(os.listdir(here)) == ["here", "hostprep.yml"]


@pytest.mark.parametrize(  # of what prints errors, of the rest; and of what understands signals
    ("module", "number"),
    [*itertools.product(("json", "typer"), INTERRUPTIONS), ("typing", signal.SIGINT)],
)
def test_an_interruption_while_the_command_line_is_loaded_is_one_like_any_other(
    tmp_path: Path, module: str, number: signal.Signals
) -> None:
    # In place of a hand that is quick: an import sends the signal, the first time, and while it
    # sets up a class, as nearly all of them do.
    slow = (
        "import os, sys, time\n"
        f"sys.path.remove({str(tmp_path)!r})\n"
        "class Slow:\n"
        "    def __set_name__(self, *_):\n"
        f"        os.kill(os.getpid(), {int(number)})\n"
        "        time.sleep(20)\n"
        "class Holder:\n"
        "    slow = Slow()\n"
    )
    (tmp_path / f"{module}.py").write_text(slow)
    path = f"{tmp_path}:{Path(hostprep.__file__).parents[1]}"
    done = subprocess.run(
        [sys.executable, "-m", "hostprep", "status", "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    assert done.returncode == 130, done.stderr
    assert done.stderr == "hostprep: interrupted.\n"
    document = json.loads(done.stdout)
    assert document["schema"] == "hostprep.status/1"
    assert document["error"]["code"] == "interrupted"


def test_an_interruption_after_the_document_adds_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = output._print

    def interrupted(text: str, stream: TextIO, end: str = "\n") -> None:
        real(text, stream, end)
        if stream is sys.stdout:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(output, "_print", interrupted)
        assert run(["status", "--json"]) == 130
    said = capsys.readouterr()
    assert json.loads(said.out)["schema"] == "hostprep.status/1"
    assert said.err == "hostprep: interrupted.\n"
    assert run(["unstage", "nothing", "--json"]) == 2  # the next run has one of its own
    assert json.loads(capsys.readouterr().out)["ok"] is False


@pytest.mark.parametrize(
    ("error", "message", "hint"),
    [
        (
            OSError(errno.EIO, "Input/output error", "/mnt/x"),
            "Input/output error (/mnt/x).",
            "dmesg",
        ),
        (
            OSError(errno.ENOMEM, "Cannot allocate memory"),
            "Cannot allocate memory.",
            "free some memory",
        ),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files.", "ulimit -n"),
        (
            OSError(errno.ESTALE, "Stale file handle", b"/mnt/\xff"),
            "handle (/mnt/",
            "mount it anew",
        ),
        (MemoryError(), "memory ran out", "free some memory"),
        (OSError(errno.EINVAL, "Invalid argument"), "unexpected OSError", "a bug in hostprep"),
        (ValueError("x"), "unexpected ValueError", "a bug in hostprep"),
    ],
    ids=str,
)
def test_what_the_host_failed_is_not_called_a_bug(
    error: Exception,
    message: str,
    hint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken(**_: object) -> int:
        raise error

    monkeypatch.setattr("hostprep.cli.app.app", broken)
    assert run(["status", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)["error"]
    assert message in said["message"] and hint in said["hint"]
    assert ("bug" in said["hint"]) is ("unexpected" in said["message"])


def test_a_name_of_several_lines_says_nothing_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whoever may put a file into a folder chooses its name, and an error tells of it."""
    name = "x\nhostprep: all is well\n  -> rm -r /\n-> rm -r /"
    output.say_problem("hostprep", f"{name} was not staged.", f"mv {name} /elsewhere")
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if not line.startswith("    ")] == [
        "hostprep: x",
        "  -> mv x",
    ]
