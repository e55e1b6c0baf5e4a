"""The hosts are real, boot and reboot, and nothing of them outlives the tests, however they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fleet.kit.fleet import booted
from tests.kit.debian import cached
from tests.kit.stagecraft import REPOSITORY, processes_with

_BOOT_AND_WAIT = """
import sys, time
from pathlib import Path
from tests.fleet.kit.fleet import booted
with booted(Path(sys.argv[1]), ["omega"], shared={}):
    print("up", flush=True)
    time.sleep(60)
"""


def test_a_host_boots_mounts_what_is_shared_and_reboots(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "file").write_text("served")
    with booted(tmp_path, ["omega"], shared={"/srv/shared": shared}) as fleet:
        omega = fleet["omega"]
        assert omega.ssh("hostname; cat /srv/shared/file").stdout == "omega\nserved"
        assert omega.ssh("touch /srv/shared/new", check=False).returncode == 1
        booted_as = omega.ssh("cat /proc/sys/kernel/random/boot_id; touch /run/gone /kept").stdout
        omega.shared.clear()
        assert omega.reboot() == "running"
        assert omega.ssh("cat /proc/sys/kernel/random/boot_id").stdout != booted_as
        assert omega.ssh("ls /run/gone /kept /srv/shared", check=False).stdout.split() == [
            "/kept",
            "/srv/shared:",
        ]
        omega.power_off()
        assert omega.ssh("true", check=False).returncode == 255
        omega.start()
        assert omega.wait_until_up() == "running"
    assert left_behind(tmp_path) == []


def test_nothing_is_left_behind_by_tests_that_are_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _BOOT_AND_WAIT, tmp_path],
        stdout=subprocess.PIPE, cwd=REPOSITORY, start_new_session=True,
    ) as tests:  # fmt: skip
        assert tests.stdout is not None
        assert tests.stdout.readline() == b"up\n"
        inside = left_behind(tmp_path)
        tests.kill()
    assert any("systemd-nspawn" in line for line in inside)
    assert any("hostprep-fleet" in line for line in inside)
    deadline = time.monotonic() + 60
    while (left := left_behind(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def left_behind(folder: Path) -> list[str]:
    """Return the processes, groups, mounts and interfaces that a fleet has here now."""
    group = f"hostprep-fleet-{(folder / 'hosts').stat().st_ino}"
    # Groups that end meanwhile are nothing to walk, where glob would raise.
    walked = (path for path, _, _ in os.walk("/sys/fs/cgroup"))
    groups = [path for path in walked if os.path.basename(path) == group]
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    interfaces = os.listdir("/sys/class/net")
    return [
        *map(_line_of, processes_with(str(folder / "hosts"))),
        *groups,
        *(line for line in mounts if str(folder) in line),
        *(name for name in interfaces if name == "fleet0" or name.startswith(("vb-", "ve-"))),
    ]


def _line_of(pid: int) -> str:
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes().replace(b"\0", b" ").decode()
    except FileNotFoundError:
        return f"process {pid}, which ended just now"


def test_a_base_system_that_was_not_finished_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.kit.debian._CACHE", tmp_path)

    def make(then: Callable[[], None]) -> Path:
        def fill(folder: Path) -> None:
            (folder / "first").touch()
            then()
            (folder / "last").touch()

        return cached("base", ["recipe"], fill)

    killed = os.fork()
    if killed == 0:
        make(lambda: os.kill(os.getpid(), signal.SIGKILL))
    os.waitpid(killed, 0)
    assert [path.suffix for path in tmp_path.glob("base-*")] == [".part"]
    made: list[str] = []
    whole = make(lambda: made.append("again"))
    assert sorted(path.name for path in whole.iterdir()) == ["first", "last"]
    assert make(lambda: made.append("in vain")) == whole
    assert made == ["again"]
