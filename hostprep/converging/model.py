"""The data types of converging: a host's objects, the plan for each, and refusals."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Protocol, TypeVar

from hostprep.dataclass import dataclass
from hostprep.errors import HostprepError
from hostprep.staging.bound import Bound
from hostprep.staging.observer import Observer

Item = TypeVar("Item")


class Kind(StrEnum):
    """What an object is. A volume's line in fstab is separate from the volume itself."""

    PACKAGE = "package"
    VOLUME = "volume"
    FSTAB = "fstab"
    DATASET = "dataset"
    BOOT = "boot"


@dataclass(frozen=True, slots=True)
class Change:
    """One step: what it acts on, what it does, and why.

    ``subject`` is the package's name, the volume's path (also for its fstab line), or the data
    set's name (also for its boot service); or the data set's path, if the spec does not name it, or
    gives several the same name.
    """

    kind: Kind
    subject: str
    action: str
    reason: str


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Something that is left as it is, and why.

    If ``as_wanted`` is False, it does not match the spec, and nothing here changes that. If
    ``prunable``, hostprep made it, the spec does not name it, and ``--prune`` would remove it.
    """

    kind: Kind
    subject: str
    reason: str
    as_wanted: bool = True
    prunable: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """Why something may not be done, or was not: a sentence, and what to do about it."""

    kind: Kind
    subject: str
    message: str
    hint: str | None

    @classmethod
    def of(cls, kind: Kind, subject: str, error: HostprepError) -> Problem:
        """Return ``error`` as the problem of an object, with its hint for users of a spec."""
        return cls(kind, subject, error.message, error.spec_hint)

    def as_error(self) -> HostprepError:
        """Return the problem as an error to be raised."""
        return HostprepError(self.message, self.hint)


@dataclass(frozen=True, slots=True)
class Staged:
    """The result of staging a data set; ``bound`` is None if it is unknown what limited it."""

    dataset: str
    copied_files: int
    copied_bytes: int
    seconds: float
    digest: str | None
    bound: Bound | None


class Task(Protocol):
    """Carries an object's plan out, after looking at the machine again."""

    def carry_out(self, observer: Observer) -> Staged | None:
        """Do it; raise ``HostprepError`` if it fails or the machine is not as planned for."""


@dataclass(frozen=True, slots=True)
class ObjectPlan:
    """The plan for one object, the unit that succeeds or fails.

    ``after`` names the objects without which this one makes no sense: if one of them failed, this
    one is not tried. A ``task`` of None has nothing to carry out.
    """

    kind: Kind
    subject: str
    changes: tuple[Change, ...] = ()
    unchanged: tuple[Unchanged, ...] = ()
    warnings: tuple[str, ...] = ()
    refusal: Problem | None = None
    task: Task | None = None
    after: tuple[tuple[Kind, str], ...] = ()

    @classmethod
    def kept(
        cls, kind: Kind, subject: str, reason: str, warnings: tuple[str, ...] = ()
    ) -> ObjectPlan:
        """Return the plan of an object that stays as it is."""
        unchanged = (Unchanged(kind, subject, reason),)
        return cls(kind, subject, unchanged=unchanged, warnings=warnings)

    @classmethod
    def prunable(cls, kind: Kind, subject: str, reason: str) -> ObjectPlan:
        """Return the plan of an object that stays, but would not with ``--prune``."""
        return cls(kind, subject, unchanged=(Unchanged(kind, subject, reason, prunable=True),))

    @classmethod
    def refused(
        cls, kind: Kind, subject: str, error: HostprepError, warnings: tuple[str, ...] = ()
    ) -> ObjectPlan:
        """Return the plan of an object to which nothing may be done."""
        return cls(kind, subject, warnings=warnings, refusal=Problem.of(kind, subject, error))

    @property
    def key(self) -> tuple[Kind, str]:
        """What identifies the object among all."""
        return self.kind, self.subject


@dataclass(frozen=True, slots=True)
class HostPlan:
    """What a spec means for this host: its objects in the order of execution."""

    spec_path: str
    objects: tuple[ObjectPlan, ...]

    @property
    def changes(self) -> tuple[Change, ...]:
        """All changes, in order."""
        return _flat(each.changes for each in self.objects)

    @property
    def unchanged(self) -> tuple[Unchanged, ...]:
        """Everything that needs nothing, and why."""
        return _flat(each.unchanged for each in self.objects)

    @property
    def lacking(self) -> tuple[Unchanged, ...]:
        """What does not match the spec, and stays that way."""
        return tuple(each for each in self.unchanged if not each.as_wanted)

    @property
    def warnings(self) -> tuple[str, ...]:
        """All warnings, each once."""
        return tuple(dict.fromkeys(_flat(each.warnings for each in self.objects)))

    @property
    def refusals(self) -> tuple[Problem, ...]:
        """All reasons that forbid carrying the plan out."""
        return tuple(each.refusal for each in self.objects if each.refusal is not None)


def _flat(groups: Iterable[tuple[Item, ...]]) -> tuple[Item, ...]:
    return tuple(item for group in groups for item in group)
