"""``MODULE:NAME``, and what people write instead."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hostprep.errors import UsageError
from hostprep.loading.child.opening import open_source
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


@pytest.mark.parametrize("spec", ["train.ipynb:loader", "nb/train.ipynb:loader", "__main__:loader"])
def test_what_is_of_a_notebook_is_told_to_be_written_to_a_module(spec: str) -> None:
    with pytest.raises(UsageError, match="is no module that hostprep could import") as caught:
        parts_of(spec)
    assert "%%writefile loaders.py" in str(caught.value.hint)


def test_the_name_of_a_notebook_without_its_ending_is_told_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mytrain.ipynb").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(sys, "argv", sys.argv[:])
    with pytest.raises(UsageError, match="there is no module mytrain") as caught:
        open_source({"loader": "mytrain:loader"}, None)
    assert "%%writefile loaders.py" in str(caught.value.hint)
