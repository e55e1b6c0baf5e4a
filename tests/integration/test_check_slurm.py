"""The prolog of docs/check.md in a real Slurm of one node: FAIL drains it, UNKNOWN does not."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.test_check import BOTH, EVERY_VERDICT, blocks

_PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo")
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Slurm:
    """A cluster below ``folder``."""

    folder: Path

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}
        return subprocess.run(
            words, capture_output=True, text=True, check=False, env=env, timeout=_PATIENCE_SECONDS
        )

    def state(self) -> str:
        return self.run("sinfo", "--noheader", "--format=%T").stdout.strip()

    def wait_for(self, *states: str) -> str:
        """Wait until the node is in one of ``states``, and return it."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (state := self.state()) not in states:
            logs = "".join(log.read_text() for log in self.folder.glob("*.log"))
            assert time.monotonic() < deadline, f"the node is {state!r}: {logs[-3000:]}"
            time.sleep(0.2)
        return state

    def lead_to(self, verdict: str) -> None:
        """Let the prolog's check come to ``verdict``."""
        wanted, record = EVERY_VERDICT[verdict]
        kept = {"schema": "hostprep.recommend/1", "unix_seconds": 0, "shm_bytes": wanted}
        (self.folder / "hostprep/last/recommend.json").write_text(json.dumps(kept))
        damaged = self.folder / "hostprep/datasets/city-0123456789"
        shutil.rmtree(damaged, ignore_errors=True)
        if record is not None:
            damaged.mkdir(parents=True)
            (damaged / "dataset.json").write_text(record)


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Slurm]:
    if missing := [name for name in _PROGRAMS if shutil.which(name) is None]:
        pytest.skip(
            f"no {', '.join(missing)} here: apt-get install slurmctld slurmd slurm-client munge"
        )
    # Below /run and not in pytest's folder: munge wants every parent to be closed to others.
    folder = Path("/run") / f"hostprep-slurm-{os.getpid()}"
    for name in ("state", "spool", "prolog.d", "hostprep/last"):
        (folder / name).mkdir(parents=True)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        _configure(folder)
        for command in (
            ["munged", "--foreground", "--force", f"--socket={folder}/munge.sock",
             f"--key-file={folder}/munge.key", f"--pid-file={folder}/munged.pid",
             f"--log-file={folder}/munged.log", f"--seed-file={folder}/munge.seed"],
            ["slurmctld", "-D", "-c", "-f", f"{folder}/slurm.conf"],
            ["slurmd", "-D", "-f", f"{folder}/slurm.conf", "-N", socket.gethostname()],
        ):  # fmt: skip
            process = stack.enter_context(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
            stack.callback(process.kill)
            time.sleep(0.5)
        cluster = Slurm(folder)
        cluster.wait_for("idle")
        yield cluster


def _configure(folder: Path) -> None:
    (folder / "munge.key").write_bytes(os.urandom(64))
    (folder / "munge.key").chmod(0o600)
    (folder / "hostprep.yml").write_text("{}")
    (folder / "check").write_text(
        f"#!/bin/sh\nHOSTPREP_STATE_DIR={folder}/hostprep"
        f' exec {shlex.quote(sys.executable)} -m hostprep "$@" --only {BOTH}\n'
    )
    (script,) = blocks("sh", "SLURM_JOB_ID")
    prolog = folder / "prolog.d/50-hostprep"
    for theirs, ours in (
        ("/usr/local/bin/hostprep", f"{folder}/check"),
        ("/etc/hostprep", str(folder)),
        ("/run/hostprep-check", f"{folder}/report"),
        ("logger -t hostprep", f"echo >>{folder}/logged"),
    ):
        assert theirs in script
        script = script.replace(theirs, ours)
    prolog.write_text(script)
    for program in (prolog, folder / "check"):
        program.chmod(0o755)
    name = socket.gethostname()
    settings = {
        "ClusterName": "trial",
        "SlurmctldHost": f"{name}(127.0.0.1)",
        "SlurmUser": "root",
        "SlurmdUser": "root",
        "AuthInfo": f"socket={folder}/munge.sock",
        "SlurmctldPort": _free_port(),
        "SlurmdPort": _free_port(),
        "SlurmctldPidFile": folder / "slurmctld.pid",
        "SlurmdPidFile": folder / "slurmd.pid",
        "StateSaveLocation": folder / "state",
        "SlurmdSpoolDir": folder / "spool",
        "SlurmctldLogFile": folder / "slurmctld.log",
        "SlurmdLogFile": folder / "slurmd.log",
        "ProctrackType": "proctrack/pgid",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "MpiDefault": "none",
        "Prolog": folder / "prolog.d/*",
        "PrologFlags": "Alloc",
    }
    lines = [f"{key}={value}" for key, value in settings.items()]
    lines += [
        f"NodeName={name} NodeAddr=127.0.0.1 State=UNKNOWN",
        "PartitionName=all Nodes=ALL Default=YES State=UP",
    ]
    (folder / "slurm.conf").write_text("\n".join(lines) + "\n")


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def test_fail_drains_the_node_and_unknown_does_not(slurm: Slurm) -> None:
    for verdict in ("PASS", "UNKNOWN"):
        slurm.lead_to(verdict)
        done = slurm.run("srun", "--immediate=30", "echo", "trained")
        assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
        assert json.loads((slurm.folder / "report.json").read_text())["verdict"] == verdict
        slurm.wait_for("idle")
    assert "the check ended with 4: UNKNOWN" in (slurm.folder / "logged").read_text()

    slurm.lead_to("FAIL")
    try:
        done = slurm.run("srun", "--immediate=30", "echo", "trained")
    except subprocess.TimeoutExpired as error:  # it waits for another node
        assert not error.stdout
    else:
        assert "trained" not in done.stdout
    slurm.wait_for("drained", "draining")
    assert "Prolog error" in slurm.run("sinfo", "-R").stdout
    assert json.loads((slurm.folder / "report.json").read_text())["verdict"] == "FAIL"
    assert "the check ended with 3: FAIL: 1 FAIL" in (slurm.folder / "logged").read_text()
