"""Runs a packaged playbook: ansible-core as a child process, with its events as they come."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from hostprep.errors import HostprepError, MissingTool, UsageError
from hostprep.fleet.ansible_words import (
    errors_in,
    last_error,
    nobody_called,
    told,
    warnings_in,
    without_tags,
)
from hostprep.fleet.environment import environment
from hostprep.fleet.events import Event, Tally, parse_event
from hostprep.fleet.inventory import refuse_what_is_none, unread
from hostprep.fleet.model import FleetRun
from hostprep.system.python import pip_line
from hostprep.system.resources import data_path
from hostprep.system.run import Running, start

# The most bytes in the path of a folder below which ssh makes its sockets: a socket's full path may
# have 107 bytes, of which our part and ssh's take 56.
_LONGEST_PLACE = 50
_MOST_SECONDS = 7 * 24 * 3600.0  # staging takes as long as it takes; each host has tight limits
_AS_SCRIPT = "import sys; del sys.argv[0]; from ansible.cli.playbook import main; main()"
# A pattern such as train[1:3].
_COUNTING = re.compile(r"\[\d*[:-]?\d*\]$")
# What ansible-playbook says if the patterns match no host or are invalid.
_NOBODY = re.compile(
    "no hosts to target|No hosts matched|Invalid host list pattern|Unable to find limit file"
    '|Limit starting with "@" must be a file'
)
# What it says if a file with a password, or a program that prints one, gives none.
_PASSWORDS = re.compile(r"(vault )?password (was provided from|(client )?script|file)\b", re.I)


class NobodyMeant(UsageError):
    """No host is left of an inventory and its limits."""


class FleetObserver(Protocol):
    """Is told of every event of a run, and of time that passes without one."""

    def event(self, event: Event) -> None:
        """Take the next event."""

    def waiting(self) -> None:
        """Nothing has come for a moment; called several times a second."""


def run_playbook(
    name: str,
    inventory: str,
    variables: Mapping[str, Any],
    *,
    limit: Sequence[str] = (),
    forks: int = 10,
    check: bool = False,
    diff: bool = False,
    observer: FleetObserver | None = None,
) -> FleetRun:
    """Run the packaged playbook ``name`` (``site``, ``readiness``) and return its outcome.

    ``inventory`` is a file, a folder, or hosts with commas (``a,b,``), as Ansible takes it;
    ``variables`` override those of the inventory, and text in them is never a template. ``limit``
    are patterns of hosts, all if empty. A host that fails or is down stops only itself, and the
    result says so. Raises ``NobodyMeant`` if there is no host to run on, ``HostprepError`` if
    Ansible itself does not work, FileNotFoundError if the current directory was removed.
    """
    _need_ansible()
    os.getcwd()  # Ansible does not start in a removed directory
    began = time.monotonic()
    tally = Tally()
    words: list[str] = []
    with tempfile.TemporaryDirectory(prefix="hostprep-fleet.", dir=_place()) as folder:
        passed = Path(folder) / "variables.json"
        passed.write_text(json.dumps(_as_data(variables)), encoding="utf-8")
        command = [sys.executable, "-P", *_ansible_playbook()]
        command += ["--inventory", checked_inventory(inventory), "--forks", str(forks)]
        command += ["--extra-vars", f"@{passed}"]
        if limit:
            command += ["--limit", ",".join(limit)]
        command += ["--check"] if check else []
        command += ["--diff"] if diff else []
        command.append(str(data_path("playbooks", f"{name}.yml")))
        with start(command, wanted_for="reach the hosts", env=environment(Path(folder))) as running:
            for line in _lines(running):
                if line is None:
                    if observer is not None:
                        observer.waiting()
                    continue
                event = parse_event(line)
                if event is None:
                    words.append(line)
                    continue
                tally.take(event)
                if observer is not None:
                    observer.event(event)
            completed = running.wait(timeout_seconds=60)
    outcomes = tally.outcomes(last_error(completed.stderr))
    if not outcomes:
        said = completed.stderr.strip() or "\n".join(words).strip()
        raise _no_host(inventory, completed.returncode, said, limit)
    warnings = told(warnings_in(completed.stderr))
    return FleetRun(outcomes, time.monotonic() - began, warnings)


def _ansible_playbook() -> list[str]:
    """Return the arguments with which our Python runs Ansible.

    It is told that it is the script beside our Python, where it looks for the program by which ssh
    gets passwords since ansible-core 2.19; without that no host is reached that does not accept a
    key of ours. The script itself is not run: it may be a wrapper, and not of Python.
    """
    script = Path(sys.executable).with_name("ansible-playbook")
    return ["-c", _AS_SCRIPT, str(script)]


def _place() -> str | None:
    """Return where to make a run's folder, None for the default unless its path is too long."""
    deep = len(os.fsencode(tempfile.gettempdir())) > _LONGEST_PLACE
    return "/tmp" if deep and os.access("/tmp", os.W_OK) else None


