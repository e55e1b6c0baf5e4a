"""The probe's folder, its test file, the data set it finds, and whole files read."""

from __future__ import annotations

import errno
import fcntl
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hostprep.errors import HostprepError, UsageError
from hostprep.host.answering import NoAnswer
from hostprep.probing import small_files
from hostprep.probing.alive import look
from hostprep.probing.compression import kept_compressed
from hostprep.probing.counters import Meter, delivered_bytes
from hostprep.probing.dataset import Found, largest, measure_size, scan
from hostprep.probing.folder import PREFIX, own_folder
from hostprep.probing.judge import contradictions
from hostprep.probing.layout import (
    SMALLEST_BYTES,
    has_holes,
    open_existing,
    reads_directly,
    write_file,
)
from hostprep.probing.model import Settings, Silent
from hostprep.probing.phases import Phases
from hostprep.probing.probe import probe, target
from hostprep.probing.readers import Pass, read_whole_files
from hostprep.probing.small_files import FEWEST_FILES, Budget, make_files, measure
from hostprep.system import page_cache
from hostprep.units import KIB, MIB

BUDGET = Budget(evict=1, one_reader=0.5, several=0.5, warm=0.1)


def tree(root: Path, files: int = 60, size: int = 20_000) -> list[Path]:
    made = []
    for number in range(files):
        file = root / f"class{number % 3}" / f"{number}.jpg"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(os.urandom(size + number))
        made.append(file)
    return made


def leftovers(root: Path) -> list[Path]:
    return list(root.glob(f"{PREFIX}*"))


def test_the_folder_goes_and_the_parents_time_stays(tmp_path: Path) -> None:
    os.utime(tmp_path, ns=(10**18, 10**18))
    with own_folder(tmp_path) as folder:
        (folder.path / "data").write_bytes(b"x")
        assert folder.path.parent == tmp_path and folder.path.name.startswith(".")
        assert folder.path.stat().st_mode & 0o777 == 0o700
    assert leftovers(tmp_path) == []
    assert tmp_path.stat().st_mtime_ns == 10**18


def test_what_others_change_beside_the_folder_still_shows(tmp_path: Path) -> None:
    os.utime(tmp_path, ns=(10**18, 10**18))
    with own_folder(tmp_path):
        made = tmp_path.stat().st_mtime_ns
        while time.time_ns() < made + 20_000_000:  # beyond a tick, in which times are the same
            time.sleep(0.001)
        (tmp_path / "new.jpg").touch()
    assert leftovers(tmp_path) == []
    assert tmp_path.stat().st_mtime_ns > made


