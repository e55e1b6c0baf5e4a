"""`check` on a host with faults that were planted for real; then its remedies, and none is left."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hostprep.host.memory import read_headroom
from hostprep.readiness.model import Level
from hostprep.readiness.registry import all_checks
from tests.integration.test_cgroup_limits import cgroup, hierarchy, inside
from tests.kit import far_share
from tests.kit.stagecraft import flip_bit, make_source, run_hostprep

GIB = 1 << 30
# What others do on this machine at the moment was not planted, and comes and goes.
MOMENTARY = ("HP034", "HP047")
# Of --full all that measures for minutes; what is left reads the data sets through.
HEAVY = tuple(
    check.code for check in all_checks() if check.level is Level.FULL and check.code != "HP015"
)
BAD = ("FAIL", "WARN", "UNKNOWN")

Findings = dict[tuple[str, str], dict[str, Any]]


class Host:
    """A host as a spec wants it: four volumes, four data sets, one of them from a share."""

    def __init__(self, folder: Path, fstab: Path) -> None:
        self.folder, self.fstab = folder, fstab
        self.spec = folder / "hostprep.yml"
        self.share, self.share_root = folder / "share", folder / "server"
        names = ("stale", "damaged", "lost")
        self.sources = {name: make_source(folder / "sources" / name, files=5) for name in names}
        self.share.mkdir()
        make_source(self.share_root / "far", files=5)
        self.sources["far"] = self.share / "far"
        fstab.write_text(
            "# somebody's own\n"
            f"{far_share.program(folder)}#{self.share_root} {self.share} fuse ro,noauto 0 0\n"
        )
        volumes = {"lost": "lost", "stale": "kept", "damaged": "kept", "far": "kept"}
        self.spec.write_text(
            "volumes:\n"
            + "".join(
                f"  - {{path: {self.volume(name)}, size: 64M}}\n"
                for name in ("kept", "lost", "drifted")
            )
            + "datasets:\n"
            + "".join(
                f"  - {{name: {name}, source: {source}, volume: {self.volume(volumes[name])}}}\n"
                for name, source in self.sources.items()
            )
        )

    def volume(self, name: str) -> Path:
        return self.folder / f"ram-{name}"

    def shell(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a line as one would paste it."""
        return subprocess.run(
            ["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False
        )


@pytest.fixture
def host(
    safe_dir: Path, own_state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Host]:
    if read_headroom().available_bytes < 6 * GIB:
        pytest.skip("less than 6 GiB are available: volumes leave 4 GiB to the machine")
    command = tmp_path / "hostprep"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m hostprep "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("LIBMOUNT_FSTAB", str(own_state / "fstab"))
    made = Host(safe_dir, own_state / "fstab")
    subprocess.run(["mount", str(made.share)], check=True)
    try:
        done = run_hostprep("apply", made.spec, "--yes")
        assert done.returncode == 0, done.stderr + done.stdout
        yield made
    finally:
        for server in far_share.servers(made.share_root):
            os.kill(server, signal.SIGCONT)
        subprocess.run(["umount", "--force", "--lazy", str(made.share)], check=False)
        deadline = time.monotonic() + 5
        while far_share.servers(made.share_root) and time.monotonic() < deadline:
            time.sleep(0.05)
        for server in far_share.servers(made.share_root):
            os.kill(server, signal.SIGKILL)


@contextmanager
def own_shm() -> Iterator[None]:
    """Have a /dev/shm of one's own, in this mount namespace, as a container has."""
    options = "size=32M,mode=1777"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "shm", "/dev/shm"], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", "/dev/shm"], check=True)


def check(host: Host, group: Path, level: str) -> tuple[dict[str, Any], Findings]:
    """Check as a member of the group; return the report, and what is not in order by its name."""
    skip = ",".join((*MOMENTARY, *HEAVY))
    words = ("check", str(host.spec), level, "--skip", skip, "--json")
    done = inside(group, sys.executable, "-m", "hostprep", *words)
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == report["exit_code"], done.stderr
    bad = [each for each in report["checks"] if each["status"] in BAD]
    return report, {(each["code"], each["subject"]): each for each in bad}


def set_quota(group: Path, version: int) -> None:
    if version == 2:
        (group / "cpu.max").write_text("50000 100000")
    else:
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.cfs_quota_us").write_text("50000")


