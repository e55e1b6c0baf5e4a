"""Running hostprep's commands from tests: what they print, sources, mounts, snapshots."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import io
import json
import os
import random
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from hostprep.cli.main import run
from hostprep.host.mounts import read_mounts
from hostprep.staging.record.manifest import FORMAT
from tests.kit.processes import open_files

HOSTPREP = (sys.executable, "-m", "hostprep")
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--")
# Root as most containers have it: it may not mount.
CONTAINED = ("setpriv", "--bounding-set=-sys_admin", "--")
REPOSITORY = Path(__file__).resolve().parents[2]
# How many times as often as usual whatever is killed at random moments is killed.
KILL_ROUNDS = int(os.environ.get("HOSTPREP_KILL_ROUNDS", "1"))

Snapshot = dict[bytes, tuple[object, ...]]


def run_hostprep(
    *words: str | Path,
    prefix: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    cwd: Path = REPOSITORY,
) -> subprocess.CompletedProcess[str]:
    """Run ``hostprep WORDS`` as its own process and return what it said; 60 s at most."""
    line = [*prefix, *HOSTPREP, *map(os.fspath, words)]
    return subprocess.run(
        line,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=60,
        cwd=cwd,
        env={**os.environ, **(env or {})},
    )


def hostprep(*words: str | Path, expect: int = 0, prefix: Sequence[str] = ()) -> dict[str, Any]:
    """Run with ``--json``, insist on the exit code and on one document; return that.

    In this process, which saves the interpreter's start, unless there is a ``prefix``.
    """
    line = [*map(os.fspath, words), "--json"]
    if prefix:
        done = run_hostprep(*line, prefix=prefix)
        code, out, said = done.returncode, done.stdout, done.stderr
    else:
        # What earlier tests dropped must not close, or seem to leak, in between; and it takes long
        # to look for garbage among all that is there before.
        gc.collect()
        gc.freeze()
        files = open_files()
        stdout, stderr = io.StringIO(), io.StringIO()
        with (
            contextlib.redirect_stdout(stdout),
            contextlib.redirect_stderr(stderr),
            _priority_kept(),
        ):
            code = run(line)
        out, said = stdout.getvalue(), stderr.getvalue()
        gc.collect()
        assert open_files() <= files, "descriptors were left open"
    assert code == expect, f"{code}: {said}{out}"
    found: dict[str, Any] = json.loads(out)
    assert found["schema"] == f"hostprep.{words[0]}/1"
    assert found["ok"] is (expect == 0)
    return found


@contextlib.contextmanager
def _priority_kept() -> Iterator[None]:
    """Come back from ``--gentle``, which else would be for all the tests that follow."""
    this = psutil.Process()
    nice, disk = this.nice(), this.ionice()
    try:
        yield
    finally:
        this.nice(nice)
        this.ionice(disk.ioclass, disk.value)


def findings(*words: str | Path) -> list[dict[str, Any]]:
    """Return what ``hostprep check WORDS`` finds, whatever its verdict is."""
    found: dict[str, Any] = json.loads(run_hostprep("check", *words, "--json").stdout)
    checks: list[dict[str, Any]] = found["checks"]
    return checks


def only_dataset() -> dict[str, Any]:
    """Return the one data set that ``hostprep status`` shows."""
    found: list[dict[str, Any]] = hostprep("status")["datasets"]
    (dataset,) = found
    return dataset


def mount(*words: str | Path) -> None:
    """Run mount(8)."""
    subprocess.run(["mount", *words], check=True)


def unmount(path: str | Path) -> None:
    """Unmount what was mounted last on ``path``."""
    subprocess.run(["umount", path], check=True)


@contextlib.contextmanager
def mounted_by_another(point: Path) -> Iterator[None]:
    """Have a user's own mount at ``point``, as of sshfs without allow_other: root sees nothing."""
    with open("/dev/fuse", "r+b", buffering=0) as device:
        number = device.fileno()
        options = f"fd={number},rootmode=40000,user_id=65534,group_id=65534"
        command = ["mount", "-i", "-t", "fuse", "-o", options, "theirs", point]
        subprocess.run(command, pass_fds=[number], check=True)
        try:
            yield
        finally:
            unmount(point)


def is_mounted(path: Path) -> bool:
    """Whether anything is mounted there, by what the kernel lists."""
    return any(mount.target == str(path) for mount in read_mounts())


def make_source(root: Path, *, directories: int = 6, files: int = 20, seed: int = 1) -> Path:
    """Make a small data set: some directories of small files, a few links, set times."""
    dice = random.Random(seed)
    for number in range(directories):
        folder = root / f"class-{number}" / "images"
        folder.mkdir(parents=True)
        for index in range(files):
            file = folder / f"{index:03}.bin"
            file.write_bytes(dice.randbytes(dice.randrange(12_000)))
            moment = dice.randrange(1_500_000_000_000_000_000)
            os.utime(file, ns=(moment, moment))
    (root / "empty").mkdir()
    (root / "link").symlink_to("class-0/images/000.bin")
    os.link(root / "class-0/images/001.bin", root / "hard")
    return root


def snapshot(root: Path, *, content: bool = True) -> Snapshot:
    """Return what there is below ``root`` and at it: everything but access and change times."""
    found: Snapshot = {}
    pending = [os.fsencode(root)]
    while pending:
        path = pending.pop()
        try:
            st = os.lstat(path)
        except FileNotFoundError:
            continue
        said: str | bytes = ""
        if stat.S_ISDIR(st.st_mode):
            pending.extend(os.path.join(path, name) for name in os.listdir(path))
        elif stat.S_ISLNK(st.st_mode):
            said = os.readlink(path)
        elif stat.S_ISREG(st.st_mode) and content:
            said = _content(path, st)
        size = 0 if stat.S_ISDIR(st.st_mode) else st.st_size
        found[path] = (st.st_mode, size, st.st_mtime_ns, st.st_uid, st.st_gid, st.st_nlink, said)
    return found


def _content(path: bytes, st: os.stat_result) -> str:
    """Return a hash of a file's content: of a sparse one, of where its data lies and of that."""
    with open(path, "rb") as file:
        if st.st_blocks * 512 >= st.st_size:
            return hashlib.file_digest(file, "sha256").hexdigest()
        hasher, position = hashlib.sha256(), 0
        while True:
            try:
                start = os.lseek(file.fileno(), position, os.SEEK_DATA)
            except OSError:  # nothing but a hole from here on
                return hasher.hexdigest()
            position = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            hasher.update(b"%d-%d" % (start, position))
            hasher.update(os.pread(file.fileno(), position - start, start))


def rewrite(path: Path, data: bytes, *, keep_times: bool = False) -> None:
    """Write ``data`` into the file in place; with ``keep_times`` nobody sees it by lstat."""
    before = path.stat()
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()
    if keep_times:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def flip_bit(path: Path, position: int = 0) -> None:
    """Change one bit and put the times back: what only reading finds."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    rewrite(path, bytes(data), keep_times=True)


def processes_with(word: str) -> list[int]:
    """Return the processes whose command line holds ``word``, this one left out."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            line = Path("/proc", name, "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(word) in line:
            found.append(int(name))
    return found


def make_private(parent: Path, *, target: Path | None = None) -> Path:
    """Make the private directory that a killed run leaves for ``parent/data``; return it.

    ``target`` is what it says that it was made for.
    """
    private = parent / ".hostprep-data"
    private.mkdir(mode=0o700)
    info = {"format": FORMAT, "target": str(target or parent / "data")}
    (private / "info.json").write_text(json.dumps(info))
    return private
