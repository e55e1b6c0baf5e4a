"""What a probe would do, shown before it does anything: what it writes where, and what it reads."""

from __future__ import annotations

import os
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.host.block import PathStorage
from hostprep.host.block_health import disks_with_health
from hostprep.probing.layout import SMALLEST_BYTES
from hostprep.probing.model import DEPTHS, Settings, Target
from hostprep.probing.phases import MADE_SHARE, room
from hostprep.probing.small_files import FEWEST_FILES, MADE_FILES, MEMORY_FOLDER, STAGED_BYTES
from hostprep.system.own_directory import PROBE_PREFIX
from hostprep.units import format_bytes, format_count, format_seconds


@dataclass(frozen=True, slots=True)
class Intent:
    """One thing that a probe would do to ``subject``, and why."""

    subject: str
    action: str
    reason: str


def intended(to: Target, settings: Settings, results: Path) -> tuple[Intent, ...]:
    """Return what a probe of ``to`` would do, in order; nothing is written to find out.

    ``results`` is the folder where it would store its results.
    """
    path = to.storage.path
    steps = [_drop()] if settings.drop_caches else []
    steps += _written(to.storage, settings)
    steps.append(
        Intent(
            path,
            f"take files here, and no others, out of the page cache, and read them whole, 1 and"
            f" then {settings.readers} at a time",
            "as a loader reads them in a first epoch; they are only read",
        )
    )
    depths = " and ".join(map(str, DEPTHS))
    steps.append(
        Intent(
            path,
            f"read one large file by {to.fio_version}: 1 MiB sequentially, 4 KiB at random, at"
            f" depth {depths}",
            "the test file or, if none can be written, the largest one here, if that has"
            f" {format_bytes(SMALLEST_BYTES)}",
        )
    )
    steps.append(
        Intent(
            str(MEMORY_FOLDER),
            f"copy up to {format_bytes(STAGED_BYTES)} of these files there for a moment",
            "what staging in RAM would give",
        )
    )
    steps += [
        Intent(f"/dev/{name}", "ask it for its SMART values", "its wear")
        for name in disks_with_health(to.storage.disks)
    ]
    steps.append(Intent(str(results), "keep the result, some kilobytes", "for --compare later"))
    steps.append(
        Intent(path, f"do all this in about {format_seconds(settings.seconds)}", "--seconds")
    )
    return tuple(steps)


def _drop() -> Intent:
    return Intent(
        "the machine", "empty all its caches", "--drop-caches; which slows down other programs"
    )


def _written(storage: PathStorage, settings: Settings) -> list[Intent]:
    """Return what would be written below the path: nothing if that is impossible."""
    path = storage.path
    if not os.access(path, os.W_OK):
        return [Intent(path, "write nothing", "it cannot be written; only what is here is read")]
    free = os.statvfs(path)
    why = f"{format_bytes(free.f_bavail * free.f_frsize)} are free" if free.f_blocks else "--size"
    allowed = room(storage, settings)
    steps = [
        Intent(
            os.path.join(path, f"{PROBE_PREFIX}*"),
            "make a hidden folder, and remove it",
            "for test data",
        )
    ]
    if allowed < SMALLEST_BYTES:
        few = f"{why}, of which {format_bytes(allowed)} may be used"
        return [*steps, Intent(path, "write no test file", few)]
    made = format_bytes(room(storage, settings, MADE_SHARE))
    return [
        *steps,
        Intent(
            path,
            f"write up to {format_count(MADE_FILES, 'small file')} of {made} together into it",
            f"only if there are fewer than {FEWEST_FILES} files here, or too large ones",
        ),
        Intent(path, f"write a test file of up to {format_bytes(allowed)} into it", why),
    ]
