#!/usr/bin/python
"""Runs the host's own hostprep and reports in Ansible's terms: changed, diff, failed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import tempfile

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: hostprep
short_description: Run the host's hostprep and report what its JSON says
description:
  - C(converge) runs C(hostprep apply), and C(hostprep plan) in check mode.
  - C(validate) runs C(hostprep spec check) on O(content).
  - C(check) runs C(hostprep check), which changes nothing.
options:
  command:
    description: What to run.
    type: str
    choices: [converge, validate, check]
    default: converge
  executable:
    description: The hostprep command.
    type: path
    default: /usr/local/bin/hostprep
  spec:
    description: The spec file; needed by C(converge), and taken by C(check) where it is there.
    type: path
  content:
    description:
      - What the spec file is going to hold; C(validate) and check mode look at this.
      - C(converge) fails where the file holds something else, as when another run wrote its own.
    type: str
  prune:
    description: Take away what hostprep made and the spec no longer names.
    type: bool
    default: false
  unpacked:
    description:
      - A folder from which hostprep runs just this once, as check mode does before it is installed.
      - It is removed at the end, also where the controller was interrupted or lost the host.
    type: path
  arguments:
    description: More arguments of C(check).
    type: list
    elements: str
    default: []
author: The hostprep authors
"""

EXAMPLES = r"""
- name: Converge
  hostprep:
    spec: /etc/hostprep/hostprep.yml
"""

RETURN = r"""
document:
  description: The JSON document of the command; null where there was none.
  type: dict
  returned: always
predicted:
  description: Whether check mode could tell what would change.
  type: bool
  returned: check mode
"""

_IN_TURN = (
    "-> agree on one spec, and provision one after the other; if nobody else did, the inventory"
    " lists this host under two names"
)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "command": {"choices": ["converge", "validate", "check"], "default": "converge"},
            "executable": {"type": "path", "default": "/usr/local/bin/hostprep"},
            "spec": {"type": "path"},
            "content": {"type": "str"},
            "prune": {"type": "bool", "default": False},
            "unpacked": {"type": "path"},
            "arguments": {"type": "list", "elements": "str", "default": []},
        },
        required_if=[("command", "converge", ("spec",)), ("command", "validate", ("content",))],
        supports_check_mode=True,
    )
    unpacked = module.params["unpacked"]
    if unpacked:
        # Without this, the end of a local connection would leave the folder behind.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        look(module)
    finally:
        if unpacked:
            shutil.rmtree(unpacked, ignore_errors=True)


def look(module: AnsibleModule) -> None:
    if os.path.exists(module.params["executable"]):
        act(module)
    elif module.check_mode and module.params["command"] == "converge":
        module.exit_json(
            changed=True,
            predicted=False,
            document=None,
            msg="hostprep is not installed here yet, and running it without installing it takes"
            " Python 3.11: what it would change is not known",
        )
    else:
        module.fail_json(
            msg=f"hostprep is not installed here: there is no {module.params['executable']}."
            " -> hostprep provision installs it",
            document=None,
        )


def act(module: AnsibleModule) -> None:
    if module.params["command"] == "check":
        check(module)
    elif module.params["command"] == "validate":
        validate(module)
    elif module.check_mode:
        plan(module)
    else:
        apply(module)


def check(module: AnsibleModule) -> None:
    spec = module.params["spec"]
    # Only the spec that was provisioned: a home shared by hosts may have the lab's hostprep.yml.
    named = [spec] if spec and os.path.exists(spec) else []
    document = run(module, ["check", *module.params["arguments"], *named])
    if "error" in document:
        fail(module, document)
    module.exit_json(changed=False, document=document)


def validate(module: AnsibleModule) -> None:
    document = look_ahead(module, ["spec", "check"], module.params["content"])
    if not document["ok"]:
        module.fail_json(msg=sentence(document["error"]), document=None)
    module.exit_json(changed=False)


