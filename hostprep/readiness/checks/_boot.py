"""How the boot service of a data set is doing, as one answer."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.readiness.context import Context


@dataclass(frozen=True, slots=True)
class BootService:
    """``systemd``: it runs here. ``installed`` and ``enabled`` are the unit file's; ``state`` is a
    ``converging.boot_state.Stage``, None without a boot record, and ``hint`` what helps where that
    is none that is well. ``source`` and ``target`` are the boot record's, without symlinks.
    ``masked``: somebody forbade it. ``lost_program`` is what it runs, where that is not there."""

    unit: str
    systemd: bool
    installed: bool
    enabled: bool
    state: str | None
    reason: str
    masked: bool = False
    hint: str | None = None
    source: str | None = None
    target: str | None = None
    lost_program: str | None = None


def ask_boot(context: Context, name: str) -> BootService:
    """Return how the service that stages ``name`` at boot is doing."""
    from hostprep.converging.boot_links import link_of
    from hostprep.converging.boot_record import load_boot_record, unit_name
    from hostprep.converging.boot_state import boot_state
    from hostprep.staging.record.records import load_record
    from hostprep.staging.status import dataset_status
    from hostprep.system.systemd import systemd_runs, unit_dir

    def question() -> dict[str, object]:
        unit, record = unit_name(name), load_boot_record(name)
        state = None
        if record is not None:
            staged = load_record(record.name, record.target)
            known = None if staged is None else dataset_status(staged)
            state = boot_state(record, known)
        return {
            "unit": unit,
            "systemd": systemd_runs(),
            "installed": (unit_dir() / unit).is_file(),
            "enabled": link_of(unit_dir(), unit).is_symlink(),
            "state": None if state is None else state.state.value,
            "reason": "" if state is None else state.reason,
            # It is a link to /dev/null, which is there and is no file.
            "masked": os.path.realpath(unit_dir() / unit) == os.devnull,
            "hint": None if state is None else state.hint,
            "source": None if record is None else record.source,
            "target": None if record is None else record.target,
            "lost_program": _lost_program(unit_dir() / unit),
        }

    return BootService(**context.ask(f"boot service of {name}", question))


def _lost_program(unit: Path) -> str | None:
    """Return what a unit file runs, where that is gone; None too where nobody can tell.

    Somebody may have installed hostprep elsewhere since, or edited the file.
    """
    try:
        lines = unit.read_text().splitlines()
        started = next(line for line in lines if line.startswith("ExecStart="))
        program = shlex.split(started.removeprefix("ExecStart="))[0].replace("%%", "%")
    except (OSError, ValueError, StopIteration, IndexError):
        return None
    try:
        os.stat(program)
    except (FileNotFoundError, NotADirectoryError):
        return program if os.path.isabs(program) else None
    except OSError:
        return None
    return None
