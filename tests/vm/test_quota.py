"""Quotas of users: what they leave of a file system is known before anything is written to it."""

from __future__ import annotations

import shlex

import pytest

from tests.vm.kit.machine import Machine

_BUILD = """
set -e
truncate -s 64M /srv/ext4.img
truncate -s 400M /srv/xfs.img
mkfs.ext4 -q -O quota -E quotatype=usrquota /srv/ext4.img
mkfs.xfs -q /srv/xfs.img
mkdir -p /srv/ext4 /srv/xfs /srv/home
mount -o loop,usrquota /srv/ext4.img /srv/ext4
mount -o loop,uquota /srv/xfs.img /srv/xfs
chown 4321:4321 /srv/home /srv/ext4 /srv/xfs
mkdir /srv/set
head -c 8M /dev/urandom | split -a 3 -b 100K - /srv/set/
"""
# quotactl_fd(2) with Q_SETQUOTA: hard limits of KiB and of inodes, of user 4321.
_LIMIT = """
import ctypes, os, struct, sys
told = struct.pack("=8QI4x", int(sys.argv[2]), 0, 0, int(sys.argv[3]), 0, 0, 0, 0, 5)
number = os.open(sys.argv[1], os.O_RDONLY)
sys.exit(-ctypes.CDLL(None).syscall(443, number, 0x800008 << 8, 4321, told))
"""
_USER = (
    "setpriv --reuid=4321 --regid=4321 --clear-groups -- env HOME=/srv/home"
    " HOSTPREP_STATE_DIR=/srv/home/state HOSTPREP_RUN_DIR=/srv/home/run"
)


@pytest.fixture(scope="module", autouse=True)
def built(vm: Machine) -> None:
    vm.start()
    vm.ssh(_BUILD)


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_what_the_quota_has_no_room_for_is_refused_before_it_begins(vm: Machine, kind: str) -> None:
    def limit(kibibytes: int, inodes: int) -> None:
        vm.ssh(f"python3 -c {shlex.quote(_LIMIT)} /srv/{kind} {kibibytes} {inodes}")

    words = f"stage /srv/set --to /srv/{kind}"
    for limits, told in (((4096, 0), "does not fit"), ((0, 50), "too few inodes")):
        limit(*limits)
        refused = vm.hostprep(words, expect=5, within=_USER)["error"]["message"]
        assert told in refused and "this user's share, by quota" in refused
        assert vm.ssh(f"find /srv/{kind} -user 4321 -mindepth 1").stdout == ""
    limit(4096, 50)
    vm.hostprep(f"{words} --name roots")  # whom no quota holds
    limit(16 << 10, 500)
    assert vm.hostprep(words, within=_USER)["files"] == 82


@pytest.mark.parametrize(("kind", "option"), [("ext4", "defaults"), ("xfs", "uqnoenforce")])
def test_one_that_is_counted_and_does_not_hold_is_in_nobodys_way(
    vm: Machine, kind: str, option: str
) -> None:
    vm.ssh(f"umount /srv/{kind} && mount -o loop,{option} /srv/{kind}.img /srv/{kind}")
    vm.ssh(f"python3 -c {shlex.quote(_LIMIT)} /srv/{kind} 4096 50")
    words = f"stage /srv/set --to /srv/{kind} --name more"
    assert vm.hostprep(words, within=_USER)["files"] == 82
