"""Which data set is meant by a name or a path, and what is said where that cannot be told."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hostprep.errors import HostprepError, UsageError
from hostprep.staging import unstage_plan
from hostprep.staging.record import records
from hostprep.staging.record.records import (
    Record,
    all_records,
    folder_of,
    record_id,
    save_record,
    staged_in,
)
from hostprep.staging.unstage_plan import find_record


def staged(name: str, target: str) -> Record:
    record = Record(
        name, "/data", target, None, 1, 1, 2, None, "none", None, staged_at=0.0, boot_id="b"
    )
    save_record(record, durable=False)
    return record


def damaged(name: str, target: str, state: Path) -> None:
    folder = state / "datasets" / record_id(name, target)
    folder.mkdir(parents=True)
    (folder / "dataset.json").write_bytes(b"{")


@pytest.fixture
def state(own_state: Path) -> Path:
    return own_state / "state"


def test_by_its_name_or_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = staged("one", "/fast/one"), staged("two", "/fast/two")
    assert find_record("one") == find_record("/fast/one") == find_record("/fast/x/../one/") == one
    assert find_record("two") == two
    monkeypatch.chdir("/")
    assert find_record("fast/two") == two
    # A path says more than a name that is spelled like it.
    monkeypatch.setattr("os.getcwd", lambda: "/fast")
    named = staged("two", "/slow/two")
    assert find_record("two") == two and find_record("/slow/two") == named


def test_a_record_that_has_not_changed_is_not_checked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For each of many data sets the records of all are read; checking a record takes longest."""
    for number in range(4):
        staged(f"data{number}", f"/fast/data{number}")
    made, checked = records.made_of, []

    def counting(kind: type[Any], fields: dict[str, Any], **how: Any) -> Any:
        checked.append(fields["name"])
        return made(kind, fields, **how)

    monkeypatch.setattr(records, "made_of", counting)
    before = records.all_records()
    assert sorted(checked) == [each.name for each in before]
    assert records.all_records() == before and len(checked) == 4
    changed = replace(before[2], files=7)
    save_record(changed, durable=False)
    assert records.all_records() == (*before[:2], changed, before[3])
    assert checked[4:] == ["data2"]


def test_what_lies_right_below_a_directory(tmp_path: Path) -> None:
    for place in ("fast/one", "fast/deeper/two", "slow/three"):
        staged(place.rpartition("/")[2], f"{tmp_path}/{place}")
        (tmp_path / place).mkdir(parents=True)
    staged("gone", f"{tmp_path}/fast/gone")
    assert staged_in(f"{tmp_path}/fast") == (f"{tmp_path}/fast/one",)


def test_by_its_place_through_a_symlink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was staged: ``--to`` may be one, and the record has what it leads to."""
    one = staged("one", str(tmp_path / "nvme0/one"))
    (tmp_path / "nvme0").mkdir()
    (tmp_path / "fast").symlink_to("nvme0")
    monkeypatch.chdir(tmp_path)
    assert find_record(str(tmp_path / "fast/one")) == find_record("fast/one") == one


def test_a_name_that_several_have_is_asked_back() -> None:
    staged("data", "/fast/data")
    staged("data", "/slow/da\nta")
    with pytest.raises(UsageError, match="several data sets are called data; nothing") as caught:
        find_record("data")
    lines = "`hostprep unstage /fast/data`, `hostprep unstage '/slow/da\\nta'`"
    assert caught.value.hint == f"name one by where it lies: {lines}"


def test_of_two_of_one_name_roots_is_told_by_its_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    staged("data", "/fast/data")
    staged("data", "/slow/data")
    monkeypatch.setattr(unstage_plan, "is_roots", lambda record: record.target == "/slow/data")
    with pytest.raises(UsageError) as caught:
        find_record("data")
    assert caught.value.hint is not None
    assert "`hostprep unstage /fast/data`, `sudo hostprep unstage /slow/data`" in caught.value.hint


def test_of_an_unknown_name_the_known_ones_are_told() -> None:
    with pytest.raises(UsageError, match="knows no data set 'data'; nothing was changed") as caught:
        find_record("data")
    assert caught.value.hint == "known: none"
    staged("one", "/fast/one")
    with pytest.raises(UsageError) as caught:
        find_record("data")
    assert caught.value.hint == "known: one (/fast/one)"


@pytest.mark.parametrize("word", ["data", "/fast/data"])
def test_a_record_that_cannot_be_read_is_what_was_meant(word: str, state: Path) -> None:
    staged("one", "/fast/one")
    damaged("data", "/fast/data", state)
    with pytest.raises(HostprepError, match="cannot be read"):
        find_record(word)
    assert find_record("one").name == "one", "it says nothing of others"
    with pytest.raises(UsageError, match="knows no data set"):
        find_record("dat")
    with pytest.raises(UsageError, match="knows no data set"):
        find_record("/slow/other")


def test_even_where_another_has_the_name(state: Path) -> None:
    readable = staged("data", "/fast/data")
    damaged("data", "/slow/data", state)
    with pytest.raises(HostprepError, match="cannot be read"):
        find_record("data")
    assert find_record("/fast/data") == readable


def test_a_long_name_is_known_by_its_beginning(state: Path) -> None:
    name = "x" * 150
    damaged(name, f"/fast/{name}", state)
    for word in (name, f"/fast/{name}"):
        with pytest.raises(HostprepError, match="cannot be read"):
            find_record(word)


@pytest.mark.parametrize("broken", ["", "dataset.json"])
def test_a_record_that_cannot_be_looked_at_is_not_said_to_be_none(
    broken: str, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its disk or server: ``status`` has others to show, and where locks lie depends on it."""
    one = staged("one", "/fast/one")
    folder = state / "datasets" / one.id
    stat = os.stat

    def failing(path: Any, *args: Any, **named: Any) -> os.stat_result:
        if path == (folder / broken if broken else folder):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return stat(path, *args, **named)

    monkeypatch.setattr(os, "stat", failing)
    assert all_records() == (one,)
    if broken:
        with pytest.raises(HostprepError, match="cannot be looked at: Input/output error") as no:
            folder_of(one)
        assert str(folder / broken) in no.value.message and no.value.hint is not None
