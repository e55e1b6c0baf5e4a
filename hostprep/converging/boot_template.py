"""The text of a boot service: ``templates/stage.service.j2``, quoted after systemd.syntax(7)."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from hostprep.converging.boot_links import AT_BOOT
from hostprep.converging.boot_record import BootRecord
from hostprep.host.mounts import lies_in
from hostprep.system.resources import data_path

if TYPE_CHECKING:
    from jinja2 import Template

MARKER = "# Made by hostprep for `at_boot: true`"
# Where hostprep keeps its things, if moved; without these, a service would look elsewhere.
_DIRECTORIES = ("HOSTPREP_STATE_DIR", "HOSTPREP_RUN_DIR")
_CARRIED = (*_DIRECTORIES, "HOSTPREP_FSTAB")
_MADE_READ_ONLY = ("/usr", "/boot", "/efi", "/etc")


def render(
    record: BootRecord,
    command: tuple[str, ...],
    environment: tuple[str, ...],
    wanted_by: tuple[str, ...] = (AT_BOOT,),
    feeders: tuple[str, ...] = (),
    *,
    automounted: bool = False,
) -> bytes:
    """Return the unit that runs ``command`` (see ``own_command``) with the data set's name.

    ``environment`` has ``NAME=VALUE`` pairs; ``wanted_by`` are the units that start it, ``feeders``
    the units that stage what contains the source. ``automounted``: systemd mounts the source when
    it is accessed, and unmounts it again.
    """
    variables = dict(variable.split("=", 1) for variable in environment)
    own = [variables[name] for name in _DIRECTORIES if name in variables]
    source_mounts = [unit for unit in wanted_by if automounted and unit != AT_BOOT]
    sources = () if source_mounts else (record.source,)
    text = _template().render(
        marker=MARKER,
        unit=record.unit,
        name=record.name,
        parent=record.parent,
        places=(*sources, record.parent, command[0], *own),
        source_mounts=source_mounts,
        remote=record.remote,
        wanted_by=wanted_by,
        feeders=feeders,
        command=(*command, "restage", record.name),
        environment=environment,
        # Each of those trees would become a mount point for the service: it could not write to a
        # target there, and would find a source there on another file system than recorded.
        below_system=any(
            lies_in(path, tree)
            for path in (record.parent, record.source, *own)
            for tree in _MADE_READ_ONLY
        ),
    )
    return text.encode(errors="surrogateescape")


def own_command() -> tuple[str, ...]:
    """Return how this very hostprep is called, with an absolute path that does not depend on PATH.

    ``HOSTPREP_COMMAND`` names another path, for instance where it is going to be installed.
    """
    if installed := os.environ.get("HOSTPREP_COMMAND"):
        return (os.path.abspath(installed),)
    script = Path(sys.prefix) / "bin" / "hostprep"
    if os.access(script, os.X_OK):
        return (str(script),)
    return (sys.executable, "-m", "hostprep")


def own_programs() -> tuple[str, ...]:
    """Return what root runs with ``own_command``: the program, its interpreter and its modules.

    If ``HOSTPREP_COMMAND`` names another path, the present interpreter and modules are not those
    that root will run: they may be a preview's, in a temporary folder.
    """
    command = own_command()[0]
    if os.environ.get("HOSTPREP_COMMAND"):
        return (command,)
    return (command, sys.executable, __file__)


def own_environment() -> tuple[str, ...]:
    """Return the variables that say where hostprep's things are, as absolute paths, if set."""
    return tuple(
        f"{name}={os.path.abspath(os.environ[name])}" for name in _CARRIED if os.environ.get(name)
    )


def is_ours(content: bytes) -> bool:
    """Return whether hostprep wrote a unit with this content."""
    return content.startswith(MARKER.encode())


def words(text: str) -> str:
    """Return ``text`` for a setting that takes the rest of its line, except specifiers (``%n``)."""
    return text.replace("%", "%%")


def quoted(text: str) -> str:
    """Return ``text`` quoted as one word of a setting that takes several."""
    return '"' + words(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def argument(text: str) -> str:
    """Return ``text`` as one argument of a command, where variables are expanded as well.

    In the first word, the program's path, they are not: there ``$$`` would be two dollars.
    """
    return quoted(text).replace("$", "$$")


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(  # no autoescape: this is not HTML
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters.update(words=words, quoted=quoted, argument=argument)
    return environment.from_string(data_path("templates", "stage.service.j2").read_text())
