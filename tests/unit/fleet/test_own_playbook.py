"""The page's own playbook with the page's own ``ansible.cfg``: Ansible finds all that it names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

PLAYBOOKS = Path(__file__).parents[3] / "playbooks"


def shown(language: str) -> str:
    """Return the last block of the page that is written in a language."""
    page = (PLAYBOOKS / "README.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.M | re.S)[-1]


def test_the_page_has_what_a_playbook_of_ones_own_needs(tmp_path: Path) -> None:
    settings = shown("ini").replace("PLAYBOOKS", str(PLAYBOOKS))
    (tmp_path / "ansible.cfg").write_text(settings)
    (tmp_path / "mine.yml").write_text(shown("yaml"))
    run = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "--syntax-check", "mine.yml"],
        cwd=tmp_path,
        env={**os.environ, "ANSIBLE_CONFIG": "ansible.cfg", "ANSIBLE_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "playbook: mine.yml"  # for people: the callback prints JSON
    ours, own = ConfigParser(), ConfigParser()
    ours.read(PLAYBOOKS / "ansible.cfg")
    own.read_string(settings)
    name = "inject_facts_as_vars"
    assert own["defaults"][name] == ours["defaults"][name] == "false"
