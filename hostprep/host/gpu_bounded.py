"""The GPUs, queried in a child process: a driver that hangs blocks whoever asks it."""

from __future__ import annotations

from dataclasses import asdict

from hostprep.host.gpu import TIMEOUT, UNKNOWN, Nvml, read_nvml
from hostprep.host.gpu_driver import read_driver
from hostprep.system.bounded import NoAnswerInTime, ask_in_child
from hostprep.system.typed_json import from_json

# Without persistence mode a driver starts each GPU anew when queried: seconds for each.
_FIRST_SECONDS, _GPU_SECONDS = 10.0, 7.0


def ask_nvml(*, settle_seconds: float = 0.0) -> Nvml:
    """Return the result of ``read_nvml``; only a ``problem`` if the driver does not answer."""
    patience = _FIRST_SECONDS + _GPU_SECONDS * len(read_driver().pci_devices)
    try:
        found = ask_in_child(
            lambda: asdict(read_nvml(settle_seconds=settle_seconds)), patience_seconds=patience
        )
    except NoAnswerInTime:
        return _silent(TIMEOUT, f"NVML has not answered for {patience:.0f} s: the driver hangs")
    except ChildProcessError as error:
        return _silent(UNKNOWN, f"NVML does not answer: {error}")
    return from_json(Nvml, found)


def _silent(code: int, problem: str) -> Nvml:
    return Nvml(code, problem, None, None, None, ())
