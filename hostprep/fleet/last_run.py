"""Which hosts of an inventory failed when they were last provisioned, for ``--retry-failed``."""

from __future__ import annotations

import json
from pathlib import Path

from hostprep.fleet.model import FleetRun
from hostprep.system.files import write_atomically
from hostprep.system.state import state_dir


def failed_hosts(inventory: str) -> tuple[str, ...]:
    """Return the hosts of ``inventory`` (as Ansible was given it) whose last run failed."""
    return tuple(_read().get(inventory, ()))


def remember(inventory: str, run: FleetRun, *, whole: bool = False) -> None:
    """Take note of a run: hosts that it did not touch stay as they were noted before.

    After one of the ``whole`` inventory they are forgotten: it does not name them any more.
    """
    known = _read()
    ran = {outcome.host for outcome in run.hosts}
    before = () if whole else known.get(inventory, ())
    failed = [host for host in before if host not in ran]
    known[inventory] = [*failed, *run.failed]
    file = _file()
    file.parent.mkdir(parents=True, exist_ok=True)
    kept = {name: hosts for name, hosts in known.items() if hosts}
    write_atomically(file, [json.dumps(kept, indent=1).encode()], durable=False)


def _file() -> Path:
    return state_dir() / "fleet" / "failed.json"


def _read() -> dict[str, list[str]]:
    try:
        found = json.loads(_file().read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
