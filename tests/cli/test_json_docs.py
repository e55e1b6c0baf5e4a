"""docs/json.md: the fields that it names are in what the commands print."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hostprep.cli.main import run

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
