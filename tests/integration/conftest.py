"""Real mounts, in a mount namespace of the test process's own: nothing reaches the machine's.

Children inherit the namespace, and the kernel takes every mount away when the process ends.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from hostprep.host.mounts import read_mounts
from hostprep.system.state import SYSTEM_STATE_DIR
from tests.kit import loops
from tests.kit.needing import mark_folder, need_root
from tests.kit.stagecraft import make_source

_CLONE_NEWNS = 0x00020000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this folder as needing root."""
    mark_folder(__file__, items, pytest.mark.root)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """Skip a test whose rig, or that of one of its fixtures, cannot be had here."""
    try:
        return (yield)
    except loops.Unavailable as reason:
        pytest.skip(str(reason))


pytest_fixture_setup = pytest_pyfunc_call


@pytest.fixture(scope="session", autouse=True)
def private_namespace() -> Path:
    """Move this process into a private mount namespace; return a root-owned folder to work below.

    The folder is an empty tmpfs over ``/mnt``, mode 0755, so that no other user can write any of
    its parents: hostprep refuses mount points anywhere else, ``/tmp`` included.
    """
    need_root("to mount in a private namespace")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) != 0:
        pytest.skip(f"no private mount namespace here: {os.strerror(ctypes.get_errno())}")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    options = "mode=0755,uid=0,gid=0,nodev"
    places = ["/mnt"]
    if SYSTEM_STATE_DIR.exists():  # ordinary users are shown what this machine has on record, too
        places.append(str(SYSTEM_STATE_DIR))
    for place in places:
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "hostprep-tests", place], check=True)
    return Path("/mnt")


@pytest.fixture
def safe_dir(private_namespace: Path) -> Iterator[Path]:
    """Return a fresh root-owned directory whose parents others cannot write.

    It lies on a tmpfs without a size of its own: mount something below it for large data. What a
    test leaves mounted below it is unmounted, and its files are removed. Its name is this run's
    alone: the loop devices of runs beside it are seen here too, by the names of their files.
    """
    index = 0
    while (path := private_namespace / f"test-{os.getpid()}-{index}").exists():
        index += 1
    path.mkdir(mode=0o755)
    yield path
    below = [m.target for m in read_mounts() if Path(m.target).is_relative_to(path)]
    for target in reversed(below):
        subprocess.run(["umount", "--lazy", "--", target], check=False)
    shutil.rmtree(path)


@pytest.fixture
def user_attributes(safe_dir: Path, tmp_path: Path) -> Iterator[None]:
    """Let files below ``safe_dir`` have ``user.*`` attributes, which tmpfs takes since Linux 6.6.

    An earlier kernel gets an ext4 there, so it has to come before what others make in it.
    """
    try:
        os.setxattr(safe_dir, "user.try", b"")
    except OSError:
        if reason := loops.unavailable():
            pytest.skip(f"tmpfs takes no user attributes here, and {reason}")
        image = tmp_path / "attributes.img"
        loops.make_filesystem(image, "ext4", 128 << 20)
        with loops.loop_mount(image, safe_dir, "ext4"):
            yield
    else:
        os.removexattr(safe_dir, "user.try")
        yield


@pytest.fixture
def state(safe_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the state in memory: nobody waits for a disk, and kills hit more than such waits."""
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(safe_dir / "state"))
    return safe_dir / "state"


@pytest.fixture
def source(safe_dir: Path) -> Path:
    """Return a small data set to be staged."""
    return make_source(safe_dir / "data")


@pytest.fixture
def target(safe_dir: Path) -> Path:
    """Return a directory to stage into, which is not there yet."""
    return safe_dir / "fast"


@pytest.fixture
def volume(safe_dir: Path) -> Path:
    """Return a place for a volume, which is not mounted yet."""
    return safe_dir / "ram"


@pytest.fixture
def fstab(own_state: Path) -> Path:
    """Return the fstab in place of the machine's, which is not there yet."""
    return own_state / "fstab"
