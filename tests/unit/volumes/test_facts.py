"""Whose a mounted tmpfs is, and what else decides about a volume: by made-up mounts and lines."""

from __future__ import annotations

import grp
import os
import pwd
from dataclasses import replace
from pathlib import Path

import pytest

from hostprep.errors import HostprepError, Refused
from hostprep.host.mounts import Mount
from hostprep.system.mounting import TmpfsSupport
from hostprep.volumes import facts
from hostprep.volumes.facts import gather, is_volume, mounted_by_us
from hostprep.volumes.fstab import our_line, volume_id_for
from hostprep.volumes.fstab_line import set_volume
from hostprep.volumes.model import LiveVolume, VolumeRequest
from hostprep.volumes.plan import plan_volume
from hostprep.volumes.records import VolumeRecord, write_record
from hostprep.volumes.removal import UnmountRequest, plan_unmount
from hostprep.volumes.settings import line_settings
from tests.unit.volumes.made import fresh, live_volume

PATH = "/mnt/hostprep-none"
MOUNT = Mount(30, 22, "0:42", "/", PATH, "tmpfs", "hostprep", ("rw",), ("rw",))
RECORD = VolumeRecord(
    PATH, volume_id_for(PATH), "boot-1", "0:42", "hostprep", 1 << 30, 1000, (), "root", 0.0
)
LINE = set_volume(b"", path=PATH, options=("size=1g",))


@pytest.mark.parametrize(
    ("mount", "record", "ours"),
    [
        (MOUNT, RECORD, True),
        (MOUNT, None, False),
        (MOUNT, replace(RECORD, boot_id="boot-0"), False),
        (MOUNT, replace(RECORD, device="0:43"), False),
        (MOUNT, replace(RECORD, device=None), True),  # a mount that was interrupted
        (MOUNT, replace(RECORD, source="tmpfs"), False),  # the number was free, and is another's
        (replace(MOUNT, source="other"), replace(RECORD, source="other"), True),
        (replace(MOUNT, fstype="ramfs"), RECORD, False),
    ],
)
def test_a_volume_is_ours_by_its_record(
    mount: Mount, record: VolumeRecord | None, ours: bool
) -> None:
    assert mounted_by_us(mount, record, None, "boot-1") is ours


@pytest.mark.parametrize(
    ("source", "fstype", "ours"),
    [
        ("hostprep", "tmpfs", True),
        ("tmpfs", "tmpfs", True),  # by systemd
        ("somebody", "tmpfs", False),
        ("tmpfs", "ramfs", False),
    ],
)
def test_a_volume_is_ours_by_its_line(source: str, fstype: str, ours: bool) -> None:
    line = our_line(PATH, LINE)
    assert line is not None
    assert mounted_by_us(replace(MOUNT, source=source, fstype=fstype), None, line, "b") is ours
    assert not mounted_by_us(replace(MOUNT, source=source, fstype=fstype), None, None, "b")


def test_a_line_is_ours_by_its_id_and_its_target() -> None:
    assert our_line(f"{PATH}/other", LINE) is None
    moved = LINE.replace(b" /mnt/", b" /srv/")
    assert our_line(PATH, moved) is None and our_line(PATH.replace("/mnt/", "/srv/"), moved) is None
    others = LINE.replace(b"X-hostprep.id", b"X-somebodys.id")
    assert our_line(PATH, others) is None
    assert our_line(PATH, LINE.replace(PATH.encode(), f"/mnt//{PATH[5:]}/".encode())) is not None


