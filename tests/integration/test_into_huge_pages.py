"""Ranges of a large file go straight into the memory of a tmpfs that has huge pages."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import xxhash

from hostprep.staging.files import ranges, transfer
from hostprep.staging.files.metadata import CopyStyle
from hostprep.staging.files.transfer import BUFFER_BYTES, new_buffer
from hostprep.staging.model import RANGE_BYTES, Verify
from hostprep.staging.tree import entry_of
from hostprep.system.trees import DirCache
from tests.kit.compare import differences
from tests.kit.stagecraft import hostprep

SIZE = 2 * BUFFER_BYTES + 5


class Place:
    """A file in one directory, and a tmpfs with huge pages or without that it is copied to."""

    def __init__(self, root: Path, huge: str, size: str) -> None:
        self.source, self.target = root / "source", root / "target"
        self.source.mkdir()
        self.target.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size},huge={huge},mode=755", "t"]
        if subprocess.run([*mount, self.target], check=False).returncode:
            pytest.skip("this kernel has no huge pages for a tmpfs")
        self.data = os.urandom(SIZE)
        (self.source / "file").write_bytes(self.data)
        os.chmod(self.source, 0o755)
        self.written: list[int] = []

    def copy(
        self, verify: Verify, *, in_ram: bool = True, longer: int = 0
    ) -> tuple[bytes, str | None]:
        entry = entry_of("file", os.lstat(self.source / "file"))
        size = entry.size + longer
        item = entry._replace(size=size, blocks=entry.blocks + longer // 512)
        style = CopyStyle(verify, os.geteuid(), os.getegid(), may_chown=True, in_ram=in_ram)
        with ExitStack() as stack:
            trees = []
            for path in (self.source, self.target):
                descriptor = os.open(path, os.O_RDONLY)
                stack.callback(os.close, descriptor)
                trees.append(stack.enter_context(DirCache(descriptor)))
            return ranges.copy("", tuple(item), 0, size, *trees, style, new_buffer())


@pytest.fixture
def place(
    safe_dir: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    huge, size = getattr(request, "param", ("within_size", "32m"))
    place = Place(safe_dir, huge, size)
    write = transfer._write_fully

    def noted(descriptor: int, data: memoryview, offset: int) -> None:
        place.written.append(len(data))
        write(descriptor, data, offset)

    monkeypatch.setattr(transfer, "_write_fully", noted)
    yield place
    subprocess.run(["umount", place.target], check=True)


@pytest.mark.parametrize("verify", list(Verify))
def test_whole_pages_are_read_and_the_rest_is_written(verify: Verify, place: Place) -> None:
    wanted = b"" if verify is Verify.NONE else xxhash.xxh3_128_digest(place.data)
    assert place.copy(verify) == (wanted, None)
    assert place.written == [SIZE % BUFFER_BYTES]
    assert (place.target / "file").read_bytes() == place.data


@pytest.mark.parametrize("place", [("never", "32m")], indirect=True)
def test_small_pages_are_written(place: Place) -> None:
    place.copy(Verify.READBACK)
    assert sum(place.written) == SIZE
    assert (place.target / "file").read_bytes() == place.data


def test_what_has_a_disk_behind_it_is_written(place: Place) -> None:
    """Lustre, GPFS and others say of their files, too, that they come in large blocks."""
    place.copy(Verify.READBACK, in_ram=False)
    assert sum(place.written) == SIZE


def test_what_is_not_there_as_it_is_read_back_differs(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = transfer._read_piece

    def damaged(source: int, offset: int, piece: memoryview, *rest: object) -> None:
        read(source, offset, piece, *rest)  # type: ignore[arg-type]
        piece[0] ^= 1

    monkeypatch.setattr(transfer, "_read_piece", damaged)
    assert place.copy(Verify.READBACK) == (b"", "differs")


def test_a_source_that_ends_early_has_changed(place: Place) -> None:
    assert place.copy(Verify.READBACK, longer=BUFFER_BYTES) == (b"", "changed")


@pytest.mark.parametrize("place", [("within_size", "2m")], indirect=True)
@pytest.mark.parametrize("verify", list(Verify))
def test_a_full_target_is_an_error_and_no_signal(verify: Verify, place: Place) -> None:
    child = os.fork()
    if not child:  # which a write to memory that is not there would end by a SIGBUS
        try:
            place.copy(verify)
        except OSError as error:
            os._exit(error.errno or 255)
        os._exit(254)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == errno.ENOSPC


def test_a_whole_run_takes_the_ranges_of_a_large_file_straight(
    place: Place, safe_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(safe_dir / "state"))
    with open(place.source / "large", "wb") as file:
        for _ in range(RANGE_BYTES // (1 << 20) + 3):
            file.write(os.urandom(1 << 20))
    volume = safe_dir / "ram"
    found = hostprep("stage", place.source, "--to-tmpfs", "100M", "--at", volume)
    assert (found["verified"], found["files"]) == (True, 2)
    assert differences(place.source, volume / "source", owners=True) == []
    hostprep("unmount", volume, "--discard-data")
