"""Which hosts of an inventory failed when they were last provisioned, for ``--retry-failed``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hostprep.fleet.model import FleetRun
from hostprep.kinds import all_of, is_text
from hostprep.system.kept import parse_kept, read_kept
from hostprep.system.locks import lock
from hostprep.system.own_files import write_atomically
from hostprep.system.state import state_dir

_WAIT_SECONDS = 60.0  # others hold the lock only while they write a line


def failed_hosts(inventory: str) -> tuple[str, ...]:
    """Return the hosts of ``inventory`` (as given to Ansible) whose last run failed."""
    return tuple(_read().get(inventory, ()))


def remember(inventory: str, run: FleetRun, *, whole: bool = False) -> None:
    """Record a run: hosts that it did not touch stay as they were recorded before.

    After a run over the ``whole`` inventory they are forgotten, because it no longer names them.
    Runs at the same time record their results one after the other. Raises ``OSError`` or
    ``HostprepError`` if nothing can be recorded.
    """
    ran = {outcome.host for outcome in run.hosts}
    file = _file()
    file.parent.mkdir(parents=True, exist_ok=True)
    with lock("provisioned", purpose="hostprep provision", wait_seconds=_WAIT_SECONDS):
        known = _read()
        before = () if whole else known.get(inventory, ())
        failed = [host for host in before if host not in ran]
        known[inventory] = [*failed, *run.failed]
        kept = {name: hosts for name, hosts in known.items() if hosts}
        write_atomically(file, [json.dumps(kept, indent=1).encode()], durable=False)


def _file() -> Path:
    return state_dir() / "fleet" / "failed.json"


def _read() -> dict[str, list[str]]:
    try:
        found = parse_kept(read_kept(_file()))
    except (OSError, ValueError):
        return {}
    return found if _is_note(found) else {}


def _is_note(found: Any) -> bool:
    return isinstance(found, dict) and all(map(all_of(is_text), found.values()))
