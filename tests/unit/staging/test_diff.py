"""What is decided for each name of a directory, from what is recorded and what is there."""

from __future__ import annotations

import stat
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostprep.staging.kept_times import is_kept_time
from hostprep.staging.model import Entry, Recorded, kind_of
from hostprep.staging.plans.diff import DirectoryDiff, diff_directory

SECOND = 10**9


def entry(
    name: str = "x",
    *,
    kind: int = stat.S_IFREG,
    mode: int = 0o644,
    size: int = 5,
    mtime_ns: int = 7 * SECOND + 1,
    uid: int = 0,
    gid: int = 0,
    nlink: int = 1,
) -> Entry:
    return Entry(name, kind | mode, size, mtime_ns, uid, gid, 8, nlink, 1, 1)


def recorded(of: Entry, content: str | None = "c", group: str = "") -> Recorded:
    mode = stat.S_IMODE(of.mode)
    kind = kind_of(of.mode)
    return Recorded(of.name, kind, of.size, of.mtime_ns, mode, of.uid, of.gid, content, group)


def decide(
    source: Entry | None,
    *,
    manifest: Recorded | None = None,
    journal: Recorded | None = None,
    published: Entry | None = None,
    private: Entry | None = None,
    **more: Any,
) -> str:
    """Return the one decision for the name ``x``."""
    found = diff_directory(
        [source] if source else [],
        manifest={"x": manifest} if manifest else {},
        journal={"x": journal} if journal else {},
        published={"x": published} if published else {},
        private={"x": private} if private else {},
        **more,
    )
    decisions = [name for name in DirectoryDiff.__slots__ if getattr(found, name)]
    return decisions[0] if len(decisions) == 1 else str(decisions or "nothing")


A = entry()
B = entry(size=6, mtime_ns=9 * SECOND)  # another version of the same file
LINK = entry(kind=stat.S_IFLNK, mode=0o777)
DIRECTORY = entry(kind=stat.S_IFDIR, mode=0o755)
LINKED = entry(nlink=2)


@pytest.mark.parametrize(
    ("wanted", "arguments"),
    [
        ("copy", {"source": A}),
        ("keep", {"source": A, "manifest": recorded(A), "published": A}),
        ("copy", {"source": A, "manifest": recorded(A)}),  # somebody removed it
        ("copy", {"source": A, "manifest": recorded(A), "published": B}),  # or changed it
        ("copy", {"source": B, "manifest": recorded(A), "published": A}),
        ("copy", {"source": entry(mode=0o600), "manifest": recorded(A), "published": A}),
        ("copy", {"source": entry(uid=5), "manifest": recorded(A), "published": A}),
        ("copy", {"source": entry(gid=5), "manifest": recorded(A), "published": A}),
        ("copy", {"source": entry(mtime_ns=1), "manifest": recorded(A), "published": A}),
        ("copy", {"source": LINK, "manifest": recorded(A), "published": A}),
        ("copy", {"source": A, "manifest": recorded(LINK), "published": LINK}),
        ("copy", {"source": A, "manifest": recorded(DIRECTORY), "published": DIRECTORY}),
        ("copy", {"source": entry(nlink=2), "manifest": recorded(A), "published": A}),
        ("keep", {"source": entry(nlink=2), "manifest": recorded(A, "c", "y"), "published": A}),
        # A target whose file system drops the nanoseconds.
        ("keep", {"source": A, "manifest": recorded(A), "published": entry(mtime_ns=7 * SECOND)}),
        ("copy", {"source": A, "manifest": recorded(A), "published": entry(mtime_ns=8 * SECOND)}),
        # Its place is taken by what nobody has on record.
        ("blocked", {"source": A, "published": A}),
        ("blocked", {"source": A, "published": LINK}),
        ("blocked", {"source": A, "published": DIRECTORY}),
        # An interrupted run has copied it.
        ("done", {"source": A, "journal": recorded(A), "private": A}),
        ("done", {"source": A, "journal": recorded(A), "private": A, "published": B,
                  "manifest": recorded(B)}),
        ("copy", {"source": A, "journal": recorded(A)}),
        ("copy", {"source": A, "journal": recorded(A), "private": B}),
        ("copy", {"source": B, "journal": recorded(A), "private": A}),
        ("copy", {"source": A, "private": A}),  # copied, but not on record as verified
        # It was killed while it published.
        ("keep", {"source": A, "journal": recorded(A), "published": A, "manifest": recorded(B)}),
        ("keep", {"source": A, "journal": recorded(A), "published": A}),
        ("copy", {"source": B, "journal": recorded(A), "published": A}),
        ("copy", {"source": A, "journal": recorded(A), "published": B}),
        ("copy", {"source": LINKED, "journal": recorded(LINKED), "published": LINKED}),
        # The source has it no more.
        ("delete", {"source": None, "manifest": recorded(A), "published": A}),
        ("delete", {"source": None, "journal": recorded(A), "published": A}),
        ("foreign", {"source": None, "manifest": recorded(A), "published": B}),
        ("foreign", {"source": None, "published": A}),
        ("nothing", {"source": None, "manifest": recorded(A)}),
        ("nothing", {"source": None, "journal": recorded(A), "private": A}),
    ],
)  # fmt: skip
def test_decisions(wanted: str, arguments: dict[str, object]) -> None:
    assert decide(**arguments) == wanted  # type: ignore[arg-type]


