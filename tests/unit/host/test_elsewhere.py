"""From which namespaces one sees what was mounted in which: by made-up ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hostprep.errors import HostprepError
from hostprep.host.elsewhere import (
    may_be_out_of_sight,
    mounted_places,
    mounts_elsewhere,
    namespaces,
    stays_here,
)
from hostprep.host.mounts import parse_mountinfo

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


def test_without_proc_nothing_is_said_of_other_namespaces(tmp_path: Path) -> None:
    with pytest.raises(HostprepError, match=r"^/proc cannot be listed: No such file"):
        list(mounts_elsewhere(tmp_path))


_ROOT = "22 1 8:1 / / rw {}- ext4 /dev/sda1 rw\n"


@pytest.mark.parametrize(
    ("ours", "theirs", "same", "alone"),
    [
        ("shared:1 ", "shared:1 ", True, False),
        ("", "", True, False),
        ("", "shared:1 ", False, True),  # unshare -m
        ("shared:7 master:1 ", "shared:1 ", False, True),  # a service with PrivateTmp=
        ("shared:1 ", "shared:1 ", False, False),  # unshare -m --propagation shared
        ("shared:1 ", "master:1 ", False, False),
        ("", None, False, False),  # an ordinary user is not told
    ],
)
def test_what_is_mounted_in_a_namespace_of_its_own_ends_with_it(
    ours: str, theirs: str | None, same: bool, alone: bool, tmp_path: Path
) -> None:
    for process, fields, namespace in (("self", ours, 1), ("1", theirs, 1 if same else 2)):
        folder = tmp_path / "proc" / process
        (folder / "ns").mkdir(parents=True)
        if fields is not None:
            os.symlink(f"mnt:[{namespace}]", folder / "ns/mnt")
            (folder / "mountinfo").write_text(_ROOT.format(fields))
    assert stays_here("/mnt/ram", tmp_path) is alone


def test_of_each_other_namespace_what_one_process_sees_that_sees_all(tmp_path: Path) -> None:
    """A chroot hides what lies outside of it; where all are in one, its view is all there is."""
    for pid, namespace, root, targets in (
        ("self", 1, "/", ("/",)),
        ("5", 1, "/", ("/",)),
        ("6", 2, "/srv/jail", ("/",)),
        ("7", 2, "/", ("/", "/mnt/ram")),
        ("8", 3, "/srv/jail", ("/tmp",)),
    ):
        folder = tmp_path / "proc" / pid
        (folder / "ns").mkdir(parents=True)
        os.symlink(f"mnt:[{namespace}]", folder / "ns/mnt")
        os.symlink(root, folder / "root")
        lines = (f"22 1 8:1 / {target} rw - ext4 /dev/sda1 rw\n" for target in targets)
        (folder / "mountinfo").write_text("".join(lines))
    found = [(pid, mount.target) for pid, mount in mounts_elsewhere(tmp_path)]
    assert found == [(7, "/"), (7, "/mnt/ram"), (8, "/tmp")]


def test_what_was_given_the_number_of_a_volume_is_not_taken_for_it(tmp_path: Path) -> None:
    line = "40 22 0:73 / {} rw - tmpfs {} rw,size={}k\n"
    (ours,) = parse_mountinfo(line.format("/mnt/ram", "hostprep", 64).encode())
    for pid, target, source, size in (
        ("self", "/mnt/bound", "hostprep", 64),
        ("5", "/mnt/ram", "hostprep", 64),
        ("6", "/run/user/0", "tmpfs", 64),
        ("7", "/mnt/theirs", "hostprep", 32),
    ):
        folder = tmp_path / "proc" / pid
        (folder / "ns").mkdir(parents=True)
        os.symlink(f"mnt:[{pid}]", folder / "ns/mnt")
        os.symlink("/", folder / "root")
        (folder / "comm").write_text("train\n")
        (folder / "mountinfo").write_text(line.format(target, source, size))
    found = mounted_places(ours, tmp_path)
    assert found == ("/mnt/bound", "/mnt/ram as process 5 (train) sees it")
