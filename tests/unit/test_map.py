"""The map in CONTRIBUTING.md against the tree: whoever adds, moves or renames is told here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hostprep.cli.app import COMMANDS

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


def guide_to(package: str) -> str:
    found = re.search(rf"^### In `hostprep/{package}`\n(.*?)(?=^##)", MAP, re.M | re.S)
    assert found is not None
    return found[1]


def test_every_module_of_cli_is_a_commands_or_is_named() -> None:
    commands = {
        command.place.rpartition(":")[0].rpartition(".")[2] for command in COMMANDS.values()
    }
    modules = {path.stem for path in (ROOT / "hostprep/cli").glob("*.py")} - {"__init__"}
    shared = {
        name
        for name in modules
        if name.removesuffix("_text").removesuffix("_fields") not in commands
    }
    told = set(re.findall(r"`([a-z_]+)\.py`", guide_to("cli")))
    assert told == shared


@pytest.mark.parametrize("package", sorted(names(ROOT / "hostprep") - {"cli"}))
def test_every_module_is_under_one_subject(package: str) -> None:
    told: dict[str, list[str]] = {}
    rows = re.findall(r"^\| (`\w+`|\(itself\)[^|]*) \| (`.*) \|$", guide_to(package), re.M)
    for folder, modules in rows:
        names_in = told.setdefault(folder.strip("`") if folder.startswith("`") else "", [])
        names_in.extend(re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", modules)))
    root = ROOT / "hostprep" / package
    there = {
        "" if folder == root else folder.name: sorted(
            path.stem
            for path in folder.glob("*.py")
            # Each check has a page of its own.
            if path.stem != "__init__" and (folder.name != "checks" or path.stem[0] == "_")
        )
        for folder in (root, *(root / name for name in names(root)))
    }
    assert {folder: sorted(modules) for folder, modules in told.items()} == there
