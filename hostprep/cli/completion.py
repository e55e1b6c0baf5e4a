"""Shell completion: Typer completes commands and options, hostprep the names that exist here.

Typer's own ``--install-completion`` edits the user's files and guesses the shell; ``--completion``
prints the script for the shell that is named. A normal run does not import this module.

Typer's own shell functions run the command exactly as it was typed, unexpanded
(``~/hostprep/bin/hostprep``), or by its bare name, and their errors appear in the prompt.
Therefore these shell functions are hostprep's own; Typer still answers them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from enum import StrEnum

_REQUEST = "_HOSTPREP_COMPLETE"  # the shell function sets it to the kind of answer that it wants
# The shell functions evaluate the names that they get, so offer only names that are plain words.
_WORD = r"[A-Za-z0-9_.,+@%/-]+"

# Completing a word that is still being typed must not run anything in it: only a leading home
# directory, a leading variable, and quotes are expanded here. Bash also splits words at `=` and
# `:`, and Typer would take a separate `=` for the value of the preceding option. `env` alone would
# take a program path that contains `=` for a variable assignment. Errors must neither be shown nor
# end a shell that has `set -eu`.
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
    """A shell that hostprep has a completion script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def is_asked_for() -> bool:
    """Return whether a shell started this run to get completions."""
    return _REQUEST in os.environ


def prepare() -> None:
    """Prepare the parser to answer a shell."""
    from typer.completion import completion_init  # type: ignore[attr-defined]

    completion_init()


def script(shell: Shell) -> str:
    """Return the script that makes ``shell`` ask hostprep for completions."""
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
    """Return the list of codes typed so far, once with each code at its end."""
    before, comma, _ = incomplete.rpartition(",")
    return [f"{before}{comma}{code}" for code in check_codes()]


def ways_to_verify() -> list[str]:
    """Return the values of ``stage --verify``."""
    from hostprep.staging.model import Verify

    return list(Verify)


def reading_orders() -> list[str]:
    """Return the values of ``stage --order``."""
    from hostprep.staging.model import ORDERS

    return list(ORDERS)


def training_profiles() -> list[str]:
    """Return the training profiles that ``probe`` knows the needs of."""
    from hostprep.probing.needs import PROFILES

    return list(PROFILES)


def _words(names: Callable[[], Iterable[str]]) -> list[str]:
    """Return the names that are plain words; none on an error, which a prompt cannot show."""
    try:
        return [name for name in dict.fromkeys(names()) if re.fullmatch(_WORD, name)]
    except Exception:
        return []
