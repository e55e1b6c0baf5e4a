"""The Debian, or other system, that the hosts boot: made once by debootstrap, cached outside."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

SUITE = os.environ.get("HOSTPREP_TEST_SUITE", "bookworm")
# Of another system than Debian: where it is, and how debootstrap is to be called for it.
MIRROR = os.environ.get("HOSTPREP_TEST_MIRROR")
OPTIONS = os.environ.get("HOSTPREP_TEST_DEBOOTSTRAP", "").split()
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
_RECIPE = (SUITE, PACKAGES, MASKED, ENABLED, DROPPED)

_SCRIPTS = Path("/usr/share/debootstrap/scripts")
_KILLED_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")
_OWN_MOUNTS = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--")


def cache_folder() -> Path:
    """Return where base systems are kept: ``HOSTPREP_TEST_CACHE``, else below ``/var/cache``."""
    return Path(os.environ.get("HOSTPREP_TEST_CACHE", "/var/cache/hostprep-tests"))


def unavailable() -> str | None:
    """Return why there can be no base system here, None where there can."""
    if cached_folder("base", _RECIPE).exists() or _mirror() is not None:
        return None
    return f"needs a mirror of Debian {SUITE} among the sources of apt"


def base_system() -> Path:
    """Return the root folder of the base system, made now if the cache has none of this recipe."""
    return cached("base", _RECIPE, _make_base)


def cached_folder(name: str, recipe: object) -> Path:
    """Return where the cache has, or would have, ``name`` of this ``recipe``."""
    key = hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:12]
    return cache_folder() / f"{name}-{key}"


def cached(name: str, recipe: object, make: Callable[[Path], None]) -> Path:
    """Return the cached folder ``name`` of this ``recipe``; ``make`` fills an empty one.

    It appears under its name only when it is whole: a run that was killed leaves a folder that
    the next one, alone under the lock, throws away.
    """
    done = cached_folder(name, recipe)
    part = done.with_suffix(".part")
    done.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    with _lock(done.with_name(f"{name}.lock")):
        if not done.exists():
            if part.exists():
                shutil.rmtree(part)
            part.mkdir(mode=0o755)
            make(part)
            part.rename(done)
    return done


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make_base(root: Path) -> None:
    include = "--include=" + ",".join(PACKAGES)
    mirror = _mirror()
    assert mirror is not None, unavailable()
    # One that is older than the suite has no script of its name; that of unstable fits all.
    script = next(filter(Path.exists, (_SCRIPTS / SUITE, _SCRIPTS / "sid")))
    made = subprocess.run(
        [*_KILLED_WITH_US, *_OWN_MOUNTS,
         "debootstrap", "--variant=minbase", include, *OPTIONS, SUITE, root, mirror, script],
        capture_output=True, text=True, errors="replace",
    )  # fmt: skip
    if made.returncode:
        raise RuntimeError(f"debootstrap failed:\n{made.stdout[-2000:]}{made.stderr[-2000:]}")
    units = ["systemctl", f"--root={root}", "--quiet"]
    subprocess.run([*units, "enable", *ENABLED], check=True, capture_output=True)
    subprocess.run([*units, "mask", *MASKED], check=True, capture_output=True)
    for name in DROPPED:
        shutil.rmtree(root / name, ignore_errors=True)
    (root / "var/lib/apt/lists/partial").mkdir(parents=True)
    (root / "var/cache/apt/archives/partial").mkdir(parents=True)


def _mirror() -> str | None:
    """Return the mirror that was named, or this machine's own of Debian; None without one.

    It is the one that has the suite, else any: a mirror has those that apt does not ask for, too.
    """
    if MIRROR is not None:
        return MIRROR
    if shutil.which("apt-get") is None:
        return None
    asked = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(CODENAME) $(REPO_URI)",
         "Created-By: Packages", "Origin: Debian", "Component: main"],
        capture_output=True, text=True,
    )  # fmt: skip
    known = [line.split() for line in asked.stdout.splitlines()]
    # Security updates and the like are archives of their own, without the rest.
    whole = [(name, uri) for name, uri in known if "-" not in name]
    whole.sort(key=lambda each: each[0] != SUITE)
    return next((uri.rstrip("/") for _, uri in whole), None)
