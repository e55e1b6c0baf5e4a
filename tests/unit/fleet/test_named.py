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
    hostprep_install_link: "{{ folder }}/{{ inventory_hostname }}/hostprep"
    hostprep_install_dir: "{{ folder }}/{{ inventory_hostname }}/opt/hostprep"
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


CASES: dict[str, tuple[Callable[[Path, Path], None], str | None]] = {
    "nothing": (nothing, None),
    "ours": (ours, None),
    "former": (former, None),
    "a_file": (a_file, "is not a link"),
    "a_link": (a_link, "leads to {}/their tool"),
    "another_venv": (another_venv, "leads to {}/opt/theirs/bin/hostprep"),
    "beside_a_marker": (beside_a_marker, "leads to {}/opt/former/bin/another"),
    "on_a_share_that_is_away": (on_a_share_that_is_away, "leads to /nowhere/bin/hostprep"),
}


def there(link: Path) -> str | None:
    if not os.path.lexists(link):
        return None
    return os.readlink(link) if link.is_symlink() else link.read_text()


@pytest.mark.parametrize("check", [False, True])
def test_only_a_link_of_hostpreps_own_may_be_replaced(
    playbooks: Path, tmp_path: Path, check: bool
) -> None:
    """Each case is a host of one run, with a folder of its own."""
    (playbooks / "named.yml").write_text(NAMED)
    before = {}
    for name, (make, _) in CASES.items():
        folder = tmp_path / name
        folder.mkdir()
        make(folder / "hostprep", folder / "opt")
        before[name] = there(folder / "hostprep")
    hosts = run_playbook("named", ",".join(CASES), {"folder": str(tmp_path)}, check=check).hosts
    assert {host.host for host in hosts} == set(CASES)
    for host in hosts:
        folder, said = tmp_path / host.host, CASES[host.host][1]
        link = folder / "hostprep"
        assert (host.host, host.failed, host.changed) == (host.host, said is not None, False)
        if said is not None:
            assert host.message == (
                f"{link} is there and {said.format(folder)}, so `hostprep provision` did not make"
                " it; nothing was changed. -> move it away, or give another name:"
                " hostprep_install_link"
            )
        assert there(link) == before[host.host]
