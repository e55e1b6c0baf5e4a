"""Volumes on the real kernel: mounted, grown, refused, taken away, and what a failure leaves."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from hostprep.errors import HostprepError, Refused
from hostprep.host.elsewhere import namespaces
from hostprep.host.mounts import read_mounts
from hostprep.host.processes import users_of
from hostprep.system import mounting
from hostprep.system.mounting import TmpfsSupport, tmpfs_support
from hostprep.units import MIB
from hostprep.volumes.apply import apply_volume
from hostprep.volumes.facts import gather
from hostprep.volumes.fstab import entries, volume_id_for
from hostprep.volumes.live import read_live
from hostprep.volumes.model import Huge, LiveVolume, VolumeRequest
from hostprep.volumes.options import compare_options
from hostprep.volumes.paths import make_dirs
from hostprep.volumes.plan import VolumePlan, plan_volume
from hostprep.volumes.records import read_record, write_record
from hostprep.volumes.removal import (
    UnmountPlan,
    UnmountRequest,
    apply_unmount,
    gather_and_plan_unmount,
)
from hostprep.volumes.settings import making_writable
from tests.kit.compare import differences
from tests.kit.stagecraft import hostprep, is_mounted, make_source


def request(path: Path, size_mib: int = 64, **fields: object) -> VolumeRequest:
    return replace(VolumeRequest(str(path), size_mib * MIB, reserve_bytes=0), **fields)


def planned(wanted: VolumeRequest) -> VolumePlan:
    return plan_volume(wanted, gather(wanted.path))


def mounted(wanted: VolumeRequest) -> LiveVolume:
    live = apply_volume(planned(wanted)).live
    again = planned(wanted)
    assert again.refusal is None and again.changes == (), "a second run must find nothing to do"
    return live


def unmounted(path: Path, **request: bool) -> UnmountPlan:
    return apply_unmount(gather_and_plan_unmount(UnmountRequest(str(path), **request)))


def kernel_says(path: Path) -> dict[str, str]:
    """Return findmnt's view, which shares no code with hostprep."""
    done = subprocess.run(
        ["findmnt", "--json", "--bytes", "-o", "FSTYPE,SIZE,USED,OPTIONS", "-M", str(path)],
        capture_output=True,
        check=True,
    )
    found: dict[str, str] = json.loads(done.stdout)["filesystems"][0]
    return found


def test_a_new_volume_is_what_was_asked_for(safe_dir: Path) -> None:
    point = safe_dir / "deep/er/my volume"
    live = mounted(request(point, inodes=5000, mode=0o1770, uid=12, gid=34, huge=Huge.ADVISE))
    seen = kernel_says(point)
    assert seen["fstype"] == "tmpfs"
    assert int(seen["size"]) == live.size_bytes == 64 * MIB
    options = seen["options"].split(",")
    assert {"nosuid", "nodev", "noexec", "nr_inodes=5000", "huge=advise"} <= {*options}
    status = point.stat()
    assert (status.st_mode & 0o7777, status.st_uid, status.st_gid) == (0o1770, 12, 34)
    for folder in (safe_dir / "deep", safe_dir / "deep/er"):
        assert (folder.stat().st_mode & 0o7777, folder.stat().st_uid) == (0o755, 0)
    record = read_record(str(point))
    assert record is not None
    assert record.made_dirs == (f"{safe_dir}/deep", f"{safe_dir}/deep/er", str(point))


def test_the_umask_does_not_reach_the_directories(safe_dir: Path) -> None:
    before = os.umask(0o077)
    try:
        mounted(request(safe_dir / "a/b"))
    finally:
        os.umask(before)
    assert (safe_dir / "a").stat().st_mode & 0o7777 == 0o755
    assert (safe_dir / "a/b").stat().st_mode & 0o7777 == 0o755


def test_growing_keeps_what_is_in_it_and_who_uses_it(safe_dir: Path) -> None:
    point = safe_dir / "v"
    mounted(request(point))
    content = os.urandom(MIB)
    with (point / "file").open("w+b") as file:
        file.write(content)
        file.flush()
        live = mounted(request(point, 128, inodes=200_000))
        file.seek(0)
        assert file.read() == content
    assert live.size_bytes == int(kernel_says(point)["size"]) == 128 * MIB
    assert live.inodes == os.statvfs(point).f_files == 200_000
    assert (point / "file").read_bytes() == content


