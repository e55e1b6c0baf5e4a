"""The digest of a data set is a format: what it was once, it must be for ever."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from hostprep.staging.files.transfer import content_of, hash_file
from hostprep.staging.model import RANGE_BYTES
from hostprep.staging.record import digest
from tests.kit.stagecraft import hostprep

MIB = 1 << 20


def make(root: Path) -> Path:
    """Make a tree whose digest is known."""
    (root / "a/b").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "file").write_bytes(b"content\n")
    (root / "a/nothing").write_bytes(b"")
    (root / "a/b/link").symlink_to("../nothing")
    with open(os.fsencode(root) + b"/a/\xff\n", "wb") as file:
        file.write(b"odd name")
    os.link(root / "file", root / "a/hard")
    return root


# As any other program can compute it: see hostprep/staging/record/digest.py.
ENTRIES = [
    (b"d", b"", b""),
    (b"d", b"a", b""),
    (b"d", b"a/b", b""),
    (b"d", b"empty", b""),
    (b"f", b"file", xxhash.xxh3_128_hexdigest(b"content\n").encode()),
    (b"f", b"a/hard", xxhash.xxh3_128_hexdigest(b"content\n").encode()),
    (b"f", b"a/nothing", xxhash.xxh3_128_hexdigest(b"").encode()),
    (b"f", b"a/\xff\n", xxhash.xxh3_128_hexdigest(b"odd name").encode()),
    (b"l", b"a/b/link", b"../nothing"),
]
KNOWN = "xxh3sum:ed14307016156765991bd0247a4d86fc"


def test_the_value_of_a_known_tree_never_changes(tmp_path: Path) -> None:
    total = sum(
        xxhash.xxh3_128_intdigest(kind + path + b"\0" + content) for kind, path, content in ENTRIES
    )
    assert f"xxh3sum:{total % 2**128:032x}" == KNOWN
    found = hostprep("stage", make(tmp_path / "data"), "--to", tmp_path / "fast")
    assert found["digest"] == KNOWN
    inflight = hostprep(
        "stage", tmp_path / "data", "--to", tmp_path / "other", "--verify", "inflight"
    )
    assert inflight["digest"] == KNOWN


paths = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
terms = st.lists(st.tuples(st.sampled_from("fl"), paths, st.text("0123456789abcdef", max_size=32)))


@given(terms, st.randoms())
def test_order_and_grouping_do_not_matter(
    entries: list[tuple[str, str, str]], dice: random.Random
) -> None:
    def total(of: list[tuple[str, str, str]]) -> int:
        found = 0
        for one in of:
            found = digest.add(found, digest.entry_term(*one))
        return found

    shuffled = list(entries)
    dice.shuffle(shuffled)
    cut = dice.randint(0, len(entries))
    assert total(shuffled) == total(entries)
    assert digest.add(total(entries[:cut]), total(entries[cut:])) == total(entries)
    if entries:
        last = digest.entry_term(*entries[-1])
        assert digest.subtract(total(entries), last) == total(entries[:-1])


@given(paths, paths, st.text("0123456789abcdef", max_size=32))
def test_terms_below_a_directory_are_the_same(directory: str, name: str, content: str) -> None:
    below = digest.terms_below(directory)
    assert below("f", name, content) == digest.entry_term("f", f"{directory}/{name}", content)
    assert digest.terms_below("")("l", name, content) == digest.entry_term("l", name, content)


def test_kind_path_and_content_all_count() -> None:
    same = digest.entry_term("f", "path", "content")
    others = [("l", "path", "content"), ("f", "path2", "content"), ("f", "path", "content2")]
    assert len({same, *(digest.entry_term(*other) for other in others)}) == 4


@pytest.mark.parametrize("size", [RANGE_BYTES - 1, RANGE_BYTES, RANGE_BYTES + 1, 2 * RANGE_BYTES])
def test_files_above_64_mib_are_hashed_by_ranges(size: int, tmp_path: Path) -> None:
    assert RANGE_BYTES == 64 * MIB, "part of the format"
    source = tmp_path / "data"
    source.mkdir()
    block = os.urandom(MIB)
    data = (block * (size // MIB + 1))[:size]
    (source / "file").write_bytes(data)
    ranges = [data[at : at + 64 * MIB] for at in range(0, size, 64 * MIB)]
    digests = [xxhash.xxh3_128_digest(part) for part in ranges]
    wanted = xxhash.xxh3_128_hexdigest(b"".join(digests)) if size > 64 * MIB else digests[0].hex()
    assert content_of(digests) == wanted
    with (source / "file").open("rb") as file:
        assert hash_file(file.fileno(), size, memoryview(bytearray(MIB))) == wanted
    total = digest.add(digest.entry_term("d", "", ""), digest.entry_term("f", "file", wanted))
    target = Path("/dev/shm", f"hostprep-test-{os.getpid()}")
    try:
        found = hostprep("stage", source, "--to", target)
    finally:
        hostprep("unstage", target / "data")
        target.rmdir()
    assert found["digest"] == digest.to_hex(total)


def test_no_content_at_all() -> None:
    assert content_of([]) == xxhash.xxh3_128_hexdigest(b"")
