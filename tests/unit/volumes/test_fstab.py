"""fstab as bytes: what counts as an entry, our line, and everything that is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hostprep.errors import Refused
from hostprep.volumes.fstab import FstabEntry, entries, foreign_lines, volume_id_for
from hostprep.volumes.fstab_line import check_target, remove_volume, set_volume, volume_line

FIXTURES = sorted((Path(__file__).parents[2] / "fixtures/fstab").glob("*.fstab"))
PATH = "/mnt/hostprep"
OPTIONS = ("nosuid", "nodev", "noexec", "size=32212254720", "mode=0755")
LINE = (
    b"hostprep /mnt/hostprep tmpfs nosuid,nodev,noexec,size=32212254720,mode=0755,"
    b"nofail,X-hostprep.id=mnt-hostprep 0 0"
)


def put(content: bytes, path: str = PATH, options: tuple[str, ...] = OPTIONS) -> bytes:
    return set_volume(content, path=path, options=options)


def test_fixtures_are_there() -> None:
    assert len(FIXTURES) >= 13


def test_line_is_what_people_read() -> None:
    assert volume_line(path=PATH, options=OPTIONS) == LINE


def test_line_escapes_space_and_backslash_only() -> None:
    path = "/mnt/a b\\c#d,ü"
    line = volume_line(path=path, options=())
    assert line.split(b" ")[1] == rb"/mnt/a\040b\134c#d,".strip() + "ü".encode()
    assert entries(line)[0].target == path


def test_nofail_stands_once_and_last_but_the_mark() -> None:
    line = volume_line(path=PATH, options=("nofail", "size=1"))
    assert b" size=1,nofail,X-hostprep.id=mnt-hostprep 0 0" in line


@pytest.mark.parametrize(
    "option",
    ["", "a,b", "size=1 ", "a\tb", "user", "users", "owner", "group", "X-hostprep.id=other", "a\n"],
)
def test_options_that_would_not_survive_are_a_mistake_of_the_caller(option: str) -> None:
    with pytest.raises(ValueError, match="option"):
        volume_line(path=PATH, options=(option,))


@pytest.mark.parametrize("path", ["", "/", "/a b", "/a,b", '/a"b', "/a\n", "/ä/#", "/a\udcff=b\\"])
def test_no_id_needs_escaping(path: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9._-]+", volume_id_for(path))


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("mnt/x", "absolute"),
        ("", "absolute"),
        ("/", "root"),
        ("/mnt//x", "shortest"),
        ("/mnt/x/", "shortest"),
        ("/mnt/./x", "shortest"),
        ("/mnt/../x", "shortest"),
        ("/mnt/a\nb", "control"),
        ("/mnt/a\tb", "control"),
        ("/mnt/a\x7f", "control"),
        ("/mnt/a\x85b", "control"),
        ("/mnt/a\x9fb", "control"),
        ("/mnt/a\x00b", "control"),
        ("/mnt/a ", "ends in"),
        ("/mnt/a\\", "ends in"),
        ("/mnt/a\u3000", "ends in"),
        ("/mnt/a\udcff", "UTF-8"),
        ("/mnt/" + "x" * 246, "255"),
        ("/mnt/" + "-" * 62, "255"),
    ],
)
def test_odd_paths_are_refused(path: str, why: str) -> None:
    with pytest.raises(Refused, match=why) as caught:
        put(b"", path)
    assert caught.value.exit_code == 5
    assert caught.value.hint


@pytest.mark.parametrize(
    "path", ["/mnt/x", "/mnt/a b", "/mnt/ä", "/mnt/" + "x" * 245, "/mnt/" + "-" * 60]
)
def test_plain_paths_pass(path: str) -> None:
    check_target(path)


def test_ids_tell_paths_apart() -> None:
    paths = [
        "/a/b",
        "/a-b",
        "/a_b",
        "/a_2db",
        "/a/b/c",
        "/a-b/c",
        "/a/b-c",
        "/ä",
        "/A/b",
        "/a.b",
        "/",
    ]
    ids = [volume_id_for(path) for path in paths]
    assert len(set(ids)) == len(paths)
    assert ids[:4] == ["a-b", "a_2db", "a_5fb", "a_5f2db"]
    assert ids[-2:] == ["a.b", "-"], "as in lines that are in fstab already"


def test_entries_of_every_length() -> None:
    content = (
        b"# comment\n\n/dev/sda1 / ext4\n/dev/sda2 /b ext4 ro,noatime\n"
        b" \t/dev/sda3\t/c\text4\tdefaults 1\n/dev/sda4 /d ext4 defaults 0 2\r\n"
        b"/dev/sda5 /e ext4 defaults # 2\n  # indented\nalone\n/dev/sda6 /f\r"
    )
    found = entries(content)
    assert found[0] == FstabEntry(3, "/dev/sda1", "/", "ext4", (), None, None)
    assert [(e.line_number, e.target, e.freq, e.passno) for e in found[1:]] == [
        (4, "/b", None, None),
        (5, "/c", 1, None),
        (6, "/d", 0, 2),
        (7, "/e", None, 2),
        (10, "/f", None, None),
    ]
    assert found[1].options == ("ro", "noatime")
    assert found[-1].fstype == ""


def test_entries_are_unescaped_and_keep_odd_bytes() -> None:
    content = (
        rb"//nas/my\040share /mnt/a\134b cifs credentials=/etc/a\054b" + b"\n/dev/x /\xff ext4"
    )
    first, second = entries(content)
    assert (first.source, first.target) == ("//nas/my share", "/mnt/a\\b")
    assert second.target == "/\udcff"


def test_a_number_of_more_digits_than_any_reader_takes_is_none() -> None:
    (entry,) = entries(b"a /a ext4 defaults 0 " + b"9" * 5000)
    assert (entry.freq, entry.passno) == (0, None)


def test_commas_in_quotes_do_not_split_options() -> None:
    (entry,) = entries(b'/dev/x /x xfs defaults,context="u:r:t:s0:c1,c2",X-hostprep.id=q 0 0')
    assert entry.options == ("defaults", 'context="u:r:t:s0:c1,c2"', "X-hostprep.id=q")
    assert entry.owner_id == "q"


def test_the_mark_inside_another_option_is_not_a_mark() -> None:
    content = b'a /a tmpfs context="s,X-hostprep.id=q" 0 0\nb /b tmpfs x=X-hostprep.id=q 0 0\n'
    content += b"c /c tmpfs X-hostprep.id 0 0\n"
    assert [entry.owner_id for entry in entries(content)] == [None, None, None]


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.stem)
def test_real_files_survive_set_and_remove(fixture: Path) -> None:
    original = fixture.read_bytes()
    added = put(original)
    assert added.startswith(original)
    assert put(added) == added
    changed = put(added, options=("size=4096",))
    assert changed.startswith(original)
    assert b"size=4096,nofail" in changed
    assert foreign_lines(changed)[: len(foreign_lines(original))] == foreign_lines(original)
    newline = b"\n" if original.endswith(b"\r") else b""  # the documented exception
    assert remove_volume(changed, path=PATH) == original + newline
    assert remove_volume(original, path=PATH) == original


def test_our_line_ends_as_the_file_does() -> None:
    assert put(b"") == LINE + b"\n"
    assert put(b"# a\n") == b"# a\n" + LINE + b"\n"
    assert put(b"# a\r\n") == b"# a\r\n" + LINE + b"\r\n"
    assert put(b"# a") == b"# a\n" + LINE
    assert put(b"# a\r\n# b") == b"# a\r\n# b\r\n" + LINE
    assert put(b"# a\n# b\r") == b"# a\n# b\r\n" + LINE + b"\r\n"
    assert put(b"# a\r\n# b\n") == b"# a\r\n# b\n" + LINE + b"\n"


def test_what_others_appended_behind_our_unterminated_line_keeps_its_newline() -> None:
    theirs = put(b"# a") + b"\n# theirs\n"
    assert remove_volume(theirs, path=PATH) == b"# a\n# theirs\n"


@pytest.mark.parametrize("blank", [b"\n", b"\r\n"])
def test_a_blank_line_before_ours_stays_where_somebody_cut_off_our_newline(blank: bytes) -> None:
    content = b"# a" + blank + b"# b" + blank + blank
    assert remove_volume(content + LINE, path=PATH) == content


def test_of_a_file_with_our_line_alone_nothing_is_left() -> None:
    for ending in (b"", b"\n"):
        assert remove_volume(LINE + ending, path=PATH) == b""


def test_our_line_is_replaced_where_it_stands() -> None:
    content = b"# a\r\n" + LINE + b"\r\n# b\n"
    wanted = LINE.replace(b"32212254720", b"4096")
    options = tuple(option.replace("32212254720", "4096") for option in OPTIONS)
    assert put(content, options=options) == b"# a\r\n" + wanted + b"\r\n# b\n"


@pytest.mark.parametrize(
    "spaced",
    [LINE.replace(b" ", b"\t"), b"  " + LINE.replace(b" ", b"   ") + b"  ", LINE[: -len(b" 0 0")]],
)
def test_a_line_that_says_the_same_is_left_as_somebody_spaced_it(spaced: bytes) -> None:
    content = b"# a\n" + spaced + b"\n"
    assert put(content) == content


@pytest.mark.parametrize("numbers", [b"0 2", b"1 0"])
def test_a_line_that_is_to_be_dumped_or_checked_is_made_ours_again(numbers: bytes) -> None:
    assert put(LINE[: -len(b"0 0")] + numbers + b"\n") == LINE + b"\n"


def test_what_is_mounted_nowhere_takes_no_place() -> None:
    swap = b"/dev/sda2 swap swap sw 0 0\n"
    assert put(swap, "/swap").startswith(swap + b"hostprep /swap ")


def test_a_commented_line_of_ours_is_a_comment() -> None:
    content = b"#" + LINE + b"\n"
    assert put(content) == content + LINE + b"\n"
    assert remove_volume(content, path=PATH) == content


@pytest.mark.parametrize(
    ("line", "names"),
    [
        (b"/dev/sdb1 /mnt/hostprep ext4 defaults 0 2", r"line 3 .*/dev/sdb1 \(ext4\)"),
        (b"/dev/sdb1 /mnt/hostprep", "line 3"),
        (b"tmpfs /mnt/hostprep/ tmpfs size=1g", "line 3 .* tmpfs on"),
        (b"tmpfs\t/mnt/./hostprep\ttmpfs\tnoauto\t0\t0\r", "line 3"),
        (rb"tmpfs /mnt/host\160rep tmpfs", "line 3"),
        (b"tmpfs /mnt/hostprep tmpfs X-hostprep.id=other 0 0", "line 3"),
    ],
)
def test_somebody_elses_entry_for_the_same_target_is_refused(line: bytes, names: str) -> None:
    content = b"# a\n\n" + line + b"\n"
    with pytest.raises(Refused, match=names) as caught:
        put(content)
    assert caught.value.exit_code == 5
    assert remove_volume(content, path=PATH) == content


def test_somebody_elses_entry_is_refused_beside_our_own_too() -> None:
    with pytest.raises(Refused, match="line 2 "):
        put(LINE + b"\n/dev/sdb1 /mnt/hostprep ext4 defaults 0 2\n")


def test_two_lines_with_our_id_are_refused_naming_both() -> None:
    content = LINE + b"\n# between\n" + LINE + b"\n"
    with pytest.raises(Refused, match="lines 1, 3 "):
        put(content)
    with pytest.raises(Refused, match="lines 1, 3 "):
        remove_volume(content, path=PATH)


def test_our_line_pointed_elsewhere_is_refused() -> None:
    content = LINE.replace(b"/mnt/hostprep", b"/srv/other") + b"\n"
    with pytest.raises(Refused, match=r"line 1 .*/srv/other"):
        put(content)
    with pytest.raises(Refused, match=r"line 1 .*/srv/other"):
        remove_volume(content, path=PATH)


def test_our_line_made_into_another_file_system_is_refused() -> None:
    content = LINE.replace(b"tmpfs ", b"ext4 ").replace(b"hostprep ", b"/dev/sdb1 ", 1) + b"\n"
    with pytest.raises(Refused, match=r"line 1 .*/dev/sdb1 \(ext4\)"):
        remove_volume(content, path=PATH)


def test_foreign_lines_are_those_without_the_mark() -> None:
    assert foreign_lines(b"# a\r\n" + LINE + b"\n\n/dev/x / ext4") == (
        b"# a",
        b"",
        b"/dev/x / ext4",
    )
