"""``hostprep --completion``: what the shells themselves offer, of each that is installed."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
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


def test_zsh_completes_a_name() -> None:
    assert "city" in offered("zsh", "hostprep unstage ci")


def test_a_shell_that_is_not_known() -> None:
    assert run(["--completion", "tcsh"]) == 2
