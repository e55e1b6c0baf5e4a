"""docs/json.md: the fields that it names are in what the commands print."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hostprep.cli.main import run
from hostprep.converging.boot_state import Stage
from hostprep.errors import (
    HostprepError,
    Inconclusive,
    Interrupted,
    MissingTool,
    Refused,
    UsageError,
)
from hostprep.spec.model import SpecError
from hostprep.staging.status import DatasetStatus
from hostprep.system.files import ChangedMeanwhile
from hostprep.system.locks import Locked

PAGE = (Path(__file__).parents[2] / "docs/json.md").read_text()
_FIELD = re.compile(r"`([a-z0-9_]+)(\[\])?(?:\{([^`]*)\})?`")


def documented(command: str) -> list[tuple[str, bool, list[str]]]:
    """Return the fields of a row: each name, whether it is a list, and the names within it."""
    (row,) = re.findall(rf"^\| (?:`\w+`, )?`{command}`.* \| (.*) \|$", PAGE, re.MULTILINE)
    return [
        (name, bool(many), re.findall(r"[a-z0-9_]+", inside))
        for name, many, inside in _FIELD.findall(row)
    ]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("stage", ["stage", "src", "--to", "to"]),
        ("stage --dry-run", ["stage", "src", "--to", "to", "--dry-run"]),
        ("status", ["status"]),
        ("wait", ["wait", "src"]),
        ("plan", ["plan", "lab.yml"]),
        ("apply", ["apply", "lab.yml", "--yes"]),
        ("spec check", ["spec", "check", "lab.yml"]),
        ("spec init", ["spec", "init", "new.yml"]),
        ("explain", ["explain", "HP001"]),
        ("check", ["check", "--only", "HP020"]),
        ("facts", ["facts", "."]),
        ("recommend", ["recommend", "--no-measure"]),
        ("mount", ["mount", "/mnt/hostprep-no-such", "--size", "1M", "--force", "--dry-run"]),
        ("unmount", ["unmount", "/mnt/hostprep-no-such", "--dry-run"]),
        ("unstage", ["unstage", "src"]),
        ("unstage --dry-run", ["unstage", "src", "--dry-run"]),
        ("probe --dry-run", ["probe", "src", "--dry-run"]),
    ],
)
def test_what_is_documented_is_printed(
    row: str,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("STATE_DIR", "RUN_DIR", "UNIT_DIR"):
        monkeypatch.setenv(f"HOSTPREP_{name}", str(tmp_path / name))
    (tmp_path / "fstab").touch()
    monkeypatch.setenv("HOSTPREP_FSTAB", str(tmp_path / "fstab"))
    (tmp_path / "src").mkdir()
    (tmp_path / "src/file").write_text("content")
    (tmp_path / "lab.yml").write_text(f"datasets: [{{source: src, to: {tmp_path}/to, name: b}}]")
    if row in ("status", "wait", "unstage", "unstage --dry-run"):
        assert run(["stage", "src", "--to", "to"]) == 0
        capsys.readouterr()
    assert run([*words, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert documented(row)
    for name, many, inside in documented(row):
        assert name in document, name
        found = document[name]
        if not inside or not found:
            continue
        assert (found[0] if many else found).keys() >= set(inside), name


def test_the_states_are_those_that_are_told() -> None:
    def named(field: str, command: str) -> set[str]:
        page = re.sub(r"\([^()]*\)", "", " ".join(PAGE.split()))
        (words,) = re.findall(rf"`{field}`(?: of `{command}`)? is (`.*?)[;.]", page)
        return set(re.findall(r"`([a-z]+)`", words))

    told, _, fresh = (DatasetStatus.__doc__ or "").partition("``freshness``")
    assert named("state", "status") == set(re.findall(r"``([a-z]+)``", told)) - {"state"}
    assert named("freshness", "status") == set(re.findall(r"``([a-z]+)``", fresh)[:3])
    assert named("state", "wait") == {stage.value for stage in Stage}


def test_the_codes_of_errors_are_those_that_are_raised() -> None:
    named = re.search(r"Codes are (.*?); others", PAGE, re.DOTALL)
    assert named is not None
    known = {SpecError.code, ChangedMeanwhile.code, Locked.code, MissingTool.code}
    known |= {each.code for each in (HostprepError, UsageError, Inconclusive, Refused, Interrupted)}
    set_on_one = {"incomplete", "left_behind", "timeout"}
    words = set(re.findall(r"`([a-z_]+)`", named[1])) - {"stage", "unstage", "wait"}
    assert words == known | set_on_one
    exits = (SpecError.exit_code, ChangedMeanwhile.exit_code, Locked.exit_code)
    assert exits == (UsageError.exit_code, Refused.exit_code, HostprepError.exit_code)
