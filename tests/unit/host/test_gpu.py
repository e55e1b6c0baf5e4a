"""NVML as a library file answers it, and the driver as the kernel shows it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from hostprep.host.gpu_driver import DriverFacts, read_driver
from tests.kit import fake_nvml

_ASK = """
import json
from dataclasses import asdict
from hostprep.host.gpu import read_nvml
print(json.dumps(asdict(read_nvml())))
"""
_SETTLE = """
import json
from hostprep.host.gpu import read_nvml
print(json.dumps([gpu.utilisation_percent for gpu in read_nvml(settle_seconds=1.5).gpus]))
"""
_REASONS = """
import json
from hostprep.host.gpu import read_nvml
print(json.dumps([gpu.clock_reasons for gpu in read_nvml(settle_seconds=0.1).gpus]))
"""
_WATCH = """
import json
from hostprep.host.gpu import lasting_reasons, watch_gpu
print(json.dumps(lasting_reasons(watch_gpu(0, 5))))
"""
_HOLD = """
import json
import pynvml
from hostprep.host.gpu import nvml_held, read_nvml

def answers():
    try:
        return pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        return str(error)

with nvml_held():
    read_nvml()
    held = answers()
print(json.dumps([held, answers()]))
"""


def ask(environment: dict[str, str], question: str = _ASK) -> Any:
    """Ask NVML in a process of its own: a library that was loaded stays."""
    done = subprocess.run(
        [sys.executable, "-c", question],
        env={**os.environ, **environment},
        capture_output=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_what_is_held_stays_open_when_others_have_asked(tmp_path: Path) -> None:
    held, after = ask(fake_nvml.build(tmp_path), _HOLD)
    assert held == 1
    assert after == "Uninitialized"
    # Where there is no driver there is nothing to hold, and no error either.
    held, _ = ask(fake_nvml.build(tmp_path, CODE=9), _HOLD)
    assert held == "Uninitialized"


def test_without_its_package_nvml_is_not_asked_and_nothing_breaks(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError('not here')\n")
    root = Path(__file__).parents[3]
    told = ask(
        {"PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"},
        "import json\nfrom hostprep.host.gpu import nvml_held, read_nvml\n"
        "with nvml_held():\n    print(json.dumps(read_nvml().problem))",
    )
    assert told == "nvidia-ml-py is not installed"


def test_two_devices_with_what_each_of_them_says(tmp_path: Path) -> None:
    found = ask(fake_nvml.build(tmp_path, DEVICES=2, BUSY=30, PROCESSES=2))
    assert found["code"] is None and found["problem"] is None
    assert (found["driver_version"], found["library_version"]) == ("550.54.14", "550.54.14")
    assert found["cuda_version"] == [12, 4]
    first, second = found["gpus"]
    assert (first["name"], second["name"]) == ("Fake GPU 0", "Fake GPU 1")
    assert first["pci_bus_id"] == "00000000:0a:00.0"
    assert first["total_bytes"] == 8 << 30 and first["used_bytes"] == 1 << 30
    assert (first["link_generation"], first["link_width"]) == (1, 8)
    assert (first["max_link_generation"], first["max_link_width"]) == (4, 16)
    assert first["utilisation_percent"] == 30 and first["clock_reasons"] == []
    assert first["processes"][1] == {"pid": 4001, "used_bytes": 1 << 20}
    assert first["persistence"] is True and second["persistence"] is False
    # What a device has not is unknown, not zero.
    assert (first["ecc"], first["ecc_uncorrected"]) == (True, 2)
    assert (second["ecc"], second["ecc_uncorrected"]) == (None, None)


def test_a_throttled_one(tmp_path: Path) -> None:
    (gpu,) = ask(fake_nvml.build(tmp_path, REASONS=0x40 | 0x8 | 0x4))["gpus"]
    assert gpu["clock_reasons"] == ["power cap", "hardware slowdown", "hardware thermal slowdown"]


def test_a_moment_s_slowdown_at_a_change_of_the_clocks_is_none(tmp_path: Path) -> None:
    assert ask(fake_nvml.build(tmp_path, GLITCH=0x8, REASONS=0x4), _WATCH) == ["power cap"]
    assert ask(fake_nvml.build(tmp_path, REASONS=0x8), _WATCH) == ["hardware slowdown"]
    # Who asks for the state of all of them, as the check does, is not told of it either.
    glitch = fake_nvml.build(tmp_path, DEVICES=2, GLITCH=0x8, REASONS=0x4)
    assert ask(glitch, _REASONS) == [["power cap"], ["power cap"]]
    brake = fake_nvml.build(tmp_path, DEVICES=2, GLITCH=0x8, REASONS=0x80)
    assert ask(brake, _REASONS) == [["power brake"], ["power brake"]]


def test_what_is_busy_without_a_process_is_looked_at_again(tmp_path: Path) -> None:
    # As a driver that has just been started for us is.
    assert ask(fake_nvml.build(tmp_path, BUSY=90, LOOKS=3), _SETTLE) == [0]
    began = time.monotonic()
    assert ask(fake_nvml.build(tmp_path, BUSY=90, DEVICES=3), _SETTLE) == [90, 90, 90]
    assert time.monotonic() - began > 1.4
    # Somebody computes there: it stays as it was seen, whatever comes in the next moment.
    assert ask(fake_nvml.build(tmp_path, BUSY=90, LOOKS=1, PROCESSES=1), _SETTLE) == [90]


def test_a_library_that_cannot_tell_of_processes(tmp_path: Path) -> None:
    (gpu,) = ask(fake_nvml.build(tmp_path, OLD=1))["gpus"]
    assert gpu["processes"] is None and gpu["total_bytes"] == 8 << 30


def test_devices_that_are_left_to_other_jobs_are_counted_apart(tmp_path: Path) -> None:
    found = ask(fake_nvml.build(tmp_path, DEVICES=4, CLOSED=0b1011))
    assert found["code"] is None and found["problem"] is None and found["closed"] == 3
    (gpu,) = found["gpus"]
    assert (gpu["index"], gpu["name"]) == (2, "Fake GPU 2")


def test_a_lost_device_hides_none_after_it(tmp_path: Path) -> None:
    found = ask(fake_nvml.build(tmp_path, DEVICES=4, CLOSED=0b0001, LOST=0b0010))
    assert found["code"] == 15 and "GPU 1" in found["problem"] and "GPU 0" not in found["problem"]
    assert [gpu["index"] for gpu in found["gpus"]] == [2, 3]
    assert (found["closed"], found["lost"]) == (1, 1)


def test_a_name_that_is_not_text_hides_no_device(tmp_path: Path) -> None:
    found = ask(fake_nvml.build(tmp_path, DEVICES=2, GARBLED=0b01))
    assert [gpu["name"] for gpu in found["gpus"]] == ["unknown GPU", "Fake GPU 1"]
    assert found["problem"] is None


def test_a_user_who_may_open_none_is_told_so(tmp_path: Path) -> None:
    found = ask(fake_nvml.build(tmp_path, DEVICES=2, CLOSED=0b11))
    assert found["code"] == 4 and found["gpus"] == [] and found["closed"] == 2
    assert "GPU 0" in found["problem"] and "GPU 1" in found["problem"]


def test_a_driver_without_a_device(tmp_path: Path) -> None:
    found = ask(fake_nvml.build(tmp_path, DEVICES=0))
    assert found["gpus"] == [] and found["code"] is None
    assert found["driver_version"] == "550.54.14"


@pytest.mark.parametrize(
    ("code", "words"),
    [(9, "Driver Not Loaded"), (18, "mismatch"), (4, "Insufficient Permissions"), (15, "lost")],
)
def test_why_it_does_not_start(tmp_path: Path, code: int, words: str) -> None:
    found = ask(fake_nvml.build(tmp_path, CODE=code))
    assert found["code"] == code and words in found["problem"]
    assert found["gpus"] == [] and found["driver_version"] is None
    # The library says which one it is even so: that is half of a mismatch.
    assert found["library_version"] == "550.54.14"


def test_no_library_at_all(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"not a library")
    found = ask({"LD_LIBRARY_PATH": str(tmp_path)})
    assert found["code"] == 12 and found["library_version"] is None


_CLOSED = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"
    "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
)
_OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14  Release Build"
    "  (dvs-builder@U16-A24-23-2)  Thu Feb 22 01:25:25 UTC 2024\n"
)


def host(root: Path, *, version: str = "", nodes: tuple[str, ...] = (), gpu: bool = False) -> Path:
    if version:
        (root / "proc/driver/nvidia").mkdir(parents=True)
        (root / "proc/driver/nvidia/version").write_text(version)
    (root / "dev").mkdir()
    for node in ("null", "nvidia-caps", *nodes):
        (root / "dev" / node).write_text("")
    devices = root / "sys/bus/pci/devices"
    for address, vendor, kind in (
        ("0000:00:02.0", "0x8086", "0x030000"),
        *((("0000:01:00.0", "0x10de", "0x030000"),) if gpu else ()),
        ("0000:01:00.1", "0x10de", "0x040300"),  # its sound device is no GPU
    ):
        (devices / address).mkdir(parents=True)
        (devices / address / "vendor").write_text(vendor + "\n")
        (devices / address / "class").write_text(kind + "\n")
    return root


@pytest.mark.parametrize(("text", "version"), [(_CLOSED, "535.104.05"), (_OPEN, "550.54.14")])
def test_the_kernels_module(tmp_path: Path, text: str, version: str) -> None:
    nodes = ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
    facts = read_driver(host(tmp_path, version=text, nodes=nodes, gpu=True))
    assert facts == DriverFacts(
        version,
        ("0000:01:00.0",),
        ("/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl"),
        (),
    )
    assert facts.has_gpu


def test_a_host_without_any_of_it(tmp_path: Path) -> None:
    facts = read_driver(host(tmp_path))
    assert facts == DriverFacts(None, (), (), ())
    assert not facts.has_gpu


@pytest.mark.parametrize(
    ("paths", "other"),
    [
        # A Windows without NVIDIA's driver has the device all the same.
        (("dev/dxg",), None),
        (("dev/dxg", "usr/lib/wsl/lib/libcuda.so.1"), "WSL"),
        (("dev/nvhost-gpu",), "Jetson"),
        (("dev/nvgpu/igpu0/ctrl",), "Jetson"),
    ],
)
def test_a_driver_that_is_none_of_this_kernel_s_modules(
    tmp_path: Path, paths: tuple[str, ...], other: str | None
) -> None:
    root = host(tmp_path)
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    assert read_driver(root) == DriverFacts(None, (), (), (), other)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_nodes_that_this_user_may_not_open() -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are closed to others
        root = Path(folder)
        root.chmod(0o755)
        host(root, version=_OPEN, nodes=("nvidia0", "nvidiactl"))
        (root / "dev/nvidia0").chmod(0o600)
        (root / "dev/nvidiactl").chmod(0o666)
        child = os.fork()
        if child == 0:
            os.setuid(65534)
            os._exit(read_driver(root).closed_nodes != ("/dev/nvidia0",))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