def test_seven_faults_are_found_and_their_remedies_cure_them(host: Host) -> None:
    version, parent = hierarchy("cpu")
    with cgroup(parent) as group:
        _, before = check(host, group, "--full")
        assert not {key for key in before if key[0] < "HP040"}, before

        subprocess.run(["umount", str(host.volume("lost"))], check=True)
        drifted = str(host.volume("drifted"))
        subprocess.run(["mount", "-o", "remount,size=32M", drifted], check=True)
        (host.sources["stale"] / "class-0" / "images" / "new.bin").write_bytes(b"new")
        flip_bit(host.volume("kept") / "damaged" / "class-1" / "images" / "002.bin")
        (server,) = far_share.servers(host.share_root)
        os.kill(server, signal.SIGSTOP)
        set_quota(group, version)
        with own_shm():
            report, found = check(host, group, "--full")
            assert report["verdict"] == "FAIL"
            planted = {
                ("HP001", str(host.volume("lost"))),
                ("HP002", drifted),
                ("HP012", "stale"),
                ("HP014", "far"),
                ("HP015", "damaged"),
                ("HP020", "/dev/shm"),
                ("HP030", "processor time"),
            }
            assert found.keys() - before.keys() == planted, found
            assert {found[key]["status"] for key in planted} == {"FAIL"}

            # Those that read nothing through are found within seconds too, also under the quota.
            _, found_quickly = check(host, group, "--quick")
            assert planted - found_quickly.keys() == {("HP015", "damaged")}, found_quickly

            for each in report["checks"]:
                if (each["code"], each["subject"]) in planted:
                    for line in each["remedy"]["commands"]:
                        done = host.shell(line)
                        assert done.returncode == 0, f"{line}: {done.stderr}{done.stdout}"

            _, after = check(host, group, "--full")
            assert after.keys() <= before.keys(), after
        source = host.volume("lost") / "lost" / "class-0" / "images" / "000.bin"
        assert (
            source.read_bytes()
            == (host.sources["lost"] / "class-0" / "images" / "000.bin").read_bytes()
        )


def test_many_sources_that_hang_take_no_longer_than_one(host: Host) -> None:
    """Asked one after another they would take longer than a quick check may."""
    names = [f"far-{number}" for number in range(5)]
    host.spec.write_text(
        f"volumes:\n  - {{path: {host.volume('kept')}, size: 64M}}\ndatasets:\n"
        + "".join(
            f"  - {{name: {name}, source: {host.share / name}, volume: {host.volume('kept')}}}\n"
            for name in names
        )
    )
    (server,) = far_share.servers(host.share_root)
    os.kill(server, signal.SIGSTOP)
    codes = ("HP010", "HP011", "HP012", "HP014")
    done = run_hostprep("check", host.spec, "--only", ",".join(codes), "--json")
    found = {(each["code"], each["subject"]): each for each in json.loads(done.stdout)["checks"]}
    for name in names:
        assert found["HP014", name]["measured"]["value"] == "hangs"
        assert found["HP010", name]["measured"]["value"] == "never"
    assert not [each for each in found.values() if each["status"] == "UNKNOWN"]


def test_a_target_that_hangs_hides_nothing_of_the_other_data_sets(host: Host) -> None:
    """Nor does it make a quick check wait until its time is over."""
    source, kept = host.sources["stale"], host.volume("kept")
    host.spec.write_text(
        f"volumes:\n  - {{path: {kept}, size: 64M}}\ndatasets:\n"
        f"  - {{name: near, source: {source}, volume: {kept}}}\n"
        f"  - {{name: away, source: {source}, to: {host.share / 'deep'}}}\n"
    )
    (server,) = far_share.servers(host.share_root)
    os.kill(server, signal.SIGSTOP)
    done = run_hostprep("check", host.spec, "--only", "HP010,HP011,HP012,HP014", "--json")
    found = {(each["code"], each["subject"]): each for each in json.loads(done.stdout)["checks"]}
    assert done.returncode == 3 and found["HP010", "near"]["measured"]["value"] == "never"
    assert found["HP010", "away"]["status"] == "UNKNOWN"
    assert "leads: no answer within" in found["HP010", "away"]["message"]
    assert [each["code"] for each in found.values() if each["status"] == "UNKNOWN"] == ["HP010"]
