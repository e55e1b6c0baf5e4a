"""The page's own playbook with the page's own ``ansible.cfg``: Ansible finds all that it names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

PLAYBOOKS = Path(__file__).parents[3] / "playbooks"


def shown(language: str) -> str:
    """Return the last block of the page that is written in a language."""
    page = (PLAYBOOKS / "README.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.M | re.S)[-1]


def ansible_playbook(
    folder: Path, *words: str, python: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it as users do, in ``folder``; it takes ``python`` for the one that runs it."""
    line: list[str | Path] = [Path(sys.executable).with_name("ansible-playbook")]
    if python is not None:
        told = (
            f"import sys; sys.executable = {str(python)!r}; from ansible.cli.playbook import main"
        )
        line = [sys.executable, "-c", f"{told}; main()"]
    home = {"ANSIBLE_CONFIG": "ansible.cfg", "ANSIBLE_HOME": str(folder / "home")}
    return subprocess.run(
        [*line, *words], cwd=folder, env={**os.environ, **home}, capture_output=True, text=True
    )


def test_the_page_has_what_a_playbook_of_ones_own_needs(tmp_path: Path) -> None:
    settings = shown("ini").replace("PLAYBOOKS", str(PLAYBOOKS))
    (tmp_path / "ansible.cfg").write_text(settings)
    (tmp_path / "mine.yml").write_text(shown("yaml"))
    run = ansible_playbook(tmp_path, "--syntax-check", "mine.yml")
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "playbook: mine.yml"  # for people: the callback prints JSON
    ours, own = ConfigParser(), ConfigParser()
    ours.read(PLAYBOOKS / "ansible.cfg")
    own.read_string(settings)
    name = "inject_facts_as_vars"
    assert own["defaults"][name] == ours["defaults"][name] == "false"


INSTALLING = """\
- hosts: all
  gather_facts: false
  vars: {ansible_connection: local, __hostprep_install_has: {fits: false, build: ~}}
  tasks:
    - ansible.builtin.include_role: {name: hostprep_install, tasks_from: install}
"""


@pytest.mark.parametrize("says", ["$0: No module named hostprep", "Unknown option: -P"])
def test_an_ansible_without_hostprep_is_named_with_the_way_out(tmp_path: Path, says: str) -> None:
    """Also by a Python that is too old for it."""
    (tmp_path / "ansible.cfg").write_text(shown("ini").replace("PLAYBOOKS", str(PLAYBOOKS)))
    (tmp_path / "mine.yml").write_text(INSTALLING)
    apart = tmp_path / "python3"
    apart.write_text(
        f"""#!/bin/sh
        case "$*" in *'-m hostprep'*) echo "{says}" >&2; exit 1;; esac
        exec '{sys.executable}' "$@"
        """
    )
    apart.chmod(0o755)
    run = ansible_playbook(tmp_path, "-i", "a,", "mine.yml", python=apart)
    assert f"{apart}, the Python of this Ansible, has no hostprep" in run.stdout + run.stderr
    assert "ok=2" in run.stdout and "failed=1" in run.stdout
