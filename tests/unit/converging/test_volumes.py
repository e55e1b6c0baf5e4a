"""A spec's volumes against facts made by hand: what is planned, refused, and said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hostprep.converging import volumes
from hostprep.converging.model import Change, Kind, ObjectPlan
from hostprep.converging.volume_changes import came_true
from hostprep.converging.volumes import Freed, Need, VolumeTask, plan_volumes, wanted_size
from hostprep.errors import HostprepError, UsageError
from hostprep.staging.observer import Silent
from hostprep.system.mounting import TmpfsSupport
from hostprep.units import GIB, MIB, PAGE_BYTES
from hostprep.volumes.apply import Overtaken
from hostprep.volumes.facts import VolumeFacts
from hostprep.volumes.fstab_line import set_volume
from hostprep.volumes.model import INODE_BYTES, Huge, LiveVolume
from hostprep.volumes.paths import Folder, Place, PointKind
from hostprep.volumes.plan import VolumePlan
from tests.unit.converging.made import look, mounted, options
from tests.unit.volumes.made import fresh

PATH = "/mnt/data"


def test_of_a_directory_that_was_to_go_if_it_is_empty_it_is_told_whether_it_went(
    tmp_path: Path,
) -> None:
    def change(action: str, subject: str = PATH) -> Change:
        return Change(Kind.VOLUME, subject, action, "")

    planned = "remove directory, if it is empty"
    assert came_true(change(f"{planned}: {tmp_path}/gone")) == change(
        f"remove directory: {tmp_path}/gone"
    )
    assert came_true(change(planned, f"{tmp_path}/gone")) == change(
        "remove directory", f"{tmp_path}/gone"
    )
    assert came_true(change(f"{planned}: {tmp_path}")) is None
    assert came_true(change("unmount")) == change("unmount")


def live_of(facts: VolumeFacts) -> LiveVolume:
    assert facts.live is not None
    return facts.live


def only(objects: tuple[ObjectPlan, ...]) -> ObjectPlan:
    (found,) = objects
    return found


def reasons(plan: ObjectPlan) -> dict[Kind, str]:
    return {change.kind: change.reason for change in plan.changes}


def test_what_is_as_the_spec_says_needs_nothing() -> None:
    plan = only(plan_volumes([look("8G", mounted(PATH, 8 * GIB))], {}))
    assert (plan.changes, plan.refusal, plan.task) == ((), None, None)
    assert [each.kind for each in plan.unchanged] == [Kind.VOLUME, Kind.FSTAB]


def test_where_room_is_short_what_the_spec_does_not_name_is_named() -> None:
    full = mounted(PATH, 8 * GIB, used_bytes=5 * GIB)
    left = {PATH: [f"{PATH}/old one", f"{PATH}/older"], "/mnt/other": ["/mnt/other/kept"]}
    for size, needs in (("4G", {}), ("8G", {PATH: [Need("new", 4 * GIB, 1)]})):
        plain = only(plan_volumes([look(size, full)], needs)).refusal
        told = only(plan_volumes([look(size, full)], needs, leftovers=left)).refusal
        assert plain is not None and told is not None and plain.message == told.message
        assert told.hint == (
            f"first `hostprep unstage '{PATH}/old one'` and `hostprep unstage {PATH}/older`, if"
            f" nobody needs them: the spec does not name them; or {plain.hint}"
        )
        pruning = only(plan_volumes([look(size, full)], needs, leftovers=left, prune=True)).refusal
        assert pruning is not None and pruning.hint is not None
        assert "--prune would remove them only after the volume is changed; or" in pruning.hint


def test_root_that_may_not_mount_is_refused_what_takes_a_mount() -> None:
    barred = HostprepError("root may not mount here", "-", spec_hint="do without")
    for facts, size in ((fresh(PATH), "8G"), (mounted(PATH, 8 * GIB), "9G")):
        refusal = only(plan_volumes([replace(look(size, facts), barred=barred)], {})).refusal
        assert refusal is not None and refusal.message == barred.message
        assert refusal.hint == "do without"
    there = replace(look("8G", mounted(PATH, 8 * GIB)), barred=barred)
    assert only(plan_volumes([there], {})).refusal is None


def test_live_drift_line_drift_and_another_spec_have_words_of_their_own() -> None:
    right = mounted(PATH, 8 * GIB)
    shrunk = replace(right, live=replace(live_of(right), size_bytes=4 * GIB))
    assert reasons(only(plan_volumes([look("8G", shrunk)], {}))) == {
        Kind.VOLUME: "it is 4.00 GiB; fstab says what the spec says: the mounted volume was"
        " changed by hand"
    }
    small_line = set_volume(b"", path=PATH, options=options(4 * GIB, 524288))
    edited = replace(right, fstab=small_line)
    found = reasons(only(plan_volumes([look("8G", edited)], {})))
    assert set(found) == {Kind.FSTAB}
    assert found[Kind.FSTAB] == (
        f"it says size={4 * GIB} instead of size={8 * GIB}; what is mounted is right: the line"
        " differs from the spec"
    )
    for old, new, words in (
        (b" 0 0", b" 0 2", "its last two fields are others"),
        (b" /mnt/data ", b" /mnt//data/ ", "its path is not in its shortest form"),
        (b"nosuid,nodev", b"nodev,nosuid", "its options are in another order, or given twice"),
    ):
        edited = replace(right, fstab=(right.fstab or b"").replace(old, new, 1))
        found = reasons(only(plan_volumes([look("8G", edited)], {})))
        assert found[Kind.FSTAB].startswith(f"{words}; what is mounted is right")
    older = replace(right, fstab=(right.fstab or b"").replace(b"hostprep /", b"tmpfs /", 1))
    assert reasons(only(plan_volumes([look("8G", older)], {}))) == {
        Kind.FSTAB: "its line calls it tmpfs, and it is mounted as hostprep: `mount -a` would mount"
        " another over it"
    }
    other_spec = reasons(only(plan_volumes([look("9G", right)], {})))
    assert all("the spec asks for something else" in words for words in other_spec.values())
    swapped = look("8G", right)
    swapped = replace(swapped, spec=replace(swapped.spec, swap=live_of(right).noswap))
    assert reasons(only(plan_volumes([swapped], {})))[Kind.FSTAB].endswith(
        "; the line and the volume agree, but the spec asks for something else"
    )
    assert [each.reason[:8] for each in only(plan_volumes([swapped], {})).unchanged] == ["noswap: "]
    assert not any(each.as_wanted for each in only(plan_volumes([swapped], {})).unchanged)
    all_three = reasons(only(plan_volumes([look("9G", replace(shrunk, fstab=right.fstab))], {})))
    assert all("all differ" in words for words in all_three.values())


def test_what_a_spec_leaves_open_stays_in_the_line_whatever_was_done_by_hand() -> None:
    """A `chmod 777` that the check warns of is none that each boot is to make."""
    facts = mounted(PATH, 8 * GIB)
    live = live_of(facts)

    def planned(live: LiveVolume, mode: int | None = None, size: str = "8G") -> dict[Kind, str]:
        asked = look(size, replace(facts, live=live))
        asked = replace(asked, spec=replace(asked.spec, mode=mode))
        return reasons(only(plan_volumes([asked], {})))

    huge = Huge.ALWAYS if live.huge is not Huge.ALWAYS else Huge.NEVER
    assert planned(replace(live, mode=0o777, uid=7, gid=7, huge=huge)) == {}
    named = planned(replace(live, mode=0o700), mode=0o700)
    assert named[Kind.FSTAB].endswith("what is mounted is right: the line differs from the spec")
    larger = planned(replace(live, mode=0o777, size_bytes=9 * GIB), size="9G")
    assert "mode" not in larger[Kind.FSTAB]
    # A line that says no mode is not one of hostprep's making: the kernel would take 1777.
    without = replace(facts, fstab=(facts.fstab or b"").replace(b"mode=0755,", b"", 1))
    assert reasons(only(plan_volumes([look("8G", without)], {})))[Kind.FSTAB] == (
        "it says nothing instead of mode=0755; the spec names no mode: the line follows what is"
        " mounted"
    )


def test_one_that_is_mounted_anew_is_as_its_line_where_the_spec_leaves_it_open() -> None:
    line = (mounted(PATH, 8 * GIB).fstab or b"").replace(b"mode=0755,uid=0", b"mode=1770,uid=7", 1)
    assert b"mode=1770" in line
    plan = only(plan_volumes([look("8G", replace(fresh(PATH), fstab=line))], {}))
    assert any("mode=1770,uid=7,gid=0" in change.action for change in plan.changes)
    assert all(change.kind is not Kind.FSTAB for change in plan.changes)


@pytest.mark.parametrize(
    ("said", "takes", "comes"),
    [
        ("huge=always,", True, "huge=always"),
        ("", True, None),  # which is never, as hostprep writes it
        ("huge=always,", False, None),
    ],
)
def test_so_is_it_of_huge_pages_where_the_kernel_takes_them(
    said: str, takes: bool, comes: str | None
) -> None:
    line = (mounted(PATH, 8 * GIB).fstab or b"").replace(b"huge=within_size,", said.encode(), 1)
    facts = replace(fresh(PATH), fstab=line, support=TmpfsSupport(noswap=True, huge=takes))
    _, done, *rest = only(plan_volumes([look("8G", facts)], {})).changes
    assert comes in done.action if comes else "huge=" not in done.action
    assert bool(rest) is not takes, "the line stays as it is"


def test_none_lies_in_a_volume_that_its_line_is_going_to_give_away() -> None:
    outer, inner = fresh(PATH), fresh(f"{PATH}/inner")
    line = (mounted(PATH, 8 * GIB).fstab or b"").replace(b"uid=0", b"uid=65534", 1)
    place = replace(inner.place, missing=(PATH, inner.path))
    looks = [
        look("8G", replace(outer, fstab=line)),
        look("1G", replace(inner, place=place, fstab=line)),
    ]
    _, second = plan_volumes(looks, {})
    assert second.refusal is not None
    assert f"{PATH}, above the mount point, belongs to uid 65534" in second.refusal.message


@pytest.mark.parametrize("there", [False, True])
def test_none_lies_in_a_volume_that_somebody_else_is_going_to_own(there: bool) -> None:
    outer, inner = mounted(PATH, 8 * GIB) if there else fresh(PATH), fresh(f"{PATH}/inner")
    place = inner.place
    if there:
        place = replace(place, parents=(*place.parents, Folder(PATH, 0, 0, 0o755)))
    else:
        place = replace(place, missing=(PATH, inner.path))
    looks = [replace(look("8G", outer), owner=(65534, 65534))]
    looks.append(look("1G", replace(inner, place=place)))
    first, second = plan_volumes(looks, {})
    assert first.refusal is None and second.refusal is not None
    assert f"{PATH}, above the mount point, belongs to uid 65534" in second.refusal.message
    looks[0] = replace(looks[0], owner=(0, 0))
    assert not any(plan.refusal for plan in plan_volumes(looks, {}))


def test_where_data_sets_lie_in_the_way_of_a_volume_it_is_said_how_they_leave() -> None:
    """As where ``to: PATH`` of a spec has become ``volume: PATH``."""
    facts = fresh(PATH)
    facts = replace(facts, place=Place(PointKind.DIRECTORY, facts.place.parents, entries=("a b",)))
    (plain,) = plan_volumes([look("8G", facts)], {})
    (ours,) = plan_volumes([replace(look("8G", facts), staged=(f"{PATH}/a b",))], {})
    assert plain.refusal is not None and ours.refusal is not None
    assert plain.refusal.message == ours.refusal.message
    assert plain.refusal.hint == "choose an empty or new directory"
    assert f"first `hostprep unstage '{PATH}/a b'`, then" in str(ours.refusal.hint)


def test_what_lies_in_such_a_volume_and_shrinks_before_it_is_refused_too() -> None:
    inner = mounted(f"{PATH}/inner", 8 * GIB)
    parents = (*inner.place.parents, Folder(PATH, 0, 0, 0o755))
    inner = replace(inner, place=replace(inner.place, parents=parents))
    outer = replace(look("8G", mounted(PATH, 8 * GIB)), owner=(65534, 65534))
    first, second = plan_volumes([outer, look("1G", inner)], {})
    assert [first.subject, second.subject] == [f"{PATH}/inner", PATH], "who gives comes first"
    assert first.refusal is not None and "belongs to uid 65534" in first.refusal.message


def test_every_volume_takes_of_the_same_memory() -> None:
    looks = [look("30G", fresh(f"/mnt/{name}")) for name in "ab"]
    first, second = plan_volumes(looks, {}, reserve_bytes=0)
    assert first.refusal is None and second.refusal is not None
    assert "promised to other volumes" in second.refusal.message
    assert second.refusal.hint == (
        "choose a smaller size, fewer inodes or a smaller --reserve of `hostprep apply`"
    )
    looks = [look("28G", fresh(f"/mnt/{name}")) for name in "ab"]
    assert not any(plan.refusal for plan in plan_volumes(looks, {}, reserve_bytes=0))


def test_memory_that_one_volume_gives_back_is_there_for_another() -> None:
    large = mounted("/mnt/large", 50 * GIB)
    inodes = live_of(large).inodes or 0
    promised = 50 * GIB + (inodes - 10) * INODE_BYTES
    new = replace(fresh("/mnt/new"), promised_bytes=promised)
    plans = plan_volumes([look("40G", new), look("10G", large)], {}, reserve_bytes=0)
    assert [plan.subject for plan in plans] == ["/mnt/large", "/mnt/new"], "who gives comes first"
    assert not any(plan.refusal for plan in plans)
    kept = plan_volumes([look("40G", new), look("50G", large)], {}, reserve_bytes=0)
    assert [plan.subject for plan in kept if plan.refusal] == ["/mnt/new"]


def test_memory_of_volumes_that_go_first_is_there_as_well() -> None:
    """What they hold is available then, and what they may yet take is promised to nobody."""
    full = replace(fresh(PATH), promised_bytes=30 * GIB)
    full = replace(full, headroom=replace(full.headroom, available_bytes=40 * GIB))

    def fits(freed: Freed) -> bool:
        return (
            only(plan_volumes([look("50G", full)], {}, reserve_bytes=0, freed=freed)).refusal
            is None
        )

    assert not fits(Freed()) and not fits(Freed(30 * GIB, 0)) and not fits(Freed(0, 30 * GIB))
    assert fits(Freed(30 * GIB, 30 * GIB))


def test_a_volume_comes_before_one_inside_it_and_each_directory_is_made_once() -> None:
    below = fresh("/mnt/a/b")
    below = replace(below, place=replace(below.place, missing=("/mnt/a", "/mnt/a/b")))
    outer, inner = plan_volumes([look("1G", below), look("1G", fresh("/mnt/a"))], {})
    assert (outer.subject, inner.subject) == ("/mnt/a", "/mnt/a/b")
    assert outer.changes[0].action == "make directory"
    assert inner.changes[0].action == "make directory"
    assert len(inner.changes) == len(outer.changes)


def test_it_never_becomes_smaller_than_what_it_holds_or_is_to_hold() -> None:
    facts = mounted(PATH, 8 * GIB, used_bytes=3 * GIB)
    refused = only(plan_volumes([look("2G", facts)], {})).refusal
    assert refused is not None and "cannot shrink" in refused.message
    assert only(plan_volumes([look("4G", facts)], {})).refusal is None
    needs = {PATH: [Need("one", GIB, 10), Need("two", GIB, 10)]}
    refused = only(plan_volumes([look("4G", facts)], needs)).refusal
    assert refused is not None and "too small" in refused.message
    assert "one, two will take 2.00 GiB more" in refused.message
    assert refused.hint is not None and "size: 5G" in refused.hint
    assert only(plan_volumes([look("5G", facts)], needs)).refusal is None


def test_a_volume_that_changed_since_it_was_shown_is_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def overtaken(plan: VolumePlan, **_: object) -> None:
        raise Overtaken(f"the state of {plan.request.path} changed", "run the same command again")

    monkeypatch.setattr(volumes, "apply_volume", overtaken)
    task = only(plan_volumes([look("64M", fresh(PATH))], {})).task
    assert task is not None
    with pytest.raises(HostprepError, match="changed while the host was planned") as caught:
        task.carry_out(Silent())
    assert caught.value.hint == "run the same command again"


def test_there_are_inodes_for_what_is_to_come() -> None:
    def task(plan: ObjectPlan) -> VolumeTask:
        assert isinstance(plan.task, VolumeTask)
        return plan.task

    few = {PATH: [Need("few", MIB, 100)]}
    many = {PATH: [Need("many", MIB, 10**6)]}
    assert task(only(plan_volumes([look("64M", fresh(PATH))], few))).plan.request.inodes == 65536
    wanted = task(only(plan_volumes([look("64M", fresh(PATH))], many))).plan.request.inodes
    assert wanted is not None and wanted > 10**6
    there = mounted(PATH, 64 * MIB)
    assert only(plan_volumes([look("64M", there)], few)).changes == ()
    left = 65536 - live_of(there).used_inodes
    for inodes, changes in ((left - 1, 0), (left, 1)):  # the last one is nobody's to take
        found = only(plan_volumes([look("64M", there)], {PATH: [Need("all", MIB, inodes)]}))
        assert len([each for each in found.changes if each.kind is Kind.VOLUME]) == changes
    assert "inodes" in only(plan_volumes([look("64M", there)], many)).changes[0].action


def test_a_volume_that_grows_gets_the_inodes_of_its_new_size() -> None:
    def inodes(size: str, wanted: int | None = None) -> int:
        asked = look(size, mounted(PATH, 64 * MIB))
        asked = replace(asked, spec=replace(asked.spec, inodes=wanted))
        task = only(plan_volumes([asked], {})).task
        assert isinstance(task, VolumeTask)
        return task.plan.inodes

    assert inodes("2G") == 131_072
    assert inodes("2G", 70_000) == 70_000
    assert inodes("32M") == 65_536


def test_fewer_inodes_by_hand_are_drift_and_not_taken_over() -> None:
    facts = mounted(PATH, 8 * GIB)
    cut = replace(facts, live=replace(live_of(facts), inodes=2000))
    plan = only(plan_volumes([look("8G", cut)], {}))
    assert [change.kind for change in plan.changes] == [Kind.VOLUME]
    assert "524,288 inodes" in plan.changes[0].action
    asked = look("8G", cut)
    asked = replace(asked, spec=replace(asked.spec, inodes=1000))  # the least that must fit
    assert "524,288 inodes" in only(plan_volumes([asked], {})).changes[0].action


def test_a_percentage_stays_where_only_the_kernels_own_share_changed() -> None:
    ram_bytes = 64 * GIB
    at_first = ram_bytes * 40 // 100 // PAGE_BYTES * PAGE_BYTES
    facts = mounted(PATH, at_first)
    assert wanted_size(look("40%", facts, ram_bytes - 30 * MIB)) == at_first
    assert wanted_size(look("40%", facts, ram_bytes // 2)) == at_first // 2
    assert wanted_size(look("30%", facts, ram_bytes)) < at_first
    given = look(str(at_first - 30 * MIB), facts)
    assert wanted_size(given) == at_first - 30 * MIB, "a size that is written out is meant so"
    assert wanted_size(look("4097", fresh(PATH))) == 2 * PAGE_BYTES


def test_what_cannot_be_looked_at_is_refused_and_hides_nothing() -> None:
    unknown = replace(
        look("8G", fresh("/mnt/x")), facts=None, problem=UsageError("there is no user 'x'.", "make")
    )
    refused, fine = plan_volumes([unknown, look("8G", fresh(PATH))], {})
    assert refused.refusal is not None and refused.refusal.message == "there is no user 'x'."
    assert fine.changes and fine.refusal is None
