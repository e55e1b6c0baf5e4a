"""What is made of how a source answered a look."""

from __future__ import annotations

from hostprep.staging.source.sampling import gain_of


def test_files_that_wait_for_each_other_gain_nothing() -> None:
    one_by_one = [0.012 * number for number in range(1, 9)]
    assert gain_of(0.012, one_by_one) == 1.0


def test_one_that_is_late_by_itself_does_not_make_a_far_source_an_arm() -> None:
    gain = gain_of(0.020, [0.021] * 7 + [0.400])
    assert gain is not None and gain > 5
    assert gain_of(0.020, [0.021] * 3) is None
