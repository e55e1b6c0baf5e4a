"""systemd, if it runs: its units, reloading it, and what it would make of an fstab."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError
from hostprep.system.run import CommandFailed, run
from hostprep.system.state import moved

SYSTEM_UNIT_DIR = Path("/etc/systemd/system")
_UNIT_CHARS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:_.")
_GENERATORS = (
    Path("/usr/lib/systemd/system-generators/systemd-fstab-generator"),
    Path("/lib/systemd/system-generators/systemd-fstab-generator"),
)


class NotReloaded(HostprepError):
    """A file that systemd reads was written, but systemd has not read it again."""

    code = "not_reloaded"


@dataclass(frozen=True, slots=True)
class GeneratedUnits:
    """What systemd-fstab-generator(8) wrote.

    ``units`` are (name, text) pairs of unit files, ``required`` the names of those whose failure
    makes ``local-fs.target`` fail.
    """

    returncode: int
    said: str
    units: tuple[tuple[str, str], ...]
    required: frozenset[str]


def systemd_runs(root: Path = Path("/")) -> bool:
    """Return whether systemd is the init of this host, as sd_booted(3) does."""
    return (root / "run/systemd/system").is_dir()


def unit_dir() -> Path:
    """Return the directory for units of our own; ``HOSTPREP_UNIT_DIR`` moves it."""
    return moved("HOSTPREP_UNIT_DIR") or SYSTEM_UNIT_DIR


def escape_name(text: str) -> str:
    """Return ``text`` escaped as a part of a unit's name, like systemd-escape(1)."""
    escaped = []
    for index, byte in enumerate(os.fsencode(text)):
        plain = byte in _UNIT_CHARS and not (index == 0 and byte == ord("."))
        escaped.append(chr(byte) if plain else "-" if byte == ord("/") else f"\\x{byte:02x}")
    return "".join(escaped)


def unescape_name(escaped: str) -> str:
    """Undo ``escape_name``."""
    plain = re.sub(
        rb"\\x([0-9a-f]{2})|-",
        lambda found: bytes.fromhex(found[1].decode()) if found[1] else b"/",
        os.fsencode(escaped),
    )
    return os.fsdecode(plain)


def mount_unit(path: str) -> str:
    """Return the name of the unit for the mount point ``path``."""
    return f"{escape_name(path.strip('/'))}.mount"


def own_mount_unit(path: str, directory: Path | None = None) -> Path | None:
    """Return the admin's own unit for the mount point ``path``, None if there is none.

    Such a file, even a mask, takes precedence over the line in fstab at boot. A ``directory`` of
    None is that of this host's units.
    """
    unit = (directory or unit_dir()) / mount_unit(path)
    return unit if os.path.lexists(unit) else None


def show_unit(name: str, properties: Sequence[str]) -> dict[str, str]:
    """Return properties of a unit by their names, from ``systemctl show``, which any user may call.

    Empty if systemd does not answer.
    """
    try:
        done = run(
            ["systemctl", "show", f"--property={','.join(properties)}", "--", name],
            wanted_for="ask systemd about a unit",
            package="systemd",
            timeout_seconds=20,
        )
    except HostprepError:
        return {}
    pairs = (line.partition("=") for line in done.stdout.splitlines())
    return {key: value for key, equals, value in pairs if equals}


def start_unit(name: str) -> None:
    """Start a unit, even one that failed, and wait until it has finished; that may take hours.

    Raises ``HostprepError`` if it fails.
    """
    try:
        run(
            ["systemctl", "start", "--", name],
            wanted_for="start a service",
            package="systemd",
            timeout_seconds=None,
        )
    except CommandFailed as error:
        raise HostprepError(
            f"{name} could not be started: {error.message}",
            f"`journalctl -b -u {shlex.quote(name)}` says why",
        ) from None


def stop_unit(name: str) -> None:
    """Stop a unit, and make systemd forget that it failed, if it did.

    Raises ``HostprepError`` if systemd cannot stop it.
    """
    run(["systemctl", "stop", "--", name], wanted_for="stop a service", timeout_seconds=120)
    # Status 1: there was nothing to forget.
    run(["systemctl", "reset-failed", "--", name], wanted_for="reset a service", ok=(0, 1))


def daemon_reload(changed: str = "fstab is written") -> None:
    """Make systemd read fstab and its units again; ``changed`` says what was done to them.

    Raises ``NotReloaded`` if it does not.
    """
    try:
        run(
            ["systemctl", "daemon-reload"],
            wanted_for="let systemd read fstab and its units again",
            package="systemd",
            timeout_seconds=120,
        )
    except HostprepError as error:
        raise NotReloaded(
            f"{changed}, but systemd did not read that again: {error.message}",
            "run `systemctl daemon-reload`; at the next boot systemd reads it anyway",
        ) from None


def fstab_generator() -> Path | None:
    """Return systemd's fstab generator, None if it is not installed."""
    return next((path for path in _GENERATORS if path.is_file()), None)


def generate_mount_units(
    generator: Path, fstab: Path, into: Path, *, timeout_seconds: float
) -> GeneratedUnits:
    """Run the generator on the file ``fstab``; it writes below ``into``, a new empty directory.

    systemd 246 and later honour ``SYSTEMD_FSTAB``; earlier ones read /etc/fstab, which shows in the
    ``SourcePath=`` of the units.
    """
    done = run(
        [generator, into, into, into],
        wanted_for="see what systemd makes of fstab",
        timeout_seconds=timeout_seconds,
        ok=range(256),
        env={"SYSTEMD_FSTAB": str(fstab), "SYSTEMD_LOG_TARGET": "console"},
    )
    required = into / "local-fs.target.requires"
    files = sorted(path for path in into.iterdir() if path.is_file() and not path.is_symlink())
    return GeneratedUnits(
        returncode=done.returncode,
        said=done.complaint,
        units=tuple((path.name, path.read_text(errors="surrogateescape")) for path in files),
        required=frozenset(path.name for path in required.iterdir())
        if required.is_dir()
        else frozenset(),
    )
