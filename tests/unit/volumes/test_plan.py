"""What is planned for a volume, from facts made by hand: no machine is touched."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hostprep.errors import Refused
from hostprep.host.memory import Headroom
from hostprep.host.mounts import Mount
from hostprep.system.mounting import TmpfsSupport
from hostprep.units import GIB, KIB, MIB
from hostprep.volumes import settings
from hostprep.volumes.budget import budget_warnings
from hostprep.volumes.facts import VolumeFacts
from hostprep.volumes.fstab_line import set_volume
from hostprep.volumes.fstab_plan import RELOAD
from hostprep.volumes.model import Huge, RamBudget, VolumeRequest
from hostprep.volumes.paths import Folder, Place, PointKind
from hostprep.volumes.plan import plan_volume
from hostprep.volumes.records import VolumeRecord
from hostprep.volumes.settings import default_inodes, making_writable
from tests.unit.volumes.made import MNT, ROOT, fresh, live_volume

PATH = "/mnt/data"

LIVE = live_volume(
    path=PATH,
    size_bytes=8 * GIB,
    used_bytes=3 * GIB,
    inodes=524288,
    used_inodes=1000,
    huge=Huge.WITHIN_SIZE,
    options=("rw", "nosuid", "nodev", "noexec", "noatime", "size=8388608k"),
)
MOUNT = Mount(50, 27, "0:40", "/", PATH, "tmpfs", "hostprep", ("rw",), ("rw",))
RECORD = VolumeRecord(
    PATH, "mnt-data", "boot-1", "0:40", "hostprep", 8 * GIB, 524288, (), "uid 0", 0.0
)
FRESH = fresh(PATH)
MOUNTED = replace(
    FRESH,
    place=Place(PointKind.DIRECTORY, (ROOT, MNT), entries=("train",)),
    mount=MOUNT,
    live=LIVE,
    record=RECORD,
)
REQUEST = VolumeRequest(PATH, 8 * GIB)
LINE = set_volume(b"", path=PATH, options=("size=8g", "nr_inodes=2000"))


def refusal(request: VolumeRequest, facts: VolumeFacts) -> str:
    plan = plan_volume(request, facts)
    assert plan.refusal is not None, "this must be refused"
    assert not plan.changes
    return plan.refusal.message


def actions(request: VolumeRequest, facts: VolumeFacts) -> list[str]:
    plan = plan_volume(request, facts)
    assert plan.refusal is None, plan.refusal
    return [change.action for change in plan.changes]


def test_a_new_volume_has_explicit_options_in_bytes() -> None:
    plan = plan_volume(REQUEST, FRESH)
    assert plan.options == (
        "nosuid",
        "nodev",
        "noexec",
        "mode=0755",
        "uid=0",
        "gid=0",
        "size=8589934592",
        "nr_inodes=524288",
        "huge=within_size",
        "noswap",
    )
    assert plan.mount and plan.make_dirs == (PATH,) and plan.remount_options is None
    assert [change.subject for change in plan.changes] == [PATH, PATH]
    assert plan.warnings == ()
    (warning,) = plan_volume(REQUEST, replace(FRESH, stays_here=True)).warnings
    assert f"{PATH} is seen only by it and what it starts" in warning


def test_what_is_asked_for_is_taken() -> None:
    asked = replace(REQUEST, mode=0o1777, uid=5, gid=6, inodes=77, huge=Huge.NEVER, swap=True)
    options = plan_volume(asked, FRESH).options
    assert options[3:] == ("mode=1777", "uid=5", "gid=6", "size=8589934592", "nr_inodes=77")


@pytest.mark.parametrize(("page_bytes", "size_bytes"), [(4096, 8192), (65536, 65536)])
def test_a_size_is_rounded_up_to_pages_as_the_kernel_does(
    page_bytes: int, size_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "PAGE_BYTES", page_bytes)
    assert plan_volume(replace(REQUEST, size_bytes=4097), FRESH).size_bytes == size_bytes


def test_default_inodes_are_bounded_on_both_sides() -> None:
    assert default_inodes(10 * MIB) == 65536
    assert default_inodes(16 * GIB) == 16 * GIB // (16 * KIB)
    assert default_inodes(1024 * GIB) == 4 * 1024 * 1024


@pytest.mark.parametrize(
    ("support", "request_", "swap", "expected"),
    [
        (TmpfsSupport(False, True), REQUEST, True, "does not take noswap"),
        (TmpfsSupport(None, None), REQUEST, True, "takes root and CAP_SYS_ADMIN"),
        (TmpfsSupport(False, True), REQUEST, False, None),
        (TmpfsSupport(False, True), replace(REQUEST, swap=True), True, None),
        (TmpfsSupport(True, True), REQUEST, True, None),
    ],
)
def test_it_says_when_data_may_be_swapped(
    support: TmpfsSupport, request_: VolumeRequest, swap: bool, expected: str | None
) -> None:
    facts = replace(FRESH, support=support, headroom=replace(FRESH.headroom, swap_active=swap))
    warnings = plan_volume(request_, facts).warnings
    assert len(warnings) == (expected is not None)
    assert expected is None or expected in warnings[0]
    to_zram = replace(facts, headroom=replace(facts.headroom, swap_in_ram=True))
    assert plan_volume(request_, to_zram).warnings == ()


def test_huge_always_is_warned_about_and_an_unknown_huge_refused() -> None:
    always = replace(REQUEST, huge=Huge.ALWAYS)
    assert "small files" in plan_volume(always, FRESH).warnings[0]
    without = replace(FRESH, support=TmpfsSupport(noswap=True, huge=False))
    assert "huge=always" in refusal(always, without)
    for request in (REQUEST, replace(REQUEST, huge=Huge.NEVER)):
        plan = plan_volume(request, without)
        assert plan.refusal is None and not any(o.startswith("huge") for o in plan.options)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (replace(FRESH, path="/usr/share/x"), "belongs to the system"),
        (replace(FRESH, path="/mnt"), "belongs to the system"),
        (
            replace(FRESH, place=Place(PointKind.OTHER, (ROOT,), symlink="/mnt/link")),
            "symbolic link",
        ),
        (replace(FRESH, place=Place(PointKind.OTHER, (ROOT, MNT))), "not a directory"),
        (
            replace(FRESH, place=replace(FRESH.place, read_only=True)),
            "mounted read-only",
        ),
        (
            replace(FRESH, place=Place(PointKind.DIRECTORY, (ROOT, MNT), entries=("a", "b"))),
            "not empty (a, b",
        ),
        (replace(FRESH, mount=replace(MOUNT, fstype="ext4", source="/dev/sdb1")), "/dev/sdb1"),
        (replace(MOUNTED, record=None), "not mounted by hostprep"),
        (replace(MOUNTED, mount=replace(MOUNT, device="0:99")), "not mounted by hostprep"),
        (replace(MOUNTED, mount=replace(MOUNT, source="theirs")), "not mounted by hostprep"),
        (replace(MOUNTED, boot_id="boot-2"), "not mounted by hostprep"),
    ],
)
def test_places_that_are_refused(facts: VolumeFacts, words: str) -> None:
    assert words in refusal(REQUEST, facts)


def test_where_nothing_can_be_written_no_place_beside_it_is_proposed() -> None:
    refused = plan_volume(REQUEST, replace(FRESH, place=replace(FRESH.place, read_only=True)))
    assert refused.refusal is not None and refused.refusal.hint is not None
    assert "/run/NAME" in refused.refusal.hint and "/mnt" not in refused.refusal.hint


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        (Folder("/mnt", 1000, 0, 0o755), "belongs to uid 1000"),
        (Folder("/mnt", 0, 0, 0o1777), "writable by everybody"),
        (Folder("/mnt", 0, 50, 0o2775), "writable by gid 50"),
    ],
)
def test_a_parent_that_others_can_write_is_refused(folder: Folder, words: str) -> None:
    facts = replace(FRESH, place=replace(FRESH.place, parents=(ROOT, folder)))
    assert words in refusal(REQUEST, facts)


def test_who_owns_a_parent_is_not_known_in_every_user_namespace() -> None:
    root = Folder("/", 65534, 65534, 0o755, of_unknown=True)
    refused = plan_volume(
        REQUEST, replace(FRESH, place=replace(FRESH.place, parents=(root, MNT)))
    ).refusal
    assert refused is not None and "this user namespace does not know (uid 65534)" in str(refused)
    # Nor is another place below / any better.
    assert refused.hint is not None and "outside of the namespace" in refused.hint
    assert "/mnt/NAME" not in refused.hint and "`to: DIR`" in str(refused.spec_hint)


def test_a_group_of_root_s_may_write_a_parent() -> None:
    folder = Folder("/mnt", 0, 0, 0o775)
    facts = replace(FRESH, place=replace(FRESH.place, parents=(ROOT, folder)))
    assert plan_volume(REQUEST, facts).refusal is None


@pytest.mark.parametrize("size_bytes", [0, -1])
def test_no_size_is_refused_since_the_kernel_takes_it_for_no_limit(size_bytes: int) -> None:
    assert "size 0" in refusal(replace(REQUEST, size_bytes=size_bytes), FRESH)


def test_no_inode_is_refused_since_the_kernel_takes_none_for_no_limit() -> None:
    assert "at least one inode" in refusal(replace(REQUEST, inodes=0), FRESH)


def test_an_empty_directory_is_as_good_as_none() -> None:
    empty = replace(FRESH, place=Place(PointKind.DIRECTORY, (ROOT, MNT)))
    plan = plan_volume(REQUEST, empty)
    assert plan.refusal is None and plan.mount and not plan.make_dirs


def test_a_second_run_changes_nothing_and_needs_no_budget() -> None:
    poor = replace(MOUNTED, headroom=Headroom(64 * GIB, 0, "MemAvailable", False))
    plan = plan_volume(REQUEST, poor)
    assert plan.refusal is None and not plan.changes and plan.budget is None
    assert [each.reason for each in plan.unchanged] == ["it is mounted as wanted"]


def test_a_volume_that_somebody_made_read_only_stays_so_and_is_told_of() -> None:
    options = ("ro", *LIVE.options[1:], "nosymfollow")
    closed = replace(MOUNTED, live=replace(LIVE, options=options))
    plan = plan_volume(REQUEST, closed)
    assert plan.refusal is None and not plan.changes
    line = making_writable(PATH, options)
    assert line.startswith("mount -o remount,rw,nosuid,") and ",nosymfollow " in line
    words = f"it is read-only, and stays so: `{line}` makes it writable"
    assert [(each.reason, each.as_wanted) for each in plan.unchanged] == [(words, False)]
    assert [f"`{line}`" in each for each in plan.warnings] == [True]
    grown = plan_volume(replace(REQUEST, size_bytes=9 * GIB), closed)
    assert grown.remount_options is not None and "ro" in grown.remount_options
    assert not any(each.as_wanted for each in grown.unchanged)
    assert "cannot change" in refusal(replace(REQUEST, mode=0o700), closed)
    assert "cannot change" in refusal(replace(REQUEST, gid=50), closed)


def test_a_second_run_leaves_a_volume_the_few_inodes_that_it_was_given() -> None:
    few = replace(MOUNTED, live=replace(LIVE, inodes=2000), record=replace(RECORD, inodes=2000))
    assert actions(REQUEST, few) == []


def test_fewer_inodes_than_hostprep_set_are_made_up_for_where_nobody_asks_for_a_number() -> None:
    fewer = replace(MOUNTED, live=replace(LIVE, inodes=2000))
    assert actions(REQUEST, fewer) == ["allow 524,288 inodes by a remount"]
    assert actions(replace(REQUEST, inodes=1500), fewer) == []
    assert actions(replace(REQUEST, inodes=3000), fewer) == ["allow 3,000 inodes by a remount"]
    assert actions(REQUEST, replace(fewer, record=None, fstab=LINE)) == []


def test_a_volume_without_a_limit_of_inodes_cannot_get_one() -> None:
    unlimited = replace(MOUNTED, live=replace(LIVE, inodes=None))
    assert "no inode limit" in refusal(replace(REQUEST, inodes=77), unlimited)


def test_what_is_read_only_at_its_mount_point_alone_is_not_made_so_elsewhere() -> None:
    assert MOUNTED.mount is not None
    bound = replace(MOUNTED.mount, mount_options=("ro", "nosuid"), super_options=("rw",))
    live = replace(LIVE, options=("ro", *LIVE.options))
    closed = replace(MOUNTED, mount=bound, live=live)
    assert "wherever else it is mounted" in refusal(replace(REQUEST, size_bytes=9 * GIB), closed)
    assert actions(REQUEST, closed) == []  # as nothing is to be remounted
    whole = replace(closed, mount=replace(bound, super_options=("ro",)))
    assert (
        actions(replace(REQUEST, size_bytes=9 * GIB), whole)[0] == "grow to 9.00 GiB by a remount"
    )


@pytest.mark.parametrize("shrink", [True, False])
def test_a_volume_without_a_limit_of_size_cannot_get_one(shrink: bool) -> None:
    unlimited = replace(MOUNTED, live=replace(LIVE, size_bytes=0, used_bytes=GIB))
    said = refusal(replace(REQUEST, allow_shrink=shrink), unlimited)
    assert "no size limit" in said and "nothing was changed" in said


def test_growing_is_a_remount_that_keeps_what_is_not_ours_to_change() -> None:
    plan = plan_volume(replace(REQUEST, size_bytes=16 * GIB), MOUNTED)
    assert plan.changes[0].action == "grow to 16.0 GiB by a remount"
    assert plan.unchanged == ()
    assert plan.remount_options == (
        "nosuid",
        "nodev",
        "noexec",
        "noatime",
        "size=17179869184",
        "nr_inodes=1048576",
    )
    assert not plan.mount and plan.mode is None and plan.owner is None
    assert plan.budget is not None
    # 16 GiB less the 3 that it holds, and an inode's KiB for each that is not used yet.
    assert plan.budget.growth_bytes == 13 * GIB + (1048576 - 1000) * KIB


@pytest.mark.parametrize(
    "more",
    [
        replace(REQUEST, size_bytes=9 * GIB, inodes=524288),
        replace(REQUEST, inodes=524289),
        replace(REQUEST, size_bytes=8 * GIB + 4096, inodes=524288 + 4),
    ],
)
def test_growing_in_bytes_or_in_inodes_has_to_fit_and_shrinking_has_not(
    more: VolumeRequest,
) -> None:
    poor = replace(MOUNTED, headroom=Headroom(64 * GIB, 0, "MemAvailable", False))
    assert "does not fit into the memory" in refusal(more, poor)
    assert plan_volume(replace(REQUEST, size_bytes=4 * GIB), poor).refusal is None


def test_more_inodes_alone_are_a_remount_and_fewer_are_left() -> None:
    assert actions(replace(REQUEST, inodes=10), MOUNTED) == []
    (left,) = plan_volume(replace(REQUEST, inodes=10), MOUNTED).unchanged  # nor is it "as wanted"
    assert left.subject == f"inodes of {PATH}"
    assert left.reason.startswith("524,288 are allowed, more than the 10 that must fit at least")
    assert actions(replace(REQUEST, inodes=600_000), MOUNTED) == [
        "allow 600,000 inodes by a remount"
    ]


def test_shrinking_stops_at_what_it_holds() -> None:
    assert "shrink to 4.00 GiB" in actions(replace(REQUEST, size_bytes=4 * GIB), MOUNTED)[0]
    assert "shrink to 3.00 GiB" in actions(replace(REQUEST, size_bytes=3 * GIB), MOUNTED)[0]
    words = refusal(replace(REQUEST, size_bytes=3 * GIB - 4096), MOUNTED)
    assert "holds 3.00 GiB (3221225472 bytes)" in words


def test_staging_grows_and_never_shrinks() -> None:
    staging = replace(REQUEST, allow_shrink=False)
    assert plan_volume(replace(staging, size_bytes=16 * GIB), MOUNTED).size_bytes == 16 * GIB
    (same,) = plan_volume(staging, MOUNTED).unchanged
    assert same.reason == "it is mounted as wanted"
    plan = plan_volume(replace(staging, size_bytes=GIB), MOUNTED)
    assert plan.refusal is None and not plan.changes
    assert plan.size_bytes == 8 * GIB
    assert any("enough" in each.reason for each in plan.unchanged)


def test_a_percentage_of_the_ram_is_what_it_was_but_for_a_little() -> None:
    """Else a volume would grow by what the RAM differs from boot to boot, or be refused that."""
    poor = replace(MOUNTED, headroom=replace(MOUNTED.headroom, available_bytes=0))
    share = replace(REQUEST, of_ram=True)
    for more in (-4096, 0, 80 * MIB):
        assert plan_volume(replace(share, size_bytes=8 * GIB + more), poor).changes == ()
    kept = plan_volume(replace(share, size_bytes=8 * GIB + 80 * MIB), poor).unchanged
    assert kept[0].reason == "it is 8.00 GiB, within 1% of the 8.08 GiB that were asked for"
    alike = plan_volume(replace(share, size_bytes=8 * GIB - 4096), poor).unchanged
    assert [each.reason for each in alike] == ["it is mounted as wanted"]
    assert "grow" in actions(replace(share, size_bytes=8 * GIB + 90 * MIB), MOUNTED)[0]
    assert "grow" in actions(replace(REQUEST, size_bytes=8 * GIB + 80 * MIB), MOUNTED)[0]


def test_mode_and_owner_need_no_remount() -> None:
    plan = plan_volume(replace(REQUEST, mode=0o700, uid=1000, gid=1000), MOUNTED)
    assert plan.remount_options is None
    assert (plan.mode, plan.owner) == (0o700, (1000, 1000))
    assert [change.action for change in plan.changes] == ["set mode 0700", "set owner 1000:1000"]


def test_what_somebody_remounted_away_comes_back() -> None:
    drifted = replace(MOUNTED, live=replace(LIVE, nosuid=False, nodev=False))
    plan = plan_volume(REQUEST, drifted)
    assert plan.remount_options is not None and "nosuid" in plan.remount_options
    assert [change.action for change in plan.changes] == ["set nosuid,nodev again by a remount"]


def test_noswap_cannot_change_and_says_so() -> None:
    swapping = replace(
        MOUNTED,
        live=replace(LIVE, noswap=False),
        headroom=replace(FRESH.headroom, swap_active=True),
    )
    plan = plan_volume(REQUEST, swapping)
    assert not plan.changes
    assert any(each.subject == "noswap" for each in plan.unchanged)
    assert "mounted without noswap" in plan.warnings[0]
    (told,) = plan_volume(replace(REQUEST, swap=True), MOUNTED).unchanged  # nor is it "as wanted"
    assert told.subject == "noswap"


def test_noswap_is_asked_of_no_kernel_that_may_not_take_it() -> None:
    for support, noswap, why in [
        (TmpfsSupport(False, True), False, ["this kernel does not take noswap"]),
        (TmpfsSupport(None, None), True, []),
    ]:
        facts = replace(
            MOUNTED,
            live=replace(LIVE, noswap=noswap),
            support=support,
            headroom=replace(FRESH.headroom, swap_active=True),
        )
        plan = plan_volume(REQUEST, facts)
        assert [each.reason for each in plan.unchanged] == ["it is mounted as wanted"]
        assert [warning.partition(",")[0] for warning in plan.warnings] == why


def test_huge_changes_only_when_asked() -> None:
    assert actions(REQUEST, replace(MOUNTED, live=replace(LIVE, huge=Huge.NEVER))) == []
    plan = plan_volume(replace(REQUEST, huge=Huge.NEVER), MOUNTED)
    assert plan.remount_options is not None and plan.remount_options[-1] == "huge=never"


def test_the_budget_is_refused_with_its_arithmetic() -> None:
    tight = replace(FRESH, headroom=Headroom(64 * GIB, 14 * GIB, "MemAvailable", False))
    words = refusal(REQUEST, tight)
    assert "promised" not in words
    # 8 GiB + 512 MiB of inodes, and a tenth of 64 GiB
    assert "8.50 GiB" in words and "6.40 GiB" in words and "14.9 GiB" in words
    assert "14.0 GiB are available according to MemAvailable, 922 MiB too little" in words
    assert plan_volume(replace(REQUEST, reserve_bytes=5 * GIB), tight).refusal is None


def test_the_budget_fits_to_the_byte() -> None:
    exact = 8 * GIB + 524288 * KIB + 1000
    request = replace(REQUEST, reserve_bytes=1000)
    enough = replace(FRESH, headroom=Headroom(64 * GIB, exact, "MemAvailable", False))
    short = replace(FRESH, headroom=Headroom(64 * GIB, exact - 1, "MemAvailable", False))
    assert plan_volume(request, enough).refusal is None
    assert plan_volume(request, short).refusal is not None


def test_room_that_other_volumes_have_not_used_yet_is_not_given_twice() -> None:
    words = refusal(REQUEST, replace(FRESH, promised_bytes=50 * GIB))
    assert "50.0 GiB promised to other volumes" in words
    assert "= 64.9 GiB, but 60.0 GiB are available" in words


def test_a_volume_that_may_take_all_of_the_memory_is_warned_of() -> None:
    facts = replace(FRESH, unlimited=("/mnt/open",))
    (warning,) = plan_volume(REQUEST, facts).warnings
    assert warning.startswith("/mnt/open: mounted without a size limit")
    assert plan_volume(REQUEST, replace(MOUNTED, unlimited=("/mnt/open",))).warnings == ()


def test_the_reserve_is_at_least_four_gib() -> None:
    small = replace(FRESH, headroom=Headroom(8 * GIB, 8 * GIB, "MemAvailable", False))
    plan = plan_volume(replace(REQUEST, size_bytes=GIB), small)
    assert plan.budget is not None and plan.budget.reserve_bytes == 4 * GIB


@pytest.mark.parametrize(
    ("limit_bytes", "available_bytes", "reserve_bytes"),
    [
        (20 * GIB, 60 * GIB, 4 * GIB),
        (8 * GIB, 60 * GIB, 2 * GIB),
        (GIB // 4, 60 * GIB, GIB // 16),
        (8 * GIB, 9 * GIB, 3 * GIB),  # beyond the limit the machine has but one
    ],
)
def test_of_a_limit_a_quarter_is_reserved_as_long_as_the_machine_keeps_its_own(
    limit_bytes: int, available_bytes: int, reserve_bytes: int
) -> None:
    """As of a job's cgroup: 4 GiB of what has 256 MiB would leave nothing to stage into."""
    machine = Headroom(20 * GIB, available_bytes, "MemAvailable", False)
    job = Headroom(limit_bytes, limit_bytes, "cgroup /job", False, machine)
    plan = plan_volume(
        replace(REQUEST, size_bytes=GIB // 16, inodes=1000), replace(FRESH, headroom=job)
    )
    assert plan.budget is not None and plan.budget.reserve_bytes == reserve_bytes
    assert plan.refusal is None


def test_force_overrides_the_budget_and_nothing_else() -> None:
    forced = replace(REQUEST, size_bytes=100 * GIB, force=True)
    plan = plan_volume(forced, FRESH)
    assert plan.refusal is None and "--force" in plan.warnings[0]
    assert "system" in refusal(forced, replace(FRESH, path="/etc"))
    assert "cannot shrink" in refusal(replace(REQUEST, size_bytes=GIB, force=True), MOUNTED)


def test_what_a_limit_leaves_that_cannot_be_seen_is_a_warning() -> None:
    hidden = replace(FRESH, headroom=replace(FRESH.headroom, limits_hidden=True))
    plan = plan_volume(replace(REQUEST, size_bytes=GIB), hidden)
    (warning,) = plan.warnings
    assert plan.refusal is None and "nothing here shows whether memory is limited" in warning
    assert "--force" not in warning and "the kernel kills" in warning
    too_much = RamBudget(2 * GIB, GIB, 0, "MemAvailable", limits_hidden=True)
    assert budget_warnings(too_much, forced=False) == budget_warnings(too_much)[:1]
    assert not budget_warnings(replace(too_much, growth_bytes=0), forced=False)


def test_fstab_is_planned_and_idle_when_it_says_the_same() -> None:
    request = replace(REQUEST, fstab=True)
    assert actions(request, FRESH)[-1] == "add a line for the volume"
    options = plan_volume(request, FRESH).fstab_options
    assert options is not None
    written = set_volume(b"", path=PATH, options=options)
    again = plan_volume(request, replace(MOUNTED, fstab=written))
    assert again.changes == ()
    unread = plan_volume(request, replace(MOUNTED, fstab=written, reload_is_due=True))
    assert unread.changes == (RELOAD,)
    (followed,) = plan_volume(
        request, replace(MOUNTED, fstab=written, live=replace(LIVE, mode=0o700, huge=Huge.NEVER))
    ).changes
    assert followed.reason == "it says mode=0755,huge=within_size instead of mode=0700"
    grown = replace(request, size_bytes=9 * GIB)
    for due in (False, True):
        facts = replace(MOUNTED, fstab=written, reload_is_due=due)
        assert actions(grown, facts)[-1] == "replace the volume's line"
        assert plan_volume(grown, facts).warnings == ()


@pytest.mark.parametrize(
    "labels",
    [
        "rootcontext=system_u:object_r:var_t:s0",
        'context="system_u:object_r:svirt_sandbox_file_t:s0:c1,c2"',
        "fscontext=system_u:object_r:tmpfs_t:s0,defcontext=system_u:object_r:tmp_t:s0",
    ],
)
def test_labels_of_selinux_in_its_line_are_the_admin_s(labels: str) -> None:
    request = replace(REQUEST, fstab=True)
    plain = plan_volume(request, FRESH).fstab_options
    assert plain is not None
    line = set_volume(b"", path=PATH, options=plain)
    for place, given in ((b"nosuid", f"{labels},nosuid"), (b" 0 0", f",{labels} 0 0")):
        labelled = line.replace(place, given.encode(), 1)
        assert plan_volume(request, replace(MOUNTED, fstab=labelled)).changes == ()
        mounting = plan_volume(request, replace(FRESH, fstab=labelled))
        assert ",".join(mounting.options).endswith(f",noswap,{labels}")
        assert [each.subject for each in mounting.changes] == [PATH, PATH]
        growing = replace(request, size_bytes=9 * GIB)
        grown = plan_volume(growing, replace(MOUNTED, fstab=labelled))
        assert "context" not in grown.changes[-1].reason
        assert grown.remount_options is not None and grown.fstab_options is not None
        assert "context" not in ",".join(grown.remount_options)
        written = set_volume(labelled, path=PATH, options=grown.fstab_options)
        assert f",{labels},nofail".encode() in written


def test_somebody_else_s_entry_for_the_target_refuses_before_anything_is_mounted() -> None:
    taken = replace(FRESH, fstab=b"/dev/sdb1 /mnt/data ext4 defaults 0 2\n")
    assert "line 1 of fstab" in refusal(replace(REQUEST, fstab=True), taken)
    assert plan_volume(REQUEST, taken).refusal is None


@pytest.mark.parametrize("facts", [FRESH, MOUNTED])
def test_somebody_else_s_entry_is_told_of_where_fstab_is_not_asked_for(facts: VolumeFacts) -> None:
    taken = replace(facts, fstab=b"# disks\n/dev/sdb1 /mnt//data/ ext4 defaults 0 2\n")
    (warning,) = plan_volume(REQUEST, taken).warnings
    assert "line 2 of fstab" in warning
    assert "/dev/sdb1 (ext4) on /mnt/data at the next boot" in warning


def test_an_fstab_that_cannot_be_replaced_only_matters_where_it_would_be() -> None:
    linked = replace(FRESH, fstab=None, fstab_refusal=Refused("it is a symlink"))
    assert plan_volume(REQUEST, linked).refusal is None
    assert refusal(replace(REQUEST, fstab=True), linked) == "it is a symlink"


def test_an_fstab_that_a_power_cut_has_torn_is_refused_for_that() -> None:
    asked = replace(REQUEST, fstab=True)
    for end in (b"/dev/sd\0\0\0", b"\0\0\0\n", b"/dev/sd\0b1\n"):
        torn = replace(FRESH, fstab=b"/dev/sda1 / ext4 defaults 0 1\n" + end)
        refusal = plan_volume(asked, torn).refusal
        assert refusal is not None and "last line of fstab holds NUL bytes" in refusal.message
        assert refusal.hint is not None and r"sed -i 's/\x00//g' /" in refusal.hint
        assert plan_volume(REQUEST, torn).refusal is None
    for fstab in (b"", b"a\0b\nc\n", LINE + b"\0\0"):  # the last is in the volume's own
        assert plan_volume(asked, replace(FRESH, fstab=fstab)).refusal is None


def test_an_fstab_that_cannot_be_written_only_matters_where_it_would_be() -> None:
    request = replace(REQUEST, fstab=True)
    held = replace(FRESH, fstab_obstacle=Refused("it is immutable"))
    assert plan_volume(REQUEST, held).refusal is None
    assert refusal(request, held) == "it is immutable"
    options = plan_volume(request, FRESH).fstab_options
    assert options is not None
    written = set_volume(b"", path=PATH, options=options)
    there = replace(MOUNTED, fstab=written, fstab_obstacle=held.fstab_obstacle)
    assert plan_volume(request, there).refusal is None
    assert refusal(replace(request, size_bytes=9 * GIB), there) == "it is immutable"
    for reload_is_due in (False, True):  # which systemd does, and writes nothing for
        found = plan_volume(request, replace(there, reload_is_due=reload_is_due))
        assert found.refusal is None and bool(found.changes) is reload_is_due


def test_a_line_that_stays_behind_is_named_by_value_not_by_text() -> None:
    line = b"tmpfs /mnt/data tmpfs %s,nofail,X-hostprep.id=mnt-data 0 0\n"
    same = line % (b"size=8g,nr_inodes=512k,mode=755,nosuid,nodev,noexec,noswap,huge=within_size")
    assert plan_volume(REQUEST, replace(MOUNTED, fstab=same)).warnings == ()
    other = same.replace(b"8g", b"7g")
    assert "line 1 of fstab" in plan_volume(REQUEST, replace(MOUNTED, fstab=other)).warnings[0]


def test_what_our_fstab_line_mounted_at_boot_is_ours() -> None:
    line = set_volume(b"", path=PATH, options=("size=1g",))
    booted = replace(
        MOUNTED, boot_id="boot-2", fstab=line, mount=replace(MOUNT, source="tmpfs", device="0:7")
    )
    assert booted.is_ours
    assert not replace(booted, fstab=line.replace(b"X-hostprep", b"X-other")).is_ours
    assert not replace(booted, mount=replace(MOUNT, source="scratch", device="0:7")).is_ours
    elsewhere = line.replace(b"/mnt/data", b"/mnt/elsewhere")
    assert not replace(booted, fstab=elsewhere).is_ours


def test_what_is_no_tmpfs_is_never_ours() -> None:
    assert not replace(MOUNTED, mount=replace(MOUNT, fstype="ramfs")).is_ours


def test_a_mount_that_was_interrupted_before_its_record_was_finished_is_ours() -> None:
    begun = replace(MOUNTED, record=replace(RECORD, device=None))
    assert begun.is_ours
    assert not replace(begun, mount=replace(MOUNT, source="tmpfs")).is_ours
