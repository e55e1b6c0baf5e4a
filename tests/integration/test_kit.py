"""The kit's file systems do what they are told and leave nothing behind, however they end."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import loops, serving
from tests.kit.compare import differences
from tests.kit.failing_fs import FailingFs, Rule, failing_fs
from tests.kit.hostile import make_hostile

MIB = 1 << 20
REPOSITORY = Path(__file__).resolve().parents[2]


def mounts_below(path: Path) -> list[str]:
    return [
        line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(path) in line
    ]


def loops_on(path: Path) -> list[Path]:
    files = Path("/sys/block").glob("loop*/loop/backing_file")
    return [file for file in files if str(path) in file.read_text()]


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_a_loop_file_system_comes_and_goes(kind: loops.Kind, safe_dir: Path) -> None:
    with loops.loop_filesystem(kind, loops.SMALLEST_BYTES[kind], safe_dir, ("noatime",)) as mount:
        (line,) = mounts_below(mount)
        assert f" - {kind} /dev/loop" in line
        assert "noatime" in line
        (mount / "file").write_bytes(b"kept")
        assert len(loops_on(safe_dir)) == 1
    assert (mounts_below(safe_dir), loops_on(safe_dir), list(safe_dir.iterdir())) == ([], [], [])


def test_a_loop_file_system_in_use_is_detached_when_the_test_fails(safe_dir: Path) -> None:
    with pytest.raises(ZeroDivisionError), loops.loop_filesystem("ext4", 16 * MIB, safe_dir) as fs:
        file = (fs / "file").open("wb")
        raise ZeroDivisionError
    assert mounts_below(safe_dir) == []
    assert len(loops_on(safe_dir)) == 1, "who has a file open may go on"
    file.close()
    deadline = time.monotonic() + 60
    while loops_on(safe_dir):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_too_small_a_file_system_is_refused(safe_dir: Path) -> None:
    with pytest.raises(ValueError, match="xfs needs at least"):
        loops.make_filesystem(safe_dir / "image", "xfs", MIB)


@pytest.fixture
def fs(safe_dir: Path) -> Iterator[FailingFs]:
    (root := safe_dir / "root").mkdir()
    (root / "bad").write_bytes(bytes(range(256)) * 1000)
    (root / "good").write_bytes(b"good")
    with failing_fs(root, where=safe_dir) as fs:
        yield fs
    assert mounts_below(safe_dir) == []
    assert [path.name for path in safe_dir.iterdir()] == ["root"]


def raised(number: int) -> pytest.RaisesExc[OSError]:
    return pytest.RaisesExc(OSError, check=lambda problem: problem.errno == number)


def read_at(path: Path, start: int) -> bytes:
    with path.open("rb", buffering=0) as file:
        return os.pread(file.fileno(), MIB, start)


def test_without_rules_a_hostile_set_passes_through_both_ways(fs: FailingFs) -> None:
    hostile = make_hostile(fs.root / "hostile", big=False)
    for name in hostile.left_out:
        os.unlink(os.path.join(os.fsencode(hostile.root), name))
    for name in ("3 GiB, data at the end", "3 GiB, a hole at the end"):
        above = hostile.root / "sparse" / name
        for start in ((2 << 30) - 1, (3 << 30) - MIB):
            assert read_at(fs.mount / above.relative_to(fs.root), start) == read_at(above, start)
        above.unlink()  # all of its holes would be read, too: there is no SEEK_DATA by the mount
    assert differences(hostile.root, fs.mount / "hostile", owners=True, holes=False) == []
    command = ["cp", "-a", "--sparse=never", hostile.root / "sizes", fs.mount / "sizes"]
    subprocess.run(command, check=True)
    for part in ("modes", "names", "links", "hard", "times", "attributes", "owners"):
        subprocess.run(["cp", "-a", hostile.root / part, fs.mount / part], check=True)
        assert differences(hostile.root / part, fs.root / part, owners=True) == []
    assert differences(hostile.root / "sizes", fs.root / "sizes", owners=True) == []
    assert fs.injected() == ()


def test_reading_fails_after_so_many_bytes_and_so_often(fs: FailingFs) -> None:
    fs.tell(Rule("/bad", "read", errno.EIO, after_bytes=100_000, times=2))
    whole = (fs.root / "bad").read_bytes()
    for _ in range(2):
        with (fs.mount / "bad").open("rb", buffering=0) as file:
            assert file.read(1 << 17) == whole[:100_000]
            with raised(errno.EIO):
                file.read(1 << 17)
    assert (fs.mount / "bad").read_bytes() == whole
    assert (fs.mount / "good").read_bytes() == b"good"
    assert [(i.operation, i.path, i.error) for i in fs.injected()] == [("read", "/bad", 5)] * 2


def test_short_reads_are_no_errors(fs: FailingFs) -> None:
    fs.tell(Rule("*", "read", None, short_bytes=1000))
    with (fs.mount / "bad").open("rb", buffering=0) as file:
        assert len(file.read(1 << 17)) == 1000
    assert (fs.mount / "bad").read_bytes() == (fs.root / "bad").read_bytes()


def test_each_operation_can_fail(fs: FailingFs) -> None:
    fs.tell(
        Rule("/bad", "open"),
        Rule("/", "readdir", errno.EACCES),
        Rule("/gone", "getattr", errno.EIO),
        Rule("/new", "create", errno.ENOSPC),
        Rule("/folder", "mkdir", errno.EDQUOT),
        Rule("/renamed", "rename", errno.EIO),
        Rule("/good", "fsync", errno.EIO),
    )
    with raised(errno.EIO):
        (fs.mount / "bad").open()
    with raised(errno.EACCES):
        os.listdir(fs.mount)
    with raised(errno.EIO):
        (fs.mount / "gone").stat()
    with raised(errno.ENOSPC):
        (fs.mount / "new").touch()
    with raised(errno.EDQUOT):
        (fs.mount / "folder").mkdir()
    with raised(errno.EIO):
        (fs.mount / "good").rename(fs.mount / "renamed")
    with (fs.mount / "good").open("r+b") as file, raised(errno.EIO):
        os.fsync(file.fileno())
    fs.tell()
    assert sorted(os.listdir(fs.mount)) == ["bad", "good"]


def test_the_space_ends_within_a_file(fs: FailingFs) -> None:
    fs.tell(Rule("/*.tmp", "write", errno.ENOSPC, after_bytes=MIB))
    with (fs.mount / "new.tmp").open("wb", buffering=0) as file:
        assert file.write(bytes(MIB + 5)) == MIB
        with raised(errno.ENOSPC):
            file.write(b"more")
    assert (fs.root / "new.tmp").stat().st_size == MIB


def test_names_that_are_not_utf_8_can_be_chosen(fs: FailingFs) -> None:
    name = os.fsdecode(b"\xff\xe9")
    (fs.root / name).write_bytes(b"x")
    fs.tell(Rule(f"/{name}", "read"))
    with raised(errno.EIO):
        (fs.mount / name).read_bytes()
    assert fs.injected()[0].path == f"/{name}"


def test_who_hangs_when_it_ends_is_let_go(safe_dir: Path) -> None:
    (safe_dir / "file").write_bytes(b"x")
    ended: list[int | None] = []

    def read(path: Path) -> None:
        try:
            path.read_bytes()
        except OSError as problem:
            ended.append(problem.errno)

    with failing_fs(safe_dir, [Rule("/file", "read", None, hang_seconds=3600)]) as fs:
        thread = threading.Thread(target=read, args=(fs.mount / "file",))
        thread.start()
        while not fs.injected():
            time.sleep(0.01)
    thread.join(10)
    assert ended and ended[0] in (errno.ENOTCONN, errno.ECONNABORTED, errno.EIO, errno.EINTR)
    assert mounts_below(fs.mount) == []


WITH_A_MOUNT = """
import sys, time
from pathlib import Path
from tests.kit.failing_fs import failing_fs
with failing_fs(Path(sys.argv[1]), where=Path(sys.argv[2])) as fs:
    print(fs.mount, flush=True)
    while True:  # no single long sleep: a signal just before it would be seen at its end
        time.sleep(0.1)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_test_leaves_no_mount_and_no_process(how: signal.Signals, safe_dir: Path) -> None:
    if reason := serving.unavailable():  # in this process: it is another one that serves
        pytest.skip(reason)
    (root := safe_dir / "root").mkdir()
    command = [sys.executable, "-c", WITH_A_MOUNT, str(root), str(safe_dir)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as user:
        assert user.stdout is not None
        mount = Path(user.stdout.readline().strip())
        children = Path(f"/proc/{user.pid}/task/{user.pid}/children").read_text().split()
        assert len(mounts_below(mount)) == 1
        assert len(children) == 1
        user.send_signal(how)
    deadline = time.monotonic() + 60
    while mounts_below(mount) or Path("/proc", children[0]).exists():
        assert time.monotonic() < deadline, (mounts_below(mount), children)
        time.sleep(0.02)
