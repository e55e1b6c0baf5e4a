"""Several hosts at once, with a key, an inventory and a network of their own."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.fleet.kit.base import base_system
from tests.fleet.kit.fence import Fence
from tests.fleet.kit.host import Host
from tests.kit.remote import make_key

NETWORK = "10.213.77"
_CONNECT = Path(__file__).with_name("connect.py")


@dataclass(frozen=True)
class Fleet:
    """Hosts that run, and what a controller needs to reach them."""

    fence: Fence
    hosts: tuple[Host, ...]
    folder: Path
    inventory: Path

    def __getitem__(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)


@contextmanager
def booted(
    folder: Path, names: Sequence[str], *, shared: dict[str, Path], layers: Sequence[Path] = ()
) -> Iterator[Fleet]:
    """Boot hosts of these names; ``folder`` keeps keys, logs and the inventory.

    ``shared``: mount point on each host to the folder here that is served to all, read-only.
    ``layers``: read-only folders on top of the base system, the topmost first.
    """
    base = base_system()
    hosts_folder = folder / "hosts"
    hosts_folder.mkdir()
    key = make_key(folder)
    addresses = {name: f"{NETWORK}.{number}" for number, name in enumerate(names, start=11)}
    with Fence(hosts_folder, f"{NETWORK}.1/24") as fence:
        ssh_config = _write_ssh_config(folder, key, addresses, base, fence)
        inventory = _write_inventory(folder, ssh_config, addresses)
        hosts = tuple(
            Host(
                name, address, fence, hosts_folder / name, (*layers, base),
                folder / f"{name}.log", ssh_config, dict(shared),
            )
            for name, address in addresses.items()
        )  # fmt: skip
        for host in hosts:
            host.install(_files(host, key))
            host.start()
        for host in hosts:
            host.wait_until_up()
        yield Fleet(fence, hosts, folder, inventory)


def _files(host: Host, key: Path) -> dict[str, str]:
    public = key.with_suffix(".pub").read_text()
    return {
        "/etc/hostname": f"{host.name}\n",
        "/etc/machine-id": "",  # systemd makes one of the host's own
        "/etc/hosts": f"127.0.0.1 localhost\n{host.address} {host.name}\n",
        "/etc/fstab": "# made by hand; hostprep edits its own lines only\n",
        "/etc/systemd/network/10-fleet.network": (
            f"[Match]\nName=host0\n\n[Network]\nAddress={host.address}/24\nLinkLocalAddressing=no\n"
        ),
        "/root/.ssh/authorized_keys": public,
    }


def _write_ssh_config(
    folder: Path, key: Path, addresses: dict[str, str], base: Path, fence: Fence
) -> Path:
    """Write what ``ssh -F`` needs to reach the hosts from outside the fence, and nobody else."""
    known = folder / "known_hosts"
    host_key = (base / "etc/ssh/ssh_host_ed25519_key.pub").read_text()
    lines = [f"{name},{address} {host_key}" for name, address in addresses.items()]
    known.write_text("".join(lines))
    connect = shlex.join([*fence.entering("--net"), sys.executable, "-SE", str(_CONNECT)])
    config = folder / "ssh_config"
    parts = [
        f"Host {name} {address}\n  HostName {address}\n" for name, address in addresses.items()
    ]
    parts.append(
        "Host *\n  User root\n"
        f'  IdentityFile "{key}"\n  UserKnownHostsFile "{known}"\n'
        "  IdentitiesOnly yes\n  StrictHostKeyChecking yes\n  GlobalKnownHostsFile none\n"
        "  HostKeyAlgorithms ssh-ed25519\n  BatchMode yes\n  LogLevel ERROR\n"
        f"  ProxyCommand {connect} %h %p\n  ProxyUseFdpass yes\n"
    )
    config.write_text("".join(parts))
    return config


def _write_inventory(folder: Path, ssh_config: Path, addresses: dict[str, str]) -> Path:
    """Write an inventory as an admin has one, in YAML (of which JSON is a part)."""
    inventory = folder / "inventory.yml"
    hosts = {name: {"ansible_host": address} for name, address in addresses.items()}
    reach = {
        "ansible_user": "root",
        "ansible_ssh_common_args": f"-F '{ssh_config}'",
        # Ansible's own would lead to the hosts of another fleet, which have the same addresses.
        "ansible_control_path_dir": str(folder / "cp"),
    }
    inventory.write_text(json.dumps({"all": {"hosts": hosts, "vars": reach}}, indent=1))
    return inventory
