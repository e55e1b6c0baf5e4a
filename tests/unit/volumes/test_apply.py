"""What is changed of a mounted volume: of that one, and of nothing that has come in its place."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from hostprep.errors import HostprepError
from hostprep.host.mounts import Mount
from hostprep.system.run import CommandFailed, Completed
from hostprep.volumes import apply
from hostprep.volumes.apply import _ALONE, _mount, _set_owner_and_mode, _verified
from hostprep.volumes.fstab import volume_id_for
from hostprep.volumes.model import VolumeRequest
from hostprep.volumes.plan import plan_volume
from hostprep.volumes.records import VolumeRecord, read_record, write_record
from tests.unit.volumes.made import fresh, live_volume


def test_who_is_stopped_before_anything_is_mounted_leaves_nothing_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(tmp_path / "state"))
    path = str(tmp_path / "volume")
    facts = fresh(path)
    plan = plan_volume(VolumeRequest(path, 1 << 20, force=True), facts)

    def stopped(record: VolumeRecord, done: str) -> None:
        write_record(record, done)
        assert read_record(path) is not None
        raise KeyboardInterrupt

    monkeypatch.setattr(apply, "write_record", stopped)
    with pytest.raises(KeyboardInterrupt):
        _mount(plan, facts, 0)
    assert read_record(path) is None


@pytest.mark.parametrize("source", ["hostprep", "theirs", None])
def test_after_a_mount_that_failed_only_what_is_ours_is_unmounted(
    source: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may have mounted theirs there meanwhile; and what was made for it goes again."""
    path = str(tmp_path / "made/volume")
    facts = fresh(path)
    plan = replace(
        plan_volume(VolumeRequest(path, 1 << 20, force=True), facts),
        make_dirs=(str(tmp_path / "made"), path),
    )
    unmounted: list[str] = []
    there = None
    if source is not None:
        there = Mount(50, 27, "0:50", "/", path, "tmpfs", source, ("rw",), ("rw",))

    def failing(*_: object) -> None:
        assert os.path.isdir(path)
        raise HostprepError("mount(8) failed.")

    # The real one makes none in /tmp, where others may write.
    monkeypatch.setattr(apply, "make_dirs", lambda paths: [*map(os.mkdir, paths)])
    monkeypatch.setattr(apply, "mount_tmpfs", failing)
    monkeypatch.setattr(apply, "mount_at", lambda *_: None if unmounted else there)
    monkeypatch.setattr(apply, "unmount", lambda path, _: unmounted.append(path))
    with pytest.raises(HostprepError, match=r"^mount\(8\) failed"):
        _mount(plan, facts, 0)
    assert unmounted == ([path] if source == facts.source else [])
    assert read_record(path) is None and not (tmp_path / "made").exists()
    # What was on record before, as of a volume that a reboot took, is so again.
    before = VolumeRecord(
        path, volume_id_for(path), "boot-0", "0:40", "hostprep", 1 << 20, 1000, (), "uid 0", 0.0
    )
    write_record(before)
    with pytest.raises(HostprepError, match=r"^mount\(8\) failed"):
        _mount(plan, replace(facts, record=before), 0)
    assert read_record(path) == before


@pytest.mark.parametrize("blind", [True, False])
def test_what_cannot_be_unmounted_again_stays_on_record_and_the_cause_is_told(
    blind: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "volume")
    facts = fresh(path)
    plan = plan_volume(VolumeRequest(path, 1 << 20, force=True), facts)
    there = Mount(50, 27, "0:50", "/", path, "tmpfs", facts.source, ("rw",), ("rw",))

    def failing(*_: object) -> None:
        raise HostprepError("another step failed.", "mend that")

    def look(*_: object) -> Mount:
        if blind:
            raise HostprepError("/proc/self/mountinfo cannot be read.", "mount it")
        return there

    def busy(*_: object) -> None:
        raise HostprepError("it is busy.")

    monkeypatch.setattr(apply, "make_dirs", failing)
    monkeypatch.setattr(apply, "mount_at", look)
    monkeypatch.setattr(apply, "unmount", busy)
    with pytest.raises(HostprepError) as caught:
        _mount(plan, facts, 0)
    why = "/proc/self/mountinfo cannot be read." if blind else "it is busy."
    assert caught.value.message == (
        f"another step failed; what may be mounted on {path} by now could not be unmounted, and"
        f" stays on record: {why}"
    )
    assert caught.value.hint == "mend that"
    record = read_record(path)
    assert record is not None and record.device is None


