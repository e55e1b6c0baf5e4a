"""The map in CONTRIBUTING.md against the tree: whoever adds, moves or renames is told here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAP = (ROOT / "CONTRIBUTING.md").read_text().partition("## Where things are")[2]


def names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir() if (entry / "__init__.py").exists()}


def test_every_package_has_its_row() -> None:
    told = set(re.findall(r"^\| `hostprep/(\w+)` \|", MAP, re.M))
    assert told == names(ROOT / "hostprep")


def test_every_folder_of_tests_has_its_row() -> None:
    told = set(re.findall(r"^\| `tests/(\w+)` \|", MAP, re.M))
    assert told == names(ROOT / "tests") | {"fixtures"}


@pytest.mark.parametrize("package", ["staging", "loading"])
def test_every_module_of_the_large_packages_is_under_one_subject(package: str) -> None:
    guide = re.search(rf"^### In `hostprep/{package}`\n(.*?)(?=^##)", MAP, re.M | re.S)
    assert guide is not None
    rows = re.findall(r"^\| [^|]+ \| (`.*) \|$", guide[1], re.M)
    told = [name for row in rows for name in re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", row))]
    there = {path.stem for path in (ROOT / "hostprep" / package).glob("*.py")} - {"__init__"}
    assert sorted(told) == sorted(there)
