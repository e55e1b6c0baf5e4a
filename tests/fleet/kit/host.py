"""One host: a writable layer over the base system, booted by systemd-nspawn, reached by SSH."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.fleet.kit.fence import Fence
from tests.kit.remote import Remote

REBOOTED = 133  # how systemd-nspawn --keep-unit ends when the host inside reboots
BOOT_SECONDS = 90.0
_SERVICES_OWN = ("var/log", "var/lib/systemd", "var/tmp", "root/.ansible")


@dataclass
class Host(Remote):
    """A Debian host; ``layers`` are its read-only folders, the topmost first.

    ``shared`` is what other machines serve to it: mount points inside to folders outside, taken
    as they are at each boot. All that the host writes is in memory, and ends with the fence.
    """

    name: str
    address: str
    fence: Fence
    folder: Path
    layers: tuple[Path, ...]
    log: Path
    ssh_config: Path
    shared: dict[str, Path] = field(default_factory=dict)
    _nspawn: subprocess.Popen[bytes] | None = None

    @property
    def ssh_words(self) -> list[str | Path]:
        """Return what stands before a command for it."""
        return ["ssh", "-F", self.ssh_config, self.name]

    @property
    def root(self) -> Path:
        """Return the host's root folder; it can be seen only inside the fence."""
        return self.folder / "root"

    def install(self, files: Mapping[str, str]) -> None:
        """Make the host's disk, with these files (path to content) beyond the base system's."""
        upper, work = self.folder / "upper", self.folder / "work"
        self.fence.run("mkdir", "-p", upper, work, self.root)
        lower = ":".join(map(str, self.layers))
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        self.fence.run("mount", "-t", "overlay", "-o", options, self.name, self.root)
        for path, content in files.items():
            self.write(path, content)

    def write(self, path: str, content: str, mode: str = "0644") -> None:
        """Write a file of the host, running or not."""
        script = 'umask 022; mkdir -p "${1%/*}"; cat >"$1"; chmod "$2" "$1"'
        line = [*self.fence.entering(), "sh", "-ec", script, "write", f"{self.root}{path}", mode]
        subprocess.run(line, input=content.encode(), check=True)

    def start(self) -> None:
        """Power on, without waiting for anything."""
        assert self._nspawn is None, f"{self.name} is on"
        binds = [f"--bind-ro={folder}:{inside}" for inside, folder in self.shared.items()]
        nspawn = [
            "systemd-nspawn", "--quiet", "--directory", str(self.root), "--boot",
            "--register=no", "--keep-unit", "--network-bridge=fleet0", "--machine", self.name,
            "--console=pipe", "--resolv-conf=off", "--timezone=off", *binds,
        ]  # fmt: skip
        # A control group of its own, by which all of the host can be ended at once.
        script = 'mkdir -p "$0"; echo 0 >"$0/cgroup.procs"; exec "$@"'
        with self.log.open("ab") as log:
            self._nspawn = subprocess.Popen(
                [*self.fence.entering(), "sh", "-ec", script, self._group, *nspawn],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    @property
    def _group(self) -> str:
        return f"/sys/fs/cgroup/{self.name}"

    def wait_until_up(self) -> str:
        """Wait until the host has booted; return systemd's word for it (running, degraded)."""
        self.wait_for_ssh()
        return self.ssh("systemctl is-system-running --wait", check=False).stdout.strip()

    def wait_for_ssh(self) -> None:
        """Wait until one can log in, whatever the boot is still at."""
        deadline = time.monotonic() + BOOT_SECONDS
        while self._nspawn is not None and self._nspawn.poll() is None:
            if self.ssh("true", check=False).returncode == 0:
                return
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
        raise AssertionError(f"{self.name} did not boot:\n{self.log.read_text()[-3000:]}")

    def reboot(self) -> str:
        """Tell the host to reboot, as its admin would; return systemd's word once it is up."""
        self.restart()
        return self.wait_until_up()

    def restart(self) -> None:
        """Tell the host to reboot, and power it on again when it is down; do not wait for more."""
        self.ssh("systemctl reboot", check=False)
        assert self._gone() == REBOOTED, self.log.read_text()[-3000:]
        self.start()

    def power_off(self) -> None:
        """Cut the power: nothing in the host is told, and nobody hears of it."""
        # First the cable, or the kernel would tell the other ends that connections are closed.
        self.fence.run("ip", "link", "delete", f"vb-{self.name}")
        self.fence.run("sh", "-c", f"echo 1 >{self._group}/cgroup.kill")
        self._gone()
        # A group remembers that it was killed: what a later systemd than that of Debian 12 starts
        # from such a group in a new one, was seen to be killed as well.
        remove = 'until find "$0" -depth -type d -exec rmdir {} + 2>&-; do sleep 0.05; done'
        self.fence.run("sh", "-c", remove, self._group)

    def _gone(self) -> int:
        assert self._nspawn is not None, f"{self.name} is off"
        code = self._nspawn.wait(timeout=60)
        self._nspawn = None
        return code

    def traces(self) -> str:
        """Return what the host has on its disk and mounted, but for what its own services write.

        Two traces that are equal show that nothing was changed in between.
        """
        upper = self.folder / "upper"
        left_out = [word for name in _SERVICES_OWN for word in ("-path", upper / name, "-o")][:-1]
        files = self.fence.run(
            "find", upper, "(", *left_out, ")", "-prune",
            "-o", "-type", "d", "-printf", "%P %M %U %G\\n",
            "-o", "-printf", "%P %M %U %G %s %T@ %l\\n",
        )  # fmt: skip
        mounts = self.ssh("findmnt --kernel --raw --noheadings -o TARGET,SOURCE,FSTYPE,OPTIONS")
        return "".join(sorted(files.stdout.splitlines(keepends=True))) + mounts.stdout