def test_shrinking_goes_as_far_as_the_kernel_would_and_no_further(safe_dir: Path) -> None:
    point = safe_dir / "v"
    mounted(request(point, huge=Huge.NEVER))
    (point / "file").write_bytes(bytes(10 * MIB))
    held = int(kernel_says(point)["used"])
    too_small = replace(request(point), size_bytes=held - 4096)
    plan = planned(too_small)
    assert plan.refusal is not None and "cannot shrink" in plan.refusal.message
    with pytest.raises(Refused):
        apply_volume(plan)
    assert int(kernel_says(point)["size"]) == 64 * MIB
    assert mounted(replace(request(point), size_bytes=held)).size_bytes == held


def test_mode_and_owner_change_though_a_remount_ignores_them(safe_dir: Path) -> None:
    point = safe_dir / "v"
    mounted(request(point))
    live = mounted(request(point, mode=0o2750, uid=7, gid=8))
    assert (live.mode, live.uid, live.gid) == (0o2750, 7, 8)
    # What is not asked for is left, also by a remount.
    live = mounted(request(point, 80))
    assert (live.mode, live.uid, live.gid) == (0o2750, 7, 8)


def test_what_somebody_took_off_by_a_remount_is_put_back(safe_dir: Path) -> None:
    point = safe_dir / "v"
    mounted(request(point))
    subprocess.run(["mount", "-o", "remount,exec,suid,noatime", str(point)], check=True)
    assert "noexec" not in kernel_says(point)["options"].split(",")
    live = mounted(request(point))
    assert live.noexec and live.nosuid and "noatime" in live.options


def test_the_kernel_is_asked_and_nothing_of_it_is_seen() -> None:
    before = read_mounts()
    support = tmpfs_support()
    assert read_mounts() == before
    assert support.huge is Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled").exists()
    assert support.noswap is not None


