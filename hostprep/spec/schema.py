"""The shape of a spec file in pydantic, which checks entries and writes the JSON Schema of editors.

Imported only where a file is loaded or the schema is printed: pydantic takes its time.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from hostprep.spec import fields


def _any_of(*kinds: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": list(kinds)})


def _text(pattern: str) -> dict[str, Any]:
    return {"type": "string", "pattern": pattern}


# Editors read YAML 1.2, where `size: 1048576` and `mode: 0755` are numbers; we take their text. It
# is in quotes where `hostprep provision` wrote the file.
_COUNT = {"type": "integer", "minimum": 1}
_UID = {"type": "integer", "minimum": 0}
_ABOVE_ZERO = {"type": "number", "exclusiveMinimum": 0}
_FROM_ZERO = {"type": "number", "minimum": 0}

Size = Annotated[str, BeforeValidator(fields.size), _any_of(_text(fields.SIZE_PATTERN), _COUNT)]
Rate = Annotated[
    int, BeforeValidator(fields.rate_bytes), _any_of(_text(fields.RATE_PATTERN), _COUNT)
]
Mode = Annotated[int, BeforeValidator(fields.mode), _any_of(_text(fields.MODE_PATTERN), _COUNT)]
Samples = Annotated[
    float, BeforeValidator(fields.samples), _any_of(_ABOVE_ZERO, _text(fields.SAMPLES_PATTERN))
]
Count = Annotated[int, BeforeValidator(fields.count), _any_of(_text(fields.COUNT_PATTERN), _COUNT)]
Flag = Annotated[bool, BeforeValidator(fields.flag)]
Owner = Annotated[str, BeforeValidator(fields.owner), _any_of(_text(fields.OWNER_PATTERN), _UID)]
Huge = Annotated[
    str,
    BeforeValidator(fields.huge),
    WithJsonSchema({"type": "string", "enum": list(fields.HUGE_VALUES)}),
]
Target = Annotated[str, BeforeValidator(fields.target), WithJsonSchema(_text("^/"))]
Source = Annotated[
    str, BeforeValidator(fields.source), _any_of(_text("^[^~$]"), {"type": "number"})
]
Name = Annotated[str, BeforeValidator(fields.name), _any_of(_text("^[^-./][^/]*$"), _FROM_ZERO)]
Package = Annotated[
    str, BeforeValidator(fields.package), WithJsonSchema(_text(fields.PACKAGE_PATTERN))
]


def _one_of(*keys: str, both: bool = False) -> dict[str, Any]:
    return {"anyOf" if both else "oneOf": [{"required": [key]} for key in keys]}


class VolumeEntry(BaseModel):
    """A sized tmpfs volume."""

    model_config = ConfigDict(extra="forbid")
    path: Target = Field(description="Where: an absolute path.")
    size: Size = Field(description="30G, 30GiB (x 2^30), 30GB (x 10^9), 40% (of the RAM).")
    owner: Owner | None = Field(None, description="USER[:GROUP] of its root directory.")
    mode: Mode | None = Field(None, description="Permissions of its root directory, in octal.")
    inodes: Count | None = Field(None, description="Files and directories that must fit.")
    huge: Huge | None = Field(None, description="Huge pages; chosen if not given.")
    swap: Flag | None = Field(None, description="Whether its data may be swapped out.")


class DatasetEntry(BaseModel):
    """A data set to stage, onto a volume or into a directory."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_one_of("volume", "to"))
    source: Source = Field(description="A directory; relative to this file, or absolute.")
    name: Name | None = Field(None, description="Its name on the target; the source's by default.")
    volume: Target | None = Field(None, description="The path of a volume declared above.")
    to: Target | None = Field(
        None,
        description="A directory, on NVMe for instance. A volume declared above: as `volume`.",
    )
    at_boot: Flag | None = Field(None, description="Stage it again after each boot.")


class RequirementEntry(BaseModel):
    """How fast a data set must be read."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra=_one_of("samples_per_second", "bytes_per_second", both=True),
    )
    dataset: Name = Field(description="The name of a data set declared above.")
    samples_per_second: Samples | None = Field(None, description="Samples a second.")
    bytes_per_second: Rate | None = Field(None, description="Bytes a second: 400M, 400MB/s.")


class SpecFile(BaseModel):
    """What a training host must look like: hostprep.yml."""

    model_config = ConfigDict(extra="forbid", title="hostprep.yml")
    volumes: list[VolumeEntry] | None = Field(None, description="Sized tmpfs volumes.")
    datasets: list[DatasetEntry] | None = Field(None, description="Data sets to stage.")
    requirements: list[RequirementEntry] | None = Field(
        None, description="Rates that the storage must deliver."
    )
    packages: list[Package] | None = Field(None, description="System packages.")


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a spec file."""
    schema = SpecFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
