"""A mounted volume in numbers: any tmpfs of this machine, with a mount table made by hand."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from typing import NoReturn

import pytest

from hostprep.errors import HostprepError, Refused
from hostprep.host.mounts import Mount, mount_at, mount_over, read_mounts
from hostprep.volumes.live import mounted_over, read_live
from hostprep.volumes.model import Huge, LiveVolume

VOLUME = Mount(50, 27, "0:40", "/", "/mnt/v", "tmpfs", "hostprep", ("rw",), ("rw",))
ROOT = replace(VOLUME, mount_id=27, parent_id=1, device="8:1", target="/", fstype="ext4")
SAFE = ("nosuid", "nodev", "noexec")


@pytest.fixture(scope="module")
def there() -> Mount:
    """Return a tmpfs that is there, is limited, and may be looked into."""
    known = read_mounts()
    for mount in known:
        seen = mount_at(mount.target, known) is mount and mount_over(mount, known) is None
        is_plain = mount.fstype == "tmpfs" and seen
        if is_plain and os.access(mount.target, os.X_OK) and os.statvfs(mount.target).f_files:
            return mount
    pytest.skip("no tmpfs is mounted here")


def read(mount: Mount) -> LiveVolume:
    found = read_live(mount.target, [mount])
    assert found is not None
    return found


def test_sizes_mode_and_owner_are_those_of_the_file_system(there: Mount) -> None:
    found, space, status = read(there), os.statvfs(there.target), os.stat(there.target)
    assert found.size_bytes == space.f_blocks * space.f_frsize
    assert found.inodes == space.f_files and 0 < found.used_inodes < space.f_files
    assert 0 <= found.used_bytes <= found.size_bytes and found.used_bytes % space.f_frsize == 0
    assert (found.mode, found.uid, found.gid) == (
        status.st_mode & 0o7777,
        status.st_uid,
        status.st_gid,
    )


def test_options_are_those_of_the_mount_and_of_its_file_system(there: Mount) -> None:
    bare = read(replace(there, mount_options=("rw",), super_options=("rw",)))
    assert (bare.huge, bare.noswap, bare.options) == (Huge.NEVER, False, ("rw",))
    assert not (bare.nosuid or bare.nodev or bare.noexec)
    for option in SAFE:
        one = read(replace(there, mount_options=("rw", option), super_options=("rw",)))
        assert [name for name in SAFE if getattr(one, name)] == [option]
    own = ("ro", "huge=always", "noswap")
    closed = read(replace(there, mount_options=("rw", "nosuid"), super_options=own))
    assert (closed.huge, closed.noswap) == (Huge.ALWAYS, True)
    assert closed.options == ("ro", "nosuid", "huge=always", "noswap")


def test_what_is_no_tmpfs_is_no_volume(there: Mount) -> None:
    assert read_live(there.target, [replace(there, fstype="ext4")]) is None
    assert read_live(there.target, [replace(there, target="/mnt/other")]) is None


def test_a_volume_that_another_file_system_hides_is_not_taken_for_it(there: Mount) -> None:
    with pytest.raises(Refused, match="another file system hides the volume"):
        read_live(there.target, [replace(there, device="0:99999")])
    ours = replace(there, source="hostprep", device="0:99999", mount_id=there.mount_id - 1)
    with pytest.raises(Refused, match="hides the volume"):
        read_live(there.target, [ours, there])


@pytest.mark.parametrize(
    ("later", "hides"),
    [
        (replace(VOLUME, mount_id=51, device="0:41", source="none"), True),
        (replace(VOLUME, mount_id=51, parent_id=50, source="none"), False),
        (replace(VOLUME, mount_id=51, device="0:41", target="/mnt/w"), False),
        (replace(VOLUME, mount_id=51, device="8:2", target="/mnt", fstype="ext4"), True),
    ],
    ids=["another on it", "itself once more", "beside it", "above it"],
)
def test_of_two_on_one_path_the_later_hides_the_volume(later: Mount, hides: bool) -> None:
    assert mounted_over("/mnt/v", [ROOT, VOLUME]) is None
    assert mounted_over("/mnt/v", [ROOT]) is None
    assert mounted_over("/mnt/v", [ROOT, VOLUME, later]) is (later if hides else None)


def test_one_that_was_moved_over_a_volume_hides_it_though_it_is_listed_before() -> None:
    moved = replace(VOLUME, mount_id=40, parent_id=50, device="0:41", source="theirs")
    assert mounted_over("/mnt/v", [ROOT, moved, VOLUME]) is moved
    above = replace(ROOT, mount_id=40, parent_id=27, device="8:2", target="/mnt")
    assert mounted_over("/mnt/v", [ROOT, above, VOLUME]) is above
    # And a volume that was moved into a later file system is hidden by none.
    inside = replace(VOLUME, parent_id=60)
    assert mounted_over("/mnt/v", [ROOT, inside, replace(above, mount_id=60)]) is None


def test_of_another_below_nobody_knows_that_it_was_a_volume() -> None:
    later = replace(VOLUME, mount_id=51, parent_id=50, device="0:41")
    assert mounted_over("/mnt/v", [ROOT, replace(VOLUME, source="none"), later]) is None


def test_what_the_kernel_does_not_say_of_a_volume_is_an_error_of_it(
    there: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: int) -> NoReturn:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fstatvfs", failing)
    with pytest.raises(HostprepError) as caught:
        read(there)
    assert caught.value.message == f"{there.target} cannot be looked at: Input/output error."
