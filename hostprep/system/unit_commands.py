"""What a systemd service runs, by its unit file and the drop-ins that change it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.system.systemd import SYSTEM_UNIT_DIR

# A unit in the system's directory can have drop-ins in these too; if two have the same name, the
# first one wins (systemd.unit(5)).
_OTHERS = tuple(
    Path(each, "systemd/system") for each in ("/run", "/usr/local/lib", "/usr/lib", "/lib")
)
# Possible prefixes of a program's path, see systemd.service(5).
_PREFIXES = "@-:+!|"


@dataclass(frozen=True, slots=True)
class UnitSetting:
    """A setting of ``section`` (``[Service]``), and the drop-in that has it, None for the unit."""

    section: str
    name: str
    value: str
    drop_in: Path | None


@dataclass(frozen=True, slots=True)
class UnitCommand:
    """A command of a service as text and as words, and the drop-in that has it, None for the unit.

    There are no words if the text cannot be parsed.
    """

    text: str
    words: tuple[str, ...]
    drop_in: Path | None


def unit_commands(unit: Path) -> tuple[tuple[UnitCommand, ...], Path | None]:
    """Return the service's start commands, and the last drop-in that cleared earlier ones.

    Changes nothing.
    """
    commands: list[UnitCommand] = []
    reset_by: Path | None = None
    for each in unit_settings(unit):
        if (each.section, each.name) != ("[Service]", "ExecStart"):
            continue
        if each.value:
            commands.append(UnitCommand(each.value, _words(each.value), each.drop_in))
        else:
            commands, reset_by = [], each.drop_in
    return tuple(commands), reset_by


def unit_settings(unit: Path) -> Iterator[UnitSetting]:
    """Yield the settings of a unit and of its drop-ins in the order in which systemd reads them.

    A file that cannot be read is skipped.
    """
    for file in unit_files(unit):
        for section, name, value in _settings(file):
            yield UnitSetting(section, name, value, None if file == unit else file)


def unit_files(unit: Path) -> tuple[Path, ...]:
    """Return a unit and its drop-ins in the order in which systemd reads them."""
    return (unit, *_drop_ins(unit))


def _words(value: str) -> tuple[str, ...]:
    try:
        split = shlex.split(value.lstrip(_PREFIXES))
    except ValueError:  # systemd's quoting is not quite a shell's
        return ()
    words = [word.replace("%%", "%") for word in split]
    # Variables are expanded from the second word on, see ``boot_template.argument``.
    return tuple(words[:1] + [word.replace("$$", "$") for word in words[1:]])


def _drop_ins(unit: Path) -> list[Path]:
    """Return the drop-ins of a unit in their order: by name, whichever folder they are in.

    Those for all services whose names begin alike count as well (``hostprep-.service.d``), and
    last those for all services. If several have the same name, the one in the first folder counts,
    and there the most specific one.
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


def _settings(file: Path) -> Iterator[tuple[str, str, str]]:
    """Yield section, name and value of a file's settings, in order."""
    try:
        text = file.read_text(errors="surrogateescape")
    except OSError:
        return
    section = begun = ""
    for line in (*text.split("\n"), ""):
        if line.lstrip().startswith(("#", ";")):
            continue
        whole = begun + line.lstrip()
        begun = ""
        if (len(whole) - len(whole.rstrip("\\"))) % 2:  # a pair is an escaped one
            begun = whole[:-1] + " "
            continue
        whole = whole.strip()
        if whole.startswith("[") and whole.endswith("]"):
            section = whole
        name, equals, value = whole.partition("=")
        if equals:
            yield section, name.strip(), value.strip()
