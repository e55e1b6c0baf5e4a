"""What an inventory says in a form that cannot be meant is told before a host is touched."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from hostprep.fleet import run_playbook
from hostprep.system.resources import data_path

NOTHING: dict[str, Any] = {
    **dict.fromkeys(("hostprep_volumes", "hostprep_datasets", "hostprep_requirements"), ()),
    "hostprep_packages": ["fio"],
    "hostprep_prune": False,
    "hostprep_prune_all": "no",
    "hostprep_waves": "2",
}
BOOT = '[{"source": "/srv/a", "volume": "/v", "at_boot": true}]'


def mistakes(**variables: Any) -> list[str]:
    """Return what the role's filter, which is no module of the package, says of them."""
    path = data_path("playbooks", "roles", "hostprep", "filter_plugins", "hostprep_mistakes.py")
    given = {f"hostprep_{name}": value for name, value in variables.items()}
    found: list[str] = runpy.run_path(str(path))["mistakes"](NOTHING | given)
    return found


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("datasets", BOOT, f"is the text {BOOT}, and must be a list"),
        ("volumes", {"path": "/v"}, "is {'path': '/v'}, and must be a list"),
        ("volumes", ["/v"], "is the text /v, and must be a mapping"),
        ("requirements", 3, "is 3, and must be a list"),
        ("packages", "fio", "is the text fio, and must be a list"),
        ("prune", "perhaps", "is the text perhaps, and must be true or false"),
        ("waves", "many", "is the text many, and must be a whole number"),
        ("waves", float("inf"), "is inf, and must be a whole number"),
        ("datasets", [{"source": "data/a"}], "has the source data/a,"),
        ("datasets", [{"source": "~/a"}], "has the source ~/a,"),
    ],
)
def test_what_cannot_be_meant_is_named_with_its_value(name: str, value: Any, said: str) -> None:
    (sentence,) = mistakes(**{name: value})
    assert f"hostprep_{name} of this host {said}" in sentence
    assert " was touched. -> " in sentence
    assert not refused_by_ansible({f"hostprep_{name}": value})  # which would speak before the role


def refused_by_ansible(variables: dict[str, Any]) -> list[str]:
    path = data_path("playbooks", "roles", "hostprep", "meta", "argument_specs.yml")
    options = yaml.safe_load(path.read_text())["argument_specs"]["main"]["options"]
    found: list[str] = ArgumentSpecValidator(options).validate(variables).error_messages
    return found


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("volumes", [{"mode": 488}], "hostprep_volumes gives a mode without quotes"),
        ("volumes", [{"owner": 60050}], "hostprep_volumes gives an owner in numbers"),
        ("requirements", [{"dataset": True}], "hostprep_datasets or hostprep_requirements gives"),
    ],
)
def test_what_yaml_has_made_a_number_of_is_told(name: str, value: Any, said: str) -> None:
    (sentence,) = mistakes(**{name: value})
    assert sentence.startswith(said)


def test_the_mode_in_a_hint_opens_nothing_where_it_is_pasted() -> None:
    (sentence,) = mistakes(volumes=[{"mode": 488}])
    assert sentence.endswith('-> quote it where it is written, as in mode: "0755"')


@pytest.mark.parametrize(
    "variables",
    [
        {},
        dict.fromkeys(("volumes", "datasets", "requirements", "packages")),  # bare ones
        {"volumes": [{"path": "/v", "mode": "0750", "owner": None}], "prune": "True"},
        {"datasets": [{"source": "/a", "name": None}, {"source": None}, {}], "waves": 2.0},
    ],
)
def test_what_may_be_meant_is_left_to_the_host(variables: dict[str, Any]) -> None:
    assert mistakes(**variables) == []


def test_a_value_of_which_nothing_can_be_made_fails_its_host_before_the_first_change(
    tmp_path: Path,
) -> None:
    inventory = tmp_path / "hosts.ini"
    inventory.write_text(
        f"text hostprep_datasets='{BOOT}'\n"
        'relative hostprep_datasets=\'[{"source": "data/a", "at_boot": True}]\'\n'
        "[all:vars]\nansible_connection=local\n"
    )
    for host in run_playbook("site", str(inventory), {"hostprep_spec": {}}).hosts:
        assert host.failed and not host.changed and host.message is not None
        assert host.message.startswith("hostprep_datasets of this host"), host