def test_links_that_do_not_stand_are_copied() -> None:
    found = diff_directory(
        [A],
        manifest={"x": recorded(A)},
        journal={},
        published={"x": A},
        private={},
        links_stand=lambda wanted, here, group: False,
    )
    assert found.copy == (A,) and not found.keep
    killed = {"source": A, "journal": recorded(A), "published": A}  # while it published
    assert decide(**killed, links_stand=lambda wanted, here, group: False) == "copy"


@pytest.mark.parametrize(
    ("wanted", "arguments"),
    [
        # It is on record, and may not have been put there: what else is there is somebody's.
        ("blocked", {"source": A, "journal": recorded(A), "published": B}),
        ("blocked", {"source": A, "manifest": recorded(A), "published": B}),
        ("keep", {"source": A, "manifest": recorded(A), "published": A}),
        ("keep", {"source": A, "journal": recorded(A), "published": A}),
        ("copy", {"source": A, "manifest": recorded(B), "published": B}),
        ("done", {"source": A, "journal": recorded(A), "private": A}),
        ("copy", {"source": A, "manifest": recorded(A)}),
    ],
)
def test_a_place_that_was_promised_is_not_taken_from_somebody(
    wanted: str, arguments: dict[str, Any]
) -> None:
    assert decide(**arguments, promised={"x"}) == wanted


def test_what_was_copied_without_a_hash_is_copied_again_where_all_is_to_be_verified() -> None:
    for place in (
        {"manifest": recorded(A, None), "published": A},
        {"journal": recorded(A, None), "private": A},
    ):
        assert decide(A, **place) in ("keep", "done")
        assert decide(A, **place, verified=True) == "copy"
    assert decide(A, manifest=recorded(A), published=A, verified=True) == "keep"


@pytest.mark.parametrize(
    ("known", "wanted"),
    [(recorded(LINKED), "copy"), (recorded(LINKED, group="a/x"), "done")],
)
def test_what_became_a_hard_link_since_it_was_copied_is_copied_again(
    known: Recorded, wanted: str
) -> None:
    assert decide(LINKED, journal=known, private=LINKED) == wanted


def test_a_symlink_with_several_names_is_staged_once() -> None:
    link = entry(kind=stat.S_IFLNK, mode=0o777, nlink=2)
    assert decide(link, manifest=recorded(link), published=link) == "keep"


def test_subdirectories_are_nobody_s_to_delete() -> None:
    found = diff_directory(
        [],
        manifest={},
        journal={},
        published={"sub": DIRECTORY._replace(name="sub"), "other": DIRECTORY},
        private={},
        subdirectories=frozenset({"sub"}),
    )
    assert found.foreign == ("other",) and not found.delete


