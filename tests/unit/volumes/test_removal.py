"""What is planned for taking a volume away, from facts made by hand: no machine is touched."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

import pytest

from hostprep.errors import HostprepError, Refused
from hostprep.host.mounts import Mount
from hostprep.host.processes import PathUser
from hostprep.system.run import CommandFailed, Completed
from hostprep.units import MIB
from hostprep.volumes import removal
from hostprep.volumes.facts import VolumeFacts
from hostprep.volumes.fstab_line import set_volume
from hostprep.volumes.fstab_plan import RELOAD
from hostprep.volumes.paths import Place, PointKind
from hostprep.volumes.records import VolumeRecord
from hostprep.volumes.removal import (
    UnmountFailed,
    UnmountPlan,
    UnmountRequest,
    apply_unmount,
    check_line_removal,
    plan_unmount,
)
from tests.unit.volumes.made import MNT, ROOT, fresh, live_volume

PATH = "/mnt/data"
MADE = ("/mnt/data",)
LINE = set_volume(b"# mine\n", path=PATH, options=("size=8g",))
GONE = replace(
    fresh(PATH),
    record=VolumeRecord(
        PATH, "mnt-data", "boot-1", "0:40", "hostprep", MIB, 1000, MADE, "uid 0", 0.0
    ),
)
MOUNTED = replace(
    GONE,
    place=Place(PointKind.DIRECTORY, (ROOT, MNT)),
    mount=Mount(50, 27, "0:40", "/", PATH, "tmpfs", "hostprep", ("rw",), ("rw",)),
    live=live_volume(path=PATH, used_bytes=3 * MIB),
)
HOLDS = replace(MOUNTED, place=replace(MOUNTED.place, entries=("train",)))
USER = PathUser(42, "python", "works in /mnt/data")


def plan(facts: Any, *users: PathUser, **asked: bool) -> UnmountPlan:
    return plan_unmount(UnmountRequest(PATH, **asked), facts, users)


def test_an_empty_volume_goes_with_what_was_made_for_it_and_its_record() -> None:
    found = plan(MOUNTED)
    assert found.refusal is None and found.unmount and found.forget
    assert found.remove_dirs == MADE and not found.edit_fstab and found.warnings == ()
    assert [change.action for change in found.changes] == [
        "unmount (it holds 3.00 MiB now)",
        "remove directory, if it is empty",
    ]
    assert found.unchanged == ()


def test_an_ordinary_user_is_told_that_it_needs_root_before_anything_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(HostprepError, match="unmounting /mnt/data needs root; nothing") as caught:
        apply_unmount(plan(MOUNTED))
    assert caught.value.hint == "run it with sudo"  # /dev/shm is for who wants to mount
    with pytest.raises(HostprepError, match="the line of /mnt/data from fstab needs root"):
        check_line_removal(PATH, None)
    assert apply_unmount(plan(fresh(PATH))).changes == (), "who has nothing to do needs nothing"


def test_where_nothing_is_nothing_changes() -> None:
    found = plan(fresh(PATH))
    assert [each.reason for each in found.unchanged] == ["no volume is mounted there"]
    assert (found.changes, found.unmount, found.forget, found.remove_dirs) == ((), False, False, ())


def test_with_a_line_that_stays_it_comes_back_so_directory_and_record_stay() -> None:
    found = plan(replace(MOUNTED, fstab=LINE))
    assert found.unmount and not found.forget and not found.edit_fstab
    assert found.remove_dirs == ()
    assert [each.subject for each in found.unchanged] == ["fstab"]
    (warning,) = found.warnings
    assert warning.startswith("line 2 of fstab mounts the volume again")


def test_with_its_line_it_goes_for_good() -> None:
    found = plan(replace(MOUNTED, fstab=LINE), fstab=True)
    assert found.edit_fstab and found.forget and found.remove_dirs == MADE
    assert "fstab" in [change.subject for change in found.changes] and found.warnings == ()


def test_systemd_is_told_once_more_where_it_was_not_after_the_last_edit() -> None:
    told = replace(MOUNTED, reload_is_due=True)
    assert RELOAD in plan(told, fstab=True).changes and plan(told, fstab=True).edit_fstab
    assert not plan(told).edit_fstab, "nobody asked for fstab"
    assert not plan(MOUNTED, fstab=True).edit_fstab, "it has read it"


def test_what_keeps_fstab_from_being_edited_keeps_the_volume() -> None:
    unread = replace(MOUNTED, fstab=None, fstab_refusal=Refused("it is a symlink"))
    refusal = plan(unread, fstab=True).refusal
    assert refusal is not None and refusal.message == "it is a symlink"
    assert plan(unread).unmount
    fixed = replace(MOUNTED, fstab=LINE, fstab_obstacle=Refused("it is immutable"))
    refusal = plan(fixed, fstab=True).refusal
    assert refusal is not None and refusal.message == "it is immutable"


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (replace(GONE, seen_by=1), "out of sight"),
        (replace(GONE, out_of_reach=True), "outside of this container"),
        (replace(MOUNTED, out_of_reach=True), "outside of this container"),
        (replace(MOUNTED, path="/run"), "belongs to the system"),
    ],
)
def test_what_others_may_use_where_we_do_not_see_it_is_left(facts: VolumeFacts, why: str) -> None:
    refusal = plan(facts, discard_data=True).refusal
    assert refusal is not None and why in refusal.message


def test_what_is_only_on_record_is_forgotten() -> None:
    found = plan(replace(GONE, record=replace(GONE.record, made_dirs=())))
    assert [change.action for change in found.changes] == ["forget the volume"]
    assert found.forget and not found.unmount


def test_a_volume_that_is_named_by_a_symlink_is_not_said_to_be_gone() -> None:
    by_link = Place(PointKind.OTHER, (ROOT,), symlink="/mnt/link")
    refusal = plan(replace(fresh(PATH), place=by_link)).refusal
    assert refusal is not None and "/mnt/link is a symbolic link" in refusal.message
    # What is on record there is known, whatever stands in its place by now.
    assert plan(replace(GONE, place=by_link)).forget


def test_data_is_only_given_up_by_who_says_so() -> None:
    refusal = plan(HOLDS).refusal
    assert refusal is not None and "3.00 MiB (train)" in refusal.message
    assert plan(HOLDS, discard_data=True).unmount


@pytest.mark.parametrize("asked", [{}, {"discard_data": True}])
def test_what_is_used_or_has_mounts_inside_stays_whatever_is_given_up(
    asked: dict[str, bool],
) -> None:
    for found in (
        plan(HOLDS, USER, **asked),
        plan(replace(HOLDS, mounts_below=(f"{PATH}/inner",)), **asked),
        plan(replace(HOLDS, record=None), **asked),
    ):
        assert found.refusal is not None and not found.changes and not found.unmount
    inner = (f"{PATH}/a", f"{PATH}/a/b", f"{PATH}/c")
    nested = plan(replace(HOLDS, mounts_below=inner), **asked).refusal
    # The one that can be unmounted first.
    assert nested is not None and nested.message.startswith(f"{PATH}/a/b is mounted inside")


def test_where_fstab_cannot_be_read_the_volume_stays_on_record() -> None:
    """Its line may be there, and mount it again at the next boot."""
    unread = Refused("/etc/fstab cannot be read: Input/output error.")
    facts = replace(MOUNTED, fstab=None, fstab_refusal=unread, fstab_unknown=True)
    assert facts.record is not None
    facts = replace(facts, record=replace(facts.record, made_dirs=(PATH,)))
    found = plan(facts)
    assert (found.unmount, found.forget, found.remove_dirs) == (True, False, ())
    assert found.warnings == (
        "/etc/fstab cannot be read: Input/output error: if it has the volume's line, that mounts it"
        " again at the next boot, so the volume stays on record",
    )
    # In a container it is a bind mount, into which nobody wrote a line of ours.
    found = plan(replace(facts, fstab_unknown=False))
    assert (found.forget, found.remove_dirs, found.warnings) == (True, (PATH,), ())


def failed_to_note(*_: object) -> NoReturn:
    raise CommandFailed(Completed(("umount",), 16, "", "failed to update its table"), "failed")


@pytest.mark.parametrize("umount", [lambda *_: None, failed_to_note])
def test_after_the_unmount_what_cannot_be_told_of_others_stops_nothing(
    umount: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: object) -> NoReturn:
        raise HostprepError("/proc cannot be listed: Too many open files.")

    monkeypatch.setattr(removal, "mount_at", lambda *_: MOUNTED.mount)
    monkeypatch.setattr(removal, "read_mounts", lambda: ())
    monkeypatch.setattr(removal, "unmount", umount)
    monkeypatch.setattr(removal, "read_live", lambda _: None)
    monkeypatch.setattr(removal, "mounted_places", failing)
    assert removal._unmount(plan(MOUNTED), 0) == (
        "whether it is still mounted elsewhere is not known: /proc cannot be listed: Too many open"
        " files.",
    )


def test_an_umount_that_did_nothing_is_no_other_volume_below(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(removal, "mount_at", lambda *_: MOUNTED.mount)
    monkeypatch.setattr(removal, "read_mounts", lambda: (MOUNTED.mount,))
    monkeypatch.setattr(removal, "unmount", lambda *_: None)
    monkeypatch.setattr(removal, "read_live", lambda _: MOUNTED.live)
    with pytest.raises(UnmountFailed, match="but /mnt/data is still mounted"):
        removal._unmount(plan(MOUNTED), 0)


def test_another_mount_with_the_number_of_the_unmounted_one_is_not_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert MOUNTED.mount is not None
    other = replace(MOUNTED.mount, target="/mnt/other")
    monkeypatch.setattr(removal, "mount_at", lambda *_: MOUNTED.mount)
    monkeypatch.setattr(removal, "read_mounts", lambda: (other,))
    monkeypatch.setattr(removal, "unmount", lambda *_: None)
    monkeypatch.setattr(removal, "read_live", lambda _: None)
    monkeypatch.setattr(removal, "mounted_places", lambda _: ())
    assert removal._unmount(plan(MOUNTED), 0) == ()


def test_what_umount_says_without_end_does_not_fill_the_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(*_: object) -> NoReturn:
        raise CommandFailed(Completed(("umount",), 1, "", "x" * 10_000 + "the end."), "failed")

    monkeypatch.setattr(removal, "mount_at", lambda *_: MOUNTED.mount)
    monkeypatch.setattr(removal, "read_mounts", lambda: (MOUNTED.mount,))
    monkeypatch.setattr(removal, "unmount", failing)
    monkeypatch.setattr(removal, "others_in", lambda _: ())
    with pytest.raises(UnmountFailed) as caught:
        removal._unmount(plan(MOUNTED), 0)
    assert caught.value.message.endswith("xthe end.") and len(caught.value.message) < 2100
