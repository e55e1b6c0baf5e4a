"""Users and groups as they are given: names, numbers, and what only looks like one."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from hostprep.errors import UsageError
from hostprep.spec import fields
from hostprep.system.accounts import name_of, owner_of, trusted_users


def test_names_and_numbers() -> None:
    assert owner_of("root") == owner_of("0") == owner_of("root:root") == (0, 0)
    assert owner_of("4000000000:7") == (4000000000, 7)
    assert name_of(0, 0) == "root:root"
    assert name_of(4000000000, 4000000000) == "4000000000:4000000000"


@pytest.mark.parametrize("name", ["domain users", "a:b", "-x", "12", "a\a", ""])
def test_a_name_that_no_spec_can_have_is_told_as_a_number(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pwd.getpwuid", lambda uid: SimpleNamespace(pw_name=name))
    monkeypatch.setattr("grp.getgrgid", lambda gid: SimpleNamespace(gr_name="LAB\\ml"))
    assert name_of(4001, 4002) == "4001:LAB\\ml"
    assert fields.owner(name_of(4001, 4002)) == "4001:LAB\\ml"


@pytest.mark.parametrize(
    "text",
    ["\N{SUPERSCRIPT TWO}", "0:\N{SUPERSCRIPT TWO}", "\N{ARABIC-INDIC DIGIT ONE}", "4294967295",
     "4294967295:0", "0:4294967295",
     "0:99999999999999999999", "9" * 5000, "4000000000", "", "-1", "no-such-user"],
)  # fmt: skip
def test_what_this_host_does_not_know_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        owner_of(text)


@pytest.mark.parametrize("text", ["no-such-user", "root:no-such-group"])
def test_an_account_that_is_missing_is_to_be_made_or_another_named(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        owner_of(text)
    assert (caught.value.hint or "").startswith("make it, or name one that is there; accepted: ")


@pytest.mark.parametrize(
    ("uid", "caller", "trusted"),
    [
        (0, "1000", {0, 1000}),
        (0, "", {0}),
        (0, "alice", {0}),
        (1000, "1001", {0, 1000}),  # what a variable says is no word of root's
    ],
)
def test_who_became_root_by_sudo_is_trusted(
    uid: int, caller: str, trusted: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setenv("SUDO_UID", caller)
    assert trusted_users() == trusted