names = st.sampled_from("abc")
entries = st.builds(
    entry,
    name=names,
    kind=st.sampled_from([stat.S_IFREG, stat.S_IFLNK]),
    size=st.integers(0, 2),
    mtime_ns=st.integers(0, 2).map(lambda n: n * SECOND),
    nlink=st.integers(1, 2),
)
listings = st.lists(entries, unique_by=lambda found: found.name)
records = st.dictionaries(names, entries).map(
    lambda found: {name: recorded(of._replace(name=name)) for name, of in found.items()}
)


@given(source=listings, here=listings, there=listings, manifest=records, journal=records)
def test_every_name_gets_one_decision_and_none_loses_what_is_not_ours(
    source: list[Entry],
    here: list[Entry],
    there: list[Entry],
    manifest: dict[str, Recorded],
    journal: dict[str, Recorded],
) -> None:
    published = {found.name: found for found in here}
    private = {found.name: found for found in there}
    found = diff_directory(
        source, manifest=manifest, journal=journal, published=published, private=private
    )
    wanted = {of.name: of for of in source}
    decided = [
        *(of.name for of in (*found.copy, *found.blocked)),
        *(record.name for record in (*found.keep, *found.done)),
    ]
    assert sorted(decided) == sorted(wanted), "each entry of the source, once"
    gone = [*found.delete, *found.foreign]
    assert sorted(gone) == sorted(published.keys() - wanted.keys())
    for record in found.keep:
        assert record.same_as(wanted[record.name])
        assert record.present_as(published[record.name])
    for record in found.done:
        assert record.same_as(wanted[record.name])
        assert record.present_as(private[record.name])
    known = [manifest, journal]
    for name in found.delete:
        assert any(name in of and of[name].present_as(published[name]) for of in known)
    for of in found.blocked:
        assert of.name in published and not any(of.name in place for place in known)
    for of in found.copy:
        assert of.name not in published or any(of.name in place for place in known)


@given(source=listings)
def test_what_was_just_staged_is_kept(source: list[Entry]) -> None:
    manifest = {of.name: recorded(of, group=of.name if of.nlink > 1 else "") for of in source}
    published = {of.name: of for of in source}
    found = diff_directory(source, manifest=manifest, journal={}, published=published, private={})
    assert {record.name for record in found.keep} == set(published)
    assert not (found.copy or found.delete or found.foreign or found.blocked or found.done)


@pytest.mark.parametrize(
    ("wanted", "kept", "same"),
    [
        (1_500_000_001_123_456_789, 1_500_000_001_123_456_789, True),
        (1_500_000_001_123_456_789, 1_500_000_001_123_456_700, True),  # NTFS
        (1_500_000_001_123_456_789, 1_500_000_001_120_000_000, True),  # exFAT
        (1_500_000_001_123_456_789, 1_500_000_000_000_000_000, True),  # FAT
        (-1_500_000_001_123_456_789, -1_500_000_002_000_000_000, True),  # ext3
        (1_500_000_001_123_456_789, 1_500_000_001_123_456_788, False),
        (1_500_000_001_123_456_789, 1_500_000_002_000_000_000, False),
        (1_500_000_001_123_456_789, 1_500_000_001_200_000_000, False),
        (2**32 * 10**9, (2**31 - 1) * 10**9, True),
        (1_500_000_001_123_456_789, (2**31 - 1) * 10**9, False),
        (-(2**33) * 10**9, -(2**31) * 10**9, True),
        (0, -(2**31) * 10**9, False),
        (-1, 0, True),  # NFS 3
        (2**33 * 10**9, (2**32 - 1) * 10**9, True),
        (0, 315_532_800 * 10**9, True),  # FAT: 1980 is its first year,
        (0, (315_532_800 - 7200) * 10**9, True),  # by the clock on the wall,
        (0, (315_532_800 - 7201) * 10**9, False),
        (0, (315_532_800 - 86_400) * 10**9, False),
        (1_500_000_001_123_456_789, 315_532_800 * 10**9, False),
        (2**33 * 10**9, 4_354_819_198 * 10**9, True),  # and 2107 its last
        (2**33 * 10**9, 4_354_819_199 * 10**9, True),  # exFAT
    ],
)
def test_what_a_file_system_makes_of_a_time(wanted: int, kept: int, same: bool) -> None:
    assert is_kept_time(kept, wanted) is same
