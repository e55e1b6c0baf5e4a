"""Whether it fits: the arithmetic, and how a refusal shows it."""

from __future__ import annotations

import stat
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from hostprep.errors import Refused
from hostprep.host.quota import QuotaLeft
from hostprep.staging import preparing
from hostprep.staging.deciding import _room_refusal
from hostprep.staging.model import StageRequest, Totals, Verify, space_on_target
from hostprep.staging.plans import space as plans_space
from hostprep.staging.plans.copy_plan import CopyPlan, HardLink
from hostprep.staging.plans.in_flight import NOTHING, InFlight, in_flight
from hostprep.staging.plans.space import (
    Space,
    check_memory,
    check_space,
    directory_space,
    fits,
    memory_budget,
    memory_growth,
    reclaiming,
    volume_request,
    volume_space,
)
from hostprep.staging.record.records import Record, save_record
from hostprep.staging.target.place import mount_below
from hostprep.staging.together import Share, room_for_all
from hostprep.system.locks import lock
from hostprep.volumes.facts import VolumeFacts
from hostprep.volumes.model import INODE_BYTES, LiveVolume, RamBudget
from hostprep.volumes.plan import VolumePlan
from tests.unit.staging.test_diff import entry
from tests.unit.volumes.made import fresh, live_volume
from tests.unit.volumes.test_facts import MOUNT, RECORD

MIB, GIB = 1 << 20, 1 << 30
INTO_A_DIRECTORY = StageRequest("/data", "data", "/fast", None)
LIVE = live_volume()
INTO_A_VOLUME = StageRequest("/data", "data", "/mnt/hostprep", 10 * GIB)


@pytest.mark.parametrize(
    ("size", "blocks", "space"),
    [
        (0, 0, 0),
        (1, 8, 4096),
        (4096, 8, 4096),
        (4097, 16, 8192),
        (100, 0, 0),  # inline, or a hole
        (GIB, 8, 4096),
        (GIB, 9, 8192),
        (10_000, 1000, 12_288),  # preallocated beyond its end
    ],
)
def test_a_file_takes_whole_pages_of_its_data(size: int, blocks: int, space: int) -> None:
    assert space_on_target(entry(size=size)._replace(blocks=blocks)) == space


# What a page is, the kernel says: a process of its own is told another.
_PLANNED = """
import os, sys
told = os.sysconf
os.sysconf = lambda name: int(sys.argv[1]) if name == "SC_PAGE_SIZE" else told(name)
from hostprep.staging.plans.copy_plan import plan_fresh
from hostprep.staging.source.scan import scan_tree
files = plan_fresh(scan_tree(os.open(sys.argv[2], os.O_RDONLY), processes=1))
print(files.content_space(), files.content_space(4096))
"""


