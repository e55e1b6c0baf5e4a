"""A document against the shape of a spec, and its entries against each other.

Every entry is checked by itself, so that a mistake in one hides none in another. What depends on a
section that holds mistakes is not judged: a data set's volume may be the one that was misspelt.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import PurePosixPath
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import TypeAdapter, ValidationError

from hostprep.dataclass import dataclass
from hostprep.spec.document import Document, KeyPath, Value, shown
from hostprep.spec.feeding import mistakes_in_feeding
from hostprep.spec.model import (
    MOST_SHOWN,
    DatasetSpec,
    RequirementSpec,
    Spec,
    SpecError,
    VolumeSpec,
)
from hostprep.spec.names import name_problem
from hostprep.spec.schema import DatasetEntry, Package, RequirementEntry, SpecFile, VolumeEntry
from hostprep.spec.wording import listed, nearest, or_near, unknown

Entry = TypeVar("Entry")
_SECTIONS = tuple(SpecFile.model_fields)
_KEYS = {
    "volumes": tuple(VolumeEntry.model_fields),
    "datasets": tuple(DatasetEntry.model_fields),
    "requirements": tuple(RequirementEntry.model_fields),
    "packages": (),
}


@dataclass(frozen=True, slots=True)
class _Section(Generic[Entry]):
    """The sound entries of a section by their index, and whether those are all."""

    name: str
    entries: tuple[tuple[int, Entry], ...]
    complete: bool


class _Said(NamedTuple):
    """What an entry says under a key, or as a whole: a value."""

    where: KeyPath
    value: str

    @property
    def place(self) -> int:
        """Return the number of the entry in its section."""
        return int(self.where[1])


def check(document: Document, *, shown_path: str, path: str) -> Spec:
    """Return the spec; ``path``, absolute, is the file's, ``shown_path`` its name in messages.

    Raises ``SpecError`` with every mistake, by line.
    """
    checker = _Checker(document, os.path.dirname(path))
    spec = checker.spec(path)
    if checker.problems:
        ordered = sorted(dict.fromkeys(checker.problems), key=lambda found: (found.line, found.key))
        raise SpecError(shown_path, tuple(ordered), more=checker.more)
    return spec


class _Checker:
    """Gathers the problems of one document."""

    def __init__(self, document: Document, folder: str) -> None:
        self.document = document
        self.folder = folder
        self.problems = list(document.problems)
        self.more = False  # whether there was something that could not be judged yet

    def spec(self, path: str) -> Spec:
        root = self._root()
        volumes = self._section(root, "volumes", TypeAdapter(VolumeEntry))
        datasets = self._section(root, "datasets", TypeAdapter(DatasetEntry), one=("volume", "to"))
        requirements = self._section(
            root,
            "requirements",
            TypeAdapter(RequirementEntry),
            some=("samples_per_second", "bytes_per_second"),
        )
        packages = self._section(root, "packages", TypeAdapter[str](Package))
        self._unique(
            volumes, (_Said(("volumes", i, "path"), each.path) for i, each in volumes.entries)
        )
        self._unique(packages, (_Said(("packages", i), name) for i, name in packages.entries))
        related = {key: value for key, value in root.items() if key != "packages"}
        self.more = _count(related) > 1 and not (
            volumes.complete and datasets.complete and requirements.complete
        )
        named = self._datasets(datasets, volumes)
        self._requirements(requirements, named, complete=datasets.complete)
        return Spec(
            path=path,
            volumes=tuple(_volume(entry) for _, entry in volumes.entries),
            datasets=named,
            requirements=tuple(
                RequirementSpec(**entry.model_dump()) for _, entry in requirements.entries
            ),
            packages=tuple(name for _, name in packages.entries),
            blank=_says_nothing(self.document.value),
            bare=tuple(name for name, section in root.items() if section is None),
        )

    def _root(self) -> dict[str, Value]:
        value = self.document.value
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._note((), f"the file must hold keys: {listed(_SECTIONS)}")
            return {}
        for key in value:
            if key not in _SECTIONS:
                self._note((key,), unknown(key, _SECTIONS))
        return value

    def _section(
        self,
        root: dict[str, Value],
        name: str,
        adapter: TypeAdapter[Entry],
        *,
        one: tuple[str, ...] = (),
        some: tuple[str, ...] = (),
    ) -> _Section[Entry]:
        """Check each entry; of the keys ``one`` exactly one, of ``some`` at least one is given."""
        items = root.get(name)
        if items is None:
            # Perhaps it is there under a misspelt name, and what refers to it would be blamed.
            misspelt = any(nearest(key, _SECTIONS) == name for key in root if key not in _SECTIONS)
            return _Section(name, (), complete=not misspelt)
        if not isinstance(items, list):
            self._note((name,), "must be a list: each entry begins with `- `")
            return _Section(name, (), complete=False)
        entries = []
        for index, item in enumerate(items):
            where = (name, index)
            before = len(self.problems)
            entry: Entry | None = None
            meant: Collection[str] = ()
            try:
                entry = adapter.validate_python(item)
            except ValidationError as error:
                meant = self._note_entry(where, error)
            if isinstance(item, dict):
                self._check_choice(where, item, meant, one=one, some=some)
            if entry is not None and len(self.problems) == before:
                entries.append((index, entry))
        return _Section(name, tuple(entries), complete=len(entries) == len(items))

    def _note_entry(self, where: tuple[str, int], error: ValidationError) -> set[str]:
        """Note what is wrong with an entry; return the keys that its unknown ones stand for."""
        known = _KEYS[where[0]]
        found = error.errors(include_url=False)
        strange = [str(item["loc"][0]) for item in found if item["type"] == "extra_forbidden"]
        meant = {near for key in strange if (near := nearest(key, known))}
        for item in found:
            kind, below = item["type"], (*where, *item["loc"])
            if kind == "extra_forbidden":
                self._note(below, unknown(str(item["loc"][0]), known))
            elif kind == "missing":
                if item["loc"][0] not in meant:
                    self._note(below, "is missing")
            elif kind == "value_error":
                self._note(below, str(item["ctx"]["error"]))
            else:
                value = item["input"]
                self._note(
                    below,
                    "has no value" if value is None else f"must hold keys: {listed(known)}",
                )
        return meant

    def _check_choice(
        self,
        where: KeyPath,
        item: dict[str, Value],
        meant: Collection[str],
        *,
        one: tuple[str, ...],
        some: tuple[str, ...],
    ) -> None:
        choice = one or some
        given = [key for key in choice if item.get(key) is not None or key in meant]
        if choice and not given:
            self._note(where, f"needs {listed(choice, 'or')}")
        if one and len(given) > 1:
            self._note(where, f"has {listed(one, 'and')}; give one of them")

    def _datasets(
        self, section: _Section[DatasetEntry], volumes: _Section[VolumeEntry]
    ) -> tuple[DatasetSpec, ...]:
        declared = {entry.path for _, entry in volumes.entries}
        found: list[DatasetSpec] = []
        targets: list[_Said] = []
        for index, entry in section.entries:
            where = (section.name, index)
            source = os.path.normpath(os.path.join(self.folder, entry.source))
            name = entry.name or os.path.basename(source)
            if problem := name_problem(name):
                self._note((*where, "source"), f"cannot give the name: it {problem}; add `name`")
                continue
            if entry.volume and entry.volume not in declared and volumes.complete:
                self._note(
                    (*where, "volume"),
                    f"{shown(entry.volume)} is not declared in `volumes`"
                    + self._or_near(entry.volume, declared),
                )
            volume, to = entry.volume, entry.to
            if to in declared:
                # As a mere directory the volume's room would not be counted before it is mounted,
                # nor the copy be known to go with it.
                volume, to = to, None
            elif to is not None and (inside := [path for path in _above(to) if path in declared]):
                # For the same reasons, and below the volume no path but its own can be staged to.
                self._note(
                    (*where, "to"),
                    f"{shown(to)} lies in the volume {shown(inside[0])}; set `volume` instead,"
                    " which puts data sets directly below it",
                )
            dataset = DatasetSpec(name, source, volume, to, bool(entry.at_boot))
            found.append(dataset)
            self._spares_source((*where, "source"), dataset)
            key = "name" if entry.name else "source"
            targets.append(_Said((*where, key), dataset.target))
        self._unique(section, targets)
        self._apart(targets, declared)
        self._services(targets, found)
        self._fed([each.place for each in targets], found)
        return tuple(found)

    def _services(self, targets: Iterable[_Said], datasets: Iterable[DatasetSpec]) -> None:
        """Note each data set whose service at boot would have the name of another's."""
        first: dict[str, int] = {}
        for target, dataset in zip(targets, datasets, strict=True):
            if not dataset.at_boot:
                continue
            earlier = first.setdefault(dataset.name, target.place)
            if earlier != target.place:
                self._note(
                    target.where,
                    f"{self._shown('datasets', earlier)} of this name is staged at boot too, by a"
                    " service of this name; give it another `name`",
                )

    def _fed(self, indexes: Sequence[int], datasets: Sequence[DatasetSpec]) -> None:
        """Note each data set that cannot be staged from another's copy as it says."""
        for found in mistakes_in_feeding(datasets):
            feeder = self._shown("datasets", indexes[found.feeder])
            where = ("datasets", indexes[found.dataset], found.key)
            self._note(where, found.message.format(feeder))

    def _spares_source(self, where: KeyPath, dataset: DatasetSpec) -> None:
        """Note a copy that would lie in what it is a copy of, or the other way round."""
        source, target = dataset.source, dataset.target
        if source == target:
            self._note(where, f"{shown(source)} is also where its copy would be; set them apart")
        elif source in _above(target):
            self._note(where, f"{shown(source)} would hold its copy, {shown(target)}; set it apart")
        elif target in _above(source):
            self._note(where, f"{shown(source)} lies in its copy, {shown(target)}; set it apart")

    def _apart(self, targets: list[_Said], volumes: Iterable[str]) -> None:
        """Note each data set that would hold a volume or another data set: publishing replaces it
        as a whole, and would take them away."""
        holders = {each.value: each for each in reversed(targets)}
        held = [(f"the volume {shown(path)}", (path, *_above(path))) for path in volumes]
        held += [
            (f"datasets[{each.place}] ({shown(each.value)})", _above(each.value))
            for each in targets
        ]
        for inner, places in held:
            for place in places:
                if place in holders:
                    self._note(
                        holders[place].where, f"{shown(place)} would hold {inner}; set it apart"
                    )

    def _requirements(
        self,
        section: _Section[RequirementEntry],
        datasets: tuple[DatasetSpec, ...],
        *,
        complete: bool,
    ) -> None:
        names = [dataset.name for dataset in datasets]
        for index, entry in section.entries:
            if complete and entry.dataset not in names:
                self._note(
                    (section.name, index, "dataset"),
                    f"{shown(entry.dataset)} is not declared in `datasets`"
                    + self._or_near(entry.dataset, names),
                )
        self._unique(
            section,
            (_Said((section.name, i, "dataset"), each.dataset) for i, each in section.entries),
        )

    def _unique(self, section: _Section[Any], values: Iterable[_Said]) -> None:
        """Note each value that an earlier entry has too."""
        first: dict[str, int] = {}
        for each in values:
            earlier = first.setdefault(each.value, each.place)
            if earlier != each.place:
                taken_by = self._shown(section.name, earlier)
                self._note(each.where, f"{shown(each.value)} is taken by {taken_by}")

    def _shown(self, section: str, index: int) -> str:
        """Return an entry as a message names it."""
        return f"{section}[{index}] (line {self.document.lines[section, index]})"

    def _or_near(self, word: str, known: Iterable[str]) -> str:
        """Return ``or_near``, for a few mistakes: with many names each takes milliseconds."""
        return or_near(word, known) if len(self.problems) < MOST_SHOWN else ""

    def _note(self, where: KeyPath, message: str) -> None:
        self.problems.append(self.document.problem(where, message))


def _says_nothing(value: Value) -> bool:
    """Return whether no section holds anything; one that is there and empty, ``[]``, is a wish."""
    if isinstance(value, dict):
        return bool(value) and all(section is None for section in value.values())
    return value is None


def _count(sections: dict[str, Value]) -> int:
    return sum(
        len(section) if isinstance(section, list) else section is not None
        for section in sections.values()
    )


def _volume(entry: VolumeEntry) -> VolumeSpec:
    return VolumeSpec(**{**entry.model_dump(), "swap": bool(entry.swap)})


def _above(path: str) -> tuple[str, ...]:
    return tuple(str(folder) for folder in PurePosixPath(path).parents)
