"""NVIDIA's driver as the kernel shows it: the loaded module, the device nodes, the PCI devices."""

from __future__ import annotations

import os
import re
from pathlib import Path

from hostprep.dataclass import dataclass
from hostprep.host.reading import read_link, read_text

_NVIDIA = "0x10de"
_DISPLAY_CLASSES = ("0x0300", "0x0302")  # VGA and 3D controllers
# Drivers that hold a device for a virtual machine: vfio-pci and its variants for certain machines
# (nvgrace_gpu_vfio_pci), KVM's older one, Xen's.
_FOR_GUESTS = re.compile(r"vfio|^pci-stub$|^pciback$")
_VERSION = re.compile(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s")
_NODE = re.compile(r"nvidia(\d+|ctl|-uvm)")
# Signs of a driver without a module and such nodes: in WSL it is that of Windows, which puts its
# library there (NVIDIA, CUDA on WSL); that of a Jetson belongs to its kernel (nvgpu).
_OTHERS = {
    "WSL": (("dev/dxg", "usr/lib/wsl/lib/libcuda.so.1"),),
    "Jetson": (("dev/nvhost-gpu",), ("dev/nvgpu",)),
}


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """``module_version`` is that of the loaded kernel module, None if none is loaded.

    ``pci_devices`` are the addresses of NVIDIA's GPUs on the bus, except those passed to virtual
    machines, which do not concern the driver here; ``nodes`` are the device nodes that CUDA opens,
    ``closed_nodes`` those of them that this user may not read and write. ``other`` names a driver
    that has none of these: ``WSL`` or ``Jetson``.
    """

    module_version: str | None
    pci_devices: tuple[str, ...]
    nodes: tuple[str, ...]
    closed_nodes: tuple[str, ...]
    other: str | None = None

    @property
    def has_gpu(self) -> bool:
        """Return whether the bus or a device node shows a GPU."""
        return bool(self.pci_devices) or any(node[-1].isdigit() for node in self.nodes)


def read_driver(root: Path = Path("/")) -> DriverFacts:
    """Read ``/proc/driver/nvidia/version``, ``/dev/nvidia*`` and the PCI devices below ``root``."""
    nodes = [node for node in _names(root / "dev") if _NODE.fullmatch(node)]
    closed = [node for node in nodes if not os.access(root / "dev" / node, os.R_OK | os.W_OK)]
    devices = root / "sys/bus/pci/devices"
    return DriverFacts(
        module_version=_module_version(root),
        pci_devices=tuple(
            address for address in _names(devices) if _is_nvidia_gpu(devices / address)
        ),
        nodes=tuple(f"/dev/{node}" for node in nodes),
        closed_nodes=tuple(f"/dev/{node}" for node in closed),
        other=_other(root),
    )


def _other(root: Path) -> str | None:
    for name, signs in _OTHERS.items():
        if any(all(os.path.exists(root / path) for path in paths) for paths in signs):
            return name
    return None


def _module_version(root: Path) -> str | None:
    found = _VERSION.search(_read(root / "proc/driver/nvidia/version"))
    return found[1] if found else None


def _is_nvidia_gpu(device: Path) -> bool:
    return (
        _read(device / "vendor") == _NVIDIA
        and _read(device / "class").startswith(_DISPLAY_CLASSES)
        and not _FOR_GUESTS.search(driver_of(device))
    )


def driver_of(device: Path) -> str:
    """Return the name of the driver that a PCI device is bound to, "" if it is bound to none."""
    return os.path.basename(read_link(device / "driver"))


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _read(path: Path) -> str:
    return read_text(path) or ""
