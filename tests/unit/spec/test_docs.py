"""docs/spec.md against the code: a field that is in one and not in the other fails here."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from hostprep.readiness.registry import all_checks
from hostprep.spec.document import parse_document
from hostprep.spec.loading import parse_spec
from hostprep.spec.model import SpecError
from hostprep.spec.schema import json_schema

ROOT = Path(__file__).parents[3]
DOC = (ROOT / "docs/spec.md").read_text()
SECTIONS = ("volumes", "datasets", "requirements", "packages")


def part(heading: str) -> str:
    """Return the text below a heading, up to the next one."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", DOC, re.M | re.S)
    assert found is not None, f"docs/spec.md has no heading {heading}"
    return found[1]


def rows(text: str) -> dict[str, list[str]]:
    """Return the cells of a table's rows by the name in their first one."""
    found = re.findall(r"^\| `(\w+)` \|(.+)\|$", text, re.M)
    return {name: [cell.strip() for cell in cells.split(" | ")] for name, cells in found}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", DOC, re.M | re.S)


def fields(section: str) -> dict[str, Any]:
    """Return the fields of a section's entries by the JSON Schema; of packages there are none."""
    schema = json_schema()
    listed = schema["properties"][section]["anyOf"][0]["items"]
    entry = schema["$defs"][listed["$ref"].rpartition("/")[2]] if "$ref" in listed else {}
    return {name: name in entry.get("required", ()) for name in entry.get("properties", {})}


def test_every_section_has_its_heading() -> None:
    assert set(json_schema()["properties"]) == set(SECTIONS)
    for section in SECTIONS:
        part(f"`{section}`")


@pytest.mark.parametrize("section", SECTIONS)
def test_every_field_has_its_row_and_no_row_is_of_another(section: str) -> None:
    told = rows(part(f"`{section}`"))
    assert list(told) == list(fields(section))
    for name, is_required in fields(section).items():
        form, default, does, looked_at_by = told[name]
        assert form and does and looked_at_by
        assert (default == "required") == is_required, name


def test_the_example_has_every_field_and_is_sound() -> None:
    example = next(block for block in blocks("yaml") if block.startswith("# hostprep.yml"))
    parse_spec(example.encode(), shown_path="docs/spec.md", path="/etc/hostprep/hostprep.yml")
    values = yaml.safe_load(example)
    for section in SECTIONS:
        shown = {key for entry in values[section] if isinstance(entry, dict) for key in entry}
        assert shown == set(fields(section))


def test_the_example_is_sound_to_an_editor_also_as_provision_writes_it() -> None:
    """On hosts its numbers are in quotes: Ansible gets them as they were written."""
    example = next(block for block in blocks("yaml") if block.startswith("# hostprep.yml"))
    editor = jsonschema.Draft202012Validator(json_schema())
    editor.validate(yaml.safe_load(example))
    editor.validate(parse_document("docs/spec.md", example.encode()).value)


@pytest.mark.parametrize(
    ("section", "entry", "sound"),
    [
        ("datasets", {"source": 2024, "name": 1.1, "to": "/n"}, True),
        ("datasets", {"source": "~/cityscapes", "to": "/n"}, False),
        ("volumes", {"path": "/v", "size": "1G", "owner": "alice ml"}, False),
        ("requirements", {"dataset": "a", "samples_per_second": "1800/s"}, False),
    ],
)
def test_an_editor_says_of_a_value_what_the_parser_says(
    section: str, entry: dict[str, Any], sound: bool
) -> None:
    editor = jsonschema.Draft202012Validator(json_schema())
    document = {section: [entry]}
    assert editor.is_valid(document) is sound
    try:
        parse_spec(yaml.safe_dump(document).encode(), shown_path="a.yml", path="/a.yml")
    except SpecError:
        assert not sound
    else:
        assert sound


def test_the_checks_that_it_names_are_there() -> None:
    assert set(re.findall(r"HP\d{3}", DOC)) <= {check.code for check in all_checks()}


def test_every_variable_of_the_roles_has_its_row() -> None:
    specs = (ROOT / "playbooks/roles").glob("*/meta/argument_specs.yml")
    options = [
        yaml.safe_load(path.read_text())["argument_specs"]["main"]["options"] for path in specs
    ]
    assert set(rows(part("Many hosts: the inventory"))) == {name for one in options for name in one}


def test_the_inventory_gives_sound_sections() -> None:
    inventory = next(block for block in blocks("yaml") if block.startswith("all:"))
    for host in yaml.safe_load(inventory)["all"]["hosts"].values():
        said = {key.removeprefix("hostprep_"): value for key, value in (host or {}).items()}
        document = {name: said[name] for name in SECTIONS if name in said}
        parse_spec(yaml.safe_dump(document).encode(), shown_path="inventory", path="/x.yml")


def test_the_list_in_an_ini_file_is_a_sound_section() -> None:
    (shown,) = re.findall(r"`hostprep_(\w+)='(.*?)'`", DOC, re.S)
    document = {shown[0]: ast.literal_eval(shown[1])}
    parse_spec(yaml.safe_dump(document).encode(), shown_path="inventory", path="/x.yml")
