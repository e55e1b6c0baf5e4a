"""systemd, where it runs: reloading it, and what it would make of an fstab."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hostprep.errors import HostprepError
from hostprep.system.run import CommandFailed, run

_GENERATORS = (
    "usr/lib/systemd/system-generators/systemd-fstab-generator",
    "lib/systemd/system-generators/systemd-fstab-generator",
)


@dataclass(frozen=True, slots=True)
class GeneratedUnits:
    """What systemd-fstab-generator(8) wrote.

    ``units`` are (name, text) pairs of unit files, ``wanted`` and ``required`` the names of those
    that ``local-fs.target`` pulls in, each way.
    """

    returncode: int
    said: str
    units: tuple[tuple[str, str], ...]
    wanted: frozenset[str]
    required: frozenset[str]


def systemd_runs(root: Path = Path("/")) -> bool:
    """Return whether systemd is the init of this host, as sd_booted(3) tells it."""
    return (root / "run/systemd/system").is_dir()


def daemon_reload() -> None:
    """Let systemd read fstab and its units again. Raises ``HostprepError`` where it does not."""
    try:
        run(
            ["systemctl", "daemon-reload"],
            wanted_for="let systemd read fstab again",
            package="systemd",
            timeout_seconds=120,
        )
    except CommandFailed as error:
        raise HostprepError(
            f"fstab is written, but systemd did not read it again: {error.message}",
            "run `systemctl daemon-reload`; at the next boot systemd reads it anyway",
        ) from None


def fstab_generator(root: Path = Path("/")) -> Path | None:
    """Return systemd's fstab generator, None where it is not installed."""
    return next((root / path for path in _GENERATORS if (root / path).is_file()), None)


def generate_mount_units(generator: Path, fstab: Path, into: Path) -> GeneratedUnits:
    """Run the generator on a file of one's own; it writes below ``into``, a new empty directory.

    ``SYSTEMD_FSTAB`` is honoured by systemd 246 and later; earlier ones read /etc/fstab, which the
    ``SourcePath=`` of the units tells.
    """
    done = run(
        [generator, into, into, into],
        wanted_for="see what systemd makes of fstab",
        timeout_seconds=30,
        ok=range(256),
        env={"SYSTEMD_FSTAB": str(fstab), "SYSTEMD_LOG_TARGET": "console"},
    )
    files = sorted(path for path in into.iterdir() if path.is_file() and not path.is_symlink())
    return GeneratedUnits(
        returncode=done.returncode,
        said=done.stderr.strip(),
        units=tuple((path.name, path.read_text(errors="surrogateescape")) for path in files),
        wanted=_names(into / "local-fs.target.wants"),
        required=_names(into / "local-fs.target.requires"),
    )


def _names(directory: Path) -> frozenset[str]:
    return (
        frozenset(path.name for path in directory.iterdir()) if directory.is_dir() else frozenset()
    )