def test_a_killed_runs_folder_is_removed_by_the_next_and_a_living_ones_is_not(
    tmp_path: Path,
) -> None:
    script = (
        "import sys, time; from pathlib import Path\n"
        "from hostprep.probing.folder import own_folder\n"
        "with own_folder(Path(sys.argv[1])) as folder:\n"
        "    (folder.path / 'data').write_bytes(b'x'); print(folder.path, flush=True)\n"
        "    time.sleep(300)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().strip())
        with own_folder(tmp_path):
            assert (theirs / "data").exists()
        assert (theirs / "data").exists()
        other.kill()
        other.wait()
        assert (theirs / "data").exists()
        with own_folder(tmp_path):
            assert not (theirs / "data").exists()
    assert leftovers(tmp_path) == []


def test_what_could_not_be_removed_is_removed_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink = os.unlink

    def refusing(path: Any, **more: Any) -> None:
        if path == "1":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        unlink(path, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refusing)
        with own_folder(tmp_path) as folder:
            (folder.path / "small").mkdir()
            (folder.path / "small" / "1").write_bytes(b"x")
            (folder.path / "data").write_bytes(b"x")
    assert (folder.path / "small" / "1").exists()  # the test itself: it was left
    assert not (folder.path / "data").exists() and not folder.moved
    with own_folder(tmp_path):
        assert not (folder.path / "small").exists()
    assert leftovers(tmp_path) == []


def test_a_killed_runs_folder_is_removed_where_files_have_an_owner_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on vfat, and on an NFS export that makes nobody of root."""
    left = left_by_a_killed_run(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with own_folder(tmp_path) as ours:
        assert ours.path != left and not left.exists()
    assert leftovers(tmp_path) == []


def left_by_a_killed_run(parent: Path, slot: int = 0) -> Path:
    """Make what a run leaves that was killed, without waiting for one."""
    with own_folder(parent) as folder:
        path = folder.path.with_name(f"{folder.path.name.rpartition('-')[0]}-{slot}")
    path.mkdir(mode=0o700)
    (path / "lock").touch()
    (path / "data").write_bytes(b"x")
    return path


def test_what_is_only_named_like_ours_stays(tmp_path: Path) -> None:
    strange = left_by_a_killed_run(tmp_path)
    (strange / "lock").unlink()
    (strange / "precious").write_text("x")
    with own_folder(tmp_path):
        pass
    (strange / "lock").touch()  # as other programs do
    with own_folder(tmp_path):
        pass
    assert (strange / "precious").exists() and (strange / "data").exists()
    (strange / "precious").unlink()
    strange.chmod(0o777)
    with own_folder(tmp_path):
        pass
    assert (strange / "data").exists()
    strange.chmod(0o700)
    with own_folder(tmp_path):
        assert not (strange / "data").exists()  # the test itself: nothing else kept it


@pytest.mark.parametrize("kind", ["file", "fifo", "link", "link to one that was left"])
def test_names_that_are_taken_are_passed_by_and_left_alone(kind: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    parent = tmp_path / "parent"
    parent.mkdir()
    left = left_by_a_killed_run(outside)
    for slot in range(16):
        place = parent / f"{left.name.rpartition('-')[0]}-{slot}"
        if kind == "file":
            place.write_text("x")
        elif kind == "fifo":
            os.mkfifo(place)
        else:
            place.symlink_to(outside if kind == "link" else left)
        if slot == 14:
            with own_folder(parent) as folder:
                assert folder.path.name.endswith("-15")
    with pytest.raises(OSError, match="all 16 names of hostprep's folder are taken"):
        own_folder(parent).__enter__()
    assert len(leftovers(parent)) == 16
    assert (left / "data").exists()


def test_a_folder_without_a_lock_is_taken_once_it_is_old_and_empty(tmp_path: Path) -> None:
    with own_folder(tmp_path) as folder:
        pass
    folder.path.mkdir(mode=0o700)
    with own_folder(tmp_path) as other:
        assert other.path != folder.path  # somebody may be about to make its lock
    os.utime(folder.path, (0, 0))
    with own_folder(tmp_path) as again:
        assert again.path == folder.path
    assert leftovers(tmp_path) == []


def refusing(code: int) -> Any:
    def flock(_: int, __: int) -> None:
        raise OSError(code, os.strerror(code))

    return flock


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_without_locks_there_is_a_folder_and_another_ones_stays(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", refusing(code))
    held = len(os.listdir("/proc/self/fd"))
    with own_folder(tmp_path) as folder:
        (folder.path / "data").write_bytes(b"x")
        os.utime(folder.path, (0, 0))
        with own_folder(tmp_path) as other:
            assert other.path != folder.path
        assert (folder.path / "data").exists()  # whether somebody uses it cannot be told
    assert leftovers(tmp_path) == []
    assert len(os.listdir("/proc/self/fd")) == held


def test_a_lock_that_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", refusing(errno.EIO))
    held = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="Input/output error"), own_folder(tmp_path):
        pass
    assert leftovers(tmp_path) == []
    assert len(os.listdir("/proc/self/fd")) == held


def test_runs_beside_each_other_have_folders_of_their_own(tmp_path: Path) -> None:
    with ExitStack() as stack:
        folders = {stack.enter_context(own_folder(tmp_path)).path for _ in range(5)}
        assert len(folders) == 5
    assert leftovers(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_an_oserror(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(OSError), own_folder(file):
        pass


def test_the_test_file_is_whole_and_no_block_is_twice(tmp_path: Path) -> None:
    told: list[int] = []
    file = write_file(tmp_path / "data", 20 * MIB + 5000, 60, told.append)
    assert file.size_bytes == 20 * MIB + 4096
    content = (tmp_path / "data").read_bytes()
    assert len(content) == file.size_bytes
    blocks = {content[start : start + 4096] for start in range(0, len(content), 4096)}
    assert len(blocks) == file.size_bytes // 4096
    assert not file.holes
    os.close(file.fd)
    assert told == sorted(told) and told[-1] == file.size_bytes


def test_time_ends_the_layout_without_a_tail(tmp_path: Path) -> None:
    file = write_file(tmp_path / "data", 1 << 40, 0.05)
    os.close(file.fd)
    assert (tmp_path / "data").stat().st_size == file.size_bytes < 1 << 40


def test_what_a_file_needs_at_least_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk that is busy with other writes, for example."""

    def written(chunk_seconds: float) -> int:
        now = [0.0]

        def tick(_: int) -> None:
            now[0] += chunk_seconds

        with monkeypatch.context() as patch:
            patch.setattr(time, "monotonic", lambda: now[0])
            file = write_file(tmp_path / f"data{chunk_seconds}", 1 << 30, 2.0, tick)
        os.close(file.fd)
        return file.size_bytes

    assert written(0.25) == 32 * MIB
    assert written(1.0) == SMALLEST_BYTES
    assert written(3.0) == 8 * MIB


def test_a_file_with_holes_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "sparse"
    with open(file, "wb") as out:
        out.write(os.urandom(MIB))
        out.flush()
        os.posix_fallocate(out.fileno(), MIB, MIB)
    with open(file, "rb") as sparse:
        if not has_holes(sparse.fileno(), 2 * MIB):
            pytest.skip("the file system of the temporary folder tells nothing of extents")
        assert not has_holes(sparse.fileno(), MIB)


def test_an_existing_file_is_opened_only_if_it_is_one_still(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 3000)
    layout = open_existing(str(file), 1024)
    os.close(layout.fd)
    assert (layout.path, layout.size_bytes) == (str(file), 2048)
    (tmp_path / "link").symlink_to(file)
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "fifo", "missing"):
        with pytest.raises(OSError):
            open_existing(str(tmp_path / name), 1024)


