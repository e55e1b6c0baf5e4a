"""What has the name of the command is replaced only where hostprep made it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hostprep.fleet import run_playbook

NAMED = """\
- hosts: all
  gather_facts: false
  vars:
    ansible_connection: local
    ansible_python_interpreter: "{{ ansible_playbook_python }}"
  tasks:
    - name: Look
      ansible.builtin.include_role: {name: hostprep_install, tasks_from: named}
"""


def nothing(link: Path, opt: Path) -> None:
    pass


def ours(link: Path, opt: Path) -> None:
    link.symlink_to(opt / "hostprep/bin/hostprep")  # broken off: there is nothing yet


def former(link: Path, opt: Path) -> None:
    (opt / "former").mkdir(parents=True)
    (opt / "former/.hostprep").touch()
    link.symlink_to(opt / "former/bin/hostprep")


def a_file(link: Path, opt: Path) -> None:
    link.write_text("#!/bin/sh\n")


def a_link(link: Path, opt: Path) -> None:
    tool = link.parent / "their tool"
    tool.write_text("#!/bin/sh\n")
    link.symlink_to(tool)


def another_venv(link: Path, opt: Path) -> None:
    (opt / "theirs/bin").mkdir(parents=True)
    (opt / "theirs/bin/hostprep").write_text("#!/bin/sh\n")
    link.symlink_to(opt / "theirs/bin/hostprep")


def beside_a_marker(link: Path, opt: Path) -> None:
    former(link, opt)
    link.unlink()
    link.symlink_to(opt / "former/bin/another")


def on_a_share_that_is_away(link: Path, opt: Path) -> None:
    link.symlink_to("/nowhere/bin/hostprep")


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (nothing, None),
        (ours, None),
        (former, None),
        (a_file, "is no link"),
        (a_link, "leads to {}/their tool"),
        (another_venv, "leads to {}/opt/theirs/bin/hostprep"),
        (beside_a_marker, "leads to {}/opt/former/bin/another"),
        (on_a_share_that_is_away, "leads to /nowhere/bin/hostprep"),
    ],
)
def test_only_a_link_of_hostpreps_own_may_be_replaced(
    playbooks: Path,
    tmp_path: Path,
    make: Callable[[Path, Path], None],
    said: str | None,
    check: bool,
) -> None:
    (playbooks / "named.yml").write_text(NAMED)
    link, opt = tmp_path / "hostprep", tmp_path / "opt"
    make(link, opt)
    before = os.path.lexists(link) and (os.readlink(link) if link.is_symlink() else "")
    variables = {"hostprep_install_link": str(link), "hostprep_install_dir": f"{opt}/hostprep"}
    (here,) = run_playbook("named", "here,", variables, check=check).hosts
    assert here.failed == (said is not None) and not here.changed
    if said is not None:
        assert here.message == (
            f"{link} is there and {said.format(tmp_path)}, so `hostprep provision` did not make it;"
            " nothing was changed. -> move it away, or give another name: hostprep_install_link"
        )
    assert before == (os.path.lexists(link) and (os.readlink(link) if link.is_symlink() else ""))
