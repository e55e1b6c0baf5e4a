"""One machine: emulated by QEMU, with a kernel, disks, memory and a power switch of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.kit.debian import KILLED_WITH_US
from tests.kit.remote import Remote
from tests.vm.kit.image import Image

# Whole machines by emulation work everywhere; where KVM works it is `kvm`, and ten times as fast.
ACCELERATOR = os.environ.get("HOSTPREP_TEST_ACCEL", "tcg,thread=multi")
BOOT_SECONDS = 240.0


@dataclass
class Machine(Remote):
    """A machine in ``folder``, off at first; all that it writes is in its overlay of the image.

    ``memory_bytes`` and ``devices`` (QEMU's options for more disks and the like) are what it has at
    the next start.
    """

    image: Image
    key: Path
    folder: Path
    memory_bytes: int = 2 << 30
    devices: tuple[str, ...] = ()
    _qemu: subprocess.Popen[bytes] | None = None
    _port: int = field(default=0, init=False)

    @property
    def ssh_words(self) -> list[str | Path]:
        """Return what stands before a command for it."""
        return [
            "ssh", "-i", self.key, "-p", str(self._port), "-o", "BatchMode=yes",
            "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
            "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=10", "root@127.0.0.1",
        ]  # fmt: skip

    @property
    def console(self) -> Path:
        """Return what the kernel and systemd said on the serial console, over all boots."""
        return self.folder / "console.log"

    def add_disk(self, name: str, device: str = "virtio-blk-pci", megabytes: int = 256) -> None:
        """Plug an empty disk in, from the next start on: ``device`` is QEMU's name and options."""
        disk = self.folder / f"{name}.raw"
        with disk.open("wb") as file:
            file.truncate(megabytes << 20)
        drive = f"file={disk},if=none,id={name},format=raw"
        self.devices += ("-drive", drive, "-device", f"{device},drive={name}")

    def start(self) -> None:
        """Power on, and wait until systemd has started all (or given some of it up)."""
        assert self._qemu is None, "it is on"
        own = self.folder / "disk.qcow2"
        if not own.exists():
            made = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw"]
            subprocess.run([*made, "-b", self.image.disk, own], check=True)
        self._port = _free_port()
        with self.console.open("ab") as console:
            self._qemu = subprocess.Popen(
                [*KILLED_WITH_US, "qemu-system-x86_64", "-accel", ACCELERATOR, "-cpu", "max",
                 "-smp", "2", "-m", f"{self.memory_bytes >> 20}M", "-nodefaults",
                 "-display", "none", "-no-reboot", "-serial", "stdio",
                 "-kernel", self.image.kernel, "-initrd", self.image.initrd,
                 "-append", "root=LABEL=root rw console=ttyS0",
                 "-drive", f"file={own},if=virtio,format=qcow2",
                 "-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{self._port}-:22",
                 "-device", "virtio-net-pci,netdev=net", *self.devices],
                stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT,
            )  # fmt: skip
        deadline = time.monotonic() + BOOT_SECONDS
        while self._qemu.poll() is None and time.monotonic() < deadline:
            with suppress(subprocess.TimeoutExpired):
                if self.ssh("systemctl is-system-running --wait", check=False).returncode != 255:
                    return
            time.sleep(1)
        raise AssertionError(f"it did not boot:\n{self.console.read_text()[-3000:]}")

    def reboot(self) -> None:
        """Tell it to reboot, as its admin would, and wait until it is up again."""
        self.ssh("systemctl reboot", check=False)
        self._gone(BOOT_SECONDS)  # by -no-reboot QEMU ends, so that devices may change
        self.start()

    def cut_power(self) -> None:
        """Take the power away: what was not flushed to its disks is lost."""
        assert self._qemu is not None, "it is off"
        self._qemu.send_signal(signal.SIGKILL)
        self._gone(60)

    def _gone(self, seconds: float) -> None:
        assert self._qemu is not None, "it is off"
        self._qemu.wait(timeout=seconds)
        self._qemu = None


@contextmanager
def machine(image: Image, key: Path, folder: Path) -> Iterator[Machine]:
    """Give a machine, off, to be started by who wants it; it is gone at the end, with its disks."""
    folder.mkdir()
    made = Machine(image, key, folder)
    try:
        yield made
    finally:
        if made._qemu is not None:
            made.cut_power()
        shutil.rmtree(folder)


def _free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        port: int = tried.getsockname()[1]
        return port
