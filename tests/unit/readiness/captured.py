"""Captured hosts: a fixture's folder as the ``Context`` that checks are asked about.

``given.yml`` may hold, beside ``spec`` (a spec file's content) and ``level`` (quick or full):

* ``volumes``, ``datasets``, ``live`` (path: fields or null), ``tmpfs``, ``headroom``, ``cpu``,
  ``nvml``: dataclasses of hostprep as mappings. A field that is left out takes its default, null
  where it may be unknown, else an empty or plain value of its type.
* ``damaged`` (folder of a record that cannot be read: what is wrong); there is none, if not given.
* ``damaged_probes`` (file that cannot be read: what is wrong), the same.
* ``probes`` (documents, newest first), ``last`` (``recommend``: document or null).
* ``statvfs`` (path: ``size_bytes``, ``free_bytes``, ``inodes``, ``free_inodes``), ``answers``
  (name: what the child says), ``commands`` (line: ``stdout``, ``stderr``, ``returncode``; or null
  where it is not installed). ``{cannot_tell: sentence}`` in place of a value: asking it hangs or
  fails.
* ``environ``, ``now`` (seconds since the epoch), ``euid``.

Files below ``root/`` are the host's. What neither has is not known, and asking for it is an error.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from hostprep.errors import HostprepError
from hostprep.host.cpu import CpuFacts
from hostprep.host.gpu import Nvml
from hostprep.host.memory import Headroom
from hostprep.readiness.context import Context
from hostprep.readiness.model import CannotTell, Level
from hostprep.readiness.space import Space
from hostprep.spec.loading import parse_spec
from hostprep.spec.model import Spec
from hostprep.staging.status import DatasetStatus
from hostprep.system.mounting import TmpfsSupport
from hostprep.system.run import Completed
from hostprep.volumes.model import LiveVolume
from hostprep.volumes.status import VolumeStatus

FIXTURES = Path(__file__).parents[2] / "fixtures" / "readiness"
_SPEC_PATH = "/etc/hostprep/hostprep.yml"
_PLAIN: dict[Any, Any] = {str: "", int: 0, float: 0.0, bool: False}


def captured(case: Path) -> Context:
    """Return the host of a fixture's folder."""
    file = case / "given.yml"
    said = (yaml.safe_load(file.read_text()) if file.exists() else None) or {}
    level = Level(said.pop("level", "quick"))
    spec = spec_of(said.pop("spec")) if "spec" in said else None
    unknown = set(said) - set(_READERS)
    assert not unknown, f"{file}: there are no readers {sorted(unknown)}"
    said.setdefault("damaged", {})
    said.setdefault("damaged_probes", {})
    given = {name: _READERS[name](value) for name, value in said.items()}
    return Context(root=case / "root", spec=spec, level=level, given=given)


def spec_of(content: Mapping[str, Any]) -> Spec:
    """Return a spec file's content, checked as the real one is."""
    return parse_spec(yaml.safe_dump(content).encode(), shown_path=_SPEC_PATH, path=_SPEC_PATH)


def build(kind: Any, value: Any) -> Any:
    """Return ``value`` (from YAML) as ``kind``: dataclasses from mappings, tuples from lists."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            assert type(None) in arguments, f"{kind} cannot be null"
            return None
        return build(next(one for one in arguments if one is not type(None)), value)
    if origin is tuple:
        return (
            tuple(build(arguments[0], item) for item in value)
            if arguments[1:] == (...,)
            else (tuple(build(one, item) for one, item in zip(arguments, value, strict=True)))
        )
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)
        hints = typing.get_type_hints(kind)
        fields = {field.name: field for field in dataclasses.fields(kind)}
        assert set(value) <= set(fields), f"{kind.__name__} has no {set(value) - set(fields)}"
        return kind(
            **{
                name: build(hints[name], value[name]) if name in value else _absent(hints[name])
                for name, field in fields.items()
                if name in value
                or (
                    field.default is dataclasses.MISSING
                    and field.default_factory is dataclasses.MISSING
                )
            }
        )
    return kind(value) if isinstance(kind, type) and not isinstance(value, kind) else value


def _absent(kind: Any) -> Any:
    if type(None) in typing.get_args(kind):
        return None
    if typing.get_origin(kind) is tuple:
        return ()
    if dataclasses.is_dataclass(kind):
        return build(kind, {})
    return _PLAIN[kind] if kind in _PLAIN else next(iter(kind))


def _each(kind: Any) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    def read(said: Mapping[str, Any]) -> dict[str, Any]:
        return {key: _one(kind, value) for key, value in said.items()}

    return read


def _one(kind: Any, value: Any) -> Any:
    if isinstance(value, Mapping) and set(value) == {"cannot_tell"}:
        return CannotTell(value["cannot_tell"], "see what hangs")
    return value if kind is None or value is None else build(kind, value)


def _commands(said: Mapping[str, Any]) -> dict[str, Any]:
    return {
        line: _one(None, value)
        if value is None or "cannot_tell" in value
        else Completed(
            tuple(line.split()),
            value.get("returncode", 0),
            value.get("stdout", ""),
            value.get("stderr", ""),
        )
        for line, value in said.items()
    }


def _damaged(said: Mapping[str, str]) -> dict[str, HostprepError]:
    hint = "nothing was changed; move the folder away to start over"
    return {folder: HostprepError(message, hint) for folder, message in said.items()}


_READERS: dict[str, Callable[[Any], Any]] = {
    "volumes": lambda said: build(tuple[VolumeStatus, ...], said),
    "datasets": lambda said: build(tuple[DatasetStatus, ...], said),
    "damaged": _damaged,
    "damaged_probes": _damaged,
    "tmpfs": lambda said: build(TmpfsSupport, said),
    "live": _each(LiveVolume),
    "headroom": lambda said: build(Headroom, said),
    "cpu": lambda said: build(CpuFacts, said),
    "nvml": lambda said: build(Nvml, said),
    "probes": tuple,
    "last": _each(None),
    "statvfs": _each(Space),
    "answers": _each(None),
    "measured": _each(None),
    "commands": _commands,
    "environ": dict,
    "now": float,
    "euid": int,
    "cwd": str,
    "state_dir": str,
}
