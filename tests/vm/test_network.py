"""Sources, targets and homes on NFS: a real server, which is stopped and started again."""

from __future__ import annotations

import pytest

from tests.vm.kit.machine import Machine

# A mount of each version; on `closed`, root is nobody. The server is this machine itself: without
# its loopback device it is gone, for the mounts as for new ones.
_BUILD = """
set -e
mkdir -p /srv/open/set/many /srv/open/set/inner /srv/closed/home /mnt/v3 /mnt/v4 /mnt/closed
cd /srv/open/set
head -c 6M /dev/urandom | split -a 3 -b 60K - many/f
head -c 24M /dev/urandom >large
truncate -s 4M sparse; echo end >>sparse
echo one >inner/one; ln inner/one linked; ln -s inner/one led
chmod 600 large; chmod 750 inner; chown 4321:4322 inner
touch -d '2001-02-03 04:05:06.123456789' inner/one
cp -a /srv/open/set /srv/closed/set
chown 4321:4321 /srv/closed/home
cat >/etc/exports <<'END'
/srv/open *(rw,no_root_squash,no_subtree_check,fsid=1)
/srv/closed *(rw,root_squash,no_subtree_check,fsid=2)
END
systemctl restart nfs-server
mount -t nfs -o vers=3,hard 127.0.0.1:/srv/open /mnt/v3
mount -t nfs -o vers=4.2,hard 127.0.0.1:/srv/open /mnt/v4
mount -t nfs -o vers=4.2,hard 127.0.0.1:/srv/closed /mnt/closed
"""
_LIST = (
    "find {} -type d -printf '%P %m %U %G %T@\\n' -o -printf '%P %m %U %G %T@ %s %n %l\\n' | sort"
)
_USER = "setpriv --reuid=4321 --regid=4321 --clear-groups -- env HOME=/mnt/closed/home"


@pytest.fixture(scope="module", autouse=True)
def served(vm: Machine) -> None:
    vm.start()
    vm.ssh(_BUILD)


def _same(vm: Machine, source: str, copy: str) -> None:
    vm.ssh(f"diff -r --no-dereference {source} {copy}")
    assert vm.ssh(_LIST.format(source)).stdout == vm.ssh(_LIST.format(copy)).stdout


@pytest.mark.parametrize("version", ["v3", "v4"])
def test_what_a_server_has_is_staged_as_it_is_and_as_it_becomes(vm: Machine, version: str) -> None:
    words = f"stage /mnt/{version}/set --to /srv/copies --name {version}"
    copy = f"/srv/copies/{version}"
    first = vm.hostprep(words)
    _same(vm, "/srv/open/set", copy)
    assert not vm.hostprep(words)["changed"]
    vm.ssh("cd /srv/open/set; rm many/faaa; echo two >inner/two; echo new >.new; mv .new many/faab")
    changed = vm.hostprep(words)
    assert (changed["copied_files"], changed["deleted_files"]) == (2, 1)
    _same(vm, "/srv/open/set", copy)
    assert changed["digest"] != first["digest"]
    assert not vm.hostprep(f"{words} --full-check")["changed"]
    vm.ssh("cd /srv/open/set; rm inner/two; head -c 60K /dev/urandom >many/faaa")


def test_what_is_staged_onto_a_server_is_whole_there_and_goes_again(vm: Machine) -> None:
    words = "stage /srv/open/set --to /mnt/v4/copies"
    vm.hostprep(words)
    _same(vm, "/srv/open/set", "/srv/open/copies/set")
    assert not vm.hostprep(words)["changed"]
    vm.hostprep("unstage set")
    assert vm.ssh("ls -A /srv/open/copies").stdout == ""


def test_who_keeps_root_out_is_told_and_a_user_stages_what_is_theirs(vm: Machine) -> None:
    """With the home on the server too, as on a cluster: records and locks are there."""
    refused = vm.hostprep("stage /mnt/closed/set --to /srv/copies --name all", expect=1)
    assert {each["path"] for each in refused["skipped"] if each["failed"]} == {"large", "inner"}
    assert "root_squash" in refused["error"]["hint"]
    vm.hostprep("unstage all")
    vm.ssh("mkdir -p /srv/scratch; chown 4321:4321 /srv/scratch /srv/closed/set/large")
    words = "stage /mnt/closed/set --to /srv/scratch"
    assert vm.hostprep(words, within=_USER)["skipped"] == []
    assert not vm.hostprep(words, within=_USER)["changed"]
    vm.ssh("diff -r --no-dereference /srv/closed/set /srv/scratch/set")
    vm.ssh("ls -d /srv/closed/home/.local/state/hostprep/on-vm/datasets/set-*")
    vm.hostprep("unstage set", within=_USER)


def test_a_server_that_is_gone_holds_nobody_and_the_same_command_goes_on(vm: Machine) -> None:
    vm.hostprep("stage /mnt/v4/set/inner --to /srv/copies --name inner")
    vm.ssh("echo 3 >/proc/sys/vm/drop_caches")
    run = "hostprep stage /mnt/v4/set --to /srv/copies --name later --gentle"
    vm.ssh(f"systemd-run --quiet --unit run --property RemainAfterExit=yes {run}")
    begun = "[ -e /srv/copies/.hostprep-later/tree/many ]"
    vm.ssh(f"until {begun}; do sleep 0.1; done; ip link set lo down")
    try:
        waiting = "journalctl --unit run | grep -q 'waiting for /mnt/v4/set, which has not'"
        vm.ssh(f"until {waiting}; do sleep 0.5; done")
        (inner,) = (e for e in vm.hostprep("status")["datasets"] if e["name"] == "inner")
        assert (inner["state"], inner["freshness"]) == ("staged", "unknown")
        assert "its source has not answered" in inner["reason"]
        vm.hostprep("wait inner")
        assert vm.hostprep("probe /mnt/v4/set", expect=4)["error"]["code"] == "no_answer"
        vm.ssh("systemctl kill --signal INT run")
        code = "systemctl show --value --property ExecMainStatus run"
        vm.ssh(f"until [ $({code}) = 130 ]; do sleep 0.5; done")
    finally:
        vm.ssh("ip link set lo up")
    vm.hostprep("stage /mnt/v4/set --to /srv/copies --name later")
    _same(vm, "/srv/open/set", "/srv/copies/later")
    assert ".hostprep" not in vm.ssh("ls -A /srv/copies").stdout