def _no_host(inventory: str, status: int, said: str, limit: Sequence[str]) -> HostprepError:
    """Return why Ansible, which ended with ``status`` and ``said`` this, ran on no host."""
    if (mistake := unread(said)) is not None:
        return mistake
    errors = errors_in(said)
    if errors and (passwords := _PASSWORDS.search(errors[-1])) is not None:
        kinds = ("VAULT",) if passwords[1] else ("BECOME", "CONNECTION")
        variables = " or ".join(f"ANSIBLE_{kind}_PASSWORD_FILE" for kind in kinds)
        return UsageError(
            f"{without_tags(said)[-2000:].rstrip('.:')}; no host was reached.",
            f"fix it, or name another file: {variables}",
        )
    if status == 0 or _NOBODY.search(said):
        why = said if errors else "it names none"
        if unmet := nobody_called(warnings_in(said)):
            why = f"it has no host or group called {', '.join(unmet)}"
        hint = "look at --limit and at the inventory" if limit else "look at the inventory"
        if unmet and any(map(_COUNTING.search, limit)):
            hint += "; `[1:3]` there picks hosts of a group, and `~^node[1-3]$` a range of names"
        return NobodyMeant(f"no host of {inventory.rstrip(',')} is meant: {why[-2000:]}", hint)
    if errors and "Traceback (most recent call last)" in said:  # the error sums it up
        said = errors[-1]
    return HostprepError(
        f"ansible-playbook ended with status {status}: {said[-2000:]}",
        "nothing was changed on any host",
    )


def checked_inventory(inventory: str) -> str:
    """Return the inventory as Ansible takes it: an absolute path, or hosts with commas.

    Raises ``UsageError`` for a path that does not exist, about which Ansible would only warn, and
    for things that are not an inventory.
    """
    refuse_what_is_none(inventory)
    if "," in inventory:
        return inventory
    if not os.path.exists(inventory):
        raise UsageError(
            f"the inventory {inventory} does not exist.",
            "name a file of hosts, or the hosts themselves with a comma: -i host1,",
        )
    return os.path.abspath(inventory)


def _as_data(value: Any) -> Any:
    """Return a variable's value with all texts marked, or Ansible would treat them as templates.

    A path may contain ``{{``, and the author of a spec must not choose what the controller runs.
    """
    if isinstance(value, str):
        return {"__ansible_unsafe": value}
    if isinstance(value, Mapping):
        return {key: _as_data(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_as_data(each) for each in value]
    return value


def _need_ansible() -> None:
    if importlib.util.find_spec("ansible") is None:
        raise MissingTool(
            "ansible-core",
            wanted_for="reach the hosts",
            hint=f"install it beside hostprep: {pip_line('ansible-core')}",
        )


def _lines(running: Running) -> Iterator[str | None]:
    """Yield whole lines as they come, and None while there is none."""
    rest = b""
    for chunk in running.chunks(timeout_seconds=_MOST_SECONDS):
        if not chunk:
            yield None
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace")
    if rest:
        yield rest.decode("utf-8", "replace")
