"""Parses the text of a hostprep.yml as hostprep does: every number stays as it was written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml

_READ = ("bool", "null", "merge")


class _AsWritten(yaml.SafeLoader):
    """Makes no numbers: YAML would turn ``mode: 0750`` into 488."""


_AsWritten.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in known if tag.rpartition(":")[2] in _READ]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def as_written(text: str) -> Any:
    """Return the content of a spec file."""
    return yaml.load(text, Loader=_AsWritten)


class FilterModule:
    """Ansible looks for this class."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"hostprep_as_written": as_written}
