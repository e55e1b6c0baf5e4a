"""The last result of a command, kept for later checks of the machine."""

from __future__ import annotations

import json
import time
from typing import Any

from hostprep.system.kept import of_this_host, parse_kept, read_kept, this_host
from hostprep.system.own_files import write_atomically
from hostprep.system.state import readable_state_dirs, state_dir

_FOLDER = "last"


def keep_last(command: str, fields: dict[str, Any]) -> None:
    """Store ``fields`` as the last result of ``command``, with this ``host`` and ``unix_seconds``.

    Raises ``OSError`` or ``HostprepError`` if that fails.
    """
    file = state_dir() / _FOLDER / f"{command}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    made = {"host": this_host(), "unix_seconds": time.time()}
    document = {"schema": f"hostprep.{command}/1", **made, **fields}
    write_atomically(file, [(json.dumps(document, indent=1) + "\n").encode()], durable=False)


def read_last(command: str) -> dict[str, Any] | None:
    """Return the last result of ``command`` on this host, None if there is no readable one."""
    for directory in readable_state_dirs():
        try:
            document = parse_kept(read_kept(directory / _FOLDER / f"{command}.json"))
        except (OSError, ValueError):
            continue
        if not isinstance(document, dict) or document.get("schema") != f"hostprep.{command}/1":
            continue
        if of_this_host(document):
            return document
    return None
