"""Which of the user's Ansible settings apply to our runs of ansible-playbook, and which do not.

Settings for how a host is reached and how the inventory is read apply, because they describe the
lab. Others were made for the user's own playbooks, and could make ours skip tasks, stop a long task
early, or hide its output; so neither they nor an ``ansible.cfg`` apply.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from pathlib import Path

from hostprep.system.resources import data_path

# How the variables of settings that apply begin, after ANSIBLE_.
_COUNTING = (
    "ASK_", "BECOME_", "COLLECTIONS_", "CONNECTION_", "FILTER_PLUGINS", "HOME", "HOST_KEY_CHECKING",
    "INVENTORY_", "LOCAL_TEMP", "LOOKUP_PLUGINS", "PARAMIKO_", "PERSISTENT_", "PIPELINING",
    "PRIVATE_KEY_FILE", "PYTHON_INTERPRETER", "REMOTE_", "SSH_", "TIMEOUT", "TRANSFORM_",
    "TRANSPORT", "VARS_", "VAULT_", "YAML_",
)  # fmt: skip
_VARIABLE = re.compile(r"name: *['\"]?(ANSIBLE_[A-Z0-9_]+)")


def environment(folder: Path) -> dict[str, str | None]:
    """Return the variables for a run; None for those that the user has set but must not apply.

    ``folder`` belongs to this run only. Connections are shared within the run but not with other
    runs, in which the same address may be another host.
    """
    playbooks = data_path("playbooks")
    return {
        **dict.fromkeys(_not_counting()),
        "ANSIBLE_CONFIG": str(playbooks / "ansible.cfg"),
        "ANSIBLE_ROLES_PATH": str(playbooks / "roles"),
        "ANSIBLE_LIBRARY": str(playbooks / "library"),
        "ANSIBLE_CALLBACK_PLUGINS": str(playbooks / "callback"),
        "ANSIBLE_STDOUT_CALLBACK": "hostprep_events",
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(folder / "ssh"),
        **_local_files(folder),
        "ANSIBLE_NOCOLOR": "1",
        # Ansible's default; if one of them were missing, an inventory might not be read.
        "ANSIBLE_INVENTORY_ENABLED": "host_list,script,auto,yaml,ini,toml",
        # Ansible insists on a UTF-8 locale for its output.
        "PYTHONUTF8": "1",
    }


def _local_files(folder: Path) -> dict[str, str]:
    """Return where Ansible keeps its own files: in ``folder``, unless the user has set a place.

    The default is the home directory, and Ansible does not start without one that is writable; a
    job's or a container's may be read-only.
    """
    said = os.environ.keys() & {"ANSIBLE_LOCAL_TEMP", "ANSIBLE_HOME"}
    return {} if said else {"ANSIBLE_LOCAL_TEMP": str(folder / "local")}


def _not_counting() -> Iterator[str]:
    """Yield the variables that are set and belong to Ansible itself, except those that apply.

    Variables that Ansible does not know are for the inventory's plugins or scripts.
    """
    for name in _known():
        if name in os.environ and not name.removeprefix("ANSIBLE_").startswith(_COUNTING):
            yield name


def _known() -> set[str]:
    """Return the variables that ansible-core declares, none if its installation is incomplete."""
    spec = importlib.util.find_spec("ansible")
    places = (spec and spec.submodule_search_locations) or ()
    try:
        return {
            name
            for place in places
            for name in _VARIABLE.findall(Path(place, "config", "base.yml").read_text("utf-8"))
        }
    except OSError:
        return set()  # Ansible itself will report it
