"""``hostprep --completion``: what the shells themselves offer, of each that is installed."""

from __future__ import annotations

import os
import pty
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hostprep.cli.main import run

ROOT = Path(__file__).parents[2]
_BASH = """
eval "$(hostprep --completion bash)"
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_hostprep_completion hostprep
printf '%s\\n' "${COMPREPLY[@]}"
"""
_FISH = "hostprep --completion fish | source; complete -C (string join -- ' ' $argv)"
# A terminal of zsh's own, in which what is typed becomes the arguments of `offered`.
_ZSH = """
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1= PS2= RPS1=; autoload -U compinit; compinit -u -D"
zpty -w shell 'eval "$(hostprep --completion zsh)"'
zpty -w shell 'offered() { print -l begin: "$@" :end }; bindkey "^A" beginning-of-line'
zpty -n -w shell "$*"$'\\t\\x01offered \\n'
while zpty -r shell line; do
    print -r -- "$line"
    [[ $line == :end* ]] && break
done
"""


@pytest.fixture(autouse=True)
def staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a ``hostprep`` on the PATH, and two data sets, of which one has a name for an attack."""
    command = tmp_path / "bin/hostprep"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m hostprep "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("HOSTPREP_RUN_DIR", str(tmp_path / "run"))
    for name in ("city", "x;touch pwned"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
        assert run(["stage", str(tmp_path / name), "--to", str(tmp_path / "to")]) == 0
    monkeypatch.chdir(tmp_path)


def offered(shell: str, *line: str) -> list[str]:
    """Return what ``shell`` offers for the last word of ``line``, without descriptions."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = {"bash": _BASH, "fish": _FISH, "zsh": _ZSH}[shell]
    words = [shell, "-c", script, *(() if shell == "fish" else ("-",)), *line]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.stderr == "" and not os.path.exists("pwned")
    return [word.partition("\t")[0] for word in done.stdout.split("\n") if word]


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_commands_options_and_names_are_offered(shell: str) -> None:
    assert offered(shell, "hostprep", "st") == ["stage", "status"]
    assert sorted(offered(shell, "hostprep", "stage", "--to")) == ["--to", "--to-tmpfs"]
    assert offered(shell, "hostprep", "unstage", "") == ["city"]


def test_what_was_typed_is_not_judged_before_it_is_whole() -> None:
    for option in ("--to=~/x", "--to=", "--version"):
        assert offered("bash", "hostprep", "stage", option, "--dry") == ["--dry-run"]


@pytest.mark.parametrize("shell", ["bash", "fish"])
@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("stage", "--verify", ""), ["readback", "inflight", "none"]),
        (("stage", "/x", "--order", "p"), ["physical"]),
        (("probe", "--profile", "resnet"), ["resnet50-h100"]),
        (("mount", "--huge", "w"), ["within_size"]),
        (("check", "--format", "ht"), ["html"]),
        (("check", "--only", "HP001,HP042"), ["HP001,HP042"]),
    ],
)
def test_values_that_are_fixed_are_offered(
    shell: str, line: tuple[str, ...], words: list[str]
) -> None:
    assert sorted(offered(shell, "hostprep", *line)) == sorted(words)


def typed(keys: str, *, options: str = "") -> str:
    """Return what an interactive bash shows from ``keys`` on, as a terminal has it."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="dumb", HISTFILE="/dev/null", INPUTRC="/dev/null")
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
    shown = b""
    deadline = time.monotonic() + 60
    try:
        # Quotes in between: what is typed is shown too, and must not be what is waited for.
        sent = f"eval \"$(hostprep --completion bash)\"; {options} PS1='> '; echo rea''dy\n"
        for text, until in ((sent, b"ready\r\n> "), (keys + "\t\x01# \n", b"\r\n> ")):
            begin = len(shown)
            os.write(terminal, text.encode())
            while until not in shown[begin:]:
                left = deadline - time.monotonic()
                assert left > 0 and select.select([terminal], [], [], left)[0], shown
                shown += os.read(terminal, 4096)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.close(terminal)
        os.waitpid(pid, 0)
    return shown[begin:].decode()


@pytest.mark.parametrize(
    "word",
    [
        "~/bin/hostprep",
        "~/bin\\ of\\ mine/hostprep",
        "$HOME/bin/hostprep",
        '"$HOME/bin of mine"/hostprep',
        "./bin=x/hostprep",
        "hostprep",
    ],
)
def test_bash_asks_the_command_that_was_typed(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("bin of mine", "bin=x"):
        (tmp_path / name).symlink_to(tmp_path / "bin")
    shown = typed(f"{word} unst")
    assert f"{word} unstage " in shown and shown.count("\n") == 1


@pytest.mark.parametrize(
    "word", ["~/none/hostprep", "$NONE/hostprep", "~nobody-here/hostprep", "./broken/hostprep"]
)
def test_bash_shows_nothing_where_the_command_fails(word: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken/hostprep"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho unstage; echo no >&2; exit 1\n")
    broken.chmod(0o755)
    shown = typed(f"{word} unst", options="set -eu;")
    assert f"{word} unst" in shown and "unstage" not in shown
    assert shown.replace("\a", "").count("\n") == 1 and "env:" not in shown


def test_bash_runs_nothing_that_is_only_being_typed(tmp_path: Path) -> None:
    typed("$(touch${IFS}pwned)/hostprep unst")
    assert not (tmp_path / "pwned").exists()


def test_bash_completes_the_value_behind_an_equals_sign() -> None:
    assert "stage --verify=inflight" in typed("hostprep stage --verify=inf")
    assert "/a=b --size=1G --huge=within_size" in typed("hostprep mount /a=b --size=1G --huge=w")


def test_zsh_needs_no_setting_up_before() -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    script = 'eval "$(hostprep --completion zsh)"; print -- $_comps[hostprep]'
    env = {**os.environ, "HOME": os.getcwd()}
    done = subprocess.run(["zsh", "-fc", script], capture_output=True, text=True, env=env)
    assert (done.stdout, done.stderr) == ("_hostprep_completion\n", "")


def test_zsh_completes_a_name() -> None:
    assert "city" in offered("zsh", "hostprep unstage ci")


@pytest.mark.parametrize("word", ["~/bin/hostprep", "~/bin\\ of\\ mine/hostprep"])
@pytest.mark.parametrize("shell", ["fish", "zsh"])
def test_other_shells_ask_the_command_that_was_typed(
    shell: str, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "bin of mine").symlink_to(tmp_path / "bin")
    other = tmp_path / "other/hostprep"  # on the PATH, and of no use but to print the script
    other.parent.mkdir()
    other.write_text(f'#!/bin/sh\n[ "$1" = --completion ] && exec {tmp_path}/bin/hostprep "$@"\n')
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{other.parent}:{os.environ['PATH']}")
    assert "city" in offered(shell, f"{word} unstage ci")


def test_a_shell_that_is_not_known() -> None:
    assert run(["--completion", "tcsh"]) == 2
