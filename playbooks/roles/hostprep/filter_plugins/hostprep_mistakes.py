"""Mistakes in a host's variables: values of the wrong form, or that YAML reads differently."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Number
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean

_ENTRIES = ("hostprep_volumes", "hostprep_datasets", "hostprep_requirements")
_LISTS = (*_ENTRIES, "hostprep_packages")
_SWITCHES = ("hostprep_prune", "hostprep_prune_all")
_NUMBERS = ("hostprep_waves",)
_AS_LIST = (
    "say it in YAML (host_vars/NAME.yml) as in hostprep.yml; an INI file wants all of it in single"
    " quotes, and True, False and None as Python writes them"
)
_SHOWN = 80  # characters of a value


def mistakes(variables: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each mistake in ``variables``, the public ones of a host by name."""
    found = list(_other_forms(variables))
    return found or [
        *_bare_numbers(variables),
        *(
            f"hostprep_datasets of this host has the source {_shown(source)}, and hosts have no"
            " folder that it could be relative to; no data set was touched. -> write it out from /"
            for source in _of(variables["hostprep_datasets"], "source")
            if isinstance(source, str) and not source.startswith("/")
        ),
    ]


def _other_forms(variables: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences about values of the wrong type; a section without a value is allowed."""
    for name in _LISTS:
        value = variables[name]
        if value is not None and not isinstance(value, list | tuple):
            yield _unlike(name, value, "a list", _AS_LIST)
        elif name in _ENTRIES:
            for entry in value or ():
                if not isinstance(entry, Mapping):
                    yield _unlike(f"an entry of {name}", entry, "a mapping of fields", _AS_LIST)
    for name in _SWITCHES:
        if not _is(boolean, variables[name]):
            yield _unlike(name, variables[name], "true or false", "write one of them")
    for name in _NUMBERS:
        if not _is(int, variables[name]):
            yield _unlike(name, variables[name], "a whole number", "write one")


def _bare_numbers(variables: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences about values that YAML has turned into numbers."""
    volumes = variables["hostprep_volumes"]
    if any(not isinstance(mode, str) for mode in _of(volumes, "mode")):
        yield (
            "hostprep_volumes gives a mode without quotes, which YAML reads as an octal number, so"
            " that it becomes another mode; no volume was touched. -> quote it where it is written,"
            ' as in mode: "0755"'
        )
    if any(isinstance(owner, Number) for owner in _of(volumes, "owner")):
        yield (
            "hostprep_volumes gives an owner in numbers without quotes; YAML reads 1000:50 as one"
            " number of base 60, which is the uid 60050; no volume was touched. -> quote it where"
            ' it is written: owner: "1000:50"'
        )
    names = [
        *_of(variables["hostprep_datasets"], "name"),
        *_of(variables["hostprep_requirements"], "dataset"),
    ]
    if any(isinstance(name, Number) for name in names):
        yield (
            "hostprep_datasets or hostprep_requirements gives a name without quotes that YAML reads"
            " as a number or a truth value: 2024_01 is 202401 then, 1.10 is 1.1, and on is true; no"
            ' data set was touched. -> quote it where it is written: name: "2024_01"'
        )


def _of(entries: Iterable[Mapping[str, Any]] | None, field: str) -> list[Any]:
    return [entry[field] for entry in entries or () if entry.get(field) is not None]


def _is(kind: Callable[[Any], Any], value: Any) -> bool:
    try:
        kind(value)
    except (TypeError, ValueError, OverflowError):  # the last of .inf
        return False
    return True


def _unlike(what: str, value: Any, wanted: str, hint: str) -> str:
    kind = "the text " if isinstance(value, str) else ""
    return (
        f"{what} of this host is {kind}{_shown(value)}, and must be {wanted}; no volume or data set"
        f" was touched. -> {hint}"
    )


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


class FilterModule:
    """Ansible looks for this class."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"hostprep_mistakes": mistakes}
