"""What a spec file asks for, checked; and what is wrong with one that does not pass."""

from __future__ import annotations

from dataclasses import field

from hostprep.dataclass import dataclass
from hostprep.errors import UsageError
from hostprep.units import parse_size

# Of the mistakes of a file; more are only counted.
MOST_SHOWN = 50


@dataclass(frozen=True, slots=True)
class VolumeSpec:
    """A tmpfs volume. None means: not said, so chosen or left as it is.

    ``path`` is absolute, in its shortest form. ``size`` is as written (``30G``, ``40%``), since a
    percentage means another number on every host. ``owner`` is ``USER[:GROUP]``, names or numbers,
    not looked up: the accounts are those of the host that it is applied to. ``inodes`` is the least
    number that must fit. ``huge`` is a value of the tmpfs option.
    """

    path: str
    size: str
    owner: str | None = None
    mode: int | None = None
    inodes: int | None = None
    huge: str | None = None
    swap: bool = False

    def size_bytes(self, ram_bytes: int | None = None) -> int:
        """Return the size in bytes; a percentage is of ``ram_bytes``.

        Raises ``UsageError`` for a percentage without it.
        """
        return parse_size(self.size, ram_bytes=ram_bytes)


@dataclass(frozen=True, slots=True)
class DatasetSpec:
    """A data set and where it is wanted: on a declared volume or below a directory, never both.

    All paths are absolute; ``source`` was perhaps written relative to the spec file.
    """

    name: str
    source: str
    volume: str | None = None
    to: str | None = None
    at_boot: bool = False

    @property
    def parent(self) -> str:
        """Return the directory under which the data set appears by its name."""
        return self.volume or self.to or ""

    @property
    def target(self) -> str:
        """Return the path at which the data set appears."""
        return f"{self.parent.rstrip('/')}/{self.name}"


@dataclass(frozen=True, slots=True)
class RequirementSpec:
    """The rate at which training reads a data set; at least one of the two is known."""

    dataset: str
    samples_per_second: float | None = None
    bytes_per_second: int | None = None


@dataclass(frozen=True, slots=True)
class Spec:
    """A whole spec file. ``path`` is absolute, without symlinks.

    ``blank``: the file says nothing at all, not even that it wants nothing, as ``{}`` does.
    ``bare`` are the sections with nothing behind their name, not even ``[]``: that is no wish.
    """

    path: str
    volumes: tuple[VolumeSpec, ...] = ()
    datasets: tuple[DatasetSpec, ...] = ()
    requirements: tuple[RequirementSpec, ...] = ()
    packages: tuple[str, ...] = ()
    blank: bool = field(default=False, compare=False)
    bare: tuple[str, ...] = field(default=(), compare=False)

    def check_prunable(self, shown_path: str, where: str) -> None:
        """Raise ``UsageError`` if pruning would remove everything because the file says nothing.

        It may have been cut short by a full disk, or come from a template that failed. ``where``
        ends the sentence: where all would go, and what was not touched.
        """
        if self.blank:
            raise UsageError(
                f"{shown_path} is empty, and --prune would remove all that hostprep made {where}",
                "correct the file; if everything is to be removed, write {} into it",
            )
        for section, things in (("volumes", "volume"), ("datasets", "data set")):
            if section in self.bare:
                raise UsageError(
                    f"{shown_path} has nothing behind `{section}:`, and --prune would remove every"
                    f" {things} that hostprep made {where}",
                    f"correct the file; if none is wanted, write `{section}: []`",
                )


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: the line (from 1), the key's path (``datasets[0].source``, may be empty)."""

    line: int
    key: str
    message: str


class SpecError(UsageError):
    """The spec file holds mistakes: all of them, by line, in ``problems``.

    ``more``: some entries can be compared with each other only once the mistakes are corrected.
    """

    code = "spec"

    def __init__(self, path: str, problems: tuple[Problem, ...], *, more: bool = False) -> None:
        lines = [
            ": ".join(part for part in (f"{path}:{found.line}", found.key, found.message) if part)
            for found in problems[:MOST_SHOWN]
        ]
        if len(problems) > 1:
            lines.insert(0, f"{path} holds {len(problems)} mistakes; nothing was changed.")
        if len(problems) > MOST_SHOWN:
            lines.append(f"... and {len(problems) - MOST_SHOWN} more")
        later = (
            "; what depends on the entries with mistakes is checked once they are right"
            if more
            else ""
        )
        super().__init__(
            "\n".join(lines),
            f"correct the file; `hostprep spec check` reads it without acting on it{later}",
        )
        self.problems = problems