def test_direct_reading_is_tried_and_not_believed(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 8192)
    assert reads_directly(str(file)) in (True, False)
    assert not reads_directly("/proc/self/status")
    assert not reads_directly(str(tmp_path / "missing"))


def test_the_data_set_is_counted_without_what_is_not_its_own(tmp_path: Path) -> None:
    files = tree(tmp_path)
    (tmp_path / ".hidden").write_text("x")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/object").write_text("x")
    (tmp_path / "link").symlink_to(files[0])
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/file").write_text("x")
    found = scan(str(tmp_path), 10, mount_points=[str(tmp_path / "elsewhere")])
    assert (found.files, found.complete) == (60, True)
    assert set(found.sample) == {str(file) for file in files}
    assert list(found.sample) != sorted(found.sample)
    size = measure_size(found, 10)
    assert size.size_bytes == sum(file.stat().st_size for file in files)


def test_a_folder_that_opens_and_cannot_be_listed_is_left_out() -> None:
    with subprocess.Popen(["true"]) as ended:
        process = Path(f"/proc/{ended.pid}")
        while process.joinpath("stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
            time.sleep(0.01)
        with pytest.raises(OSError):
            os.listdir(process / "net")  # so it is with one that has ended
        assert scan(str(process), 10).files > 0


def test_a_count_out_of_time_says_so(tmp_path: Path) -> None:
    tree(tmp_path)
    found = scan(str(tmp_path), -1)
    assert not found.complete
    assert measure_size(found, 10).size_bytes is None


class SlowAnswers:
    """A clock that goes on by a second with each question: about an entry, a size, an open."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        monkeypatch.setattr(time, "monotonic", lambda: float(self.asked))

    def after(self, question: Callable[..., Any]) -> Callable[..., Any]:
        def slowly(*arguments: Any, **keywords: Any) -> Any:
            self.asked += 1
            return question(*arguments, **keywords)

        return slowly


def test_what_answers_slowly_is_asked_no_longer_than_it_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(tmp_path)
    found = scan(str(tmp_path), 10)
    with monkeypatch.context() as patch:
        answers = SlowAnswers(patch)
        patch.setattr(os, "stat", answers.after(os.stat))
        assert measure_size(found, 3).size_bytes is None
        assert answers.asked < 6
    with monkeypatch.context() as patch:
        answers = SlowAnswers(patch)
        patch.setattr(os, "open", answers.after(os.open))
        assert not kept_compressed("ext4", found.sample, 3)
        assert answers.asked < 6


def test_a_listing_that_does_not_tell_the_kinds_of_entries_is_ended_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(500):
        (tmp_path / f"{number}.jpg").touch()
    answers = SlowAnswers(monkeypatch)

    class Entry:
        def __init__(self, entry: os.DirEntry[str]) -> None:
            self.name, self.path = entry.name, entry.path
            self.is_dir = answers.after(entry.is_dir)
            self.is_file = entry.is_file

    class Listing(list[Entry]):
        def __enter__(self) -> Iterator[Entry]:
            return iter(self)

        def __exit__(self, *_: object) -> None:
            pass

    entries = [Entry(entry) for entry in os.scandir(tmp_path)]
    monkeypatch.setattr(os, "scandir", lambda _: Listing(entries))
    found = scan(str(tmp_path), 3)
    assert not found.complete
    assert answers.asked < 40


def test_a_long_count_tells_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who hears nothing for long takes it for stuck, and a second count may last all the time."""
    for number in range(40):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "file").touch()
    now, told = itertools.count(0.0, 0.25), list[str]()
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    settings, observer = Settings(), Silent()
    monkeypatch.setattr(observer, "progress", told.append)
    counted = Phases(target(str(tmp_path)), settings, observer).count_on(Found(3, False, ()))
    assert (counted.files, counted.complete) == (40, True)
    assert len(told) == 10  # a folder each quarter of a second
    assert all(text.endswith(" files") for text in told)


