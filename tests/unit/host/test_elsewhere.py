"""From which namespaces one sees what was mounted in which: by made-up ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hostprep.host.elsewhere import may_be_out_of_sight, namespaces

_MACHINE = "mnt:[4026531832] pid:[4026531836]"


@pytest.mark.parametrize(
    ("there", "here", "may_be"),
    [
        (_MACHINE, _MACHINE, False),
        ("mnt:[7] pid:[8]", _MACHINE, False),  # all processes are seen
        (_MACHINE, "mnt:[7] pid:[4026531836]", False),
        (_MACHINE, "mnt:[7] pid:[8]", True),
        ("mnt:[5] pid:[6]", "mnt:[7] pid:[8]", True),
        ("mnt:[7] pid:[6]", "mnt:[7] pid:[8]", False),  # it would be mounted here
        ("mnt:[5] pid:[8]", "mnt:[7] pid:[8]", False),
        (_MACHINE, " ", False),  # nothing can be told
    ],
)
def test_who_sees_no_other_processes_may_not_see_a_mount(
    there: str, here: str, may_be: bool, tmp_path: Path
) -> None:
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    for kind, link in zip(("mnt", "pid"), here.split(" "), strict=True):
        if link:
            os.symlink(link, tmp_path / "proc/self/ns" / kind)
    assert namespaces(tmp_path) == here
    assert may_be_out_of_sight(there, tmp_path) is may_be
