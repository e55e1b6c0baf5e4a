"""Keeps a benchmark's results beside it, and writes its page from them alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS, README = "results.json", "README.md"

Results = list[dict[str, Any]]


def keep(
    result: dict[str, Any], out: Path, known_by: tuple[str, ...], render: Callable[[Results], str]
) -> None:
    """Replace the earlier result with the same ``known_by`` fields; write the page again."""

    def key(one: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(one[field] for field in known_by)

    path = out / RESULTS
    results = json.loads(path.read_text()) if path.exists() else []
    results = [other for other in results if key(other) != key(result)]
    results.append(result)
    results.sort(key=key)
    path.write_text(json.dumps(results, indent=1) + "\n")
    (out / README).write_text(render(results))