def test_the_largest_file_is_found_for_reading(tmp_path: Path) -> None:
    files = tree(tmp_path)
    found = scan(str(tmp_path), 10)
    assert largest(found, 10, at_least_bytes=1) == str(files[-1])
    assert largest(found, 10, at_least_bytes=MIB) is None


def test_readers_that_may_not_be_started_are_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [str(file) for file in tree(tmp_path)]
    forks = itertools.count()
    fork = os.fork

    def limited() -> int:
        if next(forks) == 2:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return fork()

    monkeypatch.setattr(os, "fork", limited)
    before = set(multiprocessing.active_children())  # of other tests
    with pytest.raises(HostprepError, match="no further process could be started") as error:
        read_whole_files(names, 8, 5)
    assert error.value.hint is not None and "ulimit -u" in error.value.hint
    assert not set(multiprocessing.active_children()) - before


@pytest.mark.parametrize("readers", [1, 3])
def test_every_file_is_read_whole_and_once(tmp_path: Path, readers: int) -> None:
    files = tree(tmp_path, size=100_000)
    (tmp_path / "large").write_bytes(os.urandom(3 * MIB))
    (tmp_path / "empty").touch()
    aside = [str(tmp_path / "empty"), str(tmp_path / "missing")]
    names = [*map(str, files), str(tmp_path / "large"), *aside]
    before = files[0].stat().st_atime_ns
    done = read_whole_files(names, readers, 30)
    assert sorted(done.names) == sorted(names[:-2])
    assert (done.unreadable, done.empty) == (1, 1)
    assert dict(zip(done.names, done.sizes, strict=True)) == {
        name: os.path.getsize(name) for name in names[:-2]
    }
    assert all(seconds > 0 for seconds in done.seconds)
    assert done.files_per_s > 0 and done.bytes_per_s > done.files_per_s
    assert files[0].stat().st_atime_ns == before


def test_what_took_a_files_place_neither_hangs_nor_leads_elsewhere(tmp_path: Path) -> None:
    names = [str(file) for file in tree(tmp_path, files=4)]
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(names[0])
    page_cache.evict(str(tmp_path / "pipe"))
    assert page_cache.resident_share([str(tmp_path / "pipe")]) is None
    done = read_whole_files([*names, str(tmp_path / "pipe"), str(tmp_path / "link")], 1, 30)
    assert sorted(done.names) == sorted(names)
    assert (done.unreadable, done.empty) == (1, 1)


def test_rates_are_files_over_time_for_one_reader(tmp_path: Path) -> None:
    names = [str(file) for file in tree(tmp_path)]
    done = read_whole_files(names, 1, 30)
    assert done.files_per_s == pytest.approx(60 / done.wall_seconds)
    assert done.bytes_per_s == pytest.approx(sum(done.sizes) / done.wall_seconds)
    assert sum(done.seconds) <= done.wall_seconds


