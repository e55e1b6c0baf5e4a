"""How a process ended, in words."""

from __future__ import annotations

import pytest

from hostprep.system.ending import how_it_ended


@pytest.mark.parametrize(
    ("status", "words"),
    [(0, "with status 0"), (3, "with status 3"), (-9, "by SIGKILL"), (-40, "by signal 40")],
)
def test_a_signal_is_named_where_it_has_a_name(status: int, words: str) -> None:
    assert how_it_ended(status) == words
