"""Writing specs and running ``plan`` and ``apply`` on them from tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.kit.stagecraft import hostprep

QUIET = ("--reserve", "0")


def write_spec(
    path: Path,
    *,
    volumes: Sequence[Mapping[str, Any]] = (),
    datasets: Sequence[Mapping[str, Any]] = (),
    packages: Sequence[str] = (),
) -> Path:
    """Write a spec; JSON is YAML."""
    sections = {"volumes": volumes, "datasets": datasets, "packages": packages}
    given = {name: list(entries) for name, entries in sections.items() if entries}
    path.write_text(json.dumps(given, indent=1, default=str))
    return path


def plan(spec: Path, *words: str, expect: int = 0) -> dict[str, Any]:
    """Return the document of ``hostprep plan``, with no memory reserved."""
    return hostprep("plan", spec, *QUIET, *words, expect=expect)


def apply(spec: Path, *words: str, expect: int = 0) -> dict[str, Any]:
    """Return the document of ``hostprep apply --yes``, with no memory reserved."""
    return hostprep("apply", spec, "--yes", *QUIET, *words, expect=expect)


def keys(items: Sequence[Mapping[str, str]]) -> list[tuple[str, str]]:
    """Return kind and subject of each."""
    return [(item["kind"], item["subject"]) for item in items]