def test_time_ends_the_reading(tmp_path: Path) -> None:
    names = [str(file) for file in tree(tmp_path)] * 100_000
    done = read_whole_files(names, 2, 0.3)
    assert 0 < len(done.names) < len(names)
    assert done.wall_seconds < 2


@pytest.fixture
def memory_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Have copies be staged in a folder of this test's: in /dev/shm others probe meanwhile."""
    with tempfile.TemporaryDirectory(prefix="hostprep-test-", dir="/dev/shm") as name:
        monkeypatch.setattr(small_files, "MEMORY_FOLDER", Path(name))
        yield Path(name)


def test_small_files_are_measured_cold_cached_and_staged(
    tmp_path: Path, memory_folder: Path
) -> None:
    names = [str(file) for file in tree(tmp_path, files=80)]
    small = measure(names, "dataset", 4, BUDGET, disks=(), in_memory=False, dropped=False)
    assert small is not None
    assert [run.readers for run in small.cold] == [1, 4]
    assert sum(run.files for run in small.cold) == 80
    assert small.mean_bytes == pytest.approx(20_020, abs=60)
    assert small.cached is not None and small.cached.files_per_s > 0
    assert small.staged is not None and small.staged.files_per_s > 0
    assert not list(memory_folder.iterdir())


def test_empty_files_are_no_part_of_the_figures(tmp_path: Path) -> None:
    names = [str(file) for file in tree(tmp_path, files=40)]
    for number in range(40):
        names.insert(2 * number, str(tmp_path / f"empty-{number}"))
        Path(names[2 * number]).touch()
    small = measure(names, "dataset", 2, BUDGET, disks=(), in_memory=False, dropped=False)
    assert small is not None
    assert small.empty == 40
    assert sum(run.files for run in small.cold) == 40
    assert small.mean_bytes > 10_000
    assert (
        measure(names[0:8:2], "dataset", 2, BUDGET, disks=(), in_memory=False, dropped=False)
        is None
    )


def test_what_the_kernel_takes_away_again_is_not_called_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [str(file) for file in tree(tmp_path, files=80)]
    gone = set(names[:60])
    passes: list[set[str]] = []

    def reading(names: Sequence[str], *arguments: Any, **more: Any) -> Pass:
        passes.append(set(names))
        done = read_whole_files(names, *arguments, **more)
        for name in gone:
            page_cache.evict(name)
        return done

    monkeypatch.setattr(small_files, "read_whole_files", reading)
    if page_cache.resident_share(names) is None:
        pytest.skip("residency is not told here")
    small = measure(names, "dataset", 2, BUDGET, disks=(), in_memory=False, dropped=False)
    assert small is not None and small.cached is not None
    cold_alone, cold_together, warming, cached = passes[:4]
    assert cold_alone | cold_together == warming == set(names)
    assert cached == warming - gone


def test_made_files_look_like_photographs_and_keep_the_budget(tmp_path: Path) -> None:
    at = os.open(tmp_path, os.O_RDONLY)
    names = make_files(at, 40 * MIB, 60)
    os.close(at)
    sizes = [os.path.getsize(tmp_path / name) for name in names]
    assert FEWEST_FILES < len(names) < 600
    assert sum(sizes) <= 40 * MIB
    assert sum(sizes) / len(sizes) == pytest.approx(111_000, rel=0.1)
    assert min(sizes) >= 4 * KIB and max(sizes) <= MIB


def test_looking_at_paths(tmp_path: Path) -> None:
    look(str(tmp_path))
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(UsageError, match="not a folder"):
        look(str(file))
    with pytest.raises(UsageError, match="does not exist"):
        look(str(tmp_path / "missing"))
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    with pytest.raises(HostprepError, match="could not be read"):
        look(str(loop))


def test_a_path_that_hangs_is_left_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "stat", lambda path: time.sleep(60))
    begun = time.monotonic()
    with pytest.raises(NoAnswer, match="does not answer"):
        look(str(tmp_path), patience_seconds=0.3)
    assert time.monotonic() - begun < 3


