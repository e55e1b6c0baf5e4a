"""What a folder of tests needs of this machine: marked, or skipped with the reason."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest


def mark_folder(conftest: str, items: Iterable[pytest.Item], *marks: pytest.MarkDecorator) -> None:
    """Mark all tests in the folder of a ``conftest``, which is told of all others as well."""
    folder = Path(conftest).parent
    for item in items:
        if folder in item.path.parents:
            for mark in marks:
                item.add_marker(mark)


def need_root(why: str) -> None:
    """Skip what an ordinary user cannot do: ``why`` it takes root."""
    if os.geteuid() != 0:
        pytest.skip(f"needs root, {why}")


def need_tools(packages: Mapping[str, str]) -> None:
    """Skip where a tool is missing, by the package that has it."""
    for tool, package in packages.items():
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}, which the package {package} has")
