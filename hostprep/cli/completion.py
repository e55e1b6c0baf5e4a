"""What a shell completes: commands and options by Typer, and the names of what hostprep has here.

Typer's own ``--install-completion`` edits the user's files, and guesses the shell: ``--completion``
prints, of the shell that is named. Of a run for people nothing of this is imported.

Typer's functions for the shells run the command as it stands on the line, unexpanded
(``~/hostprep/bin/hostprep``), or by its name alone, and what goes wrong appears in the prompt:
these here are hostprep's own, and Typer answers them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from enum import StrEnum

_REQUEST = "_HOSTPREP_COMPLETE"  # set by the shell's function, to what it wants
# The shells' functions evaluate what they are given: a name that is more than a word is left out.
_WORD = r"[A-Za-z0-9_.,+@%/-]+"

# A word that is only being typed must run nothing: of its expansions no more is made up for than a
# home, a variable in front, and quotes. Bash splits words at `=` and `:` too, and Typer would take
# a `=` for the value of the option before it. `env` alone would set a variable where the program's
# path has a `=` in it. No failure may show, nor end a shell that has `set -eu`.
_BASH = r"""
_hostprep_completion() {
    local program=$1 home="" word words=hostprep index=0 joined="" offered
    if [[ $program =~ ^(\~[A-Za-z0-9._+-]*)(/.*)$ ]]; then
        eval "home=${BASH_REMATCH[1]}"
        program=$home${BASH_REMATCH[2]}
    fi
    program=${program//[\"\'\\]/}
    if [[ $program =~ ^\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?(/.*)$ ]]; then
        home=${BASH_REMATCH[1]}
        program=${!home-}${BASH_REMATCH[2]}
    fi
    for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
        if [[ $word =~ ^[=:]+$ ]]; then
            words+=$word joined=yes
        elif [[ $joined ]]; then
            words+=$word joined=""
        else
            words+=$'\n'$word index=$((index + 1))
        fi
    done
    COMPREPLY=()
    offered=$(env COMP_WORDS="$words" COMP_CWORD="$index" _HOSTPREP_COMPLETE=complete_bash \
        sh -c 'exec "$0"' "$program" 2>/dev/null </dev/null) || return 0
    [[ ! $offered ]] || mapfile -t COMPREPLY <<<"$offered"
}

complete -o default -F _hostprep_completion hostprep
"""
_ZSH = r"""
#compdef hostprep

_hostprep_completion() {
    local program=${(Q)~words[1]} offered
    offered=$(env _TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" _HOSTPREP_COMPLETE=complete_zsh \
        sh -c 'exec "$0"' "$program" 2>/dev/null </dev/null) && eval "$offered"
}

(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }
compdef _hostprep_completion hostprep
"""
_FISH = r"""
function _hostprep_completion
    set -l program (commandline -opc)[1]
    set program (string replace --regex '^(~|\$HOME)(?=/)' "$HOME" -- "$program")
    env _TYPER_COMPLETE_ARGS=(commandline -cp) _TYPER_COMPLETE_FISH_ACTION=$argv[1] \
        _HOSTPREP_COMPLETE=complete_fish sh -c 'exec "$0"' "$program" 2>/dev/null </dev/null
end
complete --command hostprep --no-files --arguments "(_hostprep_completion get-args)" \
    --condition "_hostprep_completion is-args"
"""


class Shell(StrEnum):
    """A shell whose completion is known."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def is_asked_for() -> bool:
    """Return whether this run is to answer a shell."""
    return _REQUEST in os.environ


def prepare() -> None:
    """Make the parser ready to answer a shell."""
    from typer.completion import completion_init  # type: ignore[attr-defined]

    completion_init()


def script(shell: Shell) -> str:
    """Return what makes ``shell`` ask hostprep for completions."""
    return {Shell.BASH: _BASH, Shell.ZSH: _ZSH, Shell.FISH: _FISH}[shell].strip()


def dataset_names() -> list[str]:
    """Return the names of the data sets that are on record."""
    from hostprep.staging.record.records import all_records

    return _words(lambda: (record.name for record in all_records()))


def volume_paths() -> list[str]:
    """Return the mount points of hostprep's volumes."""
    from hostprep.volumes.records import all_records

    return _words(lambda: (record.path for record in all_records()))


def check_codes() -> list[str]:
    """Return the codes of all checks."""
    from hostprep.readiness.registry import all_checks

    return _words(lambda: (check.code for check in all_checks()))


def check_code_lists(incomplete: str) -> list[str]:
    """Return the list of codes that is being typed, with each code at its end."""
    before, comma, _ = incomplete.rpartition(",")
    return [f"{before}{comma}{code}" for code in check_codes()]


def ways_to_verify() -> list[str]:
    """Return what ``stage --verify`` takes."""
    from hostprep.staging.model import Verify

    return list(Verify)


def reading_orders() -> list[str]:
    """Return what ``stage --order`` takes."""
    from hostprep.staging.model import ORDERS

    return list(ORDERS)


def training_profiles() -> list[str]:
    """Return the trainings whose needs ``probe`` knows."""
    from hostprep.probing.needs import PROFILES

    return list(PROFILES)


def _words(names: Callable[[], Iterable[str]]) -> list[str]:
    """Return the names that are words; none where they cannot be had: a prompt takes no error."""
    try:
        return [name for name in dict.fromkeys(names()) if re.fullmatch(_WORD, name)]
    except Exception:
        return []