@pytest.mark.parametrize(
    ("code", "exit_code"), [(errno.ENOTCONN, 4), (errno.ESTALE, 4), (errno.ENOMEM, 1)]
)
def test_storage_that_goes_while_it_is_measured_is_a_sentence(
    code: int, exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_: Phases, __: float) -> int:
        raise OSError(code, os.strerror(code), str(tmp_path))

    monkeypatch.setattr(Phases, "room", gone)
    with pytest.raises(HostprepError, match=os.strerror(code)) as error:
        probe(target(str(tmp_path)), Settings(5, MIB), Silent())
    assert error.value.exit_code == exit_code
    assert leftovers(tmp_path) == []


@pytest.mark.usefixtures("memory_folder")  # where one stays, too
def test_small_files_that_cannot_be_removed_do_not_end_the_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(path: Any, **more: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", refusing)
        measured = probe(target(str(tmp_path)), Settings(5, 40 * MIB), Silent())
    assert measured.small is not None and measured.sequential is not None


def test_counters_add_up_the_disks_and_know_what_they_do_not_know(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").touch()
    stats = tmp_path / "proc/diskstats"
    line = "   8       {0} sd{1} 100 0 {2} 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    stats.write_text(line.format(0, "a", 1000) + line.format(16, "b", 24))
    assert delivered_bytes(["sda", "sdb"], tmp_path) == 1024 * 512
    assert delivered_bytes(["sda", "sdc"], tmp_path) is None
    assert delivered_bytes([], tmp_path) is None
    cpu = next(iter(os.sched_getaffinity(0)))
    ticks = tmp_path / "proc/stat"
    ticks.write_text(f"cpu 9 9 9 9\ncpu{cpu} 10 0 10 100 30 0 0 0 0 0\n")
    meter = Meter(["sda"], tmp_path)
    ticks.write_text(f"cpu 9 9 9 9\ncpu{cpu} 35 0 10 150 55 0 0 0 0 0\n")
    stats.write_text(line.format(0, "a", 1008))
    load = meter.load()
    assert load.cpu_busy == pytest.approx(0.25)
    assert load.device_bytes == 8 * 512
    assert load.throttled is None


def test_the_quota_that_holds_us_up_is_seen(tmp_path: Path) -> None:
    cpu = next(iter(os.sched_getaffinity(0)))
    inner = tmp_path / "sys/fs/cgroup/pod/container"
    inner.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/pod/container\n")
    (tmp_path / "proc/self/mountinfo").write_text(
        "30 20 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n"
    )
    (tmp_path / "proc/stat").write_text(f"cpu{cpu} 10 0 10 100 30 0 0 0 0 0\n")

    def count(group: Path, periods: int, throttled: int) -> None:
        text = f"usage_usec 900\nnr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec 7\n"
        (group / "cpu.stat").write_text(text)

    count(inner, 100, 50)
    count(inner.parent, 40, 0)
    meter = Meter([], tmp_path)
    assert meter.load().throttled == 0
    count(inner, 120, 51)
    count(inner.parent, 60, 15)
    assert meter.load().throttled == pytest.approx(0.75)


def test_a_readers_death_is_noticed(tmp_path: Path) -> None:
    names = [str(file) for file in tree(tmp_path)] * 100_000
    before = _children()

    def kill_one() -> None:
        for child in _children() - before:
            os.kill(child, signal.SIGKILL)

    with pytest.raises(HostprepError, match="died"):
        read_whole_files(names, 1, 3, kill_one)
    assert not _children() - before


def _children() -> set[int]:
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return {int(pid) for pid in text.split()}


def test_locks_are_of_files_and_not_of_processes(tmp_path: Path) -> None:
    # What own_folder relies on: the same process cannot take its own lock a second time.
    with (
        own_folder(tmp_path) as folder,
        open(folder.path / "lock") as again,
        pytest.raises(OSError),
    ):
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("files", [31, 32, 36, 40])
def test_however_few_files_there_are_a_rate_is_taken(files: int, tmp_path: Path) -> None:
    tree(tmp_path, files=files)
    os.sync()  # on a busy disk writing them out would take the time that they are evicted in
    settings = Settings(5, 40 * MIB)
    measured = probe(target(str(tmp_path)), settings, Silent())
    assert measured.small is not None
    assert measured.small.source == ("dataset" if files >= FEWEST_FILES else "made")
    assert "too_few_files" not in {reason.code for reason in contradictions(measured)}