@pytest.mark.parametrize("works", [True, False])
def test_whether_it_is_unmounted_again_shows_in_the_mounts_and_not_in_the_status_of_umount(
    works: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "volume")
    facts = fresh(path)
    plan = replace(plan_volume(VolumeRequest(path, 1 << 20, force=True), facts), make_dirs=())
    there = [Mount(50, 27, "0:50", "/", path, "tmpfs", facts.source, ("rw",), ("rw",))]

    def umount(*_: object) -> None:
        if works:
            there.clear()
            raise CommandFailed(Completed(("umount",), 16, "", ""), "failed to note it")

    def full(plan: object, facts: object, device: str | None, done: str) -> None:
        write_record(record)
        if device is not None:
            raise HostprepError(f"the record cannot be written; {done}.")

    record = VolumeRecord(
        path, volume_id_for(path), "boot", None, facts.source, 1 << 20, 1000, (), "uid 0", 0.0
    )
    monkeypatch.setattr(apply, "mount_tmpfs", lambda *_: None)
    monkeypatch.setattr(apply, "_verified", lambda *_: None)
    monkeypatch.setattr(apply, "mount_at", lambda *_: there[0] if there else None)
    monkeypatch.setattr(apply, "unmount", umount)
    monkeypatch.setattr(apply, "_remember", full)
    with pytest.raises(HostprepError) as caught:
        _mount(plan, facts, 0)
    failed = "the record cannot be written; "
    assert caught.value.message == failed + (
        "the volume was unmounted again."
        if works
        else f"what may be mounted on {path} by now could not be unmounted, and stays on record:"
        " umount(8) reported success, but it is still mounted."
    )
    assert read_record(path) == (None if works else record)


@pytest.mark.parametrize("said", ["permission denied.", "cannot mount hostprep read-only."])
def test_where_a_profile_forbids_to_mount_it_is_named(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AppArmor's for Docker does, whatever capabilities the container has."""
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(tmp_path / "state"))
    path = str(tmp_path / "volume")
    facts = fresh(path)
    plan = plan_volume(VolumeRequest(path, 1 << 20, force=True), facts)

    def forbidden(*_: object) -> None:
        completed = Completed(("mount",), 32, "", f"mount: {path}: {said}")
        raise CommandFailed(completed, "failed with status 32")

    monkeypatch.setattr(apply, "make_dirs", lambda _: None)  # not below /tmp, which all can write
    monkeypatch.setattr(apply, "mount_tmpfs", forbidden)
    with pytest.raises(HostprepError, match="is forbidden in spite of CAP_SYS_ADMIN") as caught:
        _mount(plan, facts, 0)
    assert "--security-opt apparmor=unconfined" in str(caught.value.hint)
    assert "to: /dev/shm" in str(caught.value.spec_hint) and read_record(path) is None


def test_owner_and_mode_are_set_of_the_volume_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    number = tmp_path.stat().st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    mount = Mount(50, 27, device, "/", str(tmp_path), "tmpfs", "hostprep", ("rw",), ("rw",))
    facts = replace(fresh(str(tmp_path)), mount=replace(mount, device="0:0"))
    with pytest.raises(HostprepError, match="is now another file system") as caught:
        _set_owner_and_mode(facts, None, 0o755)
    assert caught.value.hint == _ALONE
    assert tmp_path.stat().st_mode & 0o7777 == 0o700
    _set_owner_and_mode(replace(facts, mount=mount), None, 0o755)
    assert tmp_path.stat().st_mode & 0o7777 == 0o755


def test_what_the_kernel_made_something_else_of_comes_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As of a mount(8) that says nothing, changes nothing and ends with 0."""
    monkeypatch.setattr(apply, "read_live", lambda _: live_volume(path="/mnt/data", size_bytes=4))
    with pytest.raises(HostprepError, match=r"with size .* instead of") as caught:
        _verified("/mnt/data", ("size=8192",))
    assert str(caught.value.hint).startswith(_ALONE)


def test_a_directory_that_may_not_be_removed_again_stays_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "volume")
    facts = fresh(path)
    plan = replace(plan_volume(VolumeRequest(path, 1 << 20, force=True), facts), make_dirs=(path,))

    def failing(*_: object) -> None:
        raise HostprepError("another step failed.")

    def unsure(_: object) -> None:
        raise HostprepError("that cannot be told.")

    monkeypatch.setattr(apply, "make_dirs", lambda _: None)
    monkeypatch.setattr(apply, "mount_tmpfs", failing)
    monkeypatch.setattr(apply, "mount_at", lambda *_: None)
    monkeypatch.setattr(apply, "remove_dirs", unsure)
    with pytest.raises(HostprepError, match=r"^another step failed\.$"):
        _mount(plan, facts, 0)
    record = read_record(path)
    assert record is not None and record.made_dirs == (path,)
