"""Many hosts: runs the packaged playbooks with ansible-core, and collects each host's result."""

from hostprep.fleet.model import FleetRun, HostOutcome
from hostprep.fleet.playbook import run_playbook

__all__ = ["FleetRun", "HostOutcome", "run_playbook"]