@pytest.mark.parametrize("fstab", [LINE, None])
def test_a_mounted_tmpfs_is_asked_for_by_its_line(
    fstab: bytes | None, own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fstab is None:
        (own_state / "fstab").mkdir()  # it cannot be read
    else:
        (own_state / "fstab").write_bytes(fstab)
    assert is_volume(MOUNT) is (fstab is not None)
    monkeypatch.setattr(facts, "boot_id", lambda: "boot-1")
    write_record(RECORD)
    assert is_volume(MOUNT)


def test_nothing_that_is_not_mounted_is_ours() -> None:
    assert not replace(fresh(PATH), record=RECORD, fstab=LINE).is_ours
    assert not replace(fresh(PATH), mount=MOUNT, fstab=None).is_ours
    assert replace(fresh(PATH), mount=MOUNT, fstab=LINE).is_ours


def test_a_line_of_others_for_the_same_place_is_known() -> None:
    theirs = f"/dev/sda1 {PATH}/ ext4 defaults 0 0\n".encode()
    found = replace(fresh(PATH), fstab=LINE + theirs).foreign_fstab_entry
    assert found is not None and found.line_number == 2
    assert replace(fresh(PATH), fstab=LINE).foreign_fstab_entry is None
    assert replace(fresh(PATH), fstab=None).foreign_fstab_entry is None


@pytest.mark.parametrize(
    ("said", "mode", "uid", "gid"),
    [
        ("uid=daemon,gid=adm", None, pwd.getpwnam("daemon").pw_uid, grp.getgrnam("adm").gr_gid),
        ("mode=1770,gid=7,uid=daemon", 0o1770, pwd.getpwnam("daemon").pw_uid, 7),
        ("uid=nobody-of-that-name,mode=888", None, None, None),
        ("mode=0100755", 0o755, None, None),  # as stat(1) tells it: the kernel takes what it is of
    ],
)
def test_what_a_line_says_is_what_a_boot_makes_of_it(
    said: str, mode: int | None, uid: int | None, gid: int | None, root: Path, own_state: Path
) -> None:
    line = set_volume(b"", path=PATH, options=("size=1g",)).replace(b"size=1g", said.encode())
    (own_state / "fstab").write_bytes(line)
    found = line_settings(gather(PATH, root))
    assert (found.mode, found.uid, found.gid) == (mode, uid, gid)


@pytest.mark.parametrize(("uid", "known"), [(0, True), (1000, None)])
def test_what_the_kernel_takes_only_root_can_ask(
    uid: int, known: bool | None, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "tmpfs_support", lambda: TmpfsSupport(True, True))
    monkeypatch.setattr(facts.os, "geteuid", lambda: uid)
    assert gather(PATH, root).support == TmpfsSupport(known, known)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a /proc with the volume's mount, and others in it, beside it and in another's name."""
    lines = (
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw",
        f"30 22 0:42 / {PATH} rw - ext4 hostprep rw",
        f"31 30 0:43 / {PATH}/inner rw - tmpfs x rw",
        f"32 22 0:44 / {PATH}-2 rw - tmpfs x rw",
        "33 22 0:45 / /mnt/other-none rw - tmpfs tmpfs rw",
    )
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self/mountinfo").write_text("\n".join(lines) + "\n")
    (proc / "meminfo").write_text("MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n")
    return tmp_path


def test_what_is_mounted_in_it_and_beside_it(root: Path) -> None:
    found = gather(PATH, root)
    assert found.mounts_below == (f"{PATH}/inner",)
    assert found.mount is not None and found.mount.device == "0:42"
    assert found.live is None and not found.is_ours  # an ext4 of that name
    assert (found.fstab, found.fstab_refusal) == (b"", None)


@pytest.mark.parametrize("unknown", [True, False])
def test_a_file_that_is_no_fstab_has_no_line_of_ours_and_an_unread_one_may_have_it(
    unknown: bool, root: Path, own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own_state / "fstab").mkdir()
    if unknown:

        def failing(_: Path) -> bytes:
            raise HostprepError("/etc/fstab cannot be read: Input/output error.")

        monkeypatch.setattr(facts, "read_for_boot", failing)
    found = gather(PATH, root)
    assert (found.fstab, found.fstab_unknown) == (None, unknown)
    assert found.fstab_refusal is not None


@pytest.mark.parametrize(("boot", "away"), [("boot-1", True), ("boot-0", False)])
def test_what_was_mounted_in_another_container_may_be_there_in_this_boot_alone(
    boot: str, away: bool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "boot_id", lambda _: "boot-1")
    monkeypatch.setattr(facts, "may_be_out_of_sight", lambda there, _: there == "mnt:[7] pid:[8]")
    write_record(replace(RECORD, boot_id=boot, namespaces="mnt:[7] pid:[8]"))
    assert gather(PATH, root).out_of_reach is away


@pytest.mark.parametrize(
    ("line", "warned"),
    [
        (b"LABEL=late /mnt/late-none/ ext4 nofail 0 2\n", True),  # its disk came too late
        (b"LABEL=late /mnt/late ext4 nofail 0 2\n", False),
        (b"/dev/vda / ext4 defaults 0 1\n/dev/vdb none swap sw 0 0\n", False),
        (b"x /mnt/other-none tmpfs defaults 0 0\n", False),  # it is mounted
        (set_volume(b"", path="/mnt/late-none", options=("size=1g",)), False),
    ],
)
def test_a_mount_above_that_is_to_come_is_told_for_it_would_hide_the_volume(
    line: bytes, warned: bool, root: Path, own_state: Path
) -> None:
    (own_state / "fstab").write_bytes(line)
    above = "/mnt/other-none" if b"other-none" in line else "/mnt/late-none"
    entry = gather(f"{above}/volume", root).unmounted_above
    assert (entry is not None) is warned
    told = plan_volume(VolumeRequest("/x", 1 << 20), replace(fresh("/x"), unmounted_above=entry))
    assert any("once it is, it hides the volume" in each for each in told.warnings) is warned


def test_an_fstab_that_cannot_be_read_matters_to_who_edits_it(root: Path, own_state: Path) -> None:
    (own_state / "fstab").mkdir()
    found = gather(PATH, root)
    assert found.fstab is None and found.fstab_refusal is not None
    assert str(own_state / "fstab") in found.fstab_refusal.message


def test_an_fstab_that_became_a_symlink_is_read_and_not_replaced(
    root: Path, own_state: Path
) -> None:
    (own_state / "real").write_bytes(LINE)
    (own_state / "fstab").symlink_to("real")
    found = gather(PATH, root)
    assert found.fstab_entry is not None and found.fstab_refusal is None
    assert (
        found.fstab_obstacle is not None and "is a symlink to real" in found.fstab_obstacle.message
    )


def test_a_line_of_others_behind_a_symlink_takes_the_place(tmp_path: Path) -> None:
    path = f"{tmp_path}/real/v"
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "gone").symlink_to("nowhere")
    linked = f"{tmp_path}/link/v"
    others = f"tmpfs {tmp_path}/gone/v tmpfs\ntmpfs {linked}/w tmpfs\nnone none swap\n".encode()
    line = f"tmpfs {linked}/ tmpfs size=1g\n".encode()
    assert facts.aliases(path, others) == frozenset()
    found = replace(
        fresh(path), fstab=others + line, fstab_aliases=facts.aliases(path, others + line)
    )
    entry = found.foreign_fstab_entry
    assert entry is not None and entry.line_number == 4
    with pytest.raises(Refused, match=r"tmpfs on .*link/v \(that is .*real/v\), and it is not"):
        set_volume(
            others + line,
            path=path,
            options=(),
            aliases=found.fstab_aliases,
        )


def promised(
    root: Path, monkeypatch: pytest.MonkeyPatch, *there: str, gone: str | None = None
) -> int:
    """Return what is promised to others where each of ``there`` may yet take 1000 bytes."""

    def live(path: str, mounts: object) -> LiveVolume | None:
        if path == gone:
            raise HostprepError("it was unmounted")
        used = 0 if path in there else None
        return None if used is None else live_volume(path=path, size_bytes=1000, inodes=0)

    monkeypatch.setattr(facts, "read_live", live)
    return gather(PATH, root).promised_bytes


def test_what_is_promised_to_others_is_theirs(
    root: Path, own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "/mnt/other-none"
    each = live_volume(size_bytes=1000, inodes=0).promised_bytes
    assert each > 0
    assert promised(root, monkeypatch, other, PATH) == 0, "neither a record nor a line"
    write_record(replace(RECORD, path=other, volume_id=volume_id_for(other)))
    write_record(RECORD)
    assert promised(root, monkeypatch, other, PATH) == each, "nobody's own room is another's"
    assert promised(root, monkeypatch, PATH) == 0, "it is not mounted"
    third = "/mnt/third-none"
    write_record(replace(RECORD, path=third, volume_id=volume_id_for(third)))
    assert promised(root, monkeypatch, other, third) == 2 * each
    assert promised(root, monkeypatch, other, gone=third) == each


def test_one_without_a_limit_is_named_and_not_oneself(
    root: Path, own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "/mnt/other-none"
    for path in (other, PATH):
        write_record(replace(RECORD, path=path, volume_id=volume_id_for(path)))
    size = 0
    monkeypatch.setattr(facts, "read_live", lambda path, _: live_volume(path=path, size_bytes=size))
    assert gather(PATH, root).unlimited == (other,)
    size = 1000
    assert gather(PATH, root).unlimited == ()


def test_what_a_volume_may_yet_take_is_its_room_and_its_inodes() -> None:
    """An inode takes a kilobyte beside the size; what is used already is counted as taken."""
    volume = live_volume(size_bytes=5000, used_bytes=2000, inodes=50, used_inodes=10)
    assert volume.promised_bytes == 3000 + 40 * 1024
    assert replace(volume, size_bytes=1000, used_inodes=60).promised_bytes == 0, "shrunk by hand"


def test_what_only_a_line_tells_of_is_promised_too(
    root: Path, own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "/mnt/other-none"
    each = live_volume(size_bytes=1000, inodes=0).promised_bytes
    line = set_volume(b"", path=other, options=("size=1000",))
    (own_state / "fstab").write_bytes(line)
    assert promised(root, monkeypatch, other) == each
    mountinfo = root / "proc/self/mountinfo"
    mountinfo.write_text(mountinfo.read_text().replace("tmpfs tmpfs", "tmpfs somebodys"))
    assert promised(root, monkeypatch, other) == 0


def test_of_an_fstab_with_hard_links_it_is_said_that_they_part(
    own_state: Path, tmp_path: Path
) -> None:
    """Of a backup, for instance: nothing is refused, and what has the other name stays."""
    fstab = own_state / "fstab"
    fstab.write_text("# theirs\n")
    request = VolumeRequest("/mnt/hostprep-test", 1 << 20, fstab=True, reserve_bytes=0)

    def warned(request: VolumeRequest) -> bool:
        plan = plan_volume(request, gather(request.path))
        assert plan.refusal is None
        return any("other names (hard links)" in words for words in plan.warnings)

    assert not warned(request)
    os.link(fstab, tmp_path / "backup")
    assert warned(request) and not warned(replace(request, fstab=False))
    line = set_volume(b"", path=request.path, options=("size=1",))
    fstab.write_bytes(line)
    removal = plan_unmount(UnmountRequest(request.path, fstab=True), gather(request.path), ())
    assert any("other names (hard links)" in words for words in removal.warnings)
    removal = plan_unmount(UnmountRequest(request.path), gather(request.path), ())
    assert not any("hard links" in words for words in removal.warnings)
