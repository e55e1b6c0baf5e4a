"""``hostprep.yml``: the one file an admin writes, found, read and checked.

Only the file: what it asks for is planned and done by the verbs that it names. Importing this costs
nothing; YAML and pydantic are loaded when a file is.
"""

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
