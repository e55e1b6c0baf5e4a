"""``MODULE:NAME``, and what people write instead."""

from __future__ import annotations

import pytest

from hostprep.errors import UsageError
from hostprep.loading.naming import parts_of


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ("mydata:ds", ("mydata", "ds")),
        ("package.module:thing.loader", ("package.module", "thing.loader")),
        ("my-data:ds", ("my-data", "ds")),  # import_module takes it, and so do we
    ],
)
def test_a_module_and_a_name(spec: str, parts: tuple[str, str]) -> None:
    assert parts_of(spec) == parts


@pytest.mark.parametrize(
    ("spec", "instead"),
    [
        ("./mydata.py:ds", "here mydata:ds"),
        ("mydata.py:ds", "here mydata:ds"),
        ("./mydata:ds", "here mydata:ds"),
        ("data/sets.py:make", "here data.sets:make"),
        ("../lab/mydata.py:ds", "here mydata:ds, run in ../lab"),
        ("/srv/lab/mydata.py:ds", "here mydata:ds, run in /srv/lab"),
    ],
)
def test_a_file_is_told_what_to_write_instead(spec: str, instead: str) -> None:
    with pytest.raises(UsageError, match="names a file, not a module") as caught:
        parts_of(spec)
    assert caught.value.hint is not None and caught.value.hint.startswith("accepted: MODULE:NAME")
    assert caught.value.hint.endswith(instead)


@pytest.mark.parametrize("spec", ["", ":", "mydata", "mydata:", ":ds", ".mydata:ds", "a..b:ds"])
def test_what_is_no_name_at_all(spec: str) -> None:
    with pytest.raises(UsageError) as caught:
        parts_of(spec)
    assert caught.value.hint is not None and "MODULE:NAME" in caught.value.hint


@pytest.mark.parametrize(
    ("spec", "instead"),
    [
        ("train", "here train:NAME, "),
        ("train:", "here train:NAME, "),
        ("train.py", "here train:NAME, "),
        ("lab/train.py", "here lab.train:NAME, "),
        ("/srv/lab/train.py", "here train:NAME, run in /srv/lab, "),
    ],
)
def test_a_script_by_itself_is_told_that_a_name_is_wanting(spec: str, instead: str) -> None:
    with pytest.raises(UsageError, match="names no loader") as caught:
        parts_of(spec)
    assert instead in (caught.value.hint or "")


def test_a_call_is_no_name() -> None:
    with pytest.raises(UsageError, match="is a call, not a name") as caught:
        parts_of("mydata:make(3)")
    assert "without arguments" in (caught.value.hint or "")


def test_an_item_of_something_is_no_name() -> None:
    with pytest.raises(UsageError, match="is an item of something, not a name") as caught:
        parts_of("mydata:loaders['train']")
    assert "a function of your own" in (caught.value.hint or "")
