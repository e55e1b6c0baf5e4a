"""The disk that machines boot from: Debian with its own kernel, hostprep as users have it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.kit import debian
from tests.kit.stagecraft import REPOSITORY

PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "udev", "linux-image-amd64", "initramfs-tools",
    "openssh-server", "python3", "python3-venv", "iproute2", "kmod", "procps", "fio",
    "mdadm", "lvm2", "cryptsetup-bin", "e2fsprogs", "xfsprogs", "nfs-kernel-server", "nfs-common",
)  # fmt: skip
ENABLED = ("systemd-networkd.service", "ssh.service", "serial-getty@ttyS0.service")
# What would reach out for what is not there, and a server that only some tests start.
MASKED = ("apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_all.timer", "man-db.timer")
_PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
_RECIPE = (debian.SUITE, PACKAGES, ENABLED, MASKED, _PROJECT["dependencies"])

_HOME = "/opt/hostprep"
# There is no package index inside; what is bytecode already need not be made by a slow machine.
_INSTALL = (
    "mount --bind {wheels} {root}/mnt; "
    f"env -i PATH=$PATH chroot {{root}} {_HOME}/bin/pip install -q --no-index"
    " --find-links /mnt {words} hostprep; "
    "umount {root}/mnt"
)
_SIZE_BYTES = 6 << 30


@dataclass(frozen=True)
class Image:
    """A disk image that is only read, and the kernel and initrd to boot it with."""

    disk: Path
    kernel: Path
    initrd: Path


def unavailable() -> str | None:
    """Return why there can be no image here, None where there can."""
    return debian.unavailable("vm", _RECIPE)


def make_image(folder: Path, public_key: str) -> Image:
    """Make the image in ``folder``: the cached system, this checkout, a key of root's.

    The system is made now if the cache has none of this recipe (some minutes, 1.3 GB).
    """
    base = debian.cached("vm", _RECIPE, _make)
    upper, work, root = (folder / name for name in ("upper", "work", "root"))
    for each in (upper, work, root):
        each.mkdir()
    for path, content in {
        "etc/hostname": "vm\n",
        "etc/hosts": "127.0.0.1 localhost\n127.0.1.1 vm\n",
        "etc/fstab": "# made by hand\nLABEL=root / ext4 defaults 0 1\n",
        "etc/systemd/network/10-all.network": "[Match]\nName=en*\n\n[Network]\nDHCP=ipv4\n",
        "root/.ssh/authorized_keys": public_key,
    }.items():
        (upper / path).parent.mkdir(parents=True, exist_ok=True)
        (upper / path).write_text(content)
    disk = folder / "disk.raw"
    with disk.open("wb") as file:
        file.truncate(_SIZE_BYTES)
    wheels = folder / "wheels"
    _pip("wheel", "--no-deps", "--wheel-dir", wheels, REPOSITORY)
    script = f"""
        mount -t overlay -o lowerdir="$1",upperdir="$2",workdir="$3" vm "$4"
        {_INSTALL.format(root='"$4"', wheels='"$5"', words="--force-reinstall --no-deps")}
        mke2fs -q -t ext4 -L root -d "$4" "$6"
    """
    _in_a_namespace(script, base, upper, work, root, wheels, disk)
    boot = base / "boot"
    return Image(disk, *(next(boot.glob(f"{name}-*")) for name in ("vmlinuz", "initrd.img")))


def _make(root: Path) -> None:
    debian.bootstrap(root, PACKAGES, ENABLED, MASKED)
    subprocess.run(["chroot", root, "python3", "-m", "venv", _HOME], check=True)
    (root / "usr/local/bin/hostprep").symlink_to(f"{_HOME}/bin/hostprep")
    version = next((root / _HOME[1:] / "lib").iterdir()).name.removeprefix("python")
    with tempfile.TemporaryDirectory() as name:
        _pip("wheel", "--no-deps", "--wheel-dir", name, REPOSITORY)
        _pip(
            "download", "--dest", name, "--only-binary", ":all:", "--python-version", version,
            *Path(name).glob("*.whl"),
        )  # fmt: skip
        _in_a_namespace(_INSTALL.format(root='"$1"', wheels='"$2"', words=""), root, name)


def _pip(*words: str | Path) -> None:
    words = ("--quiet", "--disable-pip-version-check", *words)
    subprocess.run([sys.executable, "-m", "pip", *words], check=True, stdin=subprocess.DEVNULL)


def _in_a_namespace(script: str, *words: str | Path) -> None:
    line = ["unshare", "--mount", "--", "sh", "-euc", script, "image", *words]
    subprocess.run(line, check=True, stdin=subprocess.DEVNULL)
