"""``hostprep.yml``: the one file an admin writes, found, read and checked.

Only the file: what it asks for is planned and done by the verbs that it names. Importing this costs
nothing: its names are looked up when they are asked for, YAML and pydantic are loaded when a file
is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hostprep.spec.finding import SYSTEM_SPEC, find_spec
    from hostprep.spec.loading import load_spec
    from hostprep.spec.model import (
        DatasetSpec,
        Problem,
        RequirementSpec,
        Spec,
        SpecError,
        VolumeSpec,
    )

__all__ = [
    "SYSTEM_SPEC",
    "DatasetSpec",
    "Problem",
    "RequirementSpec",
    "Spec",
    "SpecError",
    "VolumeSpec",
    "find_spec",
    "load_spec",
]

_ELSEWHERE = {"SYSTEM_SPEC": "finding", "find_spec": "finding", "load_spec": "loading"}


def __getattr__(name: str) -> Any:
    # Every stage asks names.py for its rule, and to make the model's classes takes 7 ms.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_ELSEWHERE.get(name, 'model')}"), name)
