"""What can really happen to an fstab while it is written: kills, others, full and odd disks."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostprep.errors import HostprepError, Refused
from hostprep.system.systemd import fstab_generator
from hostprep.volumes import fstab_check
from hostprep.volumes.fstab import entries
from hostprep.volumes.fstab_file import edit_fstab, read_fstab
from tests.kit.failing_fs import Rule, failing_fs
from tests.kit.fstab_nursery import with_volume, without_volume
from tests.kit.stagecraft import KILL_ROUNDS

REPOSITORY = Path(__file__).parents[2]
DEBIAN = (REPOSITORY / "tests/fixtures/fstab/debian.fstab").read_bytes()


@pytest.fixture
def fstab(tmp_path: Path) -> Path:
    path = tmp_path / "fstab"
    path.write_bytes(DEBIAN)
    path.chmod(0o640)
    return path


@pytest.mark.parametrize(("kills", "check"), [(100, "unchecked"), (20, "checked")])
def test_kill_9_leaves_the_old_file_or_the_new_one(
    fstab: Path, own_state: Path, kills: int, check: str
) -> None:
    kills *= KILL_ROUNDS
    module = [sys.executable, "-m", "tests.kit.fstab_nursery"]
    done = subprocess.run(
        [*module, str(fstab), str(kills), check],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    # Both, and nothing else; and some kills fell between making the new file and renaming it.
    assert set(found["contents"]) == {DEBIAN.hex(), with_volume(DEBIAN).hex()}
    assert sum(found["contents"].values()) == kills
    assert set(found["modes"]) == {str(0o640)}
    assert "1" in found["litter"]
    assert set(found["litter"]) <= {"0", "1"}
    # The next run puts all in order.
    edit_fstab(fstab, with_volume)
    edit_fstab(fstab, without_volume)
    assert fstab.read_bytes() == DEBIAN
    assert os.listdir(fstab.parent) == ["fstab"]
    assert not list(own_state.glob("state/fstab-check-*"))


def test_runs_side_by_side_lose_nothing_of_each_other(fstab: Path) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from hostprep.volumes.fstab_file import edit_fstab\n"
        "from hostprep.volumes.fstab_line import set_volume\n"
        "from tests.kit.fstab_nursery import unchecked\n"
        "unchecked()\n"
        "def put(old):\n"
        "    return set_volume(old, path=path, options=[])\n"
        "for number in range(40):\n"
        "    path = f'/mnt/{sys.argv[2]}/{number}'\n"
        "    assert edit_fstab(Path(sys.argv[1]), put)\n"
    )
    runs = [
        subprocess.Popen([sys.executable, "-c", script, str(fstab), name], cwd=REPOSITORY)
        for name in ("a", "b", "c")
    ]
    assert [run.wait() for run in runs] == [0, 0, 0]
    ours = {entry.target for entry in entries(fstab.read_bytes()) if entry.owner_id}
    assert ours == {f"/mnt/{name}/{number}" for name in "abc" for number in range(40)}
    assert fstab.read_bytes().startswith(DEBIAN)


def test_the_kernel_sees_flush_rename_flush(fstab: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    script = (
        "import sys; from pathlib import Path\n"
        "from hostprep.volumes.fstab_file import edit_fstab\n"
        "from tests.kit.fstab_nursery import unchecked, with_volume\n"
        "unchecked()\n"
        "edit_fstab(Path(sys.argv[1]), with_volume)\n"
    )
    trace = fstab.parent.parent / f"{fstab.parent.name}.trace"
    calls = "trace=write,pwrite64,fsync,fdatasync,rename,renameat,renameat2"
    strace = ["strace", "-f", "-y", "-o", str(trace), "-e", calls]
    done = subprocess.run(
        [*strace, sys.executable, "-c", script, str(fstab)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0 and "ptrace" in done.stderr:
        pytest.skip(f"strace may not trace here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    temp = re.escape(f"{fstab.parent}/.fstab.hostprep-") + "[0-9a-f]{16}"
    shapes = [
        ("write", rf"\bwrite\(\d+<{temp}>.* = {len(with_volume(DEBIAN))}$"),
        ("flush file", rf"\bfsync\(\d+<{temp}>\) += 0$"),
        ("rename", r"\brename\w*\(.*hostprep-[0-9a-f]{16}\", .*\"fstab\".* = 0$"),
        ("flush directory", rf"\bfsync\(\d+<{re.escape(str(fstab.parent))}>\) += 0$"),
    ]
    lines = trace.read_text().splitlines()
    seen = [name for line in lines for name, shape in shapes if re.search(shape, line)]
    assert seen == [name for name, _ in shapes]


def test_a_dead_share_in_fstab_does_not_keep_our_line_out(
    fstab: Path, own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fstab_check, "_PATIENCE_SECONDS", 1.0)
    with failing_fs(own_state, [Rule("*", "getattr", None, hang_seconds=600)]) as share:
        line = f"{share.root} {share.mount}/data none bind,nofail 0 0\n".encode()
        fstab.write_bytes(DEBIAN + line)
        assert edit_fstab(fstab, with_volume)
        assert fstab.read_bytes() == with_volume(DEBIAN + line)
        if fstab_generator() is not None:  # what is wrong with our own line is still found
            with pytest.raises(Refused, match="generator"):
                edit_fstab(fstab, lambda old: with_volume(old).replace(b"tmpfs", b"xfs"))
    assert not list(own_state.glob("state/fstab-check-*"))


def test_a_bind_mounted_fstab_is_refused(safe_dir: Path) -> None:
    fstab, outside = safe_dir / "fstab", safe_dir / "outside"
    fstab.write_bytes(b"")
    outside.write_bytes(DEBIAN)
    subprocess.run(["mount", "--bind", str(outside), str(fstab)], check=True)
    for action in (lambda: read_fstab(fstab), lambda: edit_fstab(fstab, with_volume)):
        with pytest.raises(Refused, match="mount point"):
            action()
    assert outside.read_bytes() == DEBIAN
    assert sorted(os.listdir(safe_dir)) == ["fstab", "outside"]


@pytest.fixture
def small_disk(safe_dir: Path) -> Path:
    """Mount a file system of 64 KiB with an fstab on it; return the fstab."""
    folder = safe_dir / "etc"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "small", str(folder)], check=True)
    (folder / "fstab").write_bytes(DEBIAN)
    return folder / "fstab"


def test_a_full_disk_keeps_the_old_file(small_disk: Path) -> None:
    filler = small_disk.with_name("filler")
    with pytest.raises(OSError, match="No space"), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    with pytest.raises(HostprepError, match="as it was: No space left") as caught:
        edit_fstab(small_disk, with_volume)
    assert "full" in str(caught.value.hint)
    assert small_disk.read_bytes() == DEBIAN
    assert sorted(os.listdir(small_disk.parent)) == ["filler", "fstab"]


def test_a_read_only_disk_is_one_sentence(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk.parent)], check=True)
    with pytest.raises(HostprepError, match=r"fstab could not be replaced.*Read-only") as caught:
        edit_fstab(small_disk, with_volume)
    assert "read-only" in str(caught.value.hint)
    assert small_disk.read_bytes() == DEBIAN


@pytest.fixture(params=["i", "a"])
def fixed(request: pytest.FixtureRequest, fstab: Path) -> Iterator[Path]:
    """Make the fstab immutable, as careful admins do, or one that can only be added to."""
    flag: str = request.param
    line = ["chattr", f"+{flag}", str(fstab)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"chattr does not work here: {done.stderr.strip()}")
    yield fstab
    subprocess.run(["chattr", f"-{flag}", str(fstab)], check=True)


def test_an_fstab_that_is_fixed_stays_and_the_hint_says_why(fixed: Path) -> None:
    with pytest.raises(HostprepError, match="not permitted") as caught:
        edit_fstab(fixed, with_volume)
    assert "immutable or append-only (as root: chattr -ia)" in str(caught.value.hint)
    assert fixed.read_bytes() == DEBIAN
    assert os.listdir(fixed.parent) == ["fstab"]
