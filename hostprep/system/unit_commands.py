"""What a systemd service runs, by its unit file and the drop-ins that change it."""

from __future__ import annotations

import shlex
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.system.systemd import SYSTEM_UNIT_DIR

# Drop-ins lie in these beside a unit in the system's directory, and the first wins where two have
# one name (systemd.unit(5)).
_OTHERS = tuple(
    Path(each, "systemd/system") for each in ("/run", "/usr/local/lib", "/usr/lib", "/lib")
)
# What may stand before a program's path, see systemd.service(5).
_PREFIXES = "@-:+!|"


@dataclass(frozen=True, slots=True)
class UnitCommand:
    """A command of a service as text and as words, and the drop-in that has it, None for the unit.

    There are no words where the text is not understood.
    """

    text: str
    words: tuple[str, ...]
    drop_in: Path | None


def unit_commands(unit: Path) -> tuple[tuple[UnitCommand, ...], Path | None]:
    """Return what starts with the service, and the last drop-in that took away what it had before.

    A file that cannot be read is passed by. Changes nothing.
    """
    commands: list[UnitCommand] = []
    reset_by: Path | None = None
    for file in (unit, *_drop_ins(unit)):
        drop_in = None if file == unit else file
        for value in _values(file):
            if not value:
                commands, reset_by = [], drop_in
                continue
            commands.append(UnitCommand(value, _words(value), drop_in))
    return tuple(commands), reset_by


def _words(value: str) -> tuple[str, ...]:
    try:
        split = shlex.split(value.lstrip(_PREFIXES))
    except ValueError:  # systemd's quotes are not a shell's in all
        return ()
    words = [word.replace("%%", "%") for word in split]
    # Variables are put in from the second on, see ``boot_template.argument``.
    return tuple(words[:1] + [word.replace("$$", "$") for word in words[1:]])


def _drop_ins(unit: Path) -> list[Path]:
    """Return the drop-ins of a unit in their order: by name, whichever folder they lie in.

    Those for all services whose names begin alike count as well (``hostprep-.service.d``), and
    last those for all services. Of one name the first folder's counts, and there the nearest's.
    """
    stem, suffix = unit.name.removesuffix(unit.suffix), unit.suffix
    parts = stem.split("-")
    names = [unit.name, *(f"{'-'.join(parts[:n])}-{suffix}" for n in range(len(parts) - 1, 0, -1))]
    folders = [unit.parent, *(_OTHERS if unit.parent == SYSTEM_UNIT_DIR else ())]
    found: dict[str, Path] = {}
    places = [folder / f"{name}.d" for folder in folders for name in names]
    places += [folder / f"{suffix.removeprefix('.')}.d" for folder in folders]
    for place in places:
        for file in place.glob("[!.]*.conf"):
            found.setdefault(file.name, file)
    return [found[name] for name in sorted(found)]


def _values(file: Path) -> list[str]:
    """Return what ``ExecStart=`` is set to in a file, in order; none where it cannot be read."""
    try:
        text = file.read_text(errors="surrogateescape")
    except OSError:
        return []
    values, section, begun = [], "", ""
    for line in (*text.split("\n"), ""):
        if line.lstrip().startswith(("#", ";")):
            continue
        whole = begun + line.lstrip()
        begun = ""
        if (len(whole) - len(whole.rstrip("\\"))) % 2:  # two of them are one, at the end
            begun = whole[:-1] + " "
            continue
        whole = whole.strip()
        if whole.startswith("[") and whole.endswith("]"):
            section = whole
        key, equals, value = whole.partition("=")
        if equals and key.strip() == "ExecStart" and section == "[Service]":
            values.append(value.strip())
    return values
