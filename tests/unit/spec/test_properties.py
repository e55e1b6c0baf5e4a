"""Whatever the bytes are: a spec or a sentence; and whatever is written out is read back."""

from __future__ import annotations

import json
import re
from dataclasses import fields as dataclass_fields
from typing import Any

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hostprep.errors import UsageError
from hostprep.spec.fields import MODE_PATTERN, RATE_PATTERN, SIZE_PATTERN, mode, rate_bytes, size
from hostprep.spec.loading import parse_spec
from hostprep.spec.model import DatasetSpec, RequirementSpec, Spec, SpecError, VolumeSpec
from hostprep.spec.schema import (
    DatasetEntry,
    RequirementEntry,
    SpecFile,
    VolumeEntry,
    json_schema,
)
from hostprep.units import parse_size

PATH = "/srv/lab/hostprep.yml"
KEYS = sorted(
    {*VolumeEntry.model_fields, *DatasetEntry.model_fields, *RequirementEntry.model_fields}
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.dates(),
    st.text(max_size=12),
    st.sampled_from(["/v", "30G", "40%", "a", "../a", "/srv/a", "0755", "~", "no", "never", "<<"]),
)
ENTRIES = st.dictionaries(st.one_of(st.sampled_from(KEYS), st.text(max_size=8)), SCALARS)
TREES = st.recursive(
    st.one_of(SCALARS, ENTRIES, st.lists(ENTRIES, max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(
    st.one_of(st.sampled_from(sorted(SpecFile.model_fields)), st.text(max_size=8)),
    st.one_of(st.lists(ENTRIES, max_size=4), TREES),
    max_size=5,
)
# Pieces that mean something to YAML, in any order.
# fmt: off
FRAGMENTS = st.lists(st.sampled_from([
    "volumes", "datasets", "path", ": ", ":\n", "\n", "- ", "  ", "\t", "[", "]", "{", "}", ",",
    "&a ", "*a", "!!", "!t ", "!<x> ", "|\n", ">-\n", "'", '"', "\\x", "\\U0011", "#", "? ", "<<",
    "---\n", "...\n", "%YAML 1.1\n", "%TAG ! x\n", "=", "~", "\x85", "\u2028", "\ufeff", "\r",
]), max_size=40).map("".join)
# fmt: on


def outcome(content: bytes) -> Spec | SpecError:
    try:
        return parse_spec(content, shown_path="h.yml", path=PATH)
    except SpecError as error:
        lines = content.count(b"\n") + 1
        assert error.problems
        assert all(1 <= found.line <= lines for found in error.problems)
        assert all(found.message.isprintable() for found in error.problems)
        assert all(found.key.isprintable() for found in error.problems)
        return error


@settings(max_examples=300)
@given(FRAGMENTS)
@example("'\\U00110000'")
@example('"\\UFFFFFFFF"')
@example("!<x> a")
@example("&a {? *a : 1}")
def test_any_text_is_a_spec_or_a_sentence(text: str) -> None:
    outcome(text.encode())


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_spec_or_a_sentence(content: bytes) -> None:
    outcome(content)


@settings(max_examples=300)
@given(st.one_of(DOCUMENTS, TREES))
def test_any_document_is_a_spec_or_a_sentence(document: Any) -> None:
    outcome(yaml.safe_dump(document, allow_unicode=True).encode("utf-8", "surrogatepass"))


NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_. -]{0,15}[A-Za-z0-9]", fullmatch=True)
FOLDERS = st.lists(NAMES, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))
SIZES = st.sampled_from(["1G", "30GiB", "30GB", "512m", "1048576", "40%"])


@st.composite
def sound_specs(draw: st.DrawFn) -> Spec:
    """Return a spec as the loader would: unique names, targets apart."""
    volumes = draw(
        st.lists(
            st.builds(
                VolumeSpec,
                path=FOLDERS.map(lambda path: "/volumes" + path),
                size=SIZES,
                owner=st.none() | st.sampled_from(["alice", "alice:ml", "1000:50"]),
                mode=st.none() | st.integers(0o100, 0o7777),
                inodes=st.none() | st.integers(1, 10**9),
                huge=st.none() | st.sampled_from(["never", "always"]),
                swap=st.booleans(),
            ),
            unique_by=lambda volume: volume.path,
            max_size=3,
        )
    )
    places = [("volume", volume.path) for volume in volumes] + [("to", "/nvme"), ("to", "/ssd")]
    datasets = []
    for number, name in enumerate(draw(st.lists(NAMES, unique=True, max_size=4))):
        key, place = draw(st.sampled_from(places))
        # The number keeps a target from being a folder above another volume.
        datasets.append(
            DatasetSpec(
                f"{number}!{name}",
                "/srv" + draw(FOLDERS),
                at_boot=draw(st.booleans()),
                **{key: place},
            )
        )
    requirements = [
        RequirementSpec(dataset.name, draw(st.floats(0.001, 1e9)), draw(st.integers(1, 2**60)))
        for dataset in datasets
    ]
    packages = draw(st.lists(st.sampled_from(["fio", "jq", "g++-12"]), unique=True))
    return Spec(PATH, tuple(volumes), tuple(datasets), tuple(requirements), tuple(packages))


@settings(max_examples=100)
@given(sound_specs(), st.booleans())
def test_what_is_written_out_is_read_back(spec: Spec, as_json: bool) -> None:
    """By PyYAML's own writer, and as JSON, which is YAML too."""

    def entry(item: Any) -> dict[str, Any]:
        values = {field.name: getattr(item, field.name) for field in dataclass_fields(item)}
        if values.get("mode") is not None:
            values["mode"] = f"{values['mode']:04o}"
        return {key: value for key, value in values.items() if value is not None}

    document = {
        "volumes": [entry(item) for item in spec.volumes],
        "datasets": [entry(item) for item in spec.datasets],
        "requirements": [entry(item) for item in spec.requirements],
        "packages": list(spec.packages),
    }
    text = json.dumps(document) if as_json else yaml.safe_dump(document)
    assert outcome(text.encode()) == spec


def accepts(check: Any, text: str) -> bool:
    try:
        check(text)
    except ValueError:
        return False
    return True


@settings(max_examples=200)
@given(st.from_regex(SIZE_PATTERN.replace("$", r"\Z").replace("+", "{1,8}")))
def test_a_size_of_the_schema_is_one_of_the_command_line(text: str) -> None:
    try:
        found = parse_size(text, ram_bytes=2**40)
    except UsageError as error:
        assert "more than Linux can count" in error.message
        assert not accepts(size, text)
    else:
        assert accepts(size, text) == (0 < found < 2**63)


@settings(max_examples=200)
@given(st.text(alphabet="0123456789kKmMgGtTiIbB%./s ", max_size=8))
def test_no_size_or_rate_is_accepted_that_the_schema_refuses(text: str) -> None:
    if accepts(size, text):
        assert parse_size(text, ram_bytes=2**40) > 0
        assert re.fullmatch(SIZE_PATTERN, text.strip())
    if accepts(rate_bytes, text):
        assert re.fullmatch(RATE_PATTERN, text.strip())
    if accepts(mode, text):
        assert re.fullmatch(MODE_PATTERN, text)
        assert 0 <= mode(text) <= 0o7777


def test_the_schema_and_the_model_name_the_same_keys() -> None:
    schema = json_schema()
    for entry, model in (
        ("VolumeEntry", VolumeSpec),
        ("DatasetEntry", DatasetSpec),
        ("RequirementEntry", RequirementSpec),
    ):
        known = {field.name for field in dataclass_fields(model)}
        assert set(schema["$defs"][entry]["properties"]) == known
        assert schema["$defs"][entry]["additionalProperties"] is False
    sections = {field.name for field in dataclass_fields(Spec)} - {"path", "blank", "bare"}
    assert set(schema["properties"]) == sections
    assert schema["$defs"]["VolumeEntry"]["required"] == ["path", "size"]
    assert schema["$defs"]["DatasetEntry"]["oneOf"] == [
        {"required": ["volume"]},
        {"required": ["to"]},
    ]


def test_every_spec_error_is_a_usage_error() -> None:
    assert issubclass(SpecError, UsageError)
    assert SpecError.exit_code == 2