def test_options_that_no_tmpfs_has_are_not_taken() -> None:
    assert mounting._takes(b"size", b"4k")
    assert not mounting._takes(b"huge", b"enormous")
    assert not mounting._takes(b"nonsense")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (errno.ENOSYS, TmpfsSupport(False, Path(mounting._SHMEM_HUGE).exists())),
        (errno.EPERM, TmpfsSupport(None, None)),
    ],
)
def test_a_kernel_that_cannot_be_asked(
    code: int, expected: TmpfsSupport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(option: bytes, value: bytes | None = None) -> bool:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(mounting, "_takes", refused)
    assert tmpfs_support() == expected


def test_defaults_follow_what_the_kernel_takes(safe_dir: Path) -> None:
    live = mounted(request(safe_dir / "v"))
    assert live.noswap is tmpfs_support().noswap
    assert live.huge is (Huge.WITHIN_SIZE if tmpfs_support().huge else Huge.NEVER)
    assert not mounted(request(safe_dir / "w", swap=True)).noswap


def test_to_make_one_writable_changes_nothing_else(
    safe_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor gives it what its line in fstab has of its own."""
    path = safe_dir / "v"
    before = mounted(request(path))
    line = making_writable(str(path), before.options)
    (tmp_path / "fstab").write_text(f"hostprep {path} tmpfs size=1m,nr_inodes=99,nofail 0 0\n")
    monkeypatch.setenv("LIBMOUNT_FSTAB", str(tmp_path / "fstab"))
    subprocess.run(line.replace(",rw,", ",ro,"), shell=True, check=True)
    assert "ro" in kernel_says(path)["options"].split(",")
    subprocess.run(line, shell=True, check=True)
    assert read_live(str(path), read_mounts()) == before


@pytest.mark.parametrize("kind", ["tmpfs", "ramfs"])
def test_what_others_mounted_is_left_alone(safe_dir: Path, kind: str) -> None:
    point = safe_dir / "theirs"
    point.mkdir()
    subprocess.run(["mount", "-t", kind, "theirs", str(point)], check=True)
    before = read_mounts()
    plan = planned(request(point))
    assert plan.refusal is not None and plan.refusal.exit_code == 5
    with pytest.raises(Refused, match="not mounted by hostprep"):
        unmounted(point, discard_data=True)
    assert read_mounts() == before


@pytest.mark.parametrize("number", ["another device number", "the same device number"])
def test_a_tmpfs_that_took_our_volume_s_place_is_not_ours(safe_dir: Path, number: str) -> None:
    point = safe_dir / "v"
    mounted(request(point))
    subprocess.run(["umount", str(point)], check=True)
    if number.startswith("another"):
        # The kernel gives the lowest free number to the next one: this takes it.
        (safe_dir / "other").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "x", str(safe_dir / "other")], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "theirs", str(point)], check=True)
    with pytest.raises(Refused, match="not mounted by hostprep"):
        unmounted(point, discard_data=True)
    assert is_mounted(point)


def test_a_place_that_is_not_safe_is_refused_before_anything_is_made(safe_dir: Path) -> None:
    (safe_dir / "full").mkdir()
    (safe_dir / "full/file").touch()
    (safe_dir / "link").symlink_to("full")
    (safe_dir / "shared").mkdir()
    (safe_dir / "shared").chmod(0o1777)
    (safe_dir / "alice").mkdir()
    os.chown(safe_dir / "alice", 1000, 1000)
    before = read_mounts()
    for name in ("full", "link", "link/v", "full/file", "shared/v", "alice/v"):
        plan = planned(request(safe_dir / name))
        assert plan.refusal is not None, name
        with pytest.raises(Refused):
            apply_volume(plan)
    assert read_mounts() == before
    assert not list((safe_dir / "shared").iterdir()) and not list((safe_dir / "alice").iterdir())


def test_a_folder_that_an_acl_opens_is_refused(safe_dir: Path) -> None:
    """With an ACL it looks like root:root 0775, and nobody could write it by that."""
    shared = safe_dir / "shared"
    shared.mkdir()
    entries_of = ((1, 7, -1), (2, 7, 65534), (4, 5, -1), (0x10, 7, -1), (0x20, 5, -1))
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *each) for each in entries_of)
    try:
        os.setxattr(shared, "system.posix_acl_access", acl)
    except OSError as error:
        pytest.skip(f"no ACLs here: {error.strerror}")
    assert (shared.stat().st_mode & 0o7777, shared.stat().st_gid) == (0o775, 0)
    plan = planned(request(shared / "v"))
    assert plan.refusal is not None and "has an ACL" in plan.refusal.message
    with pytest.raises(Refused, match="has an ACL"):
        make_dirs((str(shared / "v"),))
    os.removexattr(shared, "system.posix_acl_access")
    shared.chmod(0o775)
    assert planned(request(shared / "v")).refusal is None


def test_a_mount_that_fails_leaves_nothing(
    safe_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(request(safe_dir / "a/v"))
    fake_mount(tmp_path, monkeypatch, "echo 'no luck' >&2; exit 32")
    with pytest.raises(HostprepError, match="no luck"):
        apply_volume(plan)
    assert list(safe_dir.iterdir()) == []
    assert read_record(str(safe_dir / "a/v")) is None


def test_a_mount_that_came_out_otherwise_is_taken_back(
    safe_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(request(safe_dir / "a/v"))
    body = 'exec /bin/mount "${@/size=67108864/size=1m}"'
    fake_mount(tmp_path, monkeypatch, body)
    with pytest.raises(HostprepError, match=r"size 1\.00 MiB .* instead of 64\.0 MiB"):
        apply_volume(plan)
    assert not is_mounted(safe_dir / "a/v")
    assert list(safe_dir.iterdir()) == []


def test_a_remount_that_did_nothing_is_an_error(
    safe_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = safe_dir / "v"
    mounted(request(point))
    plan = planned(request(point, 128))
    fake_mount(tmp_path, monkeypatch, "exit 0")
    with pytest.raises(HostprepError, match="instead of 128 MiB"):
        apply_volume(plan)
    assert is_mounted(point)


def fake_mount(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    script = folder / "mount"
    script.write_text(f"#!/bin/bash\n{body}\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


KILLED_BEFORE_THE_RECORD = """
import os, signal, sys
import hostprep.volumes.apply as module
from hostprep.volumes.facts import gather
from hostprep.volumes.model import VolumeRequest
from hostprep.volumes.plan import plan_volume
remember = module._remember
def dying(plan, facts, device, done):
    if device is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    remember(plan, facts, device, done)
module._remember = dying
wanted = VolumeRequest(sys.argv[1], 64 << 20, reserve_bytes=0)
module.apply_volume(plan_volume(wanted, gather(wanted.path)))
"""


def test_killed_right_after_the_mount_it_is_still_known_as_ours(safe_dir: Path) -> None:
    point = safe_dir / "a/v"
    done = subprocess.run([sys.executable, "-c", KILLED_BEFORE_THE_RECORD, str(point)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert is_mounted(point)
    live = mounted(request(point))
    assert live.size_bytes == 64 * MIB
    record = read_record(str(point))
    assert record is not None and record.device is not None
    unmounted(point)
    assert list(safe_dir.iterdir()) == []


def test_overtaken_plans_are_not_carried_out(safe_dir: Path) -> None:
    point = safe_dir / "v"
    plan = planned(request(point))
    mounted(request(point, 32))
    with pytest.raises(HostprepError, match="changed while"):
        apply_volume(plan)
    assert int(kernel_says(point)["size"]) == 32 * MIB


def test_what_is_refused_by_the_time_of_the_lock_is_not_done(safe_dir: Path) -> None:
    point = safe_dir / "v"
    plan = planned(request(point))
    point.mkdir()
    (point / "theirs").touch()
    with pytest.raises(Refused, match="not empty"):
        apply_volume(plan)
    assert os.listdir(point) == ["theirs"] and read_record(str(point)) is None
    (point / "theirs").unlink()
    mounted(request(point))
    going = gather_and_plan_unmount(UnmountRequest(str(point)))
    (point / "theirs").touch()
    with pytest.raises(Refused, match="still holds"):
        apply_unmount(going)
    assert os.listdir(point) == ["theirs"] and read_record(str(point)) is not None


def test_what_another_run_has_done_meanwhile_is_not_done_again(safe_dir: Path) -> None:
    point = safe_dir / "v"
    plan = planned(request(point))
    mounted(request(point))
    device = os.stat(point).st_dev
    applied = apply_volume(plan)
    assert (applied.live.size_bytes, applied.plan.changes) == (64 * MIB, ())
    assert os.stat(point).st_dev == device


def test_two_volumes_are_not_promised_the_same_memory(safe_dir: Path) -> None:
    available = gather(str(safe_dir / "a")).headroom.available_bytes
    most = available * 2 // 3 // MIB
    mounted(request(safe_dir / "a", most, inodes=1000))
    plan = planned(request(safe_dir / "b", most, inodes=1000))
    assert plan.refusal is not None and "promised to other volumes" in plan.refusal.message
    unmounted(safe_dir / "a")
    assert planned(request(safe_dir / "b", most, inodes=1000)).refusal is None


def test_unmount_takes_away_what_was_made_and_nothing_else(safe_dir: Path) -> None:
    (safe_dir / "mine").mkdir()
    point = safe_dir / "mine/a/v"
    mounted(request(point))
    mounted(request(point, 128))  # what was made the first time is still known
    (safe_dir / "mine/a/added").touch()
    done = unmounted(point)
    assert [change.action.split()[0] for change in done.changes] == ["unmount", "remove"]
    assert [(each.subject, each.reason) for each in done.unchanged] == [
        (str(point.parent), "it is not empty, or still in use")
    ]
    assert not is_mounted(point) and not point.exists()
    assert (safe_dir / "mine/a/added").exists()
    assert read_record(str(point)) is None
    assert unmounted(point).changes == ()


def test_data_is_not_lost_without_being_told_to(safe_dir: Path) -> None:
    point = safe_dir / "v"
    mounted(request(point))
    (point / "precious").write_text("x" * 10000)
    with pytest.raises(Refused, match="precious"):
        unmounted(point)
    assert (point / "precious").read_text() == "x" * 10000
    unmounted(point, discard_data=True)
    assert not point.exists()


@contextmanager
def namespace(propagation: str = "private") -> Iterator[int]:
    """Hold a mount namespace of its own open, as a job or a container has; yield its process."""
    line = ["unshare", "--mount", "--propagation", propagation, "sh", "-c", "echo; exec sleep 60"]
    with subprocess.Popen(line, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline()
            yield process.pid
        finally:
            process.kill()


def sees(pid: int, point: Path) -> bool:
    return f" {point} " in Path(f"/proc/{pid}/mountinfo").read_text()


def test_where_a_volume_is_still_mounted_is_told(safe_dir: Path) -> None:
    point, bound = safe_dir / "v", safe_dir / "bound"
    mounted(request(point))
    (point / "data").write_bytes(b"x" * 8192)
    bound.mkdir()
    subprocess.run(["mount", "--bind", point, bound], check=True)
    assert unmounted(point, discard_data=True).warnings == (
        f"the volume is still mounted elsewhere ({bound}): its memory (8.00 KiB) is free once it is"
        " unmounted there too",
    )
    subprocess.run(["umount", bound], check=True)

    mounted(request(point))
    with namespace() as pid:
        (told,) = unmounted(point, discard_data=True).warnings
        assert f"({point} as process {pid} (" in told
        # With its mount point the kernel would take it away there too.
        assert sees(pid, point) and point.exists() and not is_mounted(point)

    mounted(request(point))
    subprocess.run(["mount", "--make-rshared", "/"], check=True)
    try:
        with namespace("slave") as pid:  # as those of systemd's services: it goes there too
            assert unmounted(point).warnings == () and not sees(pid, point)
    finally:
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)


def test_a_directory_of_the_same_name_in_a_container_keeps_none_here(safe_dir: Path) -> None:
    point = safe_dir / "made" / "v"
    with namespace() as pid:
        own = ("mount -t tmpfs own $0", "mkdir -p $1", "mount -t tmpfs other $1")
        there = ["nsenter", "--mount", "--target", str(pid), "sh", "-ec", "; ".join(own)]
        subprocess.run([*there, safe_dir, point], check=True)
        mounted(request(point))
        assert unmounted(point).warnings == ()
        assert sees(pid, point) and not point.parent.exists()


# The first of two processes in a namespace sees no more of it than a folder.
_JAILED = """
import os, sys, time
if os.fork():
    os.chroot(sys.argv[1])
    print(os.getpid(), flush=True)
time.sleep(60)
"""


def test_a_mount_point_of_a_namespace_with_a_chroot_in_it_stays(safe_dir: Path) -> None:
    point, jail = safe_dir / "v", safe_dir / "jail"
    mounted(request(point))
    (point / "data").write_bytes(b"x")
    jail.mkdir()
    line = ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", _JAILED, jail]
    with subprocess.Popen(line, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline()
            assert not sees(process.pid, point)
            (told,) = unmounted(point, discard_data=True).warnings
            assert f"({point} as process " in told and point.exists()
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_a_container_that_has_a_volume_of_the_same_name_keeps_no_directory(safe_dir: Path) -> None:
    point, root = safe_dir / "v", safe_dir / "root"
    mounted(request(point))
    script = """
        mount -t tmpfs root "$1" && mkdir -p "$1$2"
        for name in usr bin lib lib64; do
            [ ! -e /$name ] || { mkdir "$1/$name" && mount --bind /$name "$1/$name"; }
        done
        mount -t tmpfs theirs "$1$2" && exec chroot "$1" sh -c "echo; exec sleep 60"
    """
    root.mkdir()
    line = ["unshare", "--mount", "sh", "-c", script, "sh", root, point]
    with subprocess.Popen(line, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline()
            assert sees(process.pid, point)
            unmounted(point)
            assert not point.exists()
            assert sees(process.pid, point)
        finally:
            process.kill()


def test_a_volume_is_not_taken_for_gone_by_who_does_not_see_it(safe_dir: Path, state: Path) -> None:
    point = safe_dir / "v"
    source = make_source(safe_dir / "data", directories=1, files=2)
    with namespace() as pid:
        stage = ("stage", source, "--to-tmpfs", "64M", "--at", point, "--reserve", "0")
        hostprep(*stage)
        there = ("nsenter", "--mount", "--target", str(pid))
        mount = ("mount", point, "--size", "64M", "--reserve", "0")
        for words in (("unmount", point), ("unstage", "data"), mount, stage):
            told = hostprep(*words, prefix=there, expect=5)["error"]
            assert f"{point} is out of sight here, but mounted in the mount" in told["message"]
            assert "nsenter --mount --target " in told["hint"]
        assert hostprep("status")["datasets"][0]["state"] == "staged"
        assert differences(source, point / "data", owners=True) == []
        # What nobody sees is gone: from anywhere it is staged anew, or forgotten.
        subprocess.run(["umount", point], check=True)
        hostprep(*stage, prefix=there)
        hostprep("unstage", "data", prefix=there)
    assert not point.exists() and read_record(str(point)) is None


_CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc", "-m", "--propagation", "private")


def test_from_within_a_container_nothing_outside_is_taken_away(safe_dir: Path, state: Path) -> None:
    point = safe_dir / "v"
    source = make_source(safe_dir / "data", directories=1, files=2)
    hostprep("stage", source, "--to-tmpfs", "64M", "--at", point, "--reserve", "0")
    # As one that was begun before the volume was mounted.
    before = (*_CONTAINER, "sh", "-c", 'umount "$0"; "$@"', point)
    for prefix, words in (
        (before, ("unmount", point)),
        (before, ("unstage", "data")),
        (_CONTAINER, ("unmount", point)),
    ):
        told = hostprep(*words, prefix=prefix, expect=5)["error"]
        assert f"the volume {point} was mounted outside of this container" in told["message"]
    assert differences(source, point / "data", owners=True) == []
    hostprep("unstage", "data")
    assert not point.exists() and read_record(str(point)) is None
    # One that was started again mounts it anew, and takes that away.
    command = shlex.join([sys.executable, "-m", "hostprep"])
    mount = f"{command} mount {point} --size 64M --reserve 0"
    for script in (mount, f"{mount} && {command} unmount {point}"):
        subprocess.run([*_CONTAINER, "sh", "-c", script], check=True, capture_output=True)
    assert not point.exists() and read_record(str(point)) is None


# As one that is killed while the kernel has it wait for others: it is done all the same.
_SLOW_MOUNT = """\
#!/bin/sh
touch "$(dirname "$0")/begun"
(sleep 3; exec /usr/bin/mount "$@") &
wait
"""


def test_an_interruption_waits_for_mount_and_then_takes_back_what_it_did(
    safe_dir: Path, state: Path, tmp_path: Path
) -> None:
    point = safe_dir / "v"
    point.mkdir()
    slow = tmp_path / "mount"
    slow.write_text(_SLOW_MOUNT)
    slow.chmod(0o755)
    line = [sys.executable, "-m", "hostprep", "mount", point, "--size", "16M", "--reserve", "0"]
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with subprocess.Popen(line, env=environment, stderr=subprocess.DEVNULL) as process:
        while not (tmp_path / "begun").exists() and process.poll() is None:
            time.sleep(0.02)
        process.terminate()
        assert process.wait(60) == 130
    time.sleep(4)  # for a mount that nobody has waited for
    assert not is_mounted(point) and read_record(str(point)) is None


def test_a_volume_in_use_is_not_unmounted(safe_dir: Path) -> None:
    point = safe_dir / "v"
    mounted(request(point))
    with subprocess.Popen(["sleep", "60"], cwd=point) as sleeper:
        try:
            with pytest.raises(Refused, match=rf"process {sleeper.pid} \(sleep\) works in"):
                unmounted(point)
        finally:
            sleeper.kill()
    (point / "inner").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "x", str(point / "inner")], check=True)
    with pytest.raises(Refused, match="inner is mounted inside"):
        unmounted(point, discard_data=True)
    assert is_mounted(point)


def test_a_volume_that_somebody_unmounted_is_forgotten(safe_dir: Path) -> None:
    point = safe_dir / "v"
    mounted(request(point))
    subprocess.run(["umount", str(point)], check=True)
    unmounted(point)
    assert read_record(str(point)) is None
    assert not point.exists()


def test_fstab_brings_back_the_same_volume_and_it_is_known(safe_dir: Path, own_state: Path) -> None:
    fstab = own_state / "fstab"
    fstab.write_bytes(b"# theirs\nproc /proc proc defaults 0 0")
    point = safe_dir / "a/my volume"
    wanted = request(point, fstab=True, mode=0o770, uid=3, gid=4)
    mounted(wanted)
    assert fstab.read_bytes().startswith(b"# theirs\nproc /proc proc defaults 0 0")

    # The machine starts anew: another boot, and mount(8) reads our line.
    subprocess.run(["umount", str(point)], check=True)
    record = read_record(str(point))
    assert record is not None
    write_record(replace(record, boot_id="an earlier boot"))
    subprocess.run(["mount", "-T", str(fstab), str(point)], check=True)
    plan = planned(wanted)
    assert plan.refusal is None and plan.changes == ()
    live = apply_volume(plan).live
    (line,) = (each for each in entries(fstab.read_bytes()) if each.owner_id)
    assert compare_options(live, line.options) == ()
    record = read_record(str(point))
    assert record is not None and record.boot_id == gather(str(point)).boot_id

    kept = unmounted(point)
    assert "mounts the volume again" in kept.warnings[0]
    assert point.is_dir(), "the line in fstab still needs its mount point"
    unmounted(point, fstab=True)
    assert fstab.read_bytes() == b"# theirs\nproc /proc proc defaults 0 0"
    assert list(safe_dir.iterdir()) == []


@pytest.mark.parametrize("earlier", [{"boot_id": "an earlier boot"}, {"device": "0:0"}])
def test_a_container_that_was_started_again_owns_what_its_fstab_mounted(
    safe_dir: Path, own_state: Path, earlier: dict[str, str]
) -> None:
    """Its namespaces are others then: it was told that the volume is another container's."""
    (own_state / "fstab").write_bytes(b"")
    point = safe_dir / "v"
    wanted = request(point, fstab=True)
    mounted(wanted)
    subprocess.run(["umount", str(point)], check=True)
    record = read_record(str(point))
    assert record is not None
    write_record(replace(record, namespaces="mnt:[1] pid:[2]", **earlier))
    subprocess.run(["mount", "-T", str(own_state / "fstab"), str(point)], check=True)
    apply_volume(planned(wanted))
    record = read_record(str(point))
    assert record is not None and record.namespaces == namespaces()


def test_an_fstab_that_cannot_be_edited_stops_it_before_the_mount(
    safe_dir: Path, own_state: Path
) -> None:
    point = safe_dir / "v"
    (own_state / "real").touch()
    (own_state / "fstab").symlink_to("real")
    with pytest.raises(Refused, match="symlink"):
        apply_volume(planned(request(point, fstab=True)))
    (own_state / "fstab").unlink()
    (own_state / "fstab").write_text(f"/dev/sdz1 {point} ext4 defaults 0 2\n")
    with pytest.raises(Refused, match="line 1 of fstab"):
        apply_volume(planned(request(point, fstab=True)))
    assert not point.exists() and not is_mounted(point)


def test_a_process_of_another_namespace_does_not_hold_ours(safe_dir: Path) -> None:
    """The same path elsewhere is another place; taken for ours it would refuse every unmount."""
    path = safe_dir / "volume"
    path.mkdir()
    script = f"mount -t tmpfs other {path} && cd {path} && echo ready && sleep 30"
    with subprocess.Popen(
        ["unshare", "--mount", "bash", "-c", script], stdout=subprocess.PIPE, text=True
    ) as other:
        try:
            assert other.stdout is not None and other.stdout.readline() == "ready\n"
            assert users_of(str(path)) == ()
        finally:
            other.kill()
    with subprocess.Popen(["sleep", "30"], cwd=path) as here:
        try:
            assert [user.pid for user in users_of(str(path))] == [here.pid]
        finally:
            here.kill()


def test_a_locale_of_one_byte_a_character_changes_no_name(
    safe_dir: Path, own_state: Path, tmp_path: Path
) -> None:
    """The bytes of the path count: decoded and encoded differently, they would name another."""
    locale = "en_US.ISO-8859-1"
    compiled = ["localedef", "-i", "en_US", "-f", "ISO-8859-1", str(tmp_path / locale)]
    if shutil.which("localedef") is None or subprocess.run(compiled, check=False).returncode > 1:
        pytest.skip("localedef cannot make a locale here")
    point = safe_dir / "üb"
    words = ("mount", os.fsencode(point), "--size", "16M", "--reserve", "0", "--fstab")
    done = subprocess.run(
        [sys.executable, "-m", "hostprep", *words],
        env={**os.environ, "LOCPATH": str(tmp_path), "LC_ALL": locale, "PYTHONUTF8": "0"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert is_mounted(point)
    (line,) = entries((own_state / "fstab").read_bytes())
    assert (line.target, line.owner_id) == (str(point), volume_id_for(str(point)))
    unmounted(point, fstab=True)
    assert (own_state / "fstab").read_bytes() == b""
