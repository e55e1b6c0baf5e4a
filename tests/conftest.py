"""What all tests share: a state and a run directory of their own, never the machine's."""

from __future__ import annotations

import functools
import gc
import itertools
import os
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import typer.main

from hostprep.host.block import IN_MEMORY, locate
from tests.kit.stolen import MUCH_SHARE, Others, why_no_time_is_kept

RERUNS = 2  # of a test that holds a measured time

# A shell starts what runs in the background with Ctrl-C ignored, and that is inherited: the
# commands that tests interrupt would not hear of it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let tests that hold a measured time against a known one be tried three times.

    Another program on the machine, or another virtual machine beside it, may take a processor or
    the disk for some seconds, and no tolerance that still means something bears that. Each try is
    shown (R). What is wrong with hostprep is so three times, and minutes later (scripts/test.sh).
    """
    for item in items:
        if item.get_closest_marker("timed"):
            item.add_marker(pytest.mark.flaky(reruns=RERUNS, reruns_delay=15))


@pytest.fixture(scope="module", autouse=True)
def little_garbage() -> None:
    """Take what is there before a module's tests out of what is searched for garbage: it stays.

    Many tests look for what is left open, and have all garbage collected for that: with all that
    tests import it takes 60 ms each time, and more the longer they run.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Skip what holds a time and failed to the last, beside others that had much of the machine.

    The last is the third try of the second run (scripts/test.sh), and of any other with
    ``--last-failed``: elsewhere it has failed.
    """
    if not item.get_closest_marker("timed") or not item.config.getoption("lf", False):
        return (yield)
    others = Others()
    try:
        return (yield)
    except AssertionError as error:
        share = others.share()
        if getattr(item, "execution_count", 1) <= RERUNS or share < MUCH_SHARE:
            raise
        raise pytest.skip.Exception(
            f"others took {share:.0%} of the processors' time meanwhile, and it failed: {error}"
        ) from error


@pytest.fixture(autouse=True)
def keeps_time(request: pytest.FixtureRequest) -> None:
    """Hold no time against another one where the machine has lost its processors to others."""
    if request.node.get_closest_marker("timed") and (reason := why_no_time_is_kept()):
        pytest.skip(reason)


@pytest.fixture(scope="session", autouse=True)
def parameters_read_once() -> Iterator[None]:
    """Have a command's parameters be read from its function once, not each time it is run here.

    That takes longer than many a command does, and nothing of it changes from run to run.
    """
    with pytest.MonkeyPatch.context() as patch:
        read = functools.cache(typer.main.get_params_from_function)
        patch.setattr(typer.main, "get_params_from_function", read)
        yield


@pytest.fixture(scope="session", autouse=True)
def own_temporary_folder() -> Iterator[None]:
    """Give commands a temporary folder that ends with the run: some are killed, and leave theirs.

    Its path is short, since sockets of multiprocessing lie below it.
    """
    folder = tempfile.mkdtemp(prefix="hostprep-tests-")
    os.chmod(folder, 0o1777)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)
        yield
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def disk_folder(tmp_path: Path) -> Iterator[Path]:
    """Give a folder whose files can leave the page cache: Debian has /tmp in memory from 13 on."""
    if locate(tmp_path).fstype not in IN_MEMORY:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="hostprep-test-", dir="/var/tmp") as name:
        if locate(name).fstype in IN_MEMORY:
            pytest.skip("/tmp and /var/tmp are in memory")
        yield Path(name)


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return paths for folders of tests; pytest's own would search all others for each."""
    folder = tmp_path_factory.mktemp("hostprep")
    return (folder / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def own_state(homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep every test away from /var/lib/hostprep, /run/lock, the real /etc/fstab and systemd."""
    home = next(homes)
    home.mkdir(mode=0o700)
    monkeypatch.setenv("HOSTPREP_STATE_DIR", str(home / "state"))
    monkeypatch.setenv("HOSTPREP_RUN_DIR", str(home / "run"))
    monkeypatch.setenv("HOSTPREP_FSTAB", str(home / "fstab"))
    monkeypatch.setenv("HOSTPREP_UNIT_DIR", str(home / "units"))
    return home