def apply(module: AnsibleModule) -> None:
    if other := exchanged(module):
        module.fail_json(msg=f"{other}, which was not applied here. {_IN_TURN}", document=None)
    document = run(module, ["apply", module.params["spec"], "--yes", *prune(module)])
    if other := exchanged(module):
        fail(module, document, f"{other}, and this may be what was applied here. {_IN_TURN}")
    if not document["ok"]:
        fail(module, document)
    report(module, document, document["done"], changed=document["changed"])


def exchanged(module: AnsibleModule) -> str:
    """Say that the spec is no longer what was written, "" if it is.

    Two admins may provision a host at the same time, and neither must be told that it matches their
    spec if it matches the other's.
    """
    try:
        found = read(module.params["spec"])
    except (OSError, ValueError):
        return ""  # hostprep itself reports what is wrong with it
    if module.params["content"] in (None, found):
        return ""
    return f"another run has written its own spec to {module.params['spec']} meanwhile"


def plan(module: AnsibleModule) -> None:
    arguments = ["plan", *prune(module)]
    if module.params["content"] is None:  # the file itself: sources may be relative to it
        document = run(module, [*arguments, module.params["spec"]])
    else:
        document = look_ahead(module, arguments, module.params["content"])
    if not document["ok"] or document["refusals"]:
        fail(module, document)
    report(module, document, document["changes"], changed=bool(document["changes"]), predicted=True)


def look_ahead(module: AnsibleModule, arguments: list[str], content: str) -> dict:
    """Return what a command says about a spec that is not written yet.

    Mistakes are located by their keys only: by the time the admin reads them the file is gone, and
    no file of the admin's has the same lines.
    """
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", suffix=".yml", dir=module.tmpdir
    ) as file:
        file.write(content)
        file.flush()
        document = run(module, [*arguments, file.name])
    error = document.get("error")
    if error and file.name in error["message"]:
        named = re.escape(file.name) + r"(:\d+)?"
        error["message"] = re.sub(named, "the spec of this host", error["message"])
        error["hint"] = (
            "correct hostprep.yml, or the inventory if it gives this host a section of its own"
        )
    return document


def run(module: AnsibleModule, arguments: list[str]) -> dict:
    """Return the document that hostprep printed; fail if it printed none."""
    command = [module.params["executable"], *arguments, "--json"]
    code, out, err = module.run_command(command, cwd="/")
    try:
        document = json.loads(out)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        said = err.strip() or out.strip() or "it said nothing"
        message = f"hostprep {arguments[0]} ended with {code}: {said[-2000:]}"
        module.fail_json(msg=message, document=None)
    return document


def report(module: AnsibleModule, document: dict, changes: list[dict], **result: bool) -> None:
    """Exit successfully; the diff has a line per change: the reason before, the action after."""
    diff = {
        "before_header": "the host",
        "after_header": "the spec",
        "before": lines(changes, "reason"),
        "after": lines(changes, "action"),
    }
    module.exit_json(document=document, diff=diff, **result)


def fail(module: AnsibleModule, document: dict, first: str = "") -> None:
    """Exit with failure and all of hostprep's sentences; with the summary if it has no details."""
    problems = document.get("refusals", []) + document.get("failed", [])
    told = {(each["kind"], each["subject"]) for each in problems}
    sentences = [f"{each['kind']} {each['subject']}: {sentence(each)}" for each in problems]
    sentences += [
        f"{each['kind']} {each['subject']}: still to do: {each['action']} ({each['reason']})"
        for each in document.get("pending", [])
        if (each["kind"], each["subject"]) not in told
    ]
    if not sentences and "error" in document:
        sentences = [sentence(document["error"])]
    module.fail_json(
        msg="\n".join(filter(None, (first, *sentences))) or "hostprep failed and did not say why",
        changed=bool(document.get("done")),
        document=document,
    )


def sentence(problem: dict) -> str:
    return problem["message"] + (f" -> {problem['hint']}" if problem.get("hint") else "")


def lines(changes: list[dict], word: str) -> str:
    return "".join(f"{each['kind']} {each['subject']}: {each[word]}\n" for each in changes)


def prune(module: AnsibleModule) -> list[str]:
    return ["--prune"] if module.params["prune"] else []


def read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


if __name__ == "__main__":
    main()
