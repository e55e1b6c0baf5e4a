"""Whatever stands in an fstab, and however often volumes come and go: foreign bytes survive."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hostprep.volumes.fstab import entries, volume_id_for
from hostprep.volumes.fstab_line import remove_volume, set_volume

MARK = b"X-hostprep.id="
PATHS = ["/mnt/hostprep", "/mnt/a b", "/srv/back\\slash", "/srv/ümlaut", "/mnt/host-prep"]
# Foreign targets stay apart from PATHS: the same target is refused, which is tested elsewhere.
FIELDS = st.binary(max_size=12).map(lambda raw: raw.translate(None, b" \t\n") or b"x")
ENTRIES = st.builds(
    lambda source, target, rest, gap: gap.join([source, b"/foreign/" + target, *rest]),
    FIELDS,
    FIELDS,
    st.lists(FIELDS, max_size=5),
    st.sampled_from([b" ", b"\t", b"   ", b" \t "]),
)
COMMENTS = st.builds(lambda gap, raw: gap + b"#" + raw, st.sampled_from([b"", b"\t "]), FIELDS)
BLANKS = st.sampled_from([b"", b" ", b"\t", b"\r", b"\r\r"])
LINES = st.one_of(ENTRIES, COMMENTS, BLANKS, FIELDS)
ENDINGS = st.sampled_from([b"\n", b"\r\n"])
FILES = st.builds(
    lambda lines, last: b"".join(body + ending for body, ending in lines) + last,
    st.lists(st.tuples(LINES, ENDINGS), max_size=8),
    st.one_of(st.just(b""), LINES),
)
OPTIONS = st.lists(
    st.sampled_from(["nosuid", "nodev", "size=4096", "size=32212254720", "mode=0755", "nofail"]),
    unique=True,
    max_size=5,
)
STEPS = st.lists(st.tuples(st.sampled_from(PATHS), st.none() | OPTIONS), max_size=12)


def apply(content: bytes, path: str, options: list[str] | None) -> bytes:
    if options is None:
        return remove_volume(content, path=path)
    return set_volume(content, path=path, options=options)


def foreign(content: bytes) -> list[bytes]:
    """Return the foreign lines, by other means than the code under test."""
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [line.rstrip(b"\r") for line in lines if MARK not in line]


def restored(original: bytes) -> bytes:
    """Return what is left without our lines: a final bare \\r has gained its newline."""
    return original + b"\n" if original.endswith(b"\r") else original


@given(original=FILES, steps=STEPS)
def test_foreign_bytes_survive_any_sequence(original: bytes, steps: list) -> None:
    content = original
    wanted: dict[str, list[str]] = {}
    for path, options in steps:
        content = apply(content, path, options)
        assert foreign(content) == foreign(original)
        if content and not original.endswith(b"\r"):
            assert content.endswith(b"\n") == (original.endswith(b"\n") or not original)
        if options is None:
            wanted.pop(path, None)
        else:
            wanted[path] = options
        ours = {entry.target: entry.options for entry in entries(content) if entry.owner_id}
        assert set(ours) == set(wanted)
        for target, chosen in wanted.items():
            kept = [option for option in chosen if option != "nofail"]
            mark = f"X-hostprep.id={volume_id_for(target)}"
            assert list(ours[target]) == [*kept, "nofail", mark]
    for path in PATHS:
        content = apply(content, path, None)
    assert content in (original, restored(original))


@given(original=FILES, path=st.sampled_from(PATHS), options=OPTIONS)
def test_setting_twice_changes_nothing(original: bytes, path: str, options: list[str]) -> None:
    once = apply(original, path, options)
    assert once != original
    assert apply(once, path, options) == once


@given(original=FILES, order=st.permutations(PATHS), undo=st.permutations(PATHS))
def test_volumes_come_off_in_any_order(original: bytes, order: list[str], undo: list[str]) -> None:
    content = original
    for path in order:
        content = apply(content, path, ["size=4096"])
    for path in undo:
        content = apply(content, path, None)
    assert content == restored(original)


@given(first=st.text(max_size=6), second=st.text(max_size=6))
def test_different_paths_have_different_ids(first: str, second: str) -> None:
    def shortest(text: str) -> str:
        return "/" + "/".join(part for part in text.split("/") if part)

    one, two = shortest(first), shortest(second)
    try:
        ids = volume_id_for(one), volume_id_for(two)
    except UnicodeEncodeError:
        return  # surrogates that no file name has
    assert (ids[0] == ids[1]) == (one == two)


@given(content=st.binary(max_size=200))
def test_any_bytes_can_be_read(content: bytes) -> None:
    for entry in entries(content):
        assert 1 <= entry.line_number <= content.count(b"\n") + 1
