"""What makes ansible-playbook ours: which of its user's settings count, and which do not.

Those that say how a host is reached and how the inventory is read do: they are of the lab. Others
were made for playbooks of their user's own, and could have ours skip its tasks, cut a long one
short, or keep its words to itself; so neither they nor an ``ansible.cfg`` count.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from pathlib import Path

from hostprep.system.resources import data_path

# How the variables of settings begin that count, after ANSIBLE_.
_COUNTING = (
    "ASK_", "BECOME_", "COLLECTIONS_", "CONNECTION_", "FILTER_PLUGINS", "HOME", "HOST_KEY_CHECKING",
    "INVENTORY_", "LOCAL_TEMP", "LOOKUP_PLUGINS", "PARAMIKO_", "PERSISTENT_", "PIPELINING",
    "PRIVATE_KEY_FILE", "PYTHON_INTERPRETER", "REMOTE_", "SSH_", "TIMEOUT", "TRANSFORM_",
    "TRANSPORT", "VARS_", "VAULT_", "YAML_",
)  # fmt: skip
_VARIABLE = re.compile(r"name: *['\"]?(ANSIBLE_[A-Z0-9_]+)")


def environment(folder: Path) -> dict[str, str | None]:
    """Return the variables of a run; None stands for one that its user has set and it must not see.

    ``folder`` is this run's own. Connections are shared within the run and with no other: the same
    address may mean another host there.
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
        # Ansible's own, of which one that is missing would leave an inventory unread.
        "ANSIBLE_INVENTORY_ENABLED": "host_list,script,auto,yaml,ini,toml",
        # Ansible insists on a UTF-8 locale for its own words.
        "PYTHONUTF8": "1",
    }


def _local_files(folder: Path) -> dict[str, str]:
    """Return where Ansible's own files are to lie: here, but where its user has said it.

    By itself it takes the home, without which it does not begin: a job's or a container's may be
    read-only.
    """
    said = os.environ.keys() & {"ANSIBLE_LOCAL_TEMP", "ANSIBLE_HOME"}
    return {} if said else {"ANSIBLE_LOCAL_TEMP": str(folder / "local")}


def _not_counting() -> Iterator[str]:
    """Yield the variables that are set and are Ansible's own, but for those that count.

    What it does not know is of plugins that the inventory may need, or of its scripts.
    """
    for name in _known():
        if name in os.environ and not name.removeprefix("ANSIBLE_").startswith(_COUNTING):
            yield name


def _known() -> set[str]:
    """Return the variables that ansible-core says it reads, none where it is not whole."""
    spec = importlib.util.find_spec("ansible")
    places = (spec and spec.submodule_search_locations) or ()
    try:
        return {
            name
            for place in places
            for name in _VARIABLE.findall(Path(place, "config", "base.yml").read_text("utf-8"))
        }
    except OSError:
        return set()  # Ansible itself says so
