"""A Debian, or other system, in a folder: made once by debootstrap, cached outside."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

SUITE = os.environ.get("HOSTPREP_TEST_SUITE", "bookworm")
# Of another system than Debian: where it is, and how debootstrap is to be called for it.
MIRROR = os.environ.get("HOSTPREP_TEST_MIRROR")
OPTIONS = os.environ.get("HOSTPREP_TEST_DEBOOTSTRAP", "").split()

# Before the words of a program, which then ends with the tests.
KILLED_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")
_CACHE = Path(os.environ.get("HOSTPREP_TEST_CACHE", "/var/cache/hostprep-tests"))
_SCRIPTS = Path("/usr/share/debootstrap/scripts")
_OWN_MOUNTS = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--")


def unavailable(name: str, recipe: object) -> str | None:
    """Return why there can be no system ``name`` of this ``recipe`` here, None where there can."""
    if _cached_folder(name, recipe).exists() or _mirror() is not None:
        return None
    return f"needs a mirror of Debian {SUITE} among the sources of apt"


def _cached_folder(name: str, recipe: object) -> Path:
    """Return where the cache has, or would have, ``name`` of this ``recipe``."""
    key = hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:12]
    return _CACHE / f"{name}-{key}"


def cached(name: str, recipe: object, make: Callable[[Path], None]) -> Path:
    """Return the cached folder ``name`` of this ``recipe``; ``make`` fills an empty one.

    It appears under its name only when it is whole: a run that was killed leaves a folder that
    the next one, alone under the lock, throws away.
    """
    done = _cached_folder(name, recipe)
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


def bootstrap(
    root: Path, packages: Sequence[str], enabled: Sequence[str], masked: Sequence[str]
) -> None:
    """Make a system with these packages in ``root``, and enable and mask these units in it."""
    mirror = _mirror()
    assert mirror is not None, f"no mirror of Debian {SUITE}"
    # One that is older than the suite has no script of its name; that of unstable fits all.
    script = next(filter(Path.exists, (_SCRIPTS / SUITE, _SCRIPTS / "sid")))
    made = subprocess.run(
        [*KILLED_WITH_US, *_OWN_MOUNTS, "debootstrap", "--variant=minbase",
         "--include=" + ",".join(packages), *OPTIONS, SUITE, root, mirror, script],
        capture_output=True, text=True, errors="replace",
    )  # fmt: skip
    if made.returncode:
        raise RuntimeError(f"debootstrap failed:\n{made.stdout[-2000:]}{made.stderr[-2000:]}")
    units = ["systemctl", f"--root={root}", "--quiet"]
    subprocess.run([*units, "enable", *enabled], check=True, capture_output=True)
    subprocess.run([*units, "mask", *masked], check=True, capture_output=True)


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
