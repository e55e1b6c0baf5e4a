"""What Ansible says beside its events, before ansible-core 2.19 and since."""

from __future__ import annotations

import pytest

from hostprep.fleet.ansible_words import last_error, nobody_called, told, warnings_in

WRAPPED = """\
[WARNING]: Invalid characters were found in group names but not replaced, use
-vvvv to see details
[WARNING]: Could not match supplied host pattern, ignoring: a-node-
of-the-lab
[WARNING]: Could not match supplied host pattern, ignoring: b

some other words
ERROR! it broke
"""
WHOLE = """\
[WARNING]: Invalid characters were found in group names but not replaced, use -vvvv to see details
[WARNING]: Could not match supplied host pattern, ignoring: a-node-of-the-lab
[WARNING]: Could not match supplied host pattern, ignoring: b
[WARNING]: Could not match supplied host pattern, ignoring: b
[DEPRECATION WARNING]: old
[ERROR]: it broke
"""


@pytest.mark.parametrize("stderr", [WRAPPED, WHOLE])
def test_warnings_are_whole_sentences_in_hostpreps_words(stderr: str) -> None:
    found = warnings_in(stderr)
    assert nobody_called(found) == ("a-node-of-the-lab", "b")
    unmet, other = told(found)
    assert unmet.startswith("--limit names a-node-of-the-lab, b, and the inventory has no such")
    assert unmet.endswith("that part of it was ignored")  # of `!b` all were reached
    assert other == (
        "Ansible says: Invalid characters were found in group names but not replaced, use -vvvv to"
        " see details"
    )
    assert last_error(stderr) == "it broke"


def test_of_silence_nothing_is_told() -> None:
    assert (warnings_in(""), told(()), last_error("")) == ((), (), "")