@pytest.mark.parametrize(
    ("page_bytes", "in_memory", "on_disk"),
    [
        (4096, 6 * 4096 + 8192, 6 * 4096 + 8192),
        (16384, 7 * 16384, 6 * (1 + 4096) + 4097 + 4096),
        (65536, 7 * 65536, 6 * (1 + 4096) + 4097 + 4096),
    ],
)
def test_where_pages_are_large_small_files_take_as_much_of_memory_and_not_of_a_disk(
    page_bytes: int, in_memory: int, on_disk: int, tmp_path: Path
) -> None:
    for number in range(5):
        (tmp_path / str(number)).write_bytes(b"x")
    (tmp_path / "larger").write_bytes(bytes(4097))
    (tmp_path / "linked").write_bytes(b"x")
    (tmp_path / "link").hardlink_to(tmp_path / "linked")
    command = [sys.executable, "-c", _PLANNED, str(page_bytes), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert tuple(map(int, done.stdout.split())) == (in_memory, on_disk)


@pytest.mark.parametrize(("size", "space"), [(5, 0), (100, 0), (101, 4096)])
def test_long_symlinks_take_a_page(size: int, space: int) -> None:
    assert space_on_target(entry(kind=stat.S_IFLNK, size=size)) == space


@pytest.mark.parametrize(
    ("needed", "free", "inodes", "free_inodes", "refused"),
    [
        (100, 100, 5, 5, ""),
        (101, 100, 5, 5, "does not fit"),
        (100, 100, 6, 5, "too few inodes"),
        (100, 100, 10**9, None, ""),  # Btrfs and the like have no limit
        (0, 0, 0, 0, ""),
    ],
)
def test_the_last_byte_and_the_last_inode(
    needed: int, free: int, inodes: int, free_inodes: int | None, refused: str
) -> None:
    space = Space(needed, free, inodes, free_inodes, where="it")
    refusal = check_space(INTO_A_DIRECTORY, space)
    assert (refused in refusal.message) if refusal is not None else not refused
    assert fits(space) is (not refused)


def test_the_refusal_shows_its_arithmetic_and_what_to_do() -> None:
    space = Space(11 * GIB, 10 * GIB, 5, None, where="a volume of 10.0 GiB")
    refusal = check_space(INTO_A_VOLUME, space)
    assert refusal is not None and refusal.exit_code == 5
    for words in ("11.0 GiB to copy", "10.0 GiB free", "1.00 GiB are missing", "Nothing was"):
        assert words in refusal.message
    assert refusal.hint == "ask for a larger volume: --to-tmpfs 11G"
    assert refusal.spec_hint == "give the volume `size: 11G` or more"
    assert "beside" not in refusal.message
    space = Space(11 * GIB, 10 * GIB, 5, None, reserved_bytes=GIB, where="the disk")
    refusal = check_space(INTO_A_DIRECTORY, space)
    assert refusal is not None and refusal.hint is not None
    assert "(beside 1.00 GiB that it keeps for itself)" in refusal.message
    assert "--to" in refusal.hint and "free 1.00 GiB" in refusal.hint
    assert refusal.spec_hint == "free 1.00 GiB there, or choose another `to`"
    space = Space(11 * GIB, 10 * GIB, 5, None, where="/dev/shm", fstype="tmpfs")
    refusal = check_space(INTO_A_DIRECTORY, space)
    assert refusal is not None and "docker run --shm-size=SIZE" in (refusal.hint or "")


@pytest.mark.parametrize(
    ("fstype", "whom"),
    [("ext4", "root only"), ("f2fs", "root only"), ("btrfs", "itself"), (None, "itself")],
)
def test_what_is_reserved_is_roots_only_where_the_file_system_does_so(
    fstype: str | None, whom: str
) -> None:
    space = Space(2, 1, 1, None, reserved_bytes=GIB, where="it", fstype=fstype)
    refusal = check_space(INTO_A_DIRECTORY, space)
    assert refusal is not None and f"(beside 1.00 GiB that it keeps for {whom})" in refusal.message


OTHERS = InFlight(3 * GIB, 400, ("city", "night"))


def test_what_other_runs_are_still_to_take_is_not_free_and_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = CopyPlan(copied=Totals(files=1, bytes=2 * GIB, space_bytes=2 * GIB))
    request = volume_request(INTO_A_VOLUME, files, None)
    plan = VolumePlan(request, size_bytes=4 * GIB, inodes=1000)
    alone = volume_space(INTO_A_VOLUME, files, plan)
    monkeypatch.setattr(plans_space, "in_flight", lambda _: OTHERS)
    beside = volume_space(INTO_A_VOLUME, files, plan)
    assert (beside.free_bytes, beside.free_inodes) == (alone.free_bytes - 3 * GIB, 600)
    none = volume_space(INTO_A_VOLUME, files, replace(plan, size_bytes=GIB, inodes=100))
    assert (none.free_bytes, none.free_inodes) == (0, 0)

    refusal = check_space(INTO_A_VOLUME, beside)
    assert refusal is not None
    who = "the runs that stage 'city' and 'night' are"
    assert f"1.00 GiB free (beside 3.00 GiB that {who} still to write)" in refusal.message
    few = replace(beside, needed_bytes=0, needed_inodes=601)
    refusal = check_space(INTO_A_VOLUME, few)
    assert refusal is not None
    assert f"has 600 free beside 400 that {who} still to make files in" in refusal.message
    assert refusal.hint and refusal.hint.startswith("run the same command again")
    one = replace(few, others=replace(OTHERS, names=("city",)))
    refusal = check_space(INTO_A_DIRECTORY, one)
    assert refusal is not None and "the run that stages 'city' is still to" in refusal.message
    assert refusal.hint and refusal.hint.startswith("choose a target with more inodes")


@pytest.fixture
def beside(tmp_path: Path) -> Record:
    """Return the record of a run that has copied one page of the 5 MiB that it is to copy."""
    mount = mount_below(str(tmp_path))
    assert mount is not None
    private = tmp_path / ".hostprep-city"
    private.mkdir()
    (private / "copy").write_bytes(b"\1" * 4096)
    return Record(
        name="city",
        source="/data",
        target=str(tmp_path / "city"),
        volume=None,
        files=1,
        bytes=1,
        entries=1,
        digest=None,
        verify="readback",
        verified_at=None,
        staged_at=1.0,
        boot_id="boot",
        phase="copying",
        target_mount=mount.target,
        needed_bytes=5 * MIB,
        needed_inodes=30,
    )


def test_what_another_run_is_still_to_write_counts_while_it_is_at_work(
    beside: Record, tmp_path: Path
) -> None:
    copy = tmp_path / ".hostprep-city/copy"
    to_take = InFlight(5 * MIB - copy.stat().st_blocks * 512, 29, ("city",))
    request = StageRequest("/data", "data", str(tmp_path), None)
    save_record(beside, durable=False)
    assert in_flight(request) == NOTHING, "a killed run takes nothing more"
    with lock(beside.lock, purpose="stage"):
        assert in_flight(request) == to_take
        own = StageRequest("/data", "city", str(tmp_path), None)
        assert in_flight(own) == NOTHING, "what it writes itself is no other's"
        save_record(replace(beside, needed_bytes=1, needed_inodes=1), durable=False)
        assert in_flight(request) == InFlight(0, 0, ("city",)), "never less than nothing"
        for changed in (
            replace(beside, phase="removing"),
            replace(beside, needed_inodes=0),
            replace(beside, target_mount="/elsewhere"),
        ):
            save_record(changed, durable=False)
            assert in_flight(request) == NOTHING


def test_a_volume_has_inodes_for_attributes_as_well() -> None:
    files = CopyPlan(copied=Totals(files=100_000), attribute_bytes=100_000 * 2048)
    plain = volume_request(INTO_A_VOLUME, replace(files, attribute_bytes=0), None).inodes
    wanted = volume_request(INTO_A_VOLUME, files, None).inodes
    assert plain is not None and wanted == plain + 200_000 * 5 // 4
    assert files.inodes_needed(of_tmpfs=True) == files.inodes_needed() + 200_000
    live = replace(LIVE, inodes=plain, used_inodes=1)
    grown = volume_request(INTO_A_VOLUME, files, live).inodes
    assert grown is not None and grown > wanted


def test_a_tmpfs_has_an_inode_for_every_hard_link_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the links of a data set that is full of them fail for lack of space, each time."""
    link = HardLink("", entry("b", nlink=2), "a", None)
    files = CopyPlan(copied=Totals(files=1000), links=[link] * 100_000)
    wanted = volume_request(INTO_A_VOLUME, files, None)
    assert wanted.inodes is not None and wanted.inodes >= 101_000
    live = replace(LIVE, inodes=50_000, used_inodes=1)
    grown = volume_request(INTO_A_VOLUME, files, live).inodes
    assert grown is not None and grown > 101_000
    space = volume_space(INTO_A_VOLUME, files, VolumePlan(wanted, size_bytes=GIB, inodes=100_000))
    assert space.needed_inodes >= 101_000 and not fits(space)
    needed = {}
    for fstype in ("tmpfs", "ext4"):
        mount = replace(MOUNT, fstype=fstype)
        monkeypatch.setattr(plans_space, "mount_below", lambda path, mount=mount: mount)
        into = replace(INTO_A_DIRECTORY, parent=str(tmp_path))
        needed[fstype] = directory_space(into, files).needed_inodes
    assert needed["tmpfs"] - needed["ext4"] == 100_000


def test_a_volume_that_is_larger_than_was_asked_for_has_to_grow_from_what_it_is() -> None:
    files = CopyPlan(copied=Totals(files=1, bytes=11 * GIB, space_bytes=11 * GIB))
    live = replace(LIVE, size_bytes=20 * GIB, used_bytes=10 * GIB)
    request = volume_request(INTO_A_VOLUME, files, live)
    space = volume_space(
        INTO_A_VOLUME, files, VolumePlan(request, size_bytes=20 * GIB, inodes=9999, live=live)
    )
    refusal = check_space(INTO_A_VOLUME, space)
    assert refusal is not None and refusal.hint == "ask for a larger volume: --to-tmpfs 21G"
    half = replace(files, copied=Totals(files=1, bytes=6 * GIB, space_bytes=6 * GIB))
    space = volume_space(
        INTO_A_VOLUME, half, VolumePlan(request, size_bytes=20 * GIB, inodes=9999, live=live)
    )
    assert (space.needed_bytes, space.free_bytes) == (6 * GIB, 10 * GIB)
    share = Share(INTO_A_VOLUME, replace(space, free_inodes=None), 6 * GIB, 1)
    assert room_for_all([share]) is None
    refusal = room_for_all([share, share])
    assert refusal is not None and refusal.hint == "ask for a larger volume: --to-tmpfs 22G"


def test_unfinished_copies_count_as_free_less_what_is_taken_up_of_them() -> None:
    files = CopyPlan(resumed=Totals(files=10, bytes=MIB))
    space = Space(5 * MIB, MIB, 20, 5)
    found = reclaiming(space, 8 * MIB, 100, files)
    assert found.free_bytes == MIB + 8 * MIB - MIB - 10 * 4096
    assert found.free_inodes == 5 + 90
    assert reclaiming(space, 100, 3, files) == space, "never less than there is"
    assert reclaiming(Space(1, 1, 1, None), 8, 1, CopyPlan()).free_inodes is None
    assert reclaiming(Space(1, None, 1, None), 8, 1, CopyPlan()).free_bytes is None


@pytest.mark.parametrize(("left_bytes", "fits_in"), [(8 * MIB, True), (0, False)])
def test_unfinished_copies_count_as_free_in_the_memory_too_once_others_have_begun(
    left_bytes: int, fits_in: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who had counted on them was refused where another run had begun meanwhile."""

    def budget(request: StageRequest, space: Space) -> RamBudget:
        return RamBudget(memory_growth(space), 4 * MIB, 0, "MemAvailable")

    monkeypatch.setattr(plans_space, "memory_budget", budget)
    monkeypatch.setattr(plans_space, "footprint", lambda *_: (left_bytes, 3))
    monkeypatch.setattr(preparing, "directory_space", lambda *_: Space(10 * MIB, GIB, 3, None))
    monkeypatch.setattr(preparing, "in_flight", lambda _: InFlight(names=("other",)))
    monkeypatch.setattr(preparing, "in_flight_in_memory", lambda _: NOTHING)
    space = Space(10 * MIB, GIB, 3, None)
    plan: Any = SimpleNamespace(
        request=INTO_A_DIRECTORY, files=CopyPlan(), volume=None, in_ram=True, space=space
    )
    with nullcontext() if fits_in else pytest.raises(Refused, match="fit into the memory"):
        preparing._check_room_beside_others(plan, 0)


def test_what_has_no_limit_or_tells_none_has_room() -> None:
    space = Space(11 * GIB, None, 5, None)
    assert fits(space) and check_space(INTO_A_DIRECTORY, space) is None
    share = Share(INTO_A_DIRECTORY, Space(GIB, None, 1, None), GIB, 1)
    assert room_for_all([share, share]) is None


@pytest.mark.parametrize(
    ("live", "inodes"),
    [
        (None, 1000 * 5 // 4 + 4096),
        (replace(LIVE, inodes=1501, used_inodes=500), 1501),  # enough as it is
        (replace(LIVE, inodes=1500, used_inodes=500), 500 + 1000 * 5 // 4 + 4096),
        (replace(LIVE, inodes=None, used_inodes=500), 500 + 1000 * 5 // 4 + 4096),
    ],
)
def test_a_volume_gets_inodes_for_what_will_live_in_it(
    live: LiveVolume | None, inodes: int
) -> None:
    files = CopyPlan(
        copied=Totals(files=900 - 16, bytes=0, space_bytes=0),
        make_directories=[f"class-{number}" for number in range(100)],
    )
    assert files.inodes_needed() == 1000
    request = volume_request(INTO_A_VOLUME, files, live)
    assert (request.inodes, request.allow_shrink) == (inodes, False)


def test_memory_takes_the_inodes_as_well_and_nothing_twice_that_is_there_already() -> None:
    space = Space(10 * MIB, GIB, 3000, None, reclaimed_bytes=4 * MIB, reclaimed_inodes=1000)
    assert memory_growth(space) == 6 * MIB + 2000 * INODE_BYTES
    assert memory_growth(replace(space, needed_bytes=MIB)) == 0


def test_only_force_takes_memory_that_the_machine_needs() -> None:
    too_much = RamBudget(2 * GIB, GIB, 0, "MemAvailable")
    refusal = check_memory(INTO_A_DIRECTORY, too_much)
    assert refusal is not None and "1.00 GiB too little" in refusal.message
    assert check_memory(INTO_A_DIRECTORY, replace(too_much, available_bytes=2 * GIB)) is None
    assert check_memory(replace(INTO_A_DIRECTORY, force=True), too_much) is None
    assert (refusal.hint, refusal.spec_hint) == (
        plans_space.OUT_OF_MEMORY,
        "choose another `to`, on a disk, or a smaller --reserve of `hostprep apply`",
    )
    limited = check_memory(INTO_A_VOLUME, too_much)  # the volume is there; this process may less
    assert limited is not None and limited.spec_hint is not None
    assert limited.spec_hint.startswith("run it where that limit does not apply")
    assert limited.hint == f"{limited.spec_hint}; --force stages it all the same"


class Disk(NamedTuple):
    """What statvfs tells of a disk of 4 KiB blocks; nobody can make a real one so."""

    f_frsize: int = 4096
    f_blocks: int = 2000
    f_bavail: int = 1000
    f_bfree: int = 1300
    f_files: int = 500
    f_favail: int = 77


@pytest.mark.parametrize(
    ("disk", "mounted", "expected"),
    [
        (Disk(), True, (4_096_000, 77, 1_228_800, "ext4")),
        (Disk(f_files=0, f_favail=0), True, (4_096_000, None, 1_228_800, "ext4")),  # no limit
        # ramfs, a tmpfs with size=0, and FUSE that does not tell: no limit, where 0 would be full
        (Disk(f_blocks=0, f_bavail=0, f_bfree=0), True, (None, 77, 0, "ext4")),
        (Disk(f_bfree=1000), False, (4_096_000, 77, 0, None)),
    ],
)
def test_a_directory_has_what_statvfs_tells_of_its_file_system(
    disk: Disk, mounted: bool, expected: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = CopyPlan(copied=Totals(files=3, bytes=1, space_bytes=4096, entries=3))
    monkeypatch.setattr(plans_space, "standing_directory", lambda _: "/")
    monkeypatch.setattr(plans_space.os, "statvfs", lambda _: disk)
    mount = replace(MOUNT, fstype="ext4") if mounted else None
    monkeypatch.setattr(plans_space, "mount_below", lambda _: mount)
    space = directory_space(INTO_A_DIRECTORY, files)
    found = (space.free_bytes, space.free_inodes, space.reserved_bytes, space.fstype)
    assert found == expected and space.where == "the file system of /"
    assert (space.needed_bytes, space.needed_inodes) == (4096 + 3 * 120, 3 + 16)


@pytest.mark.parametrize(
    ("left", "told"),
    [
        (QuotaLeft(MIB, None), "1.00 MiB free; 9.00 MiB are missing"),
        (QuotaLeft(None, 2), "has 2 free"),
        (QuotaLeft(1 << 60, 1 << 60), None),
        (None, None),
    ],
)
def test_a_directory_has_no_more_than_the_quota_leaves(
    left: QuotaLeft | None, told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most kernels that build this have none: tests/vm/test_quota.py is against a real one."""
    files = CopyPlan(copied=Totals(files=3, bytes=10 * MIB, space_bytes=10 * MIB, entries=3))
    monkeypatch.setattr(plans_space, "quota_left", lambda _path: left)
    refusal = check_space(INTO_A_DIRECTORY, directory_space(INTO_A_DIRECTORY, files))
    if told is None:
        assert refusal is None
    else:
        assert refusal is not None and told in refusal.message
        assert "this user's share, by quota" in refusal.message


@pytest.mark.parametrize(
    ("left", "by_quota"), [(QuotaLeft(None, 1 << 20), False), (QuotaLeft(MIB, None), True)]
)
def test_a_quota_is_named_where_it_is_what_leaves_too_little(
    left: QuotaLeft, by_quota: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of files alone does not make a full disk this user's to empty."""
    files = CopyPlan(copied=Totals(files=3, bytes=10 * MIB, space_bytes=10 * MIB, entries=3))
    full = Disk(f_blocks=1 << 20, f_bfree=1536, f_bavail=512, f_files=1 << 30, f_favail=1 << 30)
    monkeypatch.setattr(plans_space, "standing_directory", lambda _: "/")
    monkeypatch.setattr(plans_space.os, "statvfs", lambda _: full)
    monkeypatch.setattr(plans_space, "mount_below", lambda _: replace(MOUNT, fstype="ext4"))
    monkeypatch.setattr(plans_space, "quota_left", lambda _path: left)
    refusal = check_space(INTO_A_DIRECTORY, directory_space(INTO_A_DIRECTORY, files))
    assert refusal is not None
    assert ("by quota" in refusal.message) is by_quota
    assert ("4.00 MiB that it keeps for root only" in refusal.message) is not by_quota


@pytest.mark.parametrize(
    ("fstype", "ours", "refused", "counts"),
    [
        ("tmpfs", False, False, True),
        ("ramfs", False, False, True),
        ("ext4", False, False, False),
        (None, False, False, False),
        ("tmpfs", True, False, False),  # all of it was counted when it was mounted
        ("tmpfs", False, True, False),  # a place where no volume of ours can be
    ],
)
def test_what_a_directory_in_memory_takes_is_the_machines(
    fstype: str | None, ours: bool, refused: bool, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount = None if fstype is None else replace(MOUNT, fstype=fstype)
    monkeypatch.setattr(plans_space, "mount_below", lambda _: mount)

    def gather(path: str) -> VolumeFacts:
        if refused:
            raise Refused("no place for a volume")
        live = replace(MOUNT, target=path)
        return replace(fresh(path), mount=live, record=RECORD if ours else None)

    monkeypatch.setattr(plans_space, "gather", gather)
    space = Space(10 * MIB, GIB, 3, None)
    budget = memory_budget(replace(INTO_A_DIRECTORY, reserve_bytes=7), space)
    assert (budget is not None) is counts
    if budget is not None:
        assert budget.growth_bytes == memory_growth(space) and budget.reserve_bytes == 7


def test_a_limit_counts_in_a_volume_of_ours_too_and_nothing_that_it_was_counted_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plans_space, "mount_below", lambda _: MOUNT)
    machine = fresh("/mnt").headroom
    limited = replace(machine, available_bytes=5 * MIB, machine=machine)

    def gather(path: str) -> VolumeFacts:
        return replace(
            fresh(path),
            mount=replace(MOUNT, target=path),
            record=RECORD,
            headroom=limited,
            promised_bytes=GIB,
        )

    monkeypatch.setattr(plans_space, "gather", gather)
    budget = memory_budget(INTO_A_VOLUME, Space(10 * MIB, GIB, 3, None))
    assert budget is not None
    assert (budget.promised_bytes, budget.available_bytes) == (0, 5 * MIB)


def test_a_volume_has_free_what_is_not_used_and_a_refused_one_what_was_asked_for() -> None:
    files = CopyPlan(copied=Totals(files=1, bytes=1, space_bytes=4096))
    request = volume_request(INTO_A_VOLUME, files, None)
    new = volume_space(INTO_A_VOLUME, files, VolumePlan(request, size_bytes=20 * GIB, inodes=9999))
    assert (new.volume_bytes, new.free_bytes, new.free_inodes) == (20 * GIB, 20 * GIB, 9999)
    live = replace(LIVE, used_bytes=GIB, used_inodes=99)
    used = volume_space(
        INTO_A_VOLUME, files, VolumePlan(request, size_bytes=20 * GIB, inodes=9999, live=live)
    )
    assert (used.free_bytes, used.free_inodes) == (19 * GIB, 9900)
    refused = volume_space(INTO_A_VOLUME, files, VolumePlan(request, refusal=Refused("no")))
    assert (refused.free_bytes, refused.free_inodes) == (10 * GIB, request.inodes)


@pytest.mark.parametrize(
    ("phase", "verify", "wanted", "told"),
    [
        ("staged", "none", Verify.READBACK, True),
        ("updating", "none", Verify.INFLIGHT, True),
        ("staged", "none", Verify.NONE, False),
        ("staged", "readback", Verify.READBACK, False),
        # Of a first run that was cut short nothing stands; with --verify none it would begin anew.
        ("copying", "none", Verify.READBACK, False),
        ("copying", "readback", Verify.READBACK, False),
    ],
)
def test_only_what_was_staged_unverified_is_kept_by_verify_none(
    phase: str, verify: str, wanted: Verify, told: bool
) -> None:
    times = {"verified_at": None, "staged_at": 0.0, "boot_id": "b"}
    previous = Record(
        "data", "/data", "/fast/data", None, 1, 1, 1, None, verify, **times, phase=phase
    )
    request = replace(INTO_A_DIRECTORY, verify=wanted)
    refusal = _room_refusal(request, Space(2, 1, 1, None, where="it"), previous)
    assert refusal is not None and ("--verify none" in (refusal.hint or "")) is told
