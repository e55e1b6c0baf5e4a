"""``make demo``: hostprep on a sample data set, from an ordinary disk into RAM and away again.

Runs the ``hostprep`` command as a user would. As root it mounts a tmpfs in a mount namespace of its
own, which ends with the demo; otherwise it stages into /dev/shm. Nothing of it remains.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FILES = 6000
READS = 600
CLONE_NEWNS = 0x20000


def main() -> int:
    """Show everything and return the exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # closing the terminal sends no Ctrl-C
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    root = os.geteuid() == 0
    # Not below /tmp, which is a tmpfs on many machines: the point is to read from the disk.
    base = Path("/var/tmp") if os.access("/var/tmp", os.W_OK) else Path.cwd()
    work = Path(tempfile.mkdtemp(prefix="hostprep-demo-", dir=base))
    shm = Path("/dev/shm") / work.name
    os.environ.update(
        HOSTPREP_STATE_DIR=str(work / "state"),
        HOSTPREP_RUN_DIR=str(work / "run"),
        HOSTPREP_FSTAB=str(work / "fstab"),
    )
    try:
        return with_root(work) if root else without_root(work, shm)
    except KeyboardInterrupt:
        say("interrupted; cleaning up")
        return 130
    finally:
        shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(shm, ignore_errors=True)


def with_root(work: Path) -> int:
    """The full demo: mount, stage, compare, unstage, unmount."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        say("this machine allows no mount namespace; the demo stages into /dev/shm instead.")
        return without_root(work, Path("/dev/shm") / work.name)
    run("mount", "--make-rprivate", "/")
    run("mount", "-t", "tmpfs", "-o", "mode=0755", "demo", "/mnt")
    source = make_data_set(work)
    code = hostprep("stage", str(source), "--to-tmpfs", "2G", "--dry-run")
    code = code or hostprep("stage", str(source), "--to-tmpfs", "2G")
    code = code or hostprep("status")
    if not code:
        compare(source, Path("/mnt/hostprep") / source.name)
    return code or hostprep("unstage", source.name)


def without_root(work: Path, shm: Path) -> int:
    """What needs no root: the same in the tmpfs that every Linux has."""
    say(
        "without root no tmpfs can be mounted; `sudo make demo` shows that. Here the data set is"
        " staged into /dev/shm, which needs none."
    )
    source = make_data_set(work)
    shm.mkdir(mode=0o700)
    code = hostprep("stage", str(source), "--to", str(shm))
    if not code:
        compare(source, shm / source.name)
    return code or hostprep("unstage", source.name)


def make_data_set(work: Path) -> Path:
    """Write some thousands of files with the sizes of images, in folders by class."""
    source = work / "sample-images"
    say(f"making a data set of {FILES:,} image-like files in {source}")
    chooser = random.Random(0)
    noise = chooser.randbytes(4 * 1024 * 1024)
    for number in range(FILES):
        folder = source / f"class_{number % 50:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        size = min(max(2_000, int(chooser.lognormvariate(11.5, 0.45))), 1_000_000)
        start = chooser.randrange(len(noise) - size)
        (folder / f"image_{number:05d}.jpg").write_bytes(noise[start : start + size])
    os.sync()  # what is not on the disk yet cannot be read from it
    return source


def compare(source: Path, staged: Path) -> None:
    """Read the same files in the same shuffled order, cold from the source and from RAM."""
    names = [path.relative_to(source) for path in sorted(source.rglob("*.jpg"))]
    chosen = random.Random(1).sample(names, READS)
    say(f"\nreading {READS} files in shuffled order, one after the other, as a loader would:")
    rows = [
        ("from the disk, cold", read_files(source, chosen, cold=True)),
        ("staged in RAM", read_files(staged, chosen, cold=False)),
    ]
    longest = max(rate for _, (rate, _) in rows)
    for words, (rate, median_ms) in rows:
        bar = "#" * max(1, round(40 * rate / longest))
        say(f"  {words:<20} {rate:>9,.0f} files/s  {median_ms:7.3f} ms a file (median)  {bar}")


def read_files(root: Path, names: list[Path], *, cold: bool) -> tuple[float, float]:
    """Return files/s and the median milliseconds of opening, reading and closing one."""
    seconds = []
    for name in names:
        if cold:
            descriptor = os.open(root / name, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
        started = time.perf_counter()
        (root / name).read_bytes()
        seconds.append(time.perf_counter() - started)
    return len(seconds) / sum(seconds), statistics.median(seconds) * 1000


def hostprep(*args: str) -> int:
    """Run the command, shown as typed."""
    say(f"\n$ hostprep {' '.join(args)}")
    command = subprocess.Popen([sys.executable, "-m", "hostprep", *args])
    try:
        return command.wait()
    except KeyboardInterrupt:
        command.terminate()
        command.wait()  # or it would go on writing into what is removed next
        raise


def run(*args: str) -> None:
    """Run a tool that must succeed."""
    subprocess.run(args, check=True)


def say(words: str) -> None:
    """Print at once, to keep the order with the commands' output."""
    print(words, flush=True)


if __name__ == "__main__":
    sys.exit(main())
