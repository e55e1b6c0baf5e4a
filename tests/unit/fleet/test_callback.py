"""What the callback tells of a result that no run of a playbook brings about everywhere."""

from __future__ import annotations

import json
import runpy
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.inventory.host import Host
from ansible.playbook.task import Task

from hostprep.system.resources import data_path


def told_of(event: str, **fields: Any) -> dict[str, Any]:
    """Return the line for a host's answer to a task of which Ansible knows no action."""
    plugin = runpy.run_path(str(data_path("playbooks") / "callback/hostprep_events.py"))
    callback, lines = plugin["CallbackModule"](), []
    callback._display = SimpleNamespace(display=lambda line, screen_only: lines.append(line))
    task = Task()
    assert task.action is None
    getattr(callback, f"v2_runner_on_{event}")(
        SimpleNamespace(host=Host("here"), task=task, result=fields)
    )
    (line,) = lines
    told: dict[str, Any] = json.loads(line)
    return told


def test_what_a_host_answers_to_a_task_without_an_action_is_told_all_the_same() -> None:
    """So it is of what nests too deep for Ansible to copy; the host counts as one that failed."""
    failed = told_of("failed", failed=True, msg="its disk is full")
    assert (failed["event"], failed["host"]) == ("failed", "here")
    assert failed["message"] == "its disk is full"
    done = told_of("ok", changed=True, document={"schema": "hostprep.apply/1"})
    assert (done["event"], done["changed"], done["reached"]) == ("ok", True, True)
    assert done["document"] == {"schema": "hostprep.apply/1"}


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_json_does_not_have_makes_an_answer_none(number: float) -> None:
    """``check -i --json`` passes a host's report on, and no other program could read any of it."""
    failed = told_of("ok", document={"schema": "hostprep.check/1", "measurements": [number]})
    assert (failed["event"], failed["host"]) == ("failed", "here")
    assert failed["message"].startswith("its answer is not understood")
