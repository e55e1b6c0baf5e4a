"""Lines of manifests are cut as they would be decoded, whatever is in names and link targets."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hostprep.staging.model import Recorded
from hostprep.staging.record import lines
from hostprep.staging.record.lines import (
    Picked,
    decode_line,
    encode_line,
    encode_record,
    join_line,
    records_in,
)
from tests.unit.staging.test_manifest import records_with

# What separates texts and records in a line, and what stands around it.
_parts = st.sampled_from(("],[", "[", "]", ",", '"', "\\", "\n", "n", "a", "\udcff"))
odd_texts = st.lists(_parts, min_size=1, max_size=4).map("".join)
listings = st.lists(records_with(odd_texts), max_size=6, unique_by=lambda found: found.name)


@given(odd_texts, listings, st.sets(odd_texts, max_size=3), st.data())
def test_a_line_is_split_as_if_it_were_decoded(
    directory: str, records: list[Recorded], others: set[str], data: st.DataObject
) -> None:
    line = encode_line(directory, records)
    of_these = st.sets(st.sampled_from([each.name for each in records])) if records else st.just([])
    names = others.union(data.draw(of_these))
    items, left = Picked(directory, names).split(line)
    assert [Recorded(*item) for item in items] == [each for each in records if each.name in names]
    rest = [each for each in records if each.name not in names]
    assert decode_line(left or encode_line(directory, []))[1] == rest
    assert (left is line) == (len(rest) == len(records))


@given(odd_texts, listings)
@example("a", [Recorded("x],[", "f", 1, 2, 3, 4, 5, "00")])
@example("a", [Recorded("x", "l", 1, 2, 3, 4, 5, "y],[")])
@example("a", [Recorded(",", "l", 1, 2, 3, 4, 5, "],["), Recorded("]", "f", 1, 2, 3, 4, 5, "00")])
def test_records_are_counted(directory: str, records: list[Recorded]) -> None:
    assert records_in(encode_line(directory, records)) == len(records)


def test_only_what_is_asked_for_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    known = [Recorded(f"{number}", "f", 1, 2, 0o644, 0, 0, "00") for number in range(100)]
    line = encode_line("a", known)
    decoded: list[bytes] = []
    parse = lines.parse_kept
    monkeypatch.setattr(lines, "parse_kept", lambda text: decoded.append(text) or parse(text))
    assert Picked("a", ["101"]).split(line) == ([], line)
    assert Picked("a", ["7"]).split(line)[0] == [list(known[7][:-1])]
    assert sum(map(len, decoded)) < len(line) / 50


@pytest.mark.parametrize("item", ["{}", "[]", '"x"', "7"])
def test_what_is_no_record_is_an_error_of_the_line(item: str) -> None:
    line = join_line("a", [encode_record('"', "f", 1, 2, 3, 4, 5, "00"), item])
    with pytest.raises((ValueError, TypeError)):
        [Recorded(*item) for item in Picked("a", ["x"]).split(line)[0]]
