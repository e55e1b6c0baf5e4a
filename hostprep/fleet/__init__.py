"""Many hosts: the packaged playbooks, run by ansible-core, and what came of each host."""

from hostprep.fleet.model import FleetRun, HostOutcome
from hostprep.fleet.playbook import run_playbook

__all__ = ["FleetRun", "HostOutcome", "run_playbook"]
