"""The base system of the hosts: no more than provisioning needs to find there."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.kit import debian

PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "openssh-server", "python3", "python3-venv", "python3-apt",
    "iproute2", "kmod", "fio",
)  # fmt: skip
# Timers that wake a host up to fetch what it cannot reach, and consoles that nobody sits at.
MASKED = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "console-getty.service",
    "e2scrub_all.timer",
)
ENABLED = ("systemd-networkd.service", "ssh.service")
# What no host needs and each file lookup in an overlay would pass by.
DROPPED = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale")
_RECIPE = (debian.SUITE, PACKAGES, MASKED, ENABLED, DROPPED)


def unavailable() -> str | None:
    """Return why there can be no base system here, None where there can."""
    return debian.unavailable("base", _RECIPE)


def base_system() -> Path:
    """Return the root folder of the base system, made now if the cache has none of this recipe."""
    return debian.cached("base", _RECIPE, _make)


def _make(root: Path) -> None:
    debian.bootstrap(root, PACKAGES, ENABLED, MASKED)
    for name in DROPPED:
        shutil.rmtree(root / name, ignore_errors=True)
    (root / "var/lib/apt/lists/partial").mkdir(parents=True)
    (root / "var/cache/apt/archives/partial").mkdir(parents=True)
