"""The spec in the form that is sent to hosts: checked here, with every scalar as written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hostprep.errors import UsageError
from hostprep.spec.document import parse_document
from hostprep.spec.finding import read_spec_bytes
from hostprep.spec.loading import parse_spec


def spec_for_hosts(path: Path, *, named: bool, prune: bool = False) -> dict[str, Any]:
    """Return the spec file's content as plain values.

    Numbers stay text, so that a mode of ``0755`` arrives as such. Raises the errors of
    ``load_spec``, and ``UsageError`` for a source relative to the file, which on a host would be
    another folder, and if ``prune`` would remove what the file does not mention.
    """
    content = read_spec_bytes(path, named=named)
    spec = parse_spec(content, shown_path=str(path), path=str(path.absolute()))
    if prune:
        spec.check_prunable(str(path), "on the hosts; none was reached.")
    found: Any = parse_document(str(path), content).value or {}
    for dataset in found.get("datasets") or ():
        source = dataset["source"]
        if not source.startswith("/"):
            raise UsageError(
                f"{path} names the source {source}, relative to itself; hosts have no such folder.",
                "write it as an absolute path",
            )
    return dict(found)
